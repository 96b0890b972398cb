/*
 * A program over UCT that gives mp_rc hints about its traffic (uct_mp.h) and looks at the paths. Two processes:
 *
 *     cc example.c -o example $(pkg-config --cflags --libs ucx-mp) -luct -lucs
 *     example -p 7471            on one node: waits
 *     example -p 7471 NODE       on another one: connects to it
 *
 * Each writes into the other's memory as a program does that waits for each operation, that has many under way, and in
 * an epoch of puts and gets; then it says so in a message. Prints the paths with what they have carried. UCT's own
 * part, which is the same over any transport: open() to connect_ep().
 *
 * No UCX_TLS, no LD_PRELOAD: the library is linked, and its transport is chosen by name.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "uct_mp/api/uct_mp.h"

enum { LARGE = 1 << 20, SMALL = 64 << 10, MANY = 16, BYTES = LARGE + 2 * MANY * SMALL };
enum { DONE = 7 }; /* the id of our only message */

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const ucs_status_t said_ = (call);                                                                             \
        if (said_ != UCS_OK) {                                                                                         \
            fprintf(stderr, "example: %s: %s\n", #call, ucs_status_string(said_));                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void need(int holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "example: %s\n", what);
    exit(1);
}

/* Exchanged by the two processes over a socket: a program has its own way to do this. */
typedef struct hello {
    unsigned char device[64], interface[64], key[256];
    uint64_t memory; /* where the other process writes; `key` is for it */
} hello_t;

static int peer; /* the socket */
static ucs_async_context_t* async;
static uct_worker_h worker;
static uct_component_h component;
static uct_md_h md;
static uct_iface_h interface;
static uct_ep_h ep;
static uct_mem_h handle;
static uct_rkey_bundle_t key;
static unsigned char *written, *source, *got; /* BYTES each: the peer writes, we write, we read */
static uint64_t remote;                       /* the peer's `written` */
static int told;                              /* the peer's message has come */

static ucs_status_t take(void* arg, void* data, size_t length, unsigned flags) {
    (void)arg, (void)data, (void)length, (void)flags;
    told = 1;
    return UCS_OK;
}

/* All paths to the peer are gone for longer than UCX_MP_PARTITION_TIMEOUT. (Fewer are no error, and are not told.) */
static ucs_status_t peer_failed(void* arg, uct_ep_h failed, ucs_status_t status) {
    (void)arg, (void)failed;
    fprintf(stderr, "example: the peer is gone: %s\n", ucs_status_string(status));
    exit(1);
}

/* The memory domain "mp", and the transport's only device: all rails together. */
static void open_domain(void) {
    uct_component_h* all;
    unsigned count;
    CHECK(uct_query_components(&all, &count));
    for (unsigned i = 0; i < count; i++) {
        uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
        CHECK(uct_component_query(all[i], &attr));
        if (strcmp(attr.name, "mp") == 0) component = all[i];
    }
    uct_release_component_list(all);
    need(component != NULL, "UCX does not know libuct_mp.so");
    uct_md_config_t* config;
    CHECK(uct_md_config_read(component, NULL, NULL, &config));
    CHECK(uct_md_open(component, "mp", config, &md));
    uct_config_release(config);
}

static void open_interface(void) {
    CHECK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async));
    CHECK(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker));
    uct_iface_config_t* config;
    CHECK(uct_md_iface_config_read(md, "mp_rc", NULL, NULL, &config));
    const uct_iface_params_t params = {.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                                                     UCT_IFACE_PARAM_FIELD_ERR_HANDLER,
                                       .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
                                       .mode.device = {.tl_name = "mp_rc", .dev_name = "mp0"},
                                       .err_handler = peer_failed};
    CHECK(uct_iface_open(md, worker, &params, config, &interface));
    uct_config_release(config);
    uct_iface_progress_enable(interface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    CHECK(uct_iface_set_am_handler(interface, DONE, take, NULL, 0));
}

/* Source of puts, target of gets, and memory for the peer: one registration, with all adapters. */
static void register_memory(void) {
    void* block = NULL;
    const size_t all = 3 * (size_t)BYTES;
    need(posix_memalign(&block, 4096, all) == 0, "no memory");
    memset(block, 0, all);
    written = block;
    source = written + BYTES;
    got = source + BYTES;
    for (size_t i = 0; i < BYTES; i++) source[i] = (unsigned char)(i % 251);
    CHECK(uct_md_mem_reg(md, block, all, UCT_MD_MEM_ACCESS_ALL, &handle));
}

/* Both sides tell, then hear. The connection itself is made when the first operation needs it. */
static void connect_ep(void) {
    hello_t ours = {.memory = (uintptr_t)written}, theirs;
    uct_iface_attr_t attr;
    uct_md_attr_t domain;
    CHECK(uct_iface_query(interface, &attr));
    CHECK(uct_md_query(md, &domain));
    need(attr.device_addr_len <= sizeof ours.device && attr.iface_addr_len <= sizeof ours.interface &&
             domain.rkey_packed_size <= sizeof ours.key,
         "an address or a key is longer than our hello has room for");
    need(attr.cap.put.max_zcopy >= LARGE && attr.cap.get.max_zcopy >= SMALL, "operations cannot be as large as ours");
    CHECK(uct_iface_get_device_address(interface, (uct_device_addr_t*)ours.device));
    CHECK(uct_iface_get_address(interface, (uct_iface_addr_t*)ours.interface));
    CHECK(uct_md_mkey_pack(md, handle, ours.key));
    need(write(peer, &ours, sizeof ours) == sizeof ours, "cannot write to the socket");
    need(recv(peer, &theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs, "the other process has gone");

    const uct_ep_params_t params = {.field_mask = UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR |
                                                  UCT_EP_PARAM_FIELD_IFACE_ADDR,
                                    .iface = interface,
                                    .dev_addr = (const uct_device_addr_t*)theirs.device,
                                    .iface_addr = (const uct_iface_addr_t*)theirs.interface};
    CHECK(uct_ep_create(&params, &ep));
    CHECK(uct_rkey_unpack(component, theirs.key, &key));
    remote = theirs.memory;
}

/* UCS_ERR_NO_RESOURCE: not connected yet, or a queue is full. Progress changes that. */
static int again(ucs_status_t status) {
    need(status == UCS_OK || status == UCS_INPROGRESS || status == UCS_ERR_NO_RESOURCE, ucs_status_string(status));
    if (status == UCS_ERR_NO_RESOURCE) (void)uct_worker_progress(worker);
    return status == UCS_ERR_NO_RESOURCE;
}

/* No completion of its own: flush() tells when all operations are done. */
static void put(size_t offset, size_t bytes) {
    const uct_iov_t from = {.buffer = source + offset, .length = bytes, .memh = handle, .count = 1};
    while (again(uct_ep_put_zcopy(ep, &from, 1, remote + offset, key.rkey, NULL))) {}
}

static void get(size_t offset, size_t bytes) {
    const uct_iov_t into = {.buffer = got + offset, .length = bytes, .memh = handle, .count = 1};
    while (again(uct_ep_get_zcopy(ep, &into, 1, remote + offset, key.rkey, NULL))) {}
}

static void flush(void) {
    ucs_status_t status;
    while ((status = uct_ep_flush(ep, 0, NULL)) != UCS_OK) {
        need(status == UCS_INPROGRESS || status == UCS_ERR_NO_RESOURCE, ucs_status_string(status));
        (void)uct_worker_progress(worker);
    }
}

/* The hints. Results are the same without them. */
static void work(void) {
    size_t at = 0;
    /* One operation that is waited for: cut such that all paths are done at the same time. */
    CHECK(uct_mp_ep_set_hint(ep, UCT_MP_HINT_BLOCKING));
    put(at, LARGE);
    flush();
    at += LARGE;
    /* Many at a time: they fill the paths as they are, and need not be cut. */
    CHECK(uct_mp_ep_set_hint(ep, UCT_MP_HINT_NON_BLOCKING));
    for (int i = 0; i < MANY; i++) put(at + (size_t)i * SMALL, SMALL);
    flush();
    /* Puts and gets without order until the flush: both directions of each link are filled. Gets read what is there. */
    CHECK(uct_mp_ep_set_hint(ep, UCT_MP_HINT_ONE_SIDED_EPOCH));
    for (int i = 0; i < MANY; i++) {
        put(at + (size_t)(MANY + i) * SMALL, SMALL);
        get(at + (size_t)i * SMALL, SMALL);
    }
    flush();
    need(memcmp(got + at, source + at, (size_t)MANY * SMALL) == 0, "what was read is not what was written");
    CHECK(uct_mp_ep_set_hint(ep, UCT_MP_HINT_NONE));
    /* The flush is over, so our data can be seen there: a message may tell of it, whatever path it takes. */
    while (again(uct_ep_am_short(ep, DONE, 0, NULL, 0))) {}
    while (!told) (void)uct_worker_progress(worker);
    need(memcmp(written, source, BYTES) == 0, "the peer has written something else");
}

static void show_paths(void) {
    uct_mp_path_t paths[32];
    unsigned count = sizeof paths / sizeof *paths;
    CHECK(uct_mp_ep_query_paths(ep, paths, sizeof *paths, &count));
    for (unsigned i = 0; i < count && i < sizeof paths / sizeof *paths; i++)
        printf("path %u: %s, LID %u to %u, %s, %llu bytes written, %llu read\n", i, paths[i].local_rail,
               paths[i].local_lid, paths[i].remote_lid, paths[i].state == 0 ? "up" : "not up",
               (unsigned long long)paths[i].written, (unsigned long long)paths[i].read);
}

/* The peer may still need us: to acknowledge its message, say. So we make progress until it is through, too. */
static void leave_together(void) {
    char byte = 0;
    flush();
    need(write(peer, &byte, 1) == 1, "cannot write to the socket");
    while (recv(peer, &byte, 1, MSG_DONTWAIT) < 0) (void)uct_worker_progress(worker);
}

static void close_all(void) {
    uct_rkey_release(component, &key);
    uct_ep_destroy(ep);
    CHECK(uct_md_mem_dereg(md, handle));
    free(written);
    uct_iface_close(interface);
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async);
    uct_md_close(md);
}

/* A socket to the other process: we wait for it (host is NULL), or it waits for us; both for half a minute. */
static int meet(const char* host, const char* port) {
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE}, *to;
    const struct timeval patience = {.tv_sec = 30};
    const int one = 1;
    need(getaddrinfo(host, port, &hints, &to) == 0, "no such host or port");
    for (int tries = 0; tries < 300; tries++) {
        const int s = socket(AF_INET, SOCK_STREAM, 0);
        need(s >= 0, "no socket");
        if (host == NULL) {
            (void)setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
            (void)setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            need(bind(s, to->ai_addr, to->ai_addrlen) == 0 && listen(s, 1) == 0, "the port is in use");
            const int other = accept(s, NULL, NULL);
            need(other >= 0, "nobody has come");
            close(s);
            freeaddrinfo(to);
            return other;
        }
        if (connect(s, to->ai_addr, to->ai_addrlen) == 0) {
            freeaddrinfo(to);
            return s;
        }
        close(s);
        usleep(100000);
    }
    need(0, "nobody waits there");
    return -1;
}

int main(int argc, char** argv) {
    const char* port = "7471";
    int option;
    while ((option = getopt(argc, argv, "p:")) == 'p') port = optarg;
    if (option != -1 || argc - optind > 1) {
        fprintf(stderr, "usage: example [-p PORT] [HOST]\n");
        return 2;
    }
    peer = meet(argv[optind], port);
    open_domain();
    open_interface();
    register_memory();
    connect_ep();
    work();
    show_paths();
    leave_together();
    close_all();
    printf("example: ok, with libuct_mp.so %s\n", uct_mp_version());
    return 0;
}
