// Messages of the data path: good samples, and what the fuzzer and the mutations do with bytes from nowhere. What is
// accepted must hold what its kind is read for.
#pragma once

#include "fuzz/targets.h"
#include "uct_mp/channel/well_formed.h"

namespace ucx_mp::fuzz {

// Between interfaces with four paths. Every kind, with and without what may come along.
inline std::vector<Bytes> sample_data() {
    using namespace channel;
    std::vector<Bytes> all;
    for (const Kind kind :
         {Kind::am, Kind::atomic, Kind::atomic_reply, Kind::ack, Kind::ack_request, Kind::marker, Kind::path_up})
        for (const std::uint8_t flags : {0, int{flag::ack_request}, int{flag::fenced}, int{flag::part},
                                         flag::part | flag::more, flag::part | flag::fenced})
            for (const std::size_t body : {std::size_t{0}, std::size_t{8}, std::size_t{100}}) {
                const bool am = kind == Kind::am, sequenced = kind <= Kind::atomic_reply;
                if ((flags & flag::part && !am) || (flags & flag::fenced && !sequenced)) continue;
                MessageHeader header{};
                header.kind = static_cast<std::uint8_t>(kind) & 0xf;
                header.version = kWireVersion & 0xf;
                header.flags = flags;
                header.am_id = am ? 3 : 0;
                header.path = 1;
                Bytes b(sizeof header);
                std::memcpy(b.data(), &header, sizeof header);
                const std::size_t fixed = kind == Kind::atomic         ? sizeof(AtomicRequest)
                                          : kind == Kind::atomic_reply ? sizeof(AtomicReply)
                                          : kind == Kind::marker       ? sizeof(MarkerBody)
                                          : kind == Kind::path_up      ? sizeof(PathUpBody)
                                                                       : 0;
                if (!am && body != 8) continue;
                b.resize(b.size() + (am ? body : fixed), kind == Kind::atomic_reply ? 0 : 0x11); // 0: done
                if (flags & flag::fenced) {
                    const FenceTrailer trailer{0b10, 7, 0}; // which it brings itself
                    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&trailer);
                    b.insert(b.end(), bytes, bytes + sizeof trailer);
                }
                all.push_back(b);
            }
    return all;
}

// True: accepted.
inline bool try_data(std::span<const std::uint8_t> bytes) {
    using namespace channel;
    if (bytes.size() < sizeof(MessageHeader)) return false; // the receiver looks at that itself
    const auto* message = reinterpret_cast<const std::byte*>(bytes.data());
    const auto length = static_cast<std::uint32_t>(bytes.size());
    constexpr std::uint64_t kPaths = 0b1111;
    if (flaw_of(message, length, kPaths)) return false;
    MessageHeader header;
    std::memcpy(&header, message, sizeof header);
    const auto kind = static_cast<Kind>(header.kind);
    must(header.version == kWireVersion && kind >= Kind::am && kind <= Kind::path_up);
    const std::size_t body = bytes.size() - sizeof header;
    const bool fenced = kind <= Kind::atomic_reply && header.flags & flag::fenced;
    const std::size_t trailer = fenced ? sizeof(FenceTrailer) : 0;
    must(body >= trailer);
    if (kind == Kind::am) must(header.am_id < kAmIdsOnWire && payload_bytes(header, length) == body - trailer);
    if (kind == Kind::atomic) must(body >= sizeof(AtomicRequest) + trailer);
    if (kind == Kind::atomic_reply) must(body >= sizeof(AtomicReply) + trailer);
    if (kind == Kind::marker) must(body >= sizeof(MarkerBody));
    if (kind == Kind::path_up) must(body >= sizeof(PathUpBody));
    if (fenced) {
        FenceTrailer t;
        std::memcpy(&t, bytes.data() + bytes.size() - sizeof t, sizeof t);
        must((t.paths & ~kPaths) == 0);
    }
    return true;
}

} // namespace ucx_mp::fuzz
