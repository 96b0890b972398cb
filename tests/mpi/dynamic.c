/* MPI-3.1, chapter 10, rule by rule: processes that are started, and jobs that meet: dynamic
 *
 * The ranks that mpirun starts are the parents; they go through all rules. Children are this program with the name of
 * their part as the first argument; each checks what it is told and what it can say. Few are started: Open MPI's
 * launcher needs its time for each. Prints "dynamic: N ranks ok, R rules, C checks" and returns 0, or aborts.
 */
#include <limits.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checked.h"

enum { kLarge = 100000 };
static const char *rule = "10", *self;
static long checks;

#define RULE rule
#define CHECKS checks
#include "rules.h"

/* Everybody with everybody of the other group; `side` tells the groups apart in what is said. */
static void talk(MPI_Comm inter, int side) {
    int remotes, mine, test;
    MPI_Comm_test_inter(inter, &test);
    check(test, "a communicator with another job has one group only");
    MPI_Comm_remote_size(inter, &remotes);
    MPI_Comm_rank(inter, &mine);
    for (size_t bytes = 8; bytes <= kLarge; bytes = bytes == 8 ? kLarge : bytes + 1)
        for (int peer = 0; peer < remotes; peer++) {
            unsigned char *const out = allocate(bytes), *const in = allocate(bytes);
            MPI_Request request;
            MPI_Status status;
            fill(out, bytes, mine + 100 * side, peer, (long)bytes);
            MPI_Isend(out, (int)bytes, MPI_BYTE, peer, mine, inter, &request);
            MPI_Recv(in, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, peer, inter, &status);
            check(status.MPI_SOURCE == peer, "the source is not the rank in the other group");
            verify(in, bytes, peer + 100 * !side, mine, (long)bytes, rule);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            free(in), free(out);
        }
    long sum = -1;
    const long value = mine + 1000L * side;
    MPI_Allreduce(&value, &sum, 1, MPI_LONG, MPI_SUM, inter);
    check(sum == (long)remotes * (remotes - 1) / 2 + 1000L * !side * remotes, "a reduction between two jobs");
}

static MPI_Comm parent_of(int expected_children) {
    MPI_Comm parent;
    char name[MPI_MAX_OBJECT_NAME + 1];
    int length;
    MPI_Comm_get_parent(&parent);
    check(parent != MPI_COMM_NULL, "a child has no parent");
    if (expected_children) check(ranks == expected_children, "children have another world than they were started with");
    MPI_Comm_get_name(parent, name, &length);
    check(!strcmp(name, "MPI_COMM_PARENT"), "the name of MPI_COMM_PARENT");
    return parent;
}

/* 10.4: ports, and names for them; two jobs meet by nothing else. */
#if OMPI_MAJOR_VERSION < 5
static void by_name(const char* name, MPI_Comm with) {
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    MPI_Comm server;
    rule = "10.4 names and ports";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        code_is(MPI_Lookup_name(name, MPI_INFO_NULL, found), MPI_ERR_NAME, "a name that nobody has published");
        code_is(MPI_Open_port(MPI_INFO_NULL, port), MPI_SUCCESS, "MPI_Open_port");
        code_is(MPI_Publish_name(name, MPI_INFO_NULL, port), MPI_SUCCESS, "MPI_Publish_name");
        code_is(MPI_Lookup_name(name, MPI_INFO_NULL, found), MPI_SUCCESS, "MPI_Lookup_name");
        check(!strcmp(port, found), "another port is found than was published");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) MPI_Send(&rank, 1, MPI_INT, 0, 8, with); /* it is published */
    /* They come together, then each by itself, to the same port; only the root's is looked at. */
    for (int turn = 0; turn < 3; turn++) {
        int remotes;
        code_is(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &server), MPI_SUCCESS, "MPI_Comm_accept");
        MPI_Comm_remote_size(server, &remotes);
        check(remotes == (turn ? 1 : 2), "other than those that connect");
        talk(server, 0);
        MPI_Comm_disconnect(&server);
    }
    if (rank == 0) {
        code_is(MPI_Unpublish_name(name, MPI_INFO_NULL, port), MPI_SUCCESS, "MPI_Unpublish_name");
        code_is(MPI_Lookup_name(name, MPI_INFO_NULL, found), MPI_ERR_NAME, "a name that is published no more");
        MPI_Close_port(port);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void client(const char* name, MPI_Comm with) {
    char port[MPI_MAX_PORT_NAME] = "";
    int published = 0;
    MPI_Comm server;
    rule = "10.4 child";
    if (rank == 0) {
        MPI_Recv(&published, 1, MPI_INT, 0, 8, with, MPI_STATUS_IGNORE);
        code_is(MPI_Lookup_name(name, MPI_INFO_NULL, port), MPI_SUCCESS, "MPI_Lookup_name of another job");
    }
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &server);
    talk(server, 1);
    MPI_Comm_disconnect(&server);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int turn = 0; turn < 2; turn++) {
        if (turn == rank) {
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &server);
            talk(server, 1);
            MPI_Comm_disconnect(&server);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}
#else
static void by_name(const char* name, MPI_Comm with) { (void)name, (void)with; }
static void client(const char* name, MPI_Comm with) { (void)name, (void)with; }
#endif

/* 10.3.2: the root says what is started; what the others say counts for nothing */
static void spawn(void) {
    const int root = ranks - 1;
    char name[64], *arguments[] = {"started", "two words", "", "-n", name, NULL};
    int codes[2] = {-1, -1};
    MPI_Comm inter, none;
    snprintf(name, sizeof name, "ucx-mp.dynamic.%ld", (long)getpid());
    MPI_Bcast(name, sizeof name, MPI_CHAR, root, MPI_COMM_WORLD);
    MPI_Comm_get_parent(&none);
    check(none == MPI_COMM_NULL, "who was started by mpirun has a parent");
    MPI_Info info = MPI_INFO_NULL;
    if (rank == root) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "wdir", "/");
    }
    /* How many should count at the root only; Open MPI 4.1 writes as many codes at every rank as that one says. */
    MPI_Comm_spawn(rank == root ? self : "no such program", rank == root ? arguments : MPI_ARGV_NULL, 2, info, root,
                   MPI_COMM_WORLD, &inter, codes);
    if (rank == root) MPI_Info_free(&info);
    for (int i = 0; i < 2; i++) code_is(codes[i], MPI_SUCCESS, "error codes of processes that were started");
    int remotes;
    MPI_Comm_remote_size(inter, &remotes);
    check(remotes == 2, "other than two were started");
    talk(inter, 0);
    by_name(name, inter);
    rule = "10.5.4 disconnecting";
    /* 10.5.4: disconnecting waits for what is under way. */
    unsigned char* const data = allocate(kLarge);
    MPI_Request request = MPI_REQUEST_NULL;
    fill(data, kLarge, 0, 1, 9);
    if (rank == 0) MPI_Isend(data, kLarge, MPI_BYTE, 1, 9, inter, &request);
    if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_disconnect(&inter);
    check(inter == MPI_COMM_NULL, "MPI_Comm_disconnect leaves a handle");
    free(data);
}

static void started(int argc, char** argv) {
    rule = "10.3.2 child";
    MPI_Comm parent = parent_of(2);
    char folder[PATH_MAX] = "";
    check(argc == 6 && !strcmp(argv[2], "two words") && !strcmp(argv[3], "") && !strcmp(argv[4], "-n"),
          "arguments are not those that were given");
    check(getcwd(folder, sizeof folder) && !strcmp(folder, "/"), "wdir");
    talk(parent, 1);
    client(argv[5], parent);
    unsigned char* const data = allocate(kLarge);
    if (rank == 1) {
        MPI_Recv(data, kLarge, MPI_BYTE, 0, 9, parent, MPI_STATUS_IGNORE);
        verify(data, kLarge, 0, 1, 9, "the last message before MPI_Comm_disconnect");
    }
    MPI_Comm_disconnect(&parent);
    free(data);
}

/* Under 5.0.7's launcher MPI_Comm_accept() fails, which MPI_Comm_join() needs, too, and MPI_Comm_spawn_multiple()
 * crashes it. */
#if OMPI_MAJOR_VERSION < 5
/* 10.3.3, 10.5.1, 10.5.3: several programs with their own numbers and arguments are one world */
static void multiple(void) {
    char *commands[] = {(char*)self, (char*)self}, *first[] = {"several", "a", NULL},
         *second[] = {"several", "b", "c", NULL};
    char** arguments[] = {first, second};
    const int most[] = {1, 1};
    int codes[2] = {-1, -1}, flag;
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm inter;
    int* found = NULL;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &found, &flag);
    check(!flag || *found == 0, "MPI_APPNUM of a job with one program");
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &found, &flag);
    check(!flag || *found >= 1, "MPI_UNIVERSE_SIZE");
    MPI_Comm_spawn_multiple(2, commands, arguments, most, infos, 0, MPI_COMM_WORLD, &inter, codes);
    for (int i = 0; i < 2; i++) code_is(codes[i], MPI_SUCCESS, "error codes of several programs");
    talk(inter, 0);
    MPI_Comm_disconnect(&inter);
}

static void several(int argc, char** argv) {
    rule = "10.3.3 child";
    MPI_Comm parent = parent_of(2);
    int *number = NULL, flag;
    check(argc == (rank ? 4 : 3) && !strcmp(argv[2], rank ? "b" : "a"), "ranks are not in the order of the programs");
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
    check(flag && *number == (rank > 0), "MPI_APPNUM of several programs");
    talk(parent, 1);
    MPI_Comm_disconnect(&parent);
}

/* 10.3.2, 10.5.5: parents and child, merged, start another one; two that have a socket only */
static void siblings(void) {
    char* arguments[] = {"sibling", NULL};
    MPI_Comm inter, merged, third;
    MPI_Comm_spawn(self, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(inter, 0, &merged);
    char* younger[] = {"younger", NULL};
    MPI_Comm_spawn(self, younger, 1, MPI_INFO_NULL, 0, merged, &third, MPI_ERRCODES_IGNORE);
    talk(third, 0);
    MPI_Comm_disconnect(&third);
    MPI_Comm_free(&merged);
    if (rank == 0) {
        struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof place;
        const int listening = socket(AF_INET, SOCK_STREAM, 0);
        check(bind(listening, (struct sockaddr*)&place, sizeof place) == 0 && listen(listening, 1) == 0, "listen()");
        getsockname(listening, (struct sockaddr*)&place, &length);
        int number = ntohs(place.sin_port);
        MPI_Send(&number, 1, MPI_INT, 0, 6, inter);
        const int to = accept(listening, NULL, NULL);
        MPI_Comm joined;
        MPI_Comm_join(to, &joined);
        talk(joined, 0);
        MPI_Comm_disconnect(&joined);
        close(to), close(listening);
    }
    MPI_Comm_disconnect(&inter);
}

static void sibling(void) {
    rule = "10.5 sibling";
    MPI_Comm parent = parent_of(1), merged, third, joined;
    MPI_Intercomm_merge(parent, 1, &merged);
    MPI_Comm_spawn("", MPI_ARGV_NULL, 0, MPI_INFO_NULL, 0, merged, &third, MPI_ERRCODES_IGNORE);
    talk(third, 0);
    MPI_Comm_disconnect(&third);
    MPI_Comm_free(&merged);
    int number = 0;
    MPI_Recv(&number, 1, MPI_INT, 0, 6, parent, MPI_STATUS_IGNORE);
    struct sockaddr_in place = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)number)};
    const int to = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(to, (struct sockaddr*)&place, sizeof place) == 0, "connect()");
    MPI_Comm_join(to, &joined);
    talk(joined, 1);
    MPI_Comm_disconnect(&joined);
    close(to);
    MPI_Comm_disconnect(&parent);
}

static void younger(void) {
    rule = "10.5 younger sibling";
    MPI_Comm parent = parent_of(1);
    talk(parent, 1);
    MPI_Comm_disconnect(&parent);
}

#endif

int main(int argc, char** argv) {
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    program = "dynamic";
    self = argv[0];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        const char* const part = argc > 1 ? argv[1] : "";
        if (!strcmp(part, "started")) started(argc, argv);
#if OMPI_MAJOR_VERSION < 5
        else if (!strcmp(part, "several"))
            several(argc, argv);
        else if (!strcmp(part, "sibling"))
            sibling();
        else if (!strcmp(part, "younger"))
            younger();
#endif
        else
            fail("a child without a part: '%s'", part);
        MPI_Finalize();
        return 0;
    }
    static const struct {
        const char* name;
        void (*run)(void);
    } rules[] = {
        {"10.3.2 spawn, names and ports", spawn},
#if OMPI_MAJOR_VERSION < 5
        {"10.3.3 several programs", multiple},
        {"10.5 siblings", siblings},
#endif
    };
    const int count = (int)(sizeof rules / sizeof *rules);
    int done = 0;
    for (int i = 0; i < count; i++) {
        if (argc > 1 && strncmp(rules[i].name, argv[1], strlen(argv[1])) != 0) continue;
        rule = rules[i].name;
        rules[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
        done++;
    }
    if (done == 0) fail("no rule begins with '%s'", argc > 1 ? argv[1] : "");
    if (rank == 0) printf("dynamic: %d ranks ok, %d rules, %ld checks\n", ranks, done, checks);
    MPI_Finalize();
    return 0;
}
