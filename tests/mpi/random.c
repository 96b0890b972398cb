/* A random program of messages, collectives and windows: random SEED [ROUNDS]
 *
 * All ranks draw the same program: messages of all sizes, modes, types and ways to receive them, collectives while
 * these are under way, and every other time an epoch of a window (random_windows.c). Rank 0 prints a digest of all that
 * was received, and of what was said of it, which must be the same over any other library of messages
 * (random_programs.py). What MPI leaves open (which of two sources comes first) is not drawn.
 */
#include "random.h"

enum { kMessages = 60, kMost = 70000, kEnd = 16 };

static random_t rng = {.digest = 1469598103934665603u};
static unsigned dice(unsigned n) { return random_dice(&rng, n); }
static void add(const void* data, size_t bytes) { random_add(&rng, data, bytes); }

typedef enum way { kPlain, kProbed, kMatched, kPersistent, kWays } way_t;
typedef enum mode { kStandard, kSynchronous, kBuffered, kReady, kModes } send_mode_t;

typedef struct message {
    int from, to, tag, bytes, room, number;
    int there, here, early, any_source, any_tag, again; /* again: by a persistent request */
    send_mode_t mode;
    way_t way;
    unsigned char *out, *in;
    MPI_Request send, receive;
} message_t;

static message_t messages[kMessages];
static MPI_Comm comms[3]; /* the last one: receives of any tag, so what comes next from a source is what is received */

static void draw(int round) {
    static const int sizes[] = {0, 1, 8, 50, 200, 300, 1000, 5000, 8200, 20000, kMost};
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        *m = (message_t){.from = (int)dice((unsigned)ranks),
                         .to = (int)dice((unsigned)ranks),
                         .tag = (int)dice(3),
                         .bytes = sizes[dice(11)],
                         .mode = (send_mode_t)dice(kModes),
                         .number = round * kMessages + i,
                         .there = dice(2) ? 0 : (int)dice(kShapes),
                         .here = dice(2) ? 0 : (int)dice(kShapes),
                         .early = dice(2) != 0,
                         .again = dice(3) == 0,
                         .way = (way_t)dice(kWays)};
        if (m->bytes > 8) m->bytes -= (int)dice(8);
        m->room = dice(6) == 0 ? m->bytes + (int)dice(100) : m->bytes;
        /* From any source with a tag that nobody else uses. */
        if (dice(4) == 0)
            m->any_source = 1, m->tag = 100 + i;
        else
            m->any_tag = dice(5) == 0;
    }
}

static MPI_Comm comm_of(const message_t* m, MPI_Comm comm) { return m->any_tag ? comms[2] : comm; }
static int source_of(const message_t* m) { return m->any_source ? MPI_ANY_SOURCE : m->from; }
static int tag_of(const message_t* m) { return m->any_tag ? MPI_ANY_TAG : m->tag; }
static int is_looked_for(const message_t* m) { return m->way == kProbed || m->way == kMatched; }

/* What is received next by the same pattern from the same source. */
static int is_like(const message_t* a, const message_t* b) {
    return a->from == b->from && a->to == b->to && a->any_tag == b->any_tag && (a->any_tag || a->tag == b->tag);
}

static void post(message_t* m, MPI_Comm comm) {
    int count;
    MPI_Datatype type = random_shape(m->here, m->room, &count);
    if (m->way == kPersistent) {
        MPI_Recv_init(m->in, count, type, source_of(m), tag_of(m), comm_of(m, comm), &m->receive);
        MPI_Start(&m->receive);
    } else {
        MPI_Irecv(m->in, count, type, source_of(m), tag_of(m), comm_of(m, comm), &m->receive);
    }
    random_shape_free(&type);
}

static void start(message_t* m, MPI_Comm comm) {
    int count;
    MPI_Datatype type = random_shape(m->there, m->bytes, &count);
    comm = comm_of(m, comm);
    send_mode_t mode = m->mode;
    if (mode == kBuffered && m->bytes >= 5000) mode = kStandard; /* all buffered ones have to fit */
    if (mode == kReady && !(m->early && !is_looked_for(m))) mode = kStandard;
    if (m->again) {
        static int (*const prepare[])(const void*, int, MPI_Datatype, int, int, MPI_Comm,
                                      MPI_Request*) = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init};
        prepare[mode](m->out, count, type, m->to, m->tag, comm, &m->send);
        MPI_Start(&m->send);
    } else {
        static int (*const send[])(const void*, int, MPI_Datatype, int, int, MPI_Comm,
                                   MPI_Request*) = {MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};
        send[mode](m->out, count, type, m->to, m->tag, comm, &m->send);
    }
    random_shape_free(&type);
}

static void said(message_t* m, const MPI_Status* status) {
    int count, all[4];
    MPI_Get_elements(status, MPI_BYTE, &count);
    all[0] = m->number, all[1] = status->MPI_SOURCE, all[2] = status->MPI_TAG, all[3] = count;
    add(all, sizeof all);
    add(m->in, 2 * (size_t)m->room + kEnd);
}

/* One of the collectives, by all, while messages are under way. */
static void collective(MPI_Comm comm, int number) {
    const int kind = (int)dice(7), root = (int)dice((unsigned)ranks), n = (int)dice(3) ? 1 + (int)dice(50) : 4000;
    const size_t most = (size_t)n * (size_t)ranks;
    long *const out = allocate(most * sizeof *out), *const in = allocate(most * sizeof *in);
    size_t got = (size_t)n;
    fill((unsigned char*)out, most * sizeof *out, rank, root, number);
    for (size_t i = 0; i < most; i++) out[i] >>= 16; /* sums have room */
    memset(in, 0, most * sizeof *in);
    switch (kind) {
    case 0:
        if (rank == root) memcpy(in, out, (size_t)n * sizeof *in);
        MPI_Bcast(in, n, MPI_LONG, root, comm);
        break;
    case 1:
        MPI_Allreduce(out, in, n, MPI_LONG, MPI_SUM, comm);
        break;
    case 2:
        MPI_Reduce(out, in, n, MPI_LONG, MPI_MAX, root, comm);
        break;
    case 3:
        MPI_Alltoall(out, n, MPI_LONG, in, n, MPI_LONG, comm), got = most;
        break;
    case 4:
        MPI_Allgather(out, n, MPI_LONG, in, n, MPI_LONG, comm), got = most;
        break;
    case 5:
        MPI_Reduce_scatter_block(out, in, n, MPI_LONG, MPI_SUM, comm);
        break;
    default:
        MPI_Scan(out, in, n, MPI_LONG, MPI_MIN, comm);
    }
    if (kind != 2 || rank == root) add(in, got * sizeof *in);
    free(in), free(out);
}

static void run(int round) {
    draw(round);
    MPI_Comm comm = comms[dice(2)];
    const int collectives = (int)dice(3);
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
            if (is_like(&messages[k], m)) m->early &= messages[k].early && !is_looked_for(&messages[k]);
        if (m->to == rank && m->early && !is_looked_for(m)) post(m, comm);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* for the ready mode */
    for (int i = 0; i < kMessages; i++)
        if (messages[i].from == rank) start(&messages[i], comm);
    for (int i = 0; i < collectives; i++) collective(comm, round * 10 + i);
    for (int i = 0; i < kMessages; i++) {
        message_t* const m = &messages[i];
        if (m->to != rank) continue;
        MPI_Status status;
        int count;
        MPI_Datatype type = random_shape(m->here, m->room, &count);
        if (m->way == kProbed) {
            MPI_Probe(source_of(m), tag_of(m), comm_of(m, comm), &status);
            MPI_Recv(m->in, count, type, status.MPI_SOURCE, status.MPI_TAG, comm_of(m, comm), &status);
        } else if (m->way == kMatched) {
            MPI_Message message;
            MPI_Mprobe(source_of(m), tag_of(m), comm_of(m, comm), &message, &status);
            MPI_Mrecv(m->in, count, type, &message, &status);
        } else {
            if (m->receive == MPI_REQUEST_NULL) post(m, comm);
            MPI_Wait(&m->receive, &status);
            if (m->receive != MPI_REQUEST_NULL) MPI_Request_free(&m->receive);
        }
        random_shape_free(&type);
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
    rng.state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const int rounds = argc > 2 ? atoi(argv[2]) : 40;
    const int room = kMessages * (5000 + MPI_BSEND_OVERHEAD) * 2;
    void* buffer = allocate((size_t)room);
    MPI_Buffer_attach(buffer, room);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]);
    int windows = 0;
    random_windows_begin(rank, ranks);
    for (int round = 0; round < rounds; round++) {
        run(round);
        if (round % 2) random_windows_run(&rng), windows++;
    }
    random_windows_end();
    uint64_t* const all = allocate((size_t)ranks * sizeof *all);
    MPI_Gather(&rng.digest, 8, MPI_BYTE, all, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        rng.digest = 1469598103934665603u;
        add(all, (size_t)ranks * sizeof *all);
        printf("random: %d ranks, %d messages, %d epochs: %016llx\n", ranks, rounds * kMessages, windows,
               (unsigned long long)rng.digest);
    }
    int bytes;
    MPI_Buffer_detach(&buffer, &bytes);
    free(buffer), free(all);
    MPI_Comm_free(&comms[2]);
    MPI_Comm_free(&comms[1]);
    MPI_Finalize();
    return 0;
}
