/*
 * Extensions of the transports mp_rc and mp_dc beside UCT's own API: hints about traffic, and a look at the paths of an
 * endpoint. For programs that call UCT directly (MPI modules, benchmarks); UCP's users need none of it. Example:
 * example.c, beside this file or in the documentation.
 *
 * Link libuct_mp.so, or look the functions up with dlsym(): both must be the library that UCX has loaded.
 * Threads: as every UCT call, from the thread that uses the endpoint's worker.
 *
 * Stable: what is declared here stays, with these values; functions are added, and fields at the end of structures. Not
 * stable: everything else that the library exports (it is for its own programs and modules).
 */
#ifndef UCT_MP_H
#define UCT_MP_H

#include <stddef.h>
#include <stdint.h>
#include <uct/api/uct.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What the caller knows about the operations that follow (communication marker, dissertation 6.2.3). Policies that
 * don't care ignore it; `default` and `epc` cut large operations for one that is waited for, and keep them whole in a
 * window of many. It changes speed, never results.
 */
typedef enum uct_mp_hint {
    UCT_MP_HINT_NONE = 0,       /* nothing is known; what every endpoint starts with */
    UCT_MP_HINT_BLOCKING,       /* the caller waits for each operation: shortest time of one */
    UCT_MP_HINT_NON_BLOCKING,   /* many are under way: highest rate of all */
    UCT_MP_HINT_COLLECTIVE,     /* steps of a collective: waited for, whatever the calls look like */
    UCT_MP_HINT_ONE_SIDED_EPOCH /* puts and gets without order until the next flush or fence (dissertation ch. 5) */
} uct_mp_hint_t;

/*
 * Sets the hint of all later operations of this endpoint; for one operation, set it before and back after. Endpoints of
 * one interface to the same peer share it.
 * UCS_ERR_INVALID_PARAM: no such hint. UCS_ERR_UNSUPPORTED: not an endpoint of mp_rc or mp_dc.
 */
ucs_status_t uct_mp_ep_set_hint(uct_ep_h ep, uct_mp_hint_t hint);

/* One path of an endpoint. Fields are only ever added at the end. */
typedef struct uct_mp_path {
    char local_rail[32];            /* "mlx5_0:1" */
    uint16_t local_lid, remote_lid; /* path bits included; RoCE: 0 */
    uint32_t state;                 /* 0 up, 1 suspect, 2 down, 3 probing, 4 recovering */
    double weight;                  /* of policies that have weights */
    double write_rate, read_rate;   /* measured, bytes per nanosecond; 0: not yet */
    double latency;                 /* of small messages, smoothed, nanoseconds */
    uint64_t written, read;         /* bytes completed so far */
    uint64_t in_flight;             /* bytes posted and not completed */
} uct_mp_path_t;

/*
 * The paths to the endpoint's peer. `*count`: in: entries of `paths`, each of `path_size` bytes (sizeof(uct_mp_path_t)
 * of the caller); out: the number of paths, which may be larger. 0 before the first operation has connected.
 * UCS_ERR_UNSUPPORTED: not an endpoint of mp_rc or mp_dc. Slow: copies statistics of the whole interface.
 */
ucs_status_t uct_mp_ep_query_paths(uct_ep_h ep, uct_mp_path_t* paths, size_t path_size, unsigned* count);

/*
 * How many adapters the interface's rails are on. With several, whoever sees a message need not see what was written
 * before it over another one: a fence or flush behind writes costs messages.
 * UCS_ERR_UNSUPPORTED: not an interface of mp_rc or mp_dc.
 */
ucs_status_t uct_mp_iface_query_adapters(uct_iface_h iface, unsigned* count);

/* Of the library that is loaded: "0.1.0". */
const char* uct_mp_version(void);

#ifdef __cplusplus
}
#endif

#endif
