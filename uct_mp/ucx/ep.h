// The endpoint's operations as UCX calls them: a cast and a direct call of the core. Results and completions pass
// through (compat.h checks that the types are the same). Lengths are the caller's duty, as in UCX's own release builds.
//
// Cancelling (UCT_FLUSH_FLAG_CANCEL). An endpoint that has its channel for itself ends it: everything ends, and the
// peer notices if it goes on sending. Endpoints that share a channel must not suffer for each other. The operations
// of the cancelled one are ended by themselves (channel/cancels.h), and it turns to a channel that only answers
// UCS_ERR_CANCELED. For that its operations have to be known as its own: those that name the caller's memory, and
// flushes. They are marked by a tag instead of the completion, unless they come from the channel's first endpoint. So
// an endpoint that shares with nobody pays one comparison per such operation, and copied messages and writes cost
// nothing. Two other ways were not taken. A channel for each endpoint would cost queue pairs, a second handshake with
// the same peer, and its protocol. Moving the others to a successor would need the peer's word on what had arrived.
#pragma once

#include "uct_mp/channel/interface.h"
#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {

struct Peer;

// An endpoint holds only what the data path needs on this cache line.
struct Ep : abi::EpBase {
    channel::Interface* core;
    channel::Channel* channel;
    Peer* peer;
    // 0: the first of those that share the channel (nearly always the only one). See cancelling above.
    std::uint32_t origin = 0;
    channel::Channel* cancelled = nullptr; // the channel that it has left: UCT_FLUSH_FLAG_CANCEL
    std::size_t place = 0;                 // in Peer::eps

    [[nodiscard]] static Ep& of(uct_ep_h ep) { return *static_cast<Ep*>(reinterpret_cast<abi::EpBase*>(ep)); }
};

} // namespace ucx_mp::face

namespace ucx_mp::face::ep {

// ep_life.cc
ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* out);
void destroy(uct_ep_h ep);
bool connected_to(uct_ep_h ep, const uct_iface_addr_t* address);
bool reaches_host(uct_ep_h ep, const uct_device_addr_t* device);
ucs_status_t pending_add(uct_ep_h ep, uct_pending_req_t* request, unsigned flags);
void pending_purge(uct_ep_h ep, uct_pending_purge_callback_t callback, void* arg);

// ep.cc. `marked`: with marks for a thread that takes turns with the program (channel::Calls). The other functions, in
// both files, have none: their caller marks (abi/layouts.cc), or they do, if UCX calls them by another table.
template <bool marked> struct Calls {
    static ucs_status_t am_short(uct_ep_h ep, std::uint8_t id, std::uint64_t header, const void* payload,
                                 unsigned length);
    static ucs_status_t am_short_iov(uct_ep_h ep, std::uint8_t id, const uct_iov_t* iov, std::size_t count);
    static ssize_t am_bcopy(uct_ep_h ep, std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned flags);
    static ucs_status_t am_zcopy(uct_ep_h ep, std::uint8_t id, const void* header, unsigned header_length,
                                 const uct_iov_t* iov, std::size_t count, unsigned flags, uct_completion_t* completion);
    static ucs_status_t put_short(uct_ep_h ep, const void* buffer, unsigned length, std::uint64_t remote,
                                  uct_rkey_t rkey);
    static ssize_t put_bcopy(uct_ep_h ep, uct_pack_callback_t pack, void* arg, std::uint64_t remote, uct_rkey_t rkey);
    static ucs_status_t put_zcopy(uct_ep_h ep, const uct_iov_t* iov, std::size_t count, std::uint64_t remote,
                                  uct_rkey_t rkey, uct_completion_t* completion);
    static ucs_status_t get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack, void* arg, std::size_t length,
                                  std::uint64_t remote, uct_rkey_t rkey, uct_completion_t* completion);
    static ucs_status_t get_zcopy(uct_ep_h ep, const uct_iov_t* iov, std::size_t count, std::uint64_t remote,
                                  uct_rkey_t rkey, uct_completion_t* completion);
    static ucs_status_t atomic32_post(uct_ep_h ep, unsigned op, std::uint32_t value, std::uint64_t remote,
                                      uct_rkey_t rkey);
    static ucs_status_t atomic64_post(uct_ep_h ep, unsigned op, std::uint64_t value, std::uint64_t remote,
                                      uct_rkey_t rkey);
    static ucs_status_t atomic32_fetch(uct_ep_h ep, unsigned op, std::uint32_t value, std::uint32_t* result,
                                       std::uint64_t remote, uct_rkey_t rkey, uct_completion_t* completion);
    static ucs_status_t atomic64_fetch(uct_ep_h ep, unsigned op, std::uint64_t value, std::uint64_t* result,
                                       std::uint64_t remote, uct_rkey_t rkey, uct_completion_t* completion);
    static ucs_status_t atomic_cswap32(uct_ep_h ep, std::uint32_t compare, std::uint32_t swap, std::uint64_t remote,
                                       uct_rkey_t rkey, std::uint32_t* result, uct_completion_t* completion);
    static ucs_status_t atomic_cswap64(uct_ep_h ep, std::uint64_t compare, std::uint64_t swap, std::uint64_t remote,
                                       uct_rkey_t rkey, std::uint64_t* result, uct_completion_t* completion);
    static ucs_status_t flush(uct_ep_h ep, unsigned flags, uct_completion_t* completion);
};
ucs_status_t fence(uct_ep_h ep, unsigned flags);
ucs_status_t check(uct_ep_h ep, unsigned flags, uct_completion_t* completion);
ucs_status_t invalidate(uct_ep_h ep, unsigned flags);

} // namespace ucx_mp::face::ep
