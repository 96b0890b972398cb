// An endpoint over UCT: messages by one transport, writes and reads by the same, or by another one on the same host.
#pragma once

#include "pml_glue/core/uct/lane.h"

namespace ucx_mp::glue {

// The mover of data to and from a peer's memory.
enum class Mover : std::uint8_t {
    none,      // there is none: fragments
    transport, // UCT's put and get
    processor, // the peer is this process
};

class UctEndpoint final : public Endpoint {
public:
    // Takes both endpoints over. `moves`: for Mover::transport, may be the lane of the
    // messages and its endpoint. `copy`: the processor's, nanoseconds per byte (Costs).
    UctEndpoint(Lane& lane, uct_ep_h endpoint, Mover mover, Lane* moves, uct_ep_h moving, double copy);
    UctEndpoint(const UctEndpoint&) = delete;
    ~UctEndpoint() override;
    [[nodiscard]] const Lane& lane() const { return lane_; } // of its messages
    [[nodiscard]] bool uses(uct_ep_h endpoint) const { return endpoint == endpoint_ || endpoint == moving_; }

    Posted send_short(MessageKind kind, std::uint64_t header, const void* payload, std::size_t length) override;
    Posted send_packed(MessageKind kind, Packer packer, void* argument) override;
    Posted send_zero_copy(MessageKind kind, const void* header, std::size_t header_length, const void* data,
                          std::size_t length, Memory* memory, Completion& completion) override;
    Posted put(const void* from, std::size_t length, Memory* memory, std::uint64_t to, RemoteKey* key,
               Completion& completion) override;
    Posted get(void* to, std::size_t length, Memory* memory, std::uint64_t from, RemoteKey* key,
               Completion& completion) override;
    Posted put_packed(Packer packer, void* argument, std::uint64_t to, RemoteKey* key) override;
    Posted put_short(const void* from, std::size_t length, std::uint64_t to, RemoteKey* key) override;
    Posted get_packed(void* to, std::size_t length, std::uint64_t from, RemoteKey* key,
                      Completion& completion) override;
    Posted fence() override;
    Posted flush(Completion& completion) override;
    void hint(Hint hint) override;
    void check() override;
    [[nodiscard]] Memory* register_memory(void* address, std::size_t length) override;
    void deregister(Memory* memory) override;
    [[nodiscard]] bool pack_key(Memory* memory, std::byte* out) override;
    [[nodiscard]] RemoteKey* unpack_key(const std::byte* key) override;
    void release_key(RemoteKey* key) override;
    [[nodiscard]] RemoteKey* unpack_exposed(const std::byte* keys, std::size_t length) override;
    [[nodiscard]] bool idle() override;
    // UCS_OK: no message of this endpoint is under way.
    [[nodiscard]] ucs_status_t flush();

private:
    void estimate(double copy);
    // The result of a write or read.
    [[nodiscard]] Posted moved(ucs_status_t status) const;

    Lane& lane_;
    uct_ep_h endpoint_;
    Lane* moves_;
    uct_ep_h moving_;
    const Mover mover_;
};

} // namespace ucx_mp::glue
