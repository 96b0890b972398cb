/* The rules of point_to_point.c about datatypes, communicators and load. */
#include "checked.h"

extern void rule_check(int condition, const char* what);

static const char* const kWhat = "point_to_point";

/* 4.1: derived types on either side, in pieces, with gaps, offsets below 0, and freed before the end (4.1.9) */
static void derived(void) {
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    enum { kSpan = 600000 };
    unsigned char *const a = allocate(kSpan), *const b = allocate(kSpan), *const packed = allocate(kSpan),
                         *const wanted = allocate(kSpan);
    for (int i = 0; i < 9; i++) {
        const int blocks = i < 3 ? 3 : i < 6 ? 900 : 30000;
        MPI_Datatype type;
        if (i % 3 == 0) {
            MPI_Type_vector(blocks, 5, 17, MPI_BYTE, &type);
        } else if (i % 3 == 1) {
            int* const lengths = allocate(sizeof(int) * (size_t)blocks);
            int* const places = allocate(sizeof(int) * (size_t)blocks);
            for (int k = 0; k < blocks; k++) lengths[k] = 1 + k % 4, places[k] = 19 * (blocks - 1 - k); /* backwards */
            MPI_Type_indexed(blocks, lengths, places, MPI_BYTE, &type);
            free(lengths), free(places);
        } else {
            MPI_Datatype parts[2] = {MPI_SHORT, MPI_DOUBLE}, one;
            MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){2, 8}, parts, &one);
            MPI_Datatype resized;
            MPI_Type_create_resized(one, 0, 18, &resized);
            MPI_Type_contiguous(blocks, resized, &type);
            MPI_Type_free(&one), MPI_Type_free(&resized);
        }
        MPI_Type_commit(&type);
        int size, at = 0;
        MPI_Type_size(type, &size);
        /* What the neighbour sends, packed: */
        fill(a, kSpan, from, rank, i);
        MPI_Pack(a, 1, type, wanted, kSpan, &at, MPI_COMM_WORLD);
        fill(a, kSpan, rank, to, i);
        /* derived to contiguous */
        MPI_Request request, receive;
        MPI_Status status;
        MPI_Isend(a, 1, type, to, 60, MPI_COMM_WORLD, &request);
        memset(b, 0, kSpan);
        MPI_Recv(b, kSpan, MPI_BYTE, from, 60, MPI_COMM_WORLD, &status);
        int count;
        MPI_Get_count(&status, MPI_BYTE, &count);
        rule_check(count == size && !memcmp(b, wanted, (size_t)size), "derived to contiguous");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        /* derived to derived, the type freed while both are open; gaps are not written */
        memset(b, 0xee, kSpan);
        MPI_Irecv(b, 1, type, from, 61, MPI_COMM_WORLD, &receive);
        MPI_Issend(a, 1, type, to, 61, MPI_COMM_WORLD, &request);
        MPI_Datatype copy;
        MPI_Type_dup(type, &copy);
        MPI_Type_free(&type);
        MPI_Wait(&receive, &status);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        at = 0;
        MPI_Pack(b, 1, copy, packed, kSpan, &at, MPI_COMM_WORLD);
        rule_check(at == size && !memcmp(packed, wanted, (size_t)size), "derived to derived");
        unsigned char* const mask = allocate(kSpan);
        memset(mask, 0xee, kSpan);
        at = 0;
        MPI_Unpack(wanted, size, &at, mask, 1, copy, MPI_COMM_WORLD);
        rule_check(!memcmp(mask, b, kSpan), "gaps of a derived type were written");
        /* contiguous to derived, and an incomplete one */
        for (int part = size; part > 0; part = part > size / 2 ? size / 3 : 0) {
            MPI_Isend(wanted, part, MPI_BYTE, to, 62, MPI_COMM_WORLD, &request);
            memset(b, 0xee, kSpan);
            MPI_Recv(b, 1, copy, from, 62, MPI_COMM_WORLD, &status);
            MPI_Get_elements(&status, copy, &count);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            MPI_Get_count(&status, MPI_BYTE, &count);
            rule_check(count == part, "an incomplete derived message");
        }
        free(mask);
        MPI_Type_free(&copy);
    }
    /* 4.1.7: absolute addresses below, and a lower bound that is not 0 */
    MPI_Aint place;
    MPI_Datatype absolute;
    fill(a, 9000, rank, to, 70);
    MPI_Get_address(a + 100, &place);
    MPI_Type_create_hindexed(1, (int[]){8500}, &place, MPI_BYTE, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Sendrecv(MPI_BOTTOM, 1, absolute, to, 63, b, 9000, MPI_BYTE, from, 63, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    fill(wanted, 9000, from, rank, 70);
    rule_check(!memcmp(b, wanted + 100, 8500), "MPI_BOTTOM");
    MPI_Type_free(&absolute);
    MPI_Datatype before;
    MPI_Type_create_hvector(3, 1000, -3000, MPI_BYTE, &before);
    MPI_Type_commit(&before);
    MPI_Sendrecv(a + 6000, 1, before, to, 64, b, 9000, MPI_BYTE, from, 64, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int k = 0; k < 3; k++)
        rule_check(!memcmp(b + 1000 * k, wanted + 6000 - 3000 * k, 1000), "blocks before the buffer");
    MPI_Type_free(&before);
    free(a), free(b), free(packed), free(wanted);
}

/* 6.1, 6.4: messages stay in their communicator, also when it is freed before they have come */
static void communicators(void) {
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int turn = 0; turn < 5; turn++) {
        MPI_Comm comm[3];
        for (int i = 0; i < 3; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
        MPI_Request sends[3], receives[3];
        int values[3], received[3] = {-1, -1, -1};
        for (int i = 2; i >= 0; i--) {
            values[i] = 1000 * rank + i;
            MPI_Isend(&values[i], 1, MPI_INT, to, 5, comm[i], &sends[i]);
        }
        for (int i = 0; i < 3; i++)
            MPI_Irecv(&received[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm[i], &receives[i]);
        for (int i = 0; i < 3; i++) MPI_Comm_free(&comm[i]); /* open operations go on */
        MPI_Waitall(3, receives, MPI_STATUSES_IGNORE);
        MPI_Waitall(3, sends, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 3; i++) rule_check(received[i] == 1000 * from + i, "a message of another communicator");
    }
    /* 6.4.2: ranks are those of the communicator; who makes it late gets what came early */
    for (int turn = 0; turn < 5; turn++) {
        MPI_Comm turned;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &turned);
        int mine, size, value = -1;
        MPI_Comm_rank(turned, &mine);
        MPI_Comm_size(turned, &size);
        MPI_Status status;
        if (mine == 0)
            for (int peer = 1; peer < size; peer++) MPI_Send(&peer, 1, MPI_INT, peer, turn, turned);
        else {
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, turned, &status);
            rule_check(value == mine && status.MPI_SOURCE == 0 && status.MPI_TAG == turn,
                       "ranks of a new communicator");
        }
        MPI_Comm_free(&turned);
    }
}

/* 6.6: between two groups */
static void between(void) {
    if (ranks < 2) return;
    MPI_Comm half, inter, merged;
    const int low = rank < ranks / 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? ranks / 2 : 0, 33, &inter);
    int mine, remote;
    MPI_Comm_rank(inter, &mine);
    MPI_Comm_remote_size(inter, &remote);
    unsigned char* const data = allocate(50000);
    for (int bytes = 1; bytes < 50000; bytes *= 37) {
        MPI_Request* const requests = allocate((size_t)remote * sizeof *requests);
        unsigned char** const all = allocate((size_t)remote * sizeof *all);
        for (int peer = 0; peer < remote; peer++) {
            all[peer] = allocate((size_t)bytes);
            fill(all[peer], (size_t)bytes, mine + 100 * low, peer, bytes);
            MPI_Isend(all[peer], bytes, MPI_BYTE, peer, 3, inter, &requests[peer]);
        }
        for (int peer = 0; peer < remote; peer++) {
            MPI_Status status;
            MPI_Probe(MPI_ANY_SOURCE, 3, inter, &status);
            MPI_Recv(data, bytes, MPI_BYTE, status.MPI_SOURCE, 3, inter, &status);
            verify(data, (size_t)bytes, status.MPI_SOURCE + 100 * !low, mine, bytes, kWhat);
        }
        MPI_Waitall(remote, requests, MPI_STATUSES_IGNORE);
        for (int peer = 0; peer < remote; peer++) free(all[peer]);
        free(requests), free(all);
        MPI_Barrier(inter); /* the next size is not for these receives */
    }
    MPI_Intercomm_merge(inter, low, &merged);
    int sum = 0, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, merged);
    rule_check(sum == ranks, "a merged communicator");
    MPI_Comm_free(&merged), MPI_Comm_free(&inter), MPI_Comm_free(&half);
    free(data);
}

/* 3.2.3: tags up to MPI_TAG_UB */
static void tags(void) {
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    int *upper, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &upper, &flag);
    rule_check(flag && *upper >= 32767, "MPI_TAG_UB");
    const int all[] = {0, 1, 32767, 8388607 < *upper ? 8388607 : 5, 8388608 < *upper ? 8388608 : 6, *upper - 1, *upper};
    for (int i = 6; i >= 0; i--) {
        MPI_Request request;
        MPI_Status status;
        int value = -1;
        MPI_Isend(&i, 1, MPI_INT, to, all[i], MPI_COMM_WORLD, &request);
        MPI_Recv(&value, 1, MPI_INT, from, i % 2 ? all[i] : MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        rule_check(value == i && status.MPI_TAG == all[i], "a large tag");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* 3.5: progress: sends in one order, receives in the other, more than any queue takes */
static void flood(void) {
    enum { kMessages = 3000 };
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request* const requests = allocate(2 * kMessages * sizeof *requests);
    int(*const values)[16] = allocate(2 * kMessages * sizeof *values);
    for (int i = 0; i < kMessages; i++) {
        for (int k = 0; k < 16; k++) values[i][k] = rank + i * k;
        MPI_Isend(values[i], i % 16 + 1, MPI_INT, to, i, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = kMessages - 1; i >= 0; i--)
        MPI_Irecv(values[kMessages + i], 16, MPI_INT, i % 4 ? from : MPI_ANY_SOURCE, i, MPI_COMM_WORLD,
                  &requests[kMessages + i]);
    MPI_Waitall(2 * kMessages, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < kMessages; i++)
        for (int k = 0; k <= i % 16; k++) rule_check(values[kMessages + i][k] == from + i * k, "a value of many");
    free(requests), free(values);
}

/* 3.5, 3.7.4: many small messages started one after the other keep their order, with others among them of all sizes and
 * modes; whose request was freed arrives as well, and the first are there before the last are waited for */
static void bursts(void) {
    enum { kMessages = 300, kLarge = 20000 };
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request requests[kMessages];
    unsigned char** const data = allocate(kMessages * sizeof *data);
    unsigned char* const in = allocate(2 * kLarge);
    MPI_Datatype gaps;
    MPI_Type_vector(10, 1, 2, MPI_BYTE, &gaps);
    MPI_Type_commit(&gaps);
    for (int turn = 0; turn < 4; turn++) {
        int waits = 0;
        for (int i = 0; i < kMessages; i++) {
            const int bytes = i % 17 == 5 ? 0 : i % 29 == 7 ? kLarge : i % 31 == 9 ? 700 : i % 250;
            data[i] = allocate(kLarge);
            fill(data[i], (size_t)bytes, rank, to, i);
            MPI_Request* const request = &requests[waits];
            waits++;
            if (i % 23 == 3)
                MPI_Issend(data[i], bytes, MPI_BYTE, to, 8, MPI_COMM_WORLD, request);
            else if (i % 41 == 11 && turn % 2)
                MPI_Isend(data[i], 1, gaps, to, 8, MPI_COMM_WORLD, request);
            else
                MPI_Isend(data[i], bytes, MPI_BYTE, to, 8, MPI_COMM_WORLD, request);
            if (i % 37 == 13) MPI_Request_free(request), waits--;
        }
        if (turn > 1) MPI_Send(&turn, 1, MPI_INT, to, 9, MPI_COMM_WORLD); /* behind all of them */
        if (turn > 1) {
            int value, found, behind;
            MPI_Recv(&value, 1, MPI_INT, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Iprobe(from, 8, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
            MPI_Iprobe(from, 9, MPI_COMM_WORLD, &behind, MPI_STATUS_IGNORE);
            rule_check(value == turn && found && !behind, "a message overtook a burst");
        }
        for (int i = 0; i < kMessages; i++) {
            const int bytes = i % 17 == 5 ? 0 : i % 29 == 7 ? kLarge : i % 31 == 9 ? 700 : i % 250;
            MPI_Status status;
            MPI_Recv(in, 2 * kLarge, MPI_BYTE, from, i % 2 ? 8 : MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            int count;
            MPI_Get_count(&status, MPI_BYTE, &count);
            if (i % 41 == 11 && turn % 2 && i % 23 != 3) {
                unsigned char* const wanted = allocate(kLarge);
                fill(wanted, (size_t)bytes, from, rank, i);
                for (int k = 0; k < 10 && 2 * k < bytes; k++)
                    rule_check(in[k] == wanted[2 * k], "a derived one in a burst");
                rule_check(count == 10, "the length of a derived one in a burst");
                free(wanted);
            } else {
                rule_check(count == bytes, "the order of a burst");
                verify(in, (size_t)bytes, from, rank, i, "3.5 bursts");
            }
        }
        MPI_Waitall(waits, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < kMessages; i++) free(data[i]);
    }
    MPI_Type_free(&gaps);
    free(data), free(in);
}

/* 3.6: a buffered send is local: that there is no room is said at once, also while the buffer's messages are waited for
 */
static void full_buffer(void) {
    enum { kEach = 300000 };
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *const room = allocate(kEach + MPI_BSEND_OVERHEAD), *const data = allocate(kEach);
    MPI_Buffer_attach(room, kEach + MPI_BSEND_OVERHEAD);
    fill(data, kEach, rank, to, 5);
    MPI_Bsend(data, kEach, MPI_BYTE, to, 21, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    double best = 10;
    for (int i = 0; i < 5; i++) {
        const double begin = MPI_Wtime();
        int class = MPI_SUCCESS;
        MPI_Error_class(MPI_Bsend(data, kEach, MPI_BYTE, to, 22, MPI_COMM_WORLD), &class);
        rule_check(class == MPI_ERR_BUFFER, "no room in a full buffer");
        if (MPI_Wtime() - begin < best) best = MPI_Wtime() - begin;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    /* Nobody receives yet: who waited for room would do so for longer. */
    rule_check(best < 1, "that a buffer is full is said at once");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(data, kEach, MPI_BYTE, from, 21, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    verify(data, kEach, from, rank, 5, "3.6 a full buffer");
    void* address;
    int bytes;
    MPI_Buffer_detach(&address, &bytes);
    free(room), free(data);
}

/* 3.8.3: a matched message that is longer than its buffer is received, too, and its communicator is nobody's any more:
 * its Fortran index is given to the next one. */
static void too_long(void) {
    enum { kRounds = 20 };
    MPI_Fint first = 0;
    for (int i = 0; i < kRounds; i++) {
        MPI_Comm comm;
        MPI_Message message;
        MPI_Request request;
        unsigned char data[16] = {0};
        int class = MPI_SUCCESS;
        MPI_Comm_dup(MPI_COMM_SELF, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        if (i == 0) first = MPI_Comm_c2f(comm);
        rule_check(MPI_Comm_c2f(comm) == first, "a communicator stays behind a message that was too long");
        MPI_Isend(data, 16, MPI_BYTE, 0, 1, comm, &request);
        MPI_Mprobe(0, 1, comm, &message, MPI_STATUS_IGNORE);
        MPI_Error_class(MPI_Mrecv(data, 8, MPI_BYTE, &message, MPI_STATUS_IGNORE), &class);
        rule_check(class == MPI_ERR_TRUNCATE, "a matched message that is too long");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Comm_free(&comm);
    }
}

/* 3.7.5: the error of a request is its own. Those that are waited for beside it stay active, and get their messages,
 * also where the library uses memory again that was of one that had failed. */
enum { kFails = 4, kTooLong = 100, kRoom = 10 };

/* One that fails, and is told of alone. */
static void fail_once(int from, MPI_Comm comm, int by, MPI_Datatype gaps) {
    unsigned char data[2 * kRoom];
    MPI_Request request;
    MPI_Message message;
    int class = MPI_SUCCESS;
    if (by == 0) MPI_Irecv(data, kRoom, MPI_BYTE, from, 1, comm, &request);
    if (by == 1) MPI_Irecv(data, 1, gaps, from, 1, comm, &request);
    if (by == 2) {
        MPI_Mprobe(from, 1, comm, &message, MPI_STATUS_IGNORE);
        MPI_Imrecv(data, kRoom, MPI_BYTE, &message, &request);
    }
    MPI_Error_class(MPI_Wait(&request, MPI_STATUS_IGNORE), &class);
    rule_check(class == MPI_ERR_TRUNCATE, "a message that is too long");
}

/* Two are waited for, of which the second fails. */
static void wait_beside_a_failure(MPI_Request* two, int way) {
    MPI_Status statuses[2];
    int result = MPI_SUCCESS, class = MPI_SUCCESS, index = 0, flag = 0, count = 0, indices[2] = {0, 0};
    if (way == 0) result = MPI_Waitany(2, two, &index, statuses);
    while (way == 1 && !flag && result == MPI_SUCCESS) result = MPI_Testany(2, two, &index, &flag, statuses);
    if (way == 2) result = MPI_Waitsome(2, two, &count, indices, statuses);
    while (way == 3 && count == 0 && result == MPI_SUCCESS) result = MPI_Testsome(2, two, &count, indices, statuses);
    if (way >= 2) {
        rule_check(result == MPI_ERR_IN_STATUS && count == 1, "one of some that has failed");
        index = indices[0];
        result = statuses[0].MPI_ERROR;
    }
    MPI_Error_class(result, &class);
    rule_check(class == MPI_ERR_TRUNCATE && index == 1, "one of two that has failed");
    rule_check(two[1] == MPI_REQUEST_NULL, "one that has failed is left");
    rule_check(two[0] != MPI_REQUEST_NULL, "one that is active is gone with another's error");
}

static void after_an_error(void) {
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char out[kTooLong], in[2 * kRoom], other[kRoom];
    MPI_Datatype gaps;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Type_vector(kRoom, 1, 2, MPI_BYTE, &gaps);
    MPI_Type_commit(&gaps);
    for (int turn = 0; turn < 3 * 3 * 4; turn++) {
        const int by = turn % 3, then = turn / 3 % 3, way = turn / 9;
        MPI_Request two[2];
        for (int i = 0; i < kTooLong; i++) out[i] = (unsigned char)(turn + i);
        for (int i = 0; i < kFails; i++) MPI_Send(out, kTooLong, MPI_BYTE, to, 1, comm);
        for (int i = 0; i < kFails; i++) fail_once(from, comm, by, gaps);
        memset(in, 0xee, sizeof in);
        if (then == 0) MPI_Irecv(in, kRoom, MPI_BYTE, from, 2, comm, &two[0]);
        if (then == 1) MPI_Irecv(in, 1, gaps, from, 2, comm, &two[0]);
        if (then == 2) MPI_Recv_init(in, kRoom, MPI_BYTE, from, 2, comm, &two[0]), MPI_Start(&two[0]);
        MPI_Irecv(other, kRoom, MPI_BYTE, from, 3, comm, &two[1]);
        MPI_Send(out, kTooLong, MPI_BYTE, to, 3, comm);
        wait_beside_a_failure(two, way);
        MPI_Barrier(comm);
        MPI_Send(out, kRoom, MPI_BYTE, to, 2, comm);
        rule_check(MPI_Wait(&two[0], MPI_STATUS_IGNORE) == MPI_SUCCESS, "the one that was active");
        for (int i = 0; i < kRoom; i++) rule_check(in[then == 1 ? 2 * i : i] == out[i], "its message");
        if (then == 2) MPI_Request_free(&two[0]);
    }
    MPI_Type_free(&gaps);
    MPI_Comm_free(&comm);
}

void more_rules(void (*run)(const char*, void (*)(void))) {
    program = kWhat; /* this file has its own */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    run("4.1 derived types", derived);
    run("6.1 communicators", communicators);
    run("6.6 inter-communicators", between);
    run("3.2.3 tags", tags);
    run("3.5 progress", flood);
    run("3.5 bursts", bursts);
    run("3.6 a full buffer", full_buffer);
    run("3.7.5 after an error", after_an_error);
    run("3.8.3 too long for its buffer", too_long);
}
