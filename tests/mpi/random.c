/* A random program of point-to-point messages: random SEED [ROUNDS]
 *
 * All ranks draw the same program: messages of all sizes, modes, types and ways to receive them. Rank 0 prints a digest
 * of all that was received, and of what was said of it, which must be the same over any other library of messages
 * (random_programs.py). What MPI leaves open (which of two sources comes first) is not drawn.
 */
#include "checked.h"

enum { kMessages = 60, kMost = 70000, kEnd = 16 };

static uint64_t state, digest = 1469598103934665603u;
static unsigned dice(unsigned n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static void add(const void* data, size_t bytes) {
    const unsigned char* const at = data;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ at[i]) * 1099511628211u;
}

typedef enum way { kPlain, kProbed, kMatched, kPersistent, kWays } way_t;

typedef struct message {
    int from, to, tag, bytes, room, mode, number;
    int gaps_there, gaps_here, early, any_source;
    way_t way;
    unsigned char *out, *in;
    MPI_Request send, receive;
} message_t;

static message_t messages[kMessages];
static MPI_Comm comms[2];

/* `bytes` with as many gaps. */
static MPI_Datatype gaps(int bytes) {
    MPI_Datatype type;
    MPI_Type_vector(bytes, 1, 2, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

static void draw(int round) {
    static const int sizes[] = {0, 1, 8, 50, 200, 300, 1000, 5000, 8200, 20000, kMost};
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        *m = (message_t){.from = (int)dice((unsigned)ranks),
                         .to = (int)dice((unsigned)ranks),
                         .tag = (int)dice(3),
                         .bytes = sizes[dice(11)],
                         .mode = (int)dice(4),
                         .number = round * kMessages + i,
                         .gaps_there = dice(5) == 0,
                         .gaps_here = dice(5) == 0,
                         .early = dice(2) != 0,
                         .way = (way_t)dice(kWays)};
        if (m->bytes > 8) m->bytes -= (int)dice(8);
        m->room = dice(6) == 0 ? m->bytes + (int)dice(100) : m->bytes;
        /* From any source with a tag that nobody else uses. */
        if (dice(4) == 0) m->any_source = 1, m->tag = 100 + i;
    }
}

static void post(message_t* m, MPI_Comm comm) {
    const int source = m->any_source ? MPI_ANY_SOURCE : m->from, tag = m->tag;
    if (m->way == kPersistent) {
        MPI_Recv_init(m->in, m->room, MPI_BYTE, source, tag, comm, &m->receive);
        MPI_Start(&m->receive);
    } else if (m->gaps_here && m->room > 0) {
        MPI_Datatype type = gaps(m->room);
        MPI_Irecv(m->in, 1, type, source, tag, comm, &m->receive);
        MPI_Type_free(&type);
    } else {
        MPI_Irecv(m->in, m->room, MPI_BYTE, source, tag, comm, &m->receive);
    }
}

static void start(message_t* m, MPI_Comm comm) {
    MPI_Datatype type = MPI_BYTE;
    int count = m->bytes;
    if (m->gaps_there && m->bytes > 0) type = gaps(m->bytes), count = 1;
    if (m->mode == 1)
        MPI_Issend(m->out, count, type, m->to, m->tag, comm, &m->send);
    else if (m->mode == 2 && m->bytes < 5000)
        MPI_Ibsend(m->out, count, type, m->to, m->tag, comm, &m->send);
    else if (m->mode == 3 && m->bytes < 100 && m->from != m->to) {
        MPI_Send_init(m->out, count, type, m->to, m->tag, comm, &m->send);
        MPI_Start(&m->send);
    } else
        MPI_Isend(m->out, count, type, m->to, m->tag, comm, &m->send);
    if (type != MPI_BYTE) MPI_Type_free(&type);
}

static void said(message_t* m, const MPI_Status* status) {
    int count, all[4];
    MPI_Get_elements(status, MPI_BYTE, &count);
    all[0] = m->number, all[1] = status->MPI_SOURCE, all[2] = status->MPI_TAG, all[3] = count;
    add(all, sizeof all);
    add(m->in, 2 * (size_t)m->room + kEnd);
}

static void run(int round) {
    draw(round);
    MPI_Comm comm = comms[dice(2)];
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        m->send = m->receive = MPI_REQUEST_NULL;
        m->out = allocate(2 * (size_t)m->bytes + kEnd), m->in = allocate(2 * (size_t)m->room + kEnd);
        fill(m->out, 2 * (size_t)m->bytes, m->from, m->to, m->number);
        memset(m->in, 0xee, 2 * (size_t)m->room + kEnd);
    }
    /* A receive that was posted early and one that comes late may have the same source and tag: the order of the calls
     * is that of the messages, so nothing may be posted behind one that is late. */
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        for (int k = 0; k < i; k++)
            if (messages[k].from == m->from && messages[k].to == m->to && messages[k].tag == m->tag)
                m->early &= messages[k].early && messages[k].way != kProbed && messages[k].way != kMatched;
        if (m->to == rank && m->early && m->way != kProbed && m->way != kMatched) post(m, comm);
    }
    for (int i = 0; i < kMessages; i++)
        if (messages[i].from == rank) start(&messages[i], comm);
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        if (m->to != rank) continue;
        const int source = m->any_source ? MPI_ANY_SOURCE : m->from;
        MPI_Status status;
        if (m->way == kProbed) {
            MPI_Probe(source, m->tag, comm, &status);
            MPI_Recv(m->in, m->room, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &status);
        } else if (m->way == kMatched) {
            MPI_Message message;
            MPI_Mprobe(source, m->tag, comm, &message, &status);
            MPI_Mrecv(m->in, m->room, MPI_BYTE, &message, &status);
        } else {
            if (m->receive == MPI_REQUEST_NULL) post(m, comm);
            MPI_Wait(&m->receive, &status);
            if (m->receive != MPI_REQUEST_NULL) MPI_Request_free(&m->receive);
        }
        said(m, &status);
    }
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        MPI_Wait(&m->send, MPI_STATUS_IGNORE);
        if (m->send != MPI_REQUEST_NULL) MPI_Request_free(&m->send);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < kMessages; i++) free(messages[i].out), free(messages[i].in);
}

int main(int argc, char** argv) {
    program = "random";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const int rounds = argc > 2 ? atoi(argv[2]) : 40;
    const int room = kMessages * (5000 + MPI_BSEND_OVERHEAD) * 2;
    void* buffer = allocate((size_t)room);
    MPI_Buffer_attach(buffer, room);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    for (int round = 0; round < rounds; round++) run(round);
    uint64_t* const all = allocate((size_t)ranks * sizeof *all);
    MPI_Gather(&digest, 8, MPI_BYTE, all, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        digest = 1469598103934665603u;
        add(all, (size_t)ranks * sizeof *all);
        printf("random: %d ranks, %d messages: %016llx\n", ranks, rounds * kMessages, (unsigned long long)digest);
    }
    int bytes;
    MPI_Buffer_detach(&buffer, &bytes);
    free(buffer), free(all);
    MPI_Comm_free(&comms[1]);
    MPI_Finalize();
    return 0;
}
