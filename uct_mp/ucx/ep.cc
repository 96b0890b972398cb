#include "uct_mp/ucx/ep.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "uct_mp/channel/beside.h"
#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face::ep {

namespace {

const verbs::RemoteKeys& keys(uct_rkey_t rkey) { return *reinterpret_cast<const verbs::RemoteKeys*>(rkey); }

// Operations that name memory of the caller's, and flushes, of an endpoint that is not the first
// of its channel. They are functions of their own, so that the usual case is one comparison.
template <class Operation> Status tagged(Ep& e, uct_completion_t* completion, const Operation& operation) {
    const turn::Inside inside(channel::beside(*e.core).turn);
    channel::Completion* const tag = e.core->tag(to_core(completion), e.origin);
    const Status status = operation(tag);
    if (status != Status::in_progress) e.core->untag(tag);
    return status;
}

template <auto call, class... Arguments>
[[gnu::noinline]] ucs_status_t call_tagged(Ep& e, uct_completion_t* completion, Arguments... arguments) {
    return to_ucs(tagged(e, completion, [&](channel::Completion* tag) { return call(*e.channel, arguments..., tag); }));
}

// Usual: each entry is one piece of memory.
[[gnu::always_inline]] inline bool is_plain(const uct_iov_t* iov, std::size_t count) {
    if (count == 1) [[likely]]
        return iov->count == 1;
    return std::all_of(iov, iov + count, [](const uct_iov_t& entry) { return entry.count == 1; });
}

// Strided entries: each element as an entry of its own.
template <class Operation> [[gnu::noinline]] ucs_status_t with_elements(uct_ep_h ep, const uct_iov_t* iov,
                                                                        std::size_t count, const Operation& operation) {
    uct_iov_t elements[channel::kMaxIov];
    const std::size_t most = std::min<std::size_t>(channel::kMaxIov, Iface::of(ep->iface).core().limits().max_iov);
    std::size_t n = 0;
    for (const uct_iov_t* entry = iov; entry != iov + count; ++entry) {
        const bool joined = entry->stride == entry->length; // one behind the other
        const std::size_t pieces = entry->length == 0 || entry->count == 0 ? 0 : joined ? 1 : entry->count;
        if (pieces > most - n) {
            ucs_error("mp: an operation on more than %zu pieces of memory (uct_iov_t.count and stride of entry %td: %u "
                      "pieces of %zu bytes): allowed are max_iov in all",
                      most, entry - iov, entry->count, entry->length);
            return UCS_ERR_INVALID_PARAM;
        }
        for (std::size_t i = 0; i < pieces; ++i)
            elements[n++] = {static_cast<std::byte*>(entry->buffer) + i * entry->stride,
                             joined ? entry->length * entry->count : entry->length, entry->memh, 0, 1};
    }
    return operation(elements, n);
}

} // namespace

template <bool marked> ucs_status_t Calls<marked>::am_short(uct_ep_h ep, std::uint8_t id, std::uint64_t header,
                                                            const void* payload, unsigned length) {
    Ep& e = Ep::of(ep);
    return to_ucs(channel::Calls<marked>::am_short(*e.channel, id, header, payload, length));
}

template <bool marked>
ucs_status_t Calls<marked>::am_short_iov(uct_ep_h ep, std::uint8_t id, const uct_iov_t* iov, std::size_t count) {
    Ep& e = Ep::of(ep);
    if (!is_plain(iov, count)) [[unlikely]]
        return with_elements(ep, iov, count,
                             [&](const uct_iov_t* all, std::size_t n) { return am_short_iov(ep, id, all, n); });
    return to_ucs(channel::Calls<marked>::am_short_iov(*e.channel, id, to_core(iov), count));
}

template <bool marked>
ssize_t Calls<marked>::am_bcopy(uct_ep_h ep, std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned) {
    Ep& e = Ep::of(ep);
    return channel::Calls<marked>::am_bcopy(*e.channel, id, pack, arg);
}

template <bool marked> ucs_status_t Calls<marked>::am_zcopy(uct_ep_h ep, std::uint8_t id, const void* header,
                                                            unsigned header_length, const uct_iov_t* iov,
                                                            std::size_t count, unsigned flags,
                                                            uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    if (!is_plain(iov, count)) [[unlikely]]
        return with_elements(ep, iov, count, [&](const uct_iov_t* all, std::size_t n) {
            return am_zcopy(ep, id, header, header_length, all, n, flags, completion);
        });
    if (e.origin) [[unlikely]]
        return call_tagged<channel::Calls<marked>::am_zcopy>(e, completion, id, header, header_length, to_core(iov),
                                                             count);
    return to_ucs(channel::Calls<marked>::am_zcopy(*e.channel, id, header, header_length, to_core(iov), count,
                                                   to_core(completion)));
}

namespace {

// A write or read of no bytes. Memory of no bytes has no key in UCX, and its own transports do not look at it then.
template <bool marked> [[gnu::noinline]] ucs_status_t move_nothing(Ep& e) {
    static constexpr verbs::RemoteKeys kNone{};
    return to_ucs(channel::Calls<marked>::put_short(*e.channel, nullptr, 0, 0, kNone));
}

template <bool marked>
[[gnu::noinline]] ssize_t put_bcopy_without_key(uct_ep_h ep, uct_pack_callback_t pack, void* arg) {
    if (const ucs_status_t status = move_nothing<marked>(Ep::of(ep)); status != UCS_OK) return status;
    std::vector<std::byte> packed(Iface::of(ep->iface).core().limits().max_bcopy);
    return pack(packed.data(), arg) == 0 ? 0 : UCS_ERR_INVALID_PARAM;
}

template <bool marked>
[[gnu::noinline]] ucs_status_t zcopy_without_key(Ep& e, const uct_iov_t* iov, std::size_t count) {
    const auto is_empty = [](const uct_iov_t& piece) { return piece.length == 0 || piece.count == 0; };
    return std::all_of(iov, iov + count, is_empty) ? move_nothing<marked>(e) : UCS_ERR_INVALID_PARAM;
}

} // namespace

template <bool marked> ucs_status_t Calls<marked>::put_short(uct_ep_h ep, const void* buffer, unsigned length,
                                                             std::uint64_t remote, uct_rkey_t rkey) {
    Ep& e = Ep::of(ep);
    if (length == 0) [[unlikely]]
        return move_nothing<marked>(e);
    return to_ucs(channel::Calls<marked>::put_short(*e.channel, buffer, length, remote, keys(rkey)));
}

template <bool marked> ssize_t Calls<marked>::put_bcopy(uct_ep_h ep, uct_pack_callback_t pack, void* arg,
                                                        std::uint64_t remote, uct_rkey_t rkey) {
    Ep& e = Ep::of(ep);
    if (rkey == UCT_INVALID_RKEY) [[unlikely]]
        return put_bcopy_without_key<marked>(ep, pack, arg);
    return channel::Calls<marked>::put_bcopy(*e.channel, pack, arg, remote, keys(rkey));
}

template <bool marked> ucs_status_t Calls<marked>::put_zcopy(uct_ep_h ep, const uct_iov_t* iov, std::size_t count,
                                                             std::uint64_t remote, uct_rkey_t rkey,
                                                             uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    if (rkey == UCT_INVALID_RKEY) [[unlikely]]
        return zcopy_without_key<marked>(e, iov, count);
    if (!is_plain(iov, count)) [[unlikely]]
        return with_elements(ep, iov, count, [&](const uct_iov_t* all, std::size_t n) {
            return put_zcopy(ep, all, n, remote, rkey, completion);
        });
    if (e.origin) [[unlikely]]
        return call_tagged<channel::Calls<marked>::put_zcopy>(e, completion, to_core(iov), count, remote,
                                                              std::cref(keys(rkey)));
    return to_ucs(
        channel::Calls<marked>::put_zcopy(*e.channel, to_core(iov), count, remote, keys(rkey), to_core(completion)));
}

template <bool marked> ucs_status_t Calls<marked>::get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack, void* arg,
                                                             std::size_t length, std::uint64_t remote, uct_rkey_t rkey,
                                                             uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    if (rkey == UCT_INVALID_RKEY) [[unlikely]]
        return length == 0 ? move_nothing<marked>(e) : UCS_ERR_INVALID_PARAM;
    if (e.origin) [[unlikely]]
        return call_tagged<channel::Calls<marked>::get_bcopy>(e, completion, unpack, arg, length, remote,
                                                              std::cref(keys(rkey)));
    return to_ucs(
        channel::Calls<marked>::get_bcopy(*e.channel, unpack, arg, length, remote, keys(rkey), to_core(completion)));
}

template <bool marked> ucs_status_t Calls<marked>::get_zcopy(uct_ep_h ep, const uct_iov_t* iov, std::size_t count,
                                                             std::uint64_t remote, uct_rkey_t rkey,
                                                             uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    if (rkey == UCT_INVALID_RKEY) [[unlikely]]
        return zcopy_without_key<marked>(e, iov, count);
    if (!is_plain(iov, count)) [[unlikely]]
        return with_elements(ep, iov, count, [&](const uct_iov_t* all, std::size_t n) {
            return get_zcopy(ep, all, n, remote, rkey, completion);
        });
    if (e.origin) [[unlikely]]
        return call_tagged<channel::Calls<marked>::get_zcopy>(e, completion, to_core(iov), count, remote,
                                                              std::cref(keys(rkey)));
    return to_ucs(
        channel::Calls<marked>::get_zcopy(*e.channel, to_core(iov), count, remote, keys(rkey), to_core(completion)));
}

namespace {

template <bool marked> ucs_status_t post(uct_ep_h ep, unsigned op, unsigned width, std::uint64_t value,
                                         std::uint64_t remote, uct_rkey_t rkey) {
    Ep& e = Ep::of(ep);
    return to_ucs(channel::Calls<marked>::atomic_post(*e.channel, static_cast<channel::AtomicOp>(op), width, value,
                                                      remote, keys(rkey)));
}

template <bool marked> ucs_status_t fetch(uct_ep_h ep, unsigned op, unsigned width, std::uint64_t value,
                                          std::uint64_t compare, void* result, std::uint64_t remote, uct_rkey_t rkey,
                                          uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    const auto operation = [&](channel::Completion* c) {
        return channel::Calls<marked>::atomic_fetch(*e.channel, static_cast<channel::AtomicOp>(op), width, value,
                                                    compare, result, remote, keys(rkey), c);
    };
    return to_ucs(e.origin ? tagged(e, completion, operation) : operation(to_core(completion)));
}

} // namespace

template <bool marked> ucs_status_t Calls<marked>::atomic32_post(uct_ep_h ep, unsigned op, std::uint32_t value,
                                                                 std::uint64_t remote, uct_rkey_t rkey) {
    return post<marked>(ep, op, 4, value, remote, rkey);
}

template <bool marked> ucs_status_t Calls<marked>::atomic64_post(uct_ep_h ep, unsigned op, std::uint64_t value,
                                                                 std::uint64_t remote, uct_rkey_t rkey) {
    return post<marked>(ep, op, 8, value, remote, rkey);
}

template <bool marked> ucs_status_t Calls<marked>::atomic32_fetch(uct_ep_h ep, unsigned op, std::uint32_t value,
                                                                  std::uint32_t* result, std::uint64_t remote,
                                                                  uct_rkey_t rkey, uct_completion_t* completion) {
    return fetch<marked>(ep, op, 4, value, 0, result, remote, rkey, completion);
}

template <bool marked> ucs_status_t Calls<marked>::atomic64_fetch(uct_ep_h ep, unsigned op, std::uint64_t value,
                                                                  std::uint64_t* result, std::uint64_t remote,
                                                                  uct_rkey_t rkey, uct_completion_t* completion) {
    return fetch<marked>(ep, op, 8, value, 0, result, remote, rkey, completion);
}

template <bool marked>
ucs_status_t Calls<marked>::atomic_cswap32(uct_ep_h ep, std::uint32_t compare, std::uint32_t swap, std::uint64_t remote,
                                           uct_rkey_t rkey, std::uint32_t* result, uct_completion_t* completion) {
    return fetch<marked>(ep, UCT_ATOMIC_OP_CSWAP, 4, swap, compare, result, remote, rkey, completion);
}

template <bool marked>
ucs_status_t Calls<marked>::atomic_cswap64(uct_ep_h ep, std::uint64_t compare, std::uint64_t swap, std::uint64_t remote,
                                           uct_rkey_t rkey, std::uint64_t* result, uct_completion_t* completion) {
    return fetch<marked>(ep, UCT_ATOMIC_OP_CSWAP, 8, swap, compare, result, remote, rkey, completion);
}

namespace {
ucs_status_t flush_any(uct_ep_h ep, unsigned flags, uct_completion_t* completion);

template <bool marked>
[[gnu::noinline]] ucs_status_t flush_unusual(uct_ep_h ep, unsigned flags, uct_completion_t* completion) {
    [[maybe_unused]] mp_turn_t& turn = Iface::of(ep->iface).turn(); // a completion may end the endpoint
    const ucs_status_t status = flush_any(ep, flags, completion);
    if constexpr (marked) mp_turn_leave(&turn);
    return status;
}

[[gnu::noinline, gnu::cold]] ucs_status_t wait_and_flush(uct_ep_h ep, unsigned flags, uct_completion_t* completion) {
    mp_turn_wait(&Iface::of(ep->iface).turn());
    return flush_unusual<true>(ep, flags, completion);
}
} // namespace

template <bool marked> ucs_status_t Calls<marked>::flush(uct_ep_h ep, unsigned flags, uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    if constexpr (marked) {
        if (mp_turn_begin(&Iface::of(ep->iface).turn())) [[unlikely]]
            return wait_and_flush(ep, flags, completion);
    }
    if ((flags & UCT_FLUSH_FLAG_CANCEL) || e.peer->first || e.origin) [[unlikely]]
        return flush_unusual<marked>(ep, flags, completion);
    return to_ucs(marked ? e.core->flush_and_leave(*e.channel, to_core(completion))
                         : e.core->flush(*e.channel, to_core(completion)));
}

namespace {
[[gnu::noinline]] ucs_status_t flush_any(uct_ep_h ep, unsigned flags, uct_completion_t* completion) {
    Ep& e = Ep::of(ep);
    if (!(flags & UCT_FLUSH_FLAG_CANCEL)) {
        // Requests that wait for room belong to the flush; the caller queues up behind them. While
        // the queue is worked off, it is the caller's turn: requests that wait then came after it.
        if (e.peer->first && !e.peer->busy && !e.peer->failed) return UCS_ERR_NO_RESOURCE;
        const auto operation = [&](channel::Completion* c) { return e.core->flush(*e.channel, c); };
        return to_ucs(e.origin && completion ? tagged(e, completion, operation) : operation(to_core(completion)));
    }
    if (e.cancelled) return to_ucs(e.core->cancel(*e.cancelled, e.origin, to_core(completion)));
    if (e.peer->live == 1) {
        // As with rc_verbs, whose queue pair is put into the
        // error state: a peer that goes on sending notices it.
        if (e.core->flush(*e.channel, nullptr) == Status::in_progress)
            e.core->invalidate(*e.channel, Status::canceled, true);
    } else if (e.core->flush(*e.channel, nullptr) == Status::in_progress || e.peer->first) {
        const Status status = e.core->cancel(*e.channel, e.origin, to_core(completion));
        Iface::of(ep->iface).peers().leave(e);
        return to_ucs(status);
    }
    const Status status = e.core->flush(*e.channel, to_core(completion));
    return failed(status) ? UCS_OK : to_ucs(status); // on a failed channel: everything has ended
}
} // namespace

ucs_status_t fence(uct_ep_h ep, unsigned) {
    Ep& e = Ep::of(ep);
    return to_ucs(channel::Interface::fence(*e.channel));
}

// Tells by the error handler. (UCP prefers active messages for its keepalive on transports that connect to interfaces,
// and asks here while it is still exchanging addresses.)
ucs_status_t check(uct_ep_h ep, unsigned flags, uct_completion_t* completion) {
    if (flags || completion) return UCS_ERR_INVALID_PARAM;
    Ep& e = Ep::of(ep);
    e.core->check(*e.channel);
    return UCS_OK;
}

ucs_status_t invalidate(uct_ep_h ep, unsigned) {
    Ep& e = Ep::of(ep);
    const turn::Inside inside(channel::beside(*e.core).turn);
    e.core->invalidate(*e.channel, Status::connection_reset, false);
    return UCS_OK;
}

template struct Calls<false>;
template struct Calls<true>;

} // namespace ucx_mp::face::ep
