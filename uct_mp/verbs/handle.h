// Owners of verbs objects. Move-only; destroyed in the reverse order of their members. Destroying fails only through a
// mistake of ours (a parent before its child) or a dead device; neither can be helped then, so the result is ignored.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace ucx_mp::verbs {

template <auto Destroy> struct Destroyer {
    template <class T> void operator()(T* object) const { (void)Destroy(object); }
};

using Context = std::unique_ptr<ibv_context, Destroyer<ibv_close_device>>;
using ProtectionDomain = std::unique_ptr<ibv_pd, Destroyer<ibv_dealloc_pd>>;
using MemoryRegion = std::unique_ptr<ibv_mr, Destroyer<ibv_dereg_mr>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, Destroyer<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, Destroyer<ibv_destroy_cq>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, Destroyer<ibv_destroy_srq>>;
using QueuePair = std::unique_ptr<ibv_qp, Destroyer<ibv_destroy_qp>>;
using AddressHandle = std::unique_ptr<ibv_ah, Destroyer<ibv_destroy_ah>>;

} // namespace ucx_mp::verbs
