/*
 * Two ranks that send messages with MPI's matching by the core of our MPI modules (mp_core.h), and no MPI library. For
 * authors of a module for another MPI library, or of a runtime of their own:
 *
 *     build/release/bin/softhca run --fabric two-rail -- build/release/bin/pml_core_example
 *
 * The program starts both ranks itself, each on an emulated node of its own, with a socket between them. An MPI library
 * has a launcher for that, and a way to exchange addresses; here both are in main() and address_of().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pml_glue/core/mp_core.h"

enum { LARGE = 1 << 20, MANY = 100, CONTEXT = 1 }; /* one communicator; its number is the context */
enum { GREETING = 7, DATA };                       /* tags */

static int rank, other; /* ours, and the socket to the other rank */
static mp_core_t* core;
static void* address; /* the other rank's, as mp_core_address() gave it there */
static size_t address_length;

static void need(int holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "example: rank %d: %s\n", rank, what);
    exit(1);
}

/* Names of processes are unique in the job, and in jobs that it meets; the upper half names the job. */
static uint64_t name_of(int of) { return (uint64_t)1 << 32 | (uint32_t)of; }

/* ---- The core asks these (mp_hooks_t) */

/* A request is complete, and its memory is ours again. Here wait_for() looks at it. */
static void completed(void* argument, mp_request_t* request) { (void)argument, (void)request; }

/* Called when the core connects to a process. It frees what it gets. */
static bool address_of(void* argument, uint64_t process, void** out, size_t* length) {
    (void)argument;
    if (process != name_of(1 - rank) || (*out = malloc(address_length)) == NULL) return false;
    memcpy(*out, address, address_length);
    *length = address_length;
    return true;
}

static bool is_source(void* argument, uint32_t context, int32_t source, uint64_t process) {
    (void)argument;
    return context == CONTEXT && (process == name_of(0) || process == name_of(1)) &&
           (source == MP_ANY_SOURCE || process == name_of(source));
}

static bool process_of(void* argument, uint32_t context, int32_t source, uint64_t* process) {
    (void)argument;
    if (context != CONTEXT || source < 0 || source > 1) return false;
    *process = name_of(source);
    return true;
}

static void report(void* argument, const char* line) {
    (void)argument;
    fprintf(stderr, "example: rank %d: %s\n", rank, line);
}

/* ---- Opening */

static void open_core(void) {
    const mp_config_t config = {.process = name_of(rank),
                                .transports = "self,mp_rc",
                                .local = "none", /* both ranks are on one machine, and shall not share its memory */
                                .eager_limit = MP_AUTO,
                                .zero_copy = MP_AUTO,
                                .hint_limit = 16384,
                                .burst = 16};
    const mp_hooks_t hooks = {
        .completed = completed, .address = address_of, .is_source = is_source, .process = process_of, .report = report};
    char error[256];
    core = mp_core_open(&config, &hooks, error, sizeof error);
    need(core != NULL, error);
}

/* Each tells its own, then hears the other's. */
static void exchange_addresses(void) {
    size_t length;
    void* const ours = mp_core_address(core, &length);
    need(ours != NULL, "no memory");
    need(write(other, &length, sizeof length) == sizeof length && write(other, ours, length) == (ssize_t)length,
         "cannot write to the socket");
    free(ours);
    need(recv(other, &address_length, sizeof address_length, MSG_WAITALL) == sizeof address_length,
         "the other rank has gone");
    address = malloc(address_length);
    need(address != NULL, "no memory");
    need(recv(other, address, address_length, MSG_WAITALL) == (ssize_t)address_length, "the other rank has gone");
}

/* ---- Messages */

/* Everything happens in calls: without progress nothing arrives. */
static void wait_for(mp_request_storage_t* of) {
    while (!of->request.complete) (void)mp_core_progress(core);
    need(of->request.status.error == MP_OK, "a request has failed");
}

/* A small message needs no request if it can leave at once. The envelope names its sender, not its receiver. */
static void send_small(mp_peer_t* peer, int32_t tag, int value) {
    if (mp_core_send_now(core, peer, mp_compact(CONTEXT, rank, tag), &value, sizeof value, true)) return;
    mp_request_storage_t request = {.request = {.complete = false}};
    mp_core_send(core, &request, peer, (mp_envelope_t){CONTEXT, rank, tag},
                 (mp_data_t){.buffer = &value, .bytes = sizeof value}, false, MP_HINT_BLOCKING);
    wait_for(&request);
}

static mp_status_t receive(int32_t source, int32_t tag, void* to, size_t bytes) {
    mp_request_storage_t request = {.request = {.complete = false}};
    mp_core_receive(core, &request, (mp_envelope_t){CONTEXT, source, tag}, (mp_data_t){.buffer = to, .bytes = bytes},
                    MP_HINT_BLOCKING);
    wait_for(&request);
    return request.request.status;
}

/* Receives match in the order in which messages were sent, also those with wildcards. */
static void small_messages(mp_peer_t* peer) {
    for (int i = 0; i < MANY; i++) send_small(peer, GREETING, i);
    for (int i = 0; i < MANY; i++) {
        int value = -1;
        const mp_status_t status = receive(MP_ANY_SOURCE, MP_ANY_TAG, &value, sizeof value);
        need(value == i && status.source == 1 - rank && status.tag == GREETING && status.bytes == sizeof value,
             "a message is not the next one");
    }
}

/* Both at once: a large message goes by rendezvous, and needs the other rank's progress. */
static void large_messages(mp_peer_t* peer) {
    unsigned char *const out = malloc(LARGE), *const in = malloc(LARGE);
    need(out != NULL && in != NULL, "no memory");
    for (size_t i = 0; i < LARGE; i++) out[i] = (unsigned char)(i % 251 + (size_t)rank);
    mp_request_storage_t sent = {.request = {.complete = false}}, received = sent;
    mp_core_receive(core, &received, (mp_envelope_t){CONTEXT, 1 - rank, DATA},
                    (mp_data_t){.buffer = in, .bytes = LARGE}, MP_HINT_NON_BLOCKING);
    mp_core_send(core, &sent, peer, (mp_envelope_t){CONTEXT, rank, DATA}, (mp_data_t){.buffer = out, .bytes = LARGE},
                 false, MP_HINT_NON_BLOCKING);
    wait_for(&received);
    wait_for(&sent);
    for (size_t i = 0; i < LARGE; i++)
        need(in[i] == (unsigned char)(i % 251 + (size_t)(1 - rank)), "a byte is not what was sent");
    free(out);
    free(in);
}

/* mp_core_close() comes after the last call of every rank: the other one may still need our progress. */
static void leave_together(void) {
    char byte = 0;
    need(write(other, &byte, 1) == 1, "cannot write to the socket");
    while (recv(other, &byte, 1, MSG_DONTWAIT) < 0) (void)mp_core_progress(core);
    mp_core_close(core);
}

static int run_rank(void) {
    open_core();
    exchange_addresses();
    mp_peer_t* const peer = mp_core_peer(core, name_of(1 - rank)); /* connects */
    need(peer != NULL, "the other rank cannot be reached");
    small_messages(peer);
    large_messages(peer);
    char text[1024];
    mp_core_statistics(core, text, sizeof text);
    printf("example: rank %d ok: %s\n", rank, text);
    fflush(stdout);
    leave_together();
    free(address);
    return 0;
}

/* Without arguments: starts itself twice, as "RANK SOCKET". */
int main(int argc, char** argv) {
    if (argc == 3) {
        rank = atoi(argv[1]);
        other = atoi(argv[2]);
        return run_rank();
    }
    int ends[2], failed = 0;
    rank = -1;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no sockets");
    for (int of = 0; of < 2; of++) {
        const pid_t child = fork();
        need(child >= 0, "cannot start a rank");
        if (child > 0) continue;
        char number[16], end[16];
        snprintf(number, sizeof number, "%d", of);
        snprintf(end, sizeof end, "%d", ends[of]);
        close(ends[1 - of]);
        setenv("SOFTHCA_NODE", number, 1);
        execl("/proc/self/exe", argv[0], number, end, (char*)NULL);
        need(0, "cannot start a rank");
    }
    close(ends[0]);
    close(ends[1]);
    for (int status, of = 0; of < 2; of++) failed |= wait(&status) < 0 || status != 0;
    return failed;
}
