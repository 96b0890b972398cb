// What rdma-core's own libraries (providers, librdmacm) take from libibverbs besides the public interface. They only
// have to load beside this library: with no kernel device behind it nothing of this is ever used, so nearly all of it
// refuses.
#include "verbs/face.h"

using namespace softhca::face;

#define REFUSES(name)                                                                                                  \
    VERBS_API int name() { return fail(EOPNOTSUPP); }

// Commands to the kernel.
REFUSES(ibv_cmd_advise_mr)
REFUSES(ibv_cmd_alloc_dm)
REFUSES(ibv_cmd_alloc_mw)
REFUSES(ibv_cmd_alloc_pd)
REFUSES(ibv_cmd_attach_mcast)
REFUSES(ibv_cmd_close_xrcd)
REFUSES(ibv_cmd_create_ah)
REFUSES(ibv_cmd_create_counters)
REFUSES(ibv_cmd_create_cq)
REFUSES(ibv_cmd_create_cq_ex)
REFUSES(ibv_cmd_create_cq_ex2) // rdma-core 56
REFUSES(ibv_cmd_create_flow)
REFUSES(ibv_cmd_create_flow_action_esp)
REFUSES(ibv_cmd_create_qp)
REFUSES(ibv_cmd_create_qp_ex)
REFUSES(ibv_cmd_create_qp_ex2)
REFUSES(ibv_cmd_create_rwq_ind_table)
REFUSES(ibv_cmd_create_srq)
REFUSES(ibv_cmd_create_srq_ex)
REFUSES(ibv_cmd_create_wq)
REFUSES(ibv_cmd_dealloc_mw)
REFUSES(ibv_cmd_dealloc_pd)
REFUSES(ibv_cmd_dereg_mr)
REFUSES(ibv_cmd_destroy_ah)
REFUSES(ibv_cmd_destroy_counters)
REFUSES(ibv_cmd_destroy_cq)
REFUSES(ibv_cmd_destroy_flow)
REFUSES(ibv_cmd_destroy_flow_action)
REFUSES(ibv_cmd_destroy_qp)
REFUSES(ibv_cmd_destroy_rwq_ind_table)
REFUSES(ibv_cmd_destroy_srq)
REFUSES(ibv_cmd_destroy_wq)
REFUSES(ibv_cmd_detach_mcast)
REFUSES(ibv_cmd_free_dm)
REFUSES(ibv_cmd_get_context)
REFUSES(ibv_cmd_modify_cq)
REFUSES(ibv_cmd_modify_flow_action_esp)
REFUSES(ibv_cmd_modify_qp)
REFUSES(ibv_cmd_modify_qp_ex)
REFUSES(ibv_cmd_modify_srq)
REFUSES(ibv_cmd_modify_wq)
REFUSES(ibv_cmd_open_qp)
REFUSES(ibv_cmd_open_xrcd)
REFUSES(ibv_cmd_poll_cq)
REFUSES(ibv_cmd_post_recv)
REFUSES(ibv_cmd_post_send)
REFUSES(ibv_cmd_post_srq_recv)
REFUSES(ibv_cmd_query_context)
REFUSES(ibv_cmd_query_device_any)
REFUSES(ibv_cmd_query_mr)
REFUSES(ibv_cmd_query_port)
REFUSES(ibv_cmd_query_qp)
REFUSES(ibv_cmd_query_srq)
REFUSES(ibv_cmd_read_counters)
REFUSES(ibv_cmd_reg_dm_mr)
REFUSES(ibv_cmd_reg_dmabuf_mr)
REFUSES(ibv_cmd_reg_mr)
REFUSES(ibv_cmd_req_notify_cq)
REFUSES(ibv_cmd_rereg_mr)
REFUSES(ibv_cmd_resize_cq)
REFUSES(execute_ioctl)
REFUSES(__ioctl_final_num_attrs)

// Structures of the kernel's connection manager.
REFUSES(ibv_copy_ah_attr_from_kern)
REFUSES(ibv_copy_qp_attr_from_kern)
REFUSES(ibv_copy_path_rec_from_kern)
REFUSES(ibv_copy_path_rec_to_kern)

// Provider registration (constructors of libmlx5 and others call it) and helpers.
VERBS_API bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;
VERBS_API void verbs_register_driver_34(const void*) {}
VERBS_API void verbs_set_ops(void*, const void*) {}
VERBS_API void verbs_uninit_context(void*) {}
VERBS_API void verbs_init_cq(void*, void*, void*, void*) {}
VERBS_API void __verbs_log(void*, uint32_t, const char*, ...) {}
VERBS_API void* _verbs_init_and_alloc_context(void*, int, size_t, void*, uint32_t) { return fail_null(EOPNOTSUPP); }
VERBS_API ibv_context* verbs_open_device(ibv_device* device, void*) { return ibv_open_device(device); }

// rdma-core 56, for messages of providers.
VERBS_API const char* ibv_wr_opcode_str(ibv_wr_opcode opcode) {
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
        return "rdma write";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return "rdma write with immediate";
    case IBV_WR_SEND:
        return "send";
    case IBV_WR_SEND_WITH_IMM:
        return "send with immediate";
    case IBV_WR_RDMA_READ:
        return "rdma read";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return "compare and swap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return "fetch and add";
    default:
        return "another operation";
    }
}

// Sysfs: emulated devices have no folder there.
VERBS_API const char* ibv_get_sysfs_path() { return "/sys"; }
VERBS_API int ibv_read_sysfs_file(const char*, const char*, char*, size_t) {
    errno = ENOENT;
    return -1;
}
VERBS_API int ibv_read_ibdev_sysfs_file(char*, size_t, void*, const char*, ...) {
    errno = ENOENT;
    return -1;
}
