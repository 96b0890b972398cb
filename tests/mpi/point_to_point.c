/* MPI-3.1, chapter 3 and what belongs to it, rule by rule: point_to_point [SEED]
 *
 * Each rule is a function with the section that it checks. All ranks go through all of them; most rules concern pairs
 * (rank 0 with every other one, and each rank with itself). Sizes go from nothing over every protocol of the module to
 * several pieces. Prints "point_to_point: N ranks ok, R rules, C checks" and returns 0, or names the rule and aborts.
 */
#include <limits.h>
#include <unistd.h>

#include "checked.h"

static const char* rule;
static long checks;
static const int kSizes[] = {0, 1, 8, 200, 232, 233, 4000, 8100, 8176, 8177, 8192, 20000, 300000};
enum { kSizeCount = sizeof kSizes / sizeof *kSizes, kLargest = 300000 };
static unsigned char *out, *in;

#define RULE rule
#define CHECKS checks
#include "rules.h"

static void status_is(const MPI_Status* status, int source, int tag, int bytes) {
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    checks++;
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || count != bytes)
        fail("%s: status says source %d, tag %d, %d bytes; expected %d, %d, %d", rule, status->MPI_SOURCE,
             status->MPI_TAG, count, source, tag, bytes);
}

static void empty_status(const MPI_Status* status) {
    int cancelled, count;
    MPI_Test_cancelled(status, &cancelled);
    MPI_Get_count(status, MPI_BYTE, &count);
    check(status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0 && !cancelled,
          "the status is not empty");
}

/* Something that lasts for a while, so that what must not happen had time to. */
static void idle(MPI_Comm comm) {
    const double until = MPI_Wtime() + 0.003;
    int flag;
    while (MPI_Wtime() < until) MPI_Iprobe(MPI_PROC_NULL, 0, comm, &flag, MPI_STATUS_IGNORE);
}

static int is_receiver(int peer) { return rank == peer; }

/* 3.2: blocking send and receive: data, envelope, status */
static void basics(void) {
    for (int peer = 0; peer < ranks; peer++)
        for (int i = 0; i < kSizeCount; i++) {
            const int bytes = kSizes[i];
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Status status;
            if (rank == 0) {
                fill(out, (size_t)bytes, 0, peer, i);
                MPI_Isend(out, bytes, MPI_BYTE, peer, 100 + i, MPI_COMM_WORLD, &request);
            }
            if (is_receiver(peer)) {
                memset(in, 0xee, kLargest + 8);
                MPI_Recv(in, kLargest, MPI_BYTE, i % 2 ? 0 : MPI_ANY_SOURCE, i % 3 ? 100 + i : MPI_ANY_TAG,
                         MPI_COMM_WORLD, &status);
                status_is(&status, 0, 100 + i, bytes);
                verify(in, (size_t)bytes, 0, peer, i, rule);
                check(in[bytes] == 0xee, "bytes behind the message were written");
            }
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
}

/* 3.2.2, 3.3: each basic type */
static void types(void) {
    const MPI_Datatype all[] = {MPI_CHAR,
                                MPI_SHORT,
                                MPI_INT,
                                MPI_LONG,
                                MPI_LONG_LONG,
                                MPI_SIGNED_CHAR,
                                MPI_UNSIGNED,
                                MPI_FLOAT,
                                MPI_DOUBLE,
                                MPI_LONG_DOUBLE,
                                MPI_WCHAR,
                                MPI_C_BOOL,
                                MPI_INT8_T,
                                MPI_INT64_T,
                                MPI_UINT16_T,
                                MPI_C_DOUBLE_COMPLEX,
                                MPI_AINT,
                                MPI_COUNT,
                                MPI_OFFSET,
                                MPI_FLOAT_INT,
                                MPI_DOUBLE_INT,
                                MPI_SHORT_INT,
                                MPI_LONG_DOUBLE_INT};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int count = 1; count < 2000; count *= 11) {
            int size;
            MPI_Aint lb, extent;
            MPI_Type_size(all[i], &size);
            MPI_Type_get_extent(all[i], &lb, &extent);
            const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
            const size_t bytes = (size_t)extent * (size_t)count;
            fill(out, bytes, rank, to, (long)i);
            memset(in, 0, bytes);
            MPI_Status status;
            MPI_Sendrecv(out, count, all[i], to, 5, in, count, all[i], from, 5, MPI_COMM_WORLD, &status);
            int got;
            MPI_Get_count(&status, all[i], &got);
            check(got == count, "MPI_Get_count");
            if (size == extent) {
                verify(in, bytes, from, rank, (long)i, rule);
            } else { /* with gaps: packed, they are alike */
                unsigned char* const whole = allocate(bytes);
                fill(whole, bytes, from, rank, (long)i);
                unsigned char *one = allocate(bytes), *two = allocate(bytes);
                int at = 0, also = 0;
                MPI_Pack(whole, count, all[i], one, (int)bytes, &at, MPI_COMM_WORLD);
                MPI_Pack(in, count, all[i], two, (int)bytes, &also, MPI_COMM_WORLD);
                check(at == also && !memcmp(one, two, (size_t)at), "contents of a type with gaps");
                free(whole), free(one), free(two);
            }
        }
}

/* 3.2.4: a message that is too long is an error, and the next ones come as always */
static void truncation(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 1; i < kSizeCount; i++) {
        const int bytes = kSizes[i], to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
        MPI_Request requests[2];
        fill(out, (size_t)bytes, rank, to, i);
        MPI_Isend(out, bytes, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, bytes, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[1]);
        memset(in, 0xee, (size_t)bytes);
        MPI_Status status;
        code_is(MPI_Recv(in, bytes - 1, MPI_BYTE, from, 1, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE, "too long");
        check(in[bytes - 1] == 0xee, "bytes behind the buffer were written");
        code_is(MPI_Recv(in, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, &status), MPI_SUCCESS, "the next one");
        verify(in, (size_t)bytes, from, rank, i, rule);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* 3.4: a synchronous send ends when its receive has begun, not before; a ready one is like any other */
static void modes(void) {
    for (int i = 0; i < kSizeCount; i++) {
        const int bytes = kSizes[i];
        for (int peer = 0; peer < ranks; peer++) {
            MPI_Request request = MPI_REQUEST_NULL;
            int flag = 0;
            if (rank == 0) {
                fill(out, (size_t)bytes, 0, peer, i);
                MPI_Issend(out, bytes, MPI_BYTE, peer, 7, MPI_COMM_WORLD, &request);
                idle(MPI_COMM_WORLD);
                MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
                check(!flag, "a synchronous send is complete before its receive");
            }
            if (peer != 0) MPI_Barrier(MPI_COMM_WORLD);
            if (is_receiver(peer)) {
                MPI_Recv(in, bytes, MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                verify(in, (size_t)bytes, 0, peer, i, rule);
            }
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (is_receiver(peer)) MPI_Irecv(in, bytes, MPI_BYTE, 0, 8, MPI_COMM_WORLD, &request);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) {
                MPI_Request ready;
                MPI_Irsend(out, bytes, MPI_BYTE, peer, 8, MPI_COMM_WORLD, &ready);
                if (peer != 0)
                    MPI_Wait(&ready, MPI_STATUS_IGNORE);
                else
                    MPI_Waitall(2, (MPI_Request[]){ready, request}, MPI_STATUSES_IGNORE), request = MPI_REQUEST_NULL;
            }
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (is_receiver(peer)) verify(in, (size_t)bytes, 0, peer, i, rule);
        }
    }
}

/* 3.4, 3.6: a buffered send ends without its receive; the buffer has a size; detaching waits */
static void buffered(void) {
    enum { kMessages = 20, kEach = 3000 };
    const int size = kMessages * (kEach + MPI_BSEND_OVERHEAD);
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char* const buffer = allocate((size_t)size);
    MPI_Buffer_attach(buffer, size);
    for (int i = 0; i < kMessages; i++) {
        fill(out, kEach, rank, to, i);
        MPI_Bsend(out, kEach, MPI_BYTE, to, 9, MPI_COMM_WORLD); /* nobody receives yet */
        memset(out, 0, kEach);                                  /* and this is ours again */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kMessages; i++) {
        MPI_Recv(in, kEach, MPI_BYTE, from, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        verify(in, kEach, from, rank, i, rule);
    }
    void* address;
    int bytes;
    MPI_Buffer_detach(&address, &bytes);
    check(address == buffer && bytes == size, "MPI_Buffer_detach");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Buffer_attach(buffer, 4000);
    code_is(MPI_Bsend(out, 100000, MPI_BYTE, to, 10, MPI_COMM_WORLD), MPI_ERR_BUFFER, "no room in the buffer");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    /* A derived type is packed into it; large ones go by rendezvous from there. */
    MPI_Buffer_detach(&address, &bytes);
    const int large = 200000 + MPI_BSEND_OVERHEAD;
    unsigned char* const room = allocate((size_t)large);
    MPI_Buffer_attach(room, large);
    MPI_Datatype type;
    MPI_Type_vector(50000, 2, 4, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    fill(out, 200000, rank, to, 77);
    MPI_Request request;
    MPI_Ibsend(out, 1, type, to, 11, MPI_COMM_WORLD, &request);
    MPI_Type_free(&type);
    memset(out, 0, 200000);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(in, 100000, MPI_BYTE, from, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    unsigned char* const whole = allocate(200000);
    fill(whole, 200000, from, rank, 77);
    for (int i = 0; i < 100000; i++)
        if (in[i] != whole[i / 2 * 4 + i % 2]) fail("%s: a buffered derived type is wrong at %d", rule, i);
    MPI_Buffer_detach(&address, &bytes);
    free(whole), free(room), free(buffer);
}

/* 3.5: messages do not overtake; the receive that was posted first gets the first message that it takes */
static void order(void) {
    enum { kMessages = 60 };
    MPI_Request sends[kMessages], receives[kMessages];
    unsigned char** const data = allocate(2 * kMessages * sizeof *data);
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int early = 0; early <= kMessages; early += 20) {
        for (int i = 0; i < kMessages; i++) {
            data[i] = allocate(20000);
            data[kMessages + i] = allocate(20000);
        }
        const int counted[] = {8, 20000, 200, 8177, 233, 1000};
        for (int pass = 0; pass < 2; pass++) {
            for (int i = 0; i < kMessages; i++)
                if ((i < early) == (pass == 0))
                    MPI_Irecv(data[kMessages + i], 20000, MPI_BYTE, i % 2 ? from : MPI_ANY_SOURCE,
                              i % 3 ? 12 : MPI_ANY_TAG, MPI_COMM_WORLD, &receives[i]);
            if (pass == 0) MPI_Barrier(MPI_COMM_WORLD);
            for (int i = 0; i < kMessages && pass == 0; i++) {
                fill(data[i], (size_t)counted[i % 6], rank, to, i);
                if (i % 7)
                    MPI_Isend(data[i], counted[i % 6], MPI_BYTE, to, 12, MPI_COMM_WORLD, &sends[i]);
                else
                    MPI_Issend(data[i], counted[i % 6], MPI_BYTE, to, 12, MPI_COMM_WORLD, &sends[i]);
            }
        }
        for (int i = 0; i < kMessages; i++) {
            MPI_Status status;
            MPI_Wait(&receives[i], &status);
            status_is(&status, from, 12, counted[i % 6]);
            verify(data[kMessages + i], (size_t)counted[i % 6], from, rank, i, rule);
        }
        MPI_Waitall(kMessages, sends, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 2 * kMessages; i++) free(data[i]);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    free(data);
}

/* 3.7: requests: null, inactive, freed while active; test, wait and their relatives; status without freeing */
static void requests(void) {
    enum { kMany = 12 };
    MPI_Request all[2 * kMany], null = MPI_REQUEST_NULL;
    MPI_Status status, statuses[2 * kMany];
    int flag, index, indices[2 * kMany], count;
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Wait(&null, &status);
    empty_status(&status);
    MPI_Test(&null, &flag, &status);
    check(flag, "MPI_Test of a null request");
    empty_status(&status);
    MPI_Waitany(1, &null, &index, &status);
    check(index == MPI_UNDEFINED, "MPI_Waitany of null requests");
    MPI_Waitsome(1, &null, &count, indices, statuses);
    check(count == MPI_UNDEFINED, "MPI_Waitsome of null requests");

    int* const values = allocate(2 * kMany * sizeof *values);
    for (int i = 0; i < kMany; i++) {
        MPI_Irecv(&values[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &all[i]);
        values[kMany + i] = rank * 100 + i;
    }
    MPI_Testall(kMany, all, &flag, statuses);
    check(!flag || ranks > 1, "MPI_Testall of receives without messages");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = kMany - 1; i >= 0; i--) {
        MPI_Isend(&values[kMany + i], 1, MPI_INT, to, i, MPI_COMM_WORLD, &all[kMany + i]);
        if (i % 3 == 0)
            MPI_Request_free(&all[kMany + i]); /* active, or complete already */
        else
            check(1, "sent");
        if (i % 3 == 0) check(all[kMany + i] == MPI_REQUEST_NULL, "MPI_Request_free leaves a handle");
    }
    MPI_Waitany(kMany, all, &index, &status);
    check(index >= 0 && index < kMany && all[index] == MPI_REQUEST_NULL && status.MPI_TAG == index, "MPI_Waitany");
    int some = 0;
    for (int done = 1; done < kMany; done += some) {
        MPI_Waitsome(kMany, all, &some, indices, statuses);
        check(some > 0, "MPI_Waitsome");
        for (int i = 0; i < some; i++) check(statuses[i].MPI_TAG == indices[i], "MPI_Waitsome: a status");
    }
    for (int i = 0; i < kMany; i++) check(values[i] == from * 100 + i, "a value");
    MPI_Waitall(2 * kMany, all, statuses);
    MPI_Irecv(values, 1, MPI_INT, rank, 99, MPI_COMM_WORLD, &all[0]);
    MPI_Request_get_status(all[0], &flag, &status);
    check(!flag, "MPI_Request_get_status of an open request");
    MPI_Isend(&values[kMany], 1, MPI_INT, rank, 99, MPI_COMM_WORLD, &all[1]);
    for (flag = 0; !flag;) MPI_Request_get_status(all[0], &flag, &status);
    check(all[0] != MPI_REQUEST_NULL && status.MPI_TAG == 99, "MPI_Request_get_status frees nothing");
    MPI_Waitall(2, all, statuses);
    MPI_Barrier(MPI_COMM_WORLD);
    free(values);
}

/* 3.8.1, 3.8.2: what was probed is received; what was matched is nobody else's */
static void probes(void) {
    for (int peer = 0; peer < ranks; peer++)
        for (int i = 0; i < kSizeCount; i++) {
            const int bytes = kSizes[i];
            MPI_Request sends[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL}, request;
            if (rank == 0) {
                fill(out, (size_t)bytes, 0, peer, i);
                for (int k = 0; k < 3; k++) MPI_Isend(out, bytes, MPI_BYTE, peer, 20, MPI_COMM_WORLD, &sends[k]);
            }
            if (is_receiver(peer)) {
                MPI_Status status;
                MPI_Message message, other;
                int flag = 0;
                MPI_Probe(MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, &status);
                status_is(&status, 0, 20, bytes);
                MPI_Mprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
                status_is(&status, 0, 20, bytes);
                while (!flag) MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &other, &status);
                memset(in, 0, (size_t)bytes);
                MPI_Recv(in, bytes, MPI_BYTE, 0, 20, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* the third */
                verify(in, (size_t)bytes, 0, peer, i, rule);
                MPI_Iprobe(0, 20, MPI_COMM_WORLD, &flag, &status);
                check(!flag, "a matched message is probed again");
                memset(in, 0, (size_t)bytes);
                MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status);
                status_is(&status, 0, 20, bytes);
                check(message == MPI_MESSAGE_NULL, "MPI_Mrecv leaves a handle");
                verify(in, (size_t)bytes, 0, peer, i, rule);
                memset(in, 0, (size_t)bytes);
                MPI_Imrecv(in, bytes, MPI_BYTE, &other, &request);
                MPI_Wait(&request, &status);
                status_is(&status, 0, 20, bytes);
                verify(in, (size_t)bytes, 0, peer, i, rule);
            }
            MPI_Waitall(3, sends, MPI_STATUSES_IGNORE);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    MPI_Message none;
    MPI_Status status;
    MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &none, &status);
    check(none == MPI_MESSAGE_NO_PROC && status.MPI_SOURCE == MPI_PROC_NULL, "MPI_Mprobe of MPI_PROC_NULL");
    MPI_Mrecv(NULL, 0, MPI_BYTE, &none, &status);
}

/* 3.8.4: a receive that is cancelled takes no message; one that has its message is not cancelled */
static void cancelling(void) {
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Request request, send;
    MPI_Status status;
    int flag, value = -1;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 30, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    check(flag && value == -1, "a receive is not cancelled");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(&rank, 1, MPI_INT, to, 30, MPI_COMM_WORLD, &send);
    MPI_Irecv(&value, 1, MPI_INT, from, 30, MPI_COMM_WORLD, &request);
    while (value != from) {
        MPI_Iprobe(MPI_ANY_SOURCE, 31, MPI_COMM_WORLD, &flag, &status);
        value = *(volatile int*)&value;
    }
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    check(!flag && value == from, "a complete receive was cancelled");
    MPI_Cancel(&send);
    MPI_Wait(&send, &status); /* either way, once */
    MPI_Barrier(MPI_COMM_WORLD);
}

/* 3.9: persistent requests of all modes, started often */
static void persistent(void) {
    enum { kModes = 4 };
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    int room = 4 * (kLargest + MPI_BSEND_OVERHEAD); /* what has arrived may not be known to have */
    unsigned char* const buffer = allocate((size_t)room);
    for (int i = 0; i < kSizeCount; i++) {
        const int bytes = kSizes[i];
        MPI_Request requests[2];
        MPI_Status status;
        int flag;
        for (int mode = 0; mode < kModes; mode++) {
            MPI_Buffer_attach(buffer, room);
            MPI_Recv_init(in, kLargest, MPI_BYTE, mode % 2 ? from : MPI_ANY_SOURCE, 40, MPI_COMM_WORLD, &requests[0]);
            (mode == 0   ? MPI_Send_init
             : mode == 1 ? MPI_Ssend_init
             : mode == 2 ? MPI_Bsend_init
                         : MPI_Rsend_init)(out, bytes, MPI_BYTE, to, 40, MPI_COMM_WORLD, &requests[1]);
            MPI_Wait(&requests[0], &status);
            empty_status(&status); /* inactive */
            for (int turn = 0; turn < 3; turn++) {
                fill(out, (size_t)bytes, rank, to, turn);
                MPI_Start(&requests[0]);
                MPI_Barrier(MPI_COMM_WORLD); /* for the ready mode */
                MPI_Startall(1, &requests[1]);
                MPI_Wait(&requests[0], &status);
                check(requests[0] != MPI_REQUEST_NULL, "MPI_Wait has freed a persistent request");
                status_is(&status, from, 40, bytes);
                verify(in, (size_t)bytes, from, rank, turn, rule);
                MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            }
            MPI_Test(&requests[1], &flag, &status);
            check(flag, "an inactive request is not complete");
            MPI_Request_free(&requests[0]);
            MPI_Request_free(&requests[1]);
            void* address;
            MPI_Buffer_detach(&address, &room);
        }
    }
    free(buffer);
}

/* 3.10, 3.11: exchange, in place too; the process that is none */
static void exchanges(void) {
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Status status;
    for (int i = 0; i < kSizeCount; i++) {
        fill(out, (size_t)kSizes[i], rank, to, i);
        MPI_Sendrecv_replace(out, kSizes[i], MPI_BYTE, to, 50, from, 50, MPI_COMM_WORLD, &status);
        status_is(&status, from, 50, kSizes[i]);
        verify(out, (size_t)kSizes[i], from, rank, i, rule);
    }
    int value = 17;
    MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    check(value == 17, "a receive from MPI_PROC_NULL has written");
    status_is(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

extern void more_rules(void (*begin)(const char*, void (*)(void)));
void rule_check(int condition, const char* what) { check(condition, what); }

static int rules;
static void run(const char* name, void (*function)(void)) {
    rule = name;
    rules++;
    function();
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
    (void)argc;
    program = argv[0];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    program = "point_to_point";
    out = allocate(kLargest + 8);
    in = allocate(kLargest + 8);
    run("3.2 blocking messages", basics);
    run("3.2.2 types", types);
    run("3.2.4 truncation", truncation);
    run("3.4 modes", modes);
    run("3.6 buffered sends", buffered);
    run("3.5 order", order);
    run("3.7 requests", requests);
    run("3.8.1 probes", probes);
    run("3.8.4 cancel", cancelling);
    run("3.9 persistent requests", persistent);
    run("3.10 exchanges", exchanges);
    more_rules(run);
    long all = 0;
    MPI_Reduce(&checks, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("point_to_point: %d ranks ok, %d rules, %ld checks\n", ranks, rules, all);
    free(out), free(in);
    MPI_Finalize();
    return 0;
}
