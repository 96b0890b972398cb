#include "pml_glue/core/uct/endpoint.h"

#include <cstring>

#include "pml_glue/core/no_memory.h"
#include "uct_mp/api/uct_mp.h"

namespace ucx_mp::glue {

namespace {

[[gnu::noinline]] Posted unusual(ucs_status_t status) {
    switch (status) {
    case UCS_ERR_NO_RESOURCE:
        return Posted::no_room;
    case UCS_ERR_INVALID_PARAM: // of this operation, not of the peer
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
    case UCS_ERR_EXCEEDS_LIMIT:
    case UCS_ERR_OUT_OF_RANGE:
        return Posted::refused;
    default:
        return Posted::failed;
    }
}

Posted posted(ucs_status_t status) {
    if (status == UCS_OK) [[likely]]
        return Posted::done;
    return status == UCS_INPROGRESS ? Posted::in_progress : unusual(status);
}

static_assert(sizeof(uct_completion_t) <= sizeof(Completion::port));

void completed(uct_completion_t* inner) {
    auto* const completion = reinterpret_cast<Completion*>(reinterpret_cast<char*>(inner) - offsetof(Completion, port));
    or_end("ending an operation", [&] { completion->done(*completion, inner->status == UCS_OK); });
}

uct_completion_t* inner_of(Completion& completion) {
    auto* const inner = reinterpret_cast<uct_completion_t*>(&completion.port);
    inner->func = completed;
    inner->count = 1;
    inner->status = UCS_OK;
    return inner;
}

// A registration that needs no handle has one all the same; null is "cannot".
struct NoHandle {
} no_handle;
Memory* handle_of(uct_mem_h memory) { return reinterpret_cast<Memory*>(memory ? memory : &no_handle); }
uct_mem_h of_handle(Memory* memory) {
    return reinterpret_cast<void*>(memory) == &no_handle ? UCT_MEM_HANDLE_NULL : reinterpret_cast<uct_mem_h>(memory);
}

} // namespace

UctEndpoint::UctEndpoint(Lane& lane, uct_ep_h endpoint, Mover mover, Lane* moves, uct_ep_h moving, double copy)
    : lane_(lane), endpoint_(endpoint), moves_(moves), moving_(moving), mover_(mover) {
    const auto& cap = lane.attributes().cap;
    limits_.max_short = cap.am.max_short > 8 ? cap.am.max_short - 8 : 0;
    limits_.max_packed = cap.am.max_bcopy;
    if (lane.can(UCT_IFACE_FLAG_AM_ZCOPY) && mover == Mover::transport && moves == &lane) {
        limits_.max_header = cap.am.max_hdr;
        limits_.max_zero_copy = cap.am.max_zcopy > cap.am.max_hdr ? cap.am.max_zcopy - 64 : 0;
    }
    if (mover == Mover::processor) {
        limits_.max_get = limits_.max_put = SIZE_MAX;
    } else if (mover == Mover::transport) {
        const auto& moving_cap = moves->attributes().cap;
        if (moves->can(UCT_IFACE_FLAG_GET_ZCOPY)) limits_.max_get = moving_cap.get.max_zcopy;
        if (moves->can(UCT_IFACE_FLAG_PUT_ZCOPY)) limits_.max_put = moving_cap.put.max_zcopy;
        // Where writes are over when the call returns, a copy saves nothing.
        if (moves == &lane && moves->can(UCT_IFACE_FLAG_PUT_BCOPY)) limits_.max_put_packed = moving_cap.put.max_bcopy;
        if (moves == &lane && moves->can(UCT_IFACE_FLAG_PUT_SHORT)) limits_.max_put_short = moving_cap.put.max_short;
        if (moves == &lane && moves->can(UCT_IFACE_FLAG_GET_BCOPY)) limits_.max_get_packed = moving_cap.get.max_bcopy;
        limits_.key_bytes = moves->domain_attributes().rkey_packed_size;
        limits_.fence_orders = moving_ == endpoint_;
    }
    estimate(copy);
}

// UCT's own estimates, in seconds. Bandwidth of transports within the host is that of the copies, which we count.
void UctEndpoint::estimate(double copy) {
    const auto nanoseconds = [](double seconds) { return seconds * 1e9; };
    const auto byte = [&](const uct_iface_attr_t& of) {
        const double bandwidth = of.bandwidth.dedicated + of.bandwidth.shared;
        return bandwidth > 0 ? nanoseconds(1 / bandwidth) : 0;
    };
    const uct_iface_attr_t& messages = lane_.attributes();
    const bool network = moves_ == &lane_;
    costs_ = {.message = nanoseconds(messages.overhead),
              .latency = nanoseconds(messages.latency.c),
              .byte = network ? byte(messages) : 0,
              .copy = copy};
    if (mover_ == Mover::processor) costs_.move_byte = copy;
    if (mover_ != Mover::transport) return;
    const uct_iface_attr_t& moves = moves_->attributes();
    costs_.move = nanoseconds(moves.overhead);
    costs_.move_latency = nanoseconds(moves.latency.c);
    costs_.move_byte = byte(moves);
    if (moves_->domain_attributes().cap.flags & UCT_MD_FLAG_REG)
        costs_.registration = nanoseconds(moves_->domain_attributes().reg_cost.c);
}

UctEndpoint::~UctEndpoint() {
    if (moving_ && moving_ != endpoint_) uct_ep_destroy(moving_);
    uct_ep_destroy(endpoint_);
}

Posted UctEndpoint::send_short(MessageKind kind, std::uint64_t header, const void* payload, std::size_t length) {
    const ucs_status_t status = uct_ep_am_short(endpoint_, kind, header, payload, static_cast<unsigned>(length));
    if (status == UCS_OK) [[likely]] {
        ++lane_.traffic.messages;
        lane_.traffic.message_bytes += length + sizeof header;
        return Posted::done;
    }
    return unusual(status);
}

Posted UctEndpoint::send_packed(MessageKind kind, Packer packer, void* argument) {
    const ssize_t length = uct_ep_am_bcopy(endpoint_, kind, packer, argument, 0);
    if (length < 0) return posted(static_cast<ucs_status_t>(length));
    ++lane_.traffic.messages;
    lane_.traffic.message_bytes += static_cast<std::uint64_t>(length);
    return Posted::done;
}

Posted UctEndpoint::send_zero_copy(MessageKind kind, const void* header, std::size_t header_length, const void* data,
                                   std::size_t length, Memory* memory, Completion& completion) {
    const uct_iov_t iov{const_cast<void*>(data), length, of_handle(memory), 0, 1};
    const Posted outcome = posted(uct_ep_am_zcopy(endpoint_, kind, header, static_cast<unsigned>(header_length), &iov,
                                                  1, 0, inner_of(completion)));
    if (outcome == Posted::done || outcome == Posted::in_progress) {
        ++lane_.traffic.messages;
        lane_.traffic.message_bytes += header_length + length;
    }
    return outcome;
}

// If the writes' transport is not that of the messages (cma), this is the kernel's answer to one call:
// memory that may not be read or written. The transport of messages says whether the peer is there.
Posted UctEndpoint::moved(ucs_status_t status) const {
    const Posted outcome = posted(status);
    return outcome == Posted::failed && moves_ != &lane_ ? Posted::refused : outcome;
}

namespace {
inline Posted count_move(Lane& lane, std::size_t bytes) {
    ++lane.traffic.moves;
    lane.traffic.moved_bytes += bytes;
    return Posted::done;
}
} // namespace

Posted UctEndpoint::put(const void* from, std::size_t length, Memory* memory, std::uint64_t to, RemoteKey* key,
                        Completion& completion) {
    if (mover_ == Mover::processor) {
        std::memcpy(reinterpret_cast<void*>(to), from, length); // NOLINT(performance-no-int-to-ptr)
        return count_move(lane_, length);
    }
    const uct_iov_t iov{const_cast<void*>(from), length, of_handle(memory), 0, 1};
    const auto* const bundle = reinterpret_cast<uct_rkey_bundle_t*>(key);
    const Posted outcome = moved(uct_ep_put_zcopy(moving_, &iov, 1, to, bundle->rkey, inner_of(completion)));
    if (outcome == Posted::done || outcome == Posted::in_progress) count_move(*moves_, length);
    return outcome;
}

Posted UctEndpoint::get(void* to, std::size_t length, Memory* memory, std::uint64_t from, RemoteKey* key,
                        Completion& completion) {
    if (mover_ == Mover::processor) {
        std::memcpy(to, reinterpret_cast<const void*>(from), length); // NOLINT(performance-no-int-to-ptr)
        return count_move(lane_, length);
    }
    const uct_iov_t iov{to, length, of_handle(memory), 0, 1};
    const auto* const bundle = reinterpret_cast<uct_rkey_bundle_t*>(key);
    const Posted outcome = moved(uct_ep_get_zcopy(moving_, &iov, 1, from, bundle->rkey, inner_of(completion)));
    if (outcome == Posted::done || outcome == Posted::in_progress) count_move(*moves_, length);
    return outcome;
}

Posted UctEndpoint::put_packed(Packer packer, void* argument, std::uint64_t to, RemoteKey* key) {
    const auto* const bundle = reinterpret_cast<uct_rkey_bundle_t*>(key);
    const ssize_t length = uct_ep_put_bcopy(moving_, packer, argument, to, bundle->rkey);
    if (length < 0) return posted(static_cast<ucs_status_t>(length));
    return count_move(*moves_, static_cast<std::size_t>(length));
}

Posted UctEndpoint::put_short(const void* from, std::size_t length, std::uint64_t to, RemoteKey* key) {
    const auto* const bundle = reinterpret_cast<uct_rkey_bundle_t*>(key);
    const ucs_status_t status = uct_ep_put_short(moving_, from, static_cast<unsigned>(length), to, bundle->rkey);
    if (status == UCS_OK) [[likely]]
        return count_move(*moves_, length);
    return unusual(status);
}

namespace {
void unpack_bytes(void* to, const void* data, std::size_t length) { std::memcpy(to, data, length); }
} // namespace

Posted UctEndpoint::get_packed(void* to, std::size_t length, std::uint64_t from, RemoteKey* key,
                               Completion& completion) {
    const auto* const bundle = reinterpret_cast<uct_rkey_bundle_t*>(key);
    const Posted outcome =
        posted(uct_ep_get_bcopy(moving_, unpack_bytes, to, length, from, bundle->rkey, inner_of(completion)));
    if (outcome == Posted::done || outcome == Posted::in_progress) count_move(*moves_, length);
    return outcome;
}

// Writes by another transport than the messages' (cma) may still be on their way: Limits::fence_orders.
Posted UctEndpoint::fence() {
    if (mover_ != Mover::transport || moving_ != endpoint_) return Posted::done;
    return posted(uct_ep_fence(endpoint_, 0));
}

Posted UctEndpoint::flush(Completion& completion) {
    if (mover_ != Mover::transport) return Posted::done;
    return posted(uct_ep_flush(moving_, 0, inner_of(completion)));
}

// An endpoint of a transport that knows no hints says so, and goes on without.
void UctEndpoint::hint(Hint hint) {
    if (mover_ == Mover::transport) (void)uct_mp_ep_set_hint(moving_, static_cast<uct_mp_hint_t>(hint));
}

void UctEndpoint::check() {
    if (lane_.can(UCT_IFACE_FLAG_EP_CHECK)) (void)uct_ep_check(endpoint_, 0, nullptr);
}

Memory* UctEndpoint::register_memory(void* address, std::size_t length) {
    if (mover_ == Mover::processor) return handle_of(nullptr);
    if (mover_ != Mover::transport) return nullptr;
    if (!(moves_->domain_attributes().cap.flags & UCT_MD_FLAG_REG)) return handle_of(nullptr);
    uct_mem_h memory = UCT_MEM_HANDLE_NULL;
    if (uct_md_mem_reg(moves_->domain(), address, length, UCT_MD_MEM_ACCESS_RMA | UCT_MD_MEM_FLAG_HIDE_ERRORS,
                       &memory) != UCS_OK)
        return nullptr;
    return handle_of(memory);
}

void UctEndpoint::deregister(Memory* memory) {
    if (mover_ == Mover::transport && of_handle(memory) != UCT_MEM_HANDLE_NULL)
        uct_md_mem_dereg(moves_->domain(), of_handle(memory));
}

bool UctEndpoint::pack_key(Memory* memory, std::byte* out) {
    return limits_.key_bytes == 0 || uct_md_mkey_pack(moves_->domain(), of_handle(memory), out) == UCS_OK;
}

RemoteKey* UctEndpoint::unpack_key(const std::byte* key) {
    if (mover_ == Mover::processor) return reinterpret_cast<RemoteKey*>(&no_handle);
    auto* const bundle = new uct_rkey_bundle_t{};
    if (uct_rkey_unpack(moves_->component(), key, bundle) == UCS_OK) return reinterpret_cast<RemoteKey*>(bundle);
    delete bundle;
    return nullptr;
}

void UctEndpoint::release_key(RemoteKey* key) {
    if (mover_ == Mover::processor) return;
    auto* const bundle = reinterpret_cast<uct_rkey_bundle_t*>(key);
    uct_rkey_release(moves_->component(), bundle);
    delete bundle;
}

// Keys of all transports: for each the length of its name, the name, the length of its key, the key.
RemoteKey* UctEndpoint::unpack_exposed(const std::byte* keys, std::size_t length) {
    if (mover_ == Mover::processor) return reinterpret_cast<RemoteKey*>(&no_handle);
    if (mover_ != Mover::transport) return nullptr;
    const std::byte *at = keys, *const end = keys + length;
    const auto take = [&](std::size_t& bytes) {
        bytes = at == end ? 0 : std::to_integer<std::size_t>(*at++);
        const std::byte* const start = at;
        if (static_cast<std::size_t>(end - at) < bytes) return static_cast<const std::byte*>(nullptr);
        at += bytes;
        return start;
    };
    while (at != end) {
        std::size_t name_bytes, key_bytes;
        const auto* const name = reinterpret_cast<const char*>(take(name_bytes));
        const std::byte* const key = take(key_bytes);
        if (!name || !key || name_bytes == 0) return nullptr;
        if (moves_->transport() == std::string_view(name, name_bytes))
            return key_bytes == limits_.key_bytes ? unpack_key(key) : nullptr;
    }
    return nullptr;
}

ucs_status_t UctEndpoint::flush() { return uct_ep_flush(endpoint_, 0, nullptr); }

// A failed endpoint has nothing under way but completions, which the caller has seen.
bool UctEndpoint::idle() {
    const auto waits = [](uct_ep_h endpoint) {
        const ucs_status_t status = uct_ep_flush(endpoint, 0, nullptr);
        return status == UCS_INPROGRESS || status == UCS_ERR_NO_RESOURCE;
    };
    return !waits(endpoint_) && (!moving_ || moving_ == endpoint_ || !waits(moving_));
}

} // namespace ucx_mp::glue
