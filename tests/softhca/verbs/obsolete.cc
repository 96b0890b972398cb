// The interface of 2006: programs linked with libibverbs 1.0 pass structures of another layout. They load, and are
// told.
#include <cstdio>
#include <cstdlib>

#include "verbs/face.h"

namespace {
[[noreturn]] void refuse() {
    std::fputs("softhca: this program uses the libibverbs 1.0 interface (before 2007), which is not emulated\n",
               stderr);
    std::abort();
}
} // namespace

#define OBSOLETE(name, version)                                                                                        \
    VERBS_API __attribute__((symver(#name "@" version))) void softhca_old_##name() { refuse(); }

OBSOLETE(ibv_ack_async_event, "IBVERBS_1.0")
OBSOLETE(ibv_ack_cq_events, "IBVERBS_1.0")
OBSOLETE(ibv_alloc_pd, "IBVERBS_1.0")
OBSOLETE(ibv_attach_mcast, "IBVERBS_1.0")
OBSOLETE(ibv_close_device, "IBVERBS_1.0")
OBSOLETE(ibv_create_ah, "IBVERBS_1.0")
OBSOLETE(ibv_create_cq, "IBVERBS_1.0")
OBSOLETE(ibv_create_qp, "IBVERBS_1.0")
OBSOLETE(ibv_create_srq, "IBVERBS_1.0")
OBSOLETE(ibv_dealloc_pd, "IBVERBS_1.0")
OBSOLETE(ibv_dereg_mr, "IBVERBS_1.0")
OBSOLETE(ibv_destroy_ah, "IBVERBS_1.0")
OBSOLETE(ibv_destroy_cq, "IBVERBS_1.0")
OBSOLETE(ibv_destroy_qp, "IBVERBS_1.0")
OBSOLETE(ibv_destroy_srq, "IBVERBS_1.0")
OBSOLETE(ibv_detach_mcast, "IBVERBS_1.0")
OBSOLETE(ibv_free_device_list, "IBVERBS_1.0")
OBSOLETE(ibv_get_async_event, "IBVERBS_1.0")
OBSOLETE(ibv_get_cq_event, "IBVERBS_1.0")
OBSOLETE(ibv_get_device_guid, "IBVERBS_1.0")
OBSOLETE(ibv_get_device_list, "IBVERBS_1.0")
OBSOLETE(ibv_get_device_name, "IBVERBS_1.0")
OBSOLETE(ibv_modify_qp, "IBVERBS_1.0")
OBSOLETE(ibv_modify_srq, "IBVERBS_1.0")
OBSOLETE(ibv_open_device, "IBVERBS_1.0")
OBSOLETE(ibv_query_device, "IBVERBS_1.0")
OBSOLETE(ibv_query_gid, "IBVERBS_1.0")
OBSOLETE(ibv_query_pkey, "IBVERBS_1.0")
OBSOLETE(ibv_query_port, "IBVERBS_1.0")
OBSOLETE(ibv_query_qp, "IBVERBS_1.0")
OBSOLETE(ibv_query_srq, "IBVERBS_1.0")
OBSOLETE(ibv_reg_mr, "IBVERBS_1.0")
OBSOLETE(ibv_register_driver, "IBVERBS_1.1")
OBSOLETE(ibv_resize_cq, "IBVERBS_1.0")
