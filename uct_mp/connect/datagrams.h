// Unreliable datagrams: one UD queue pair per rail with registered buffers, and address
// handles made once. It does not know what it carries. Slow path; one thread at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/verbs/address_handles.h"

namespace ucx_mp::connect {

[[nodiscard]] constexpr std::size_t mtu_bytes(ibv_mtu mtu) { return std::size_t{128} << mtu; }

// The destination of a datagram: from our rail, over one route, to a queue pair.
struct Target {
    unsigned rail = 0; // ours
    verbs::Destination to;
    std::uint32_t qp_number = 0;
    std::uint32_t q_key = 0;
};

class Datagrams {
public:
    struct Config {
        std::uint32_t receive_depth = 256, send_depth = 64; // per rail; cut to what the device has
        std::uint32_t q_key = 0;
        std::uint8_t service_level = 0;
    };
    struct Arrived {
        Target way_back; // the route that it has come by, turned round; its q_key is unknown (0)
        std::span<const std::uint8_t> payload;
    };

    // `devices` must outlive it. `rails`: their present properties.
    [[nodiscard]] Status open(const verbs::DeviceSet& devices, std::span<const verbs::Rail> rails, const Config& config,
                              std::string& error);

    // At most 1024 bytes. no_resource: all buffers of that rail are on their way; io_error: no address handle, or the
    // queue pair is broken.
    [[nodiscard]] Status send(const Target& to, std::span<const std::uint8_t> payload);
    // The next datagram that has arrived. Its payload is valid until the next call; call until there is none, since the
    // last buffer goes back then. One poll per device if nothing has arrived.
    [[nodiscard]] std::optional<Arrived> next();

    [[nodiscard]] std::uint32_t qp_number(unsigned rail) const { return ports_[rail].qp->qp_num; }
    // False: the queue pair has failed: a dead adapter, or an Ethernet port
    // that is down. (InfiniBand adapters drop packets that cannot be sent.)
    [[nodiscard]] bool works(unsigned rail) const { return !ports_[rail].broken; }
    // Makes a failed queue pair work again, under its old number; requests on it are lost. Not between calls of next().
    void restart(unsigned rail);
    // The rail has changed since this was opened. Its own address, or its partition key, may have
    // another place in the adapter's tables now: handles are made anew, and the queue pair begins anew.
    void renew(const verbs::Rail& rail) {
        const bool moved = rails_[rail.index].pkey_index != rail.pkey_index;
        rails_[rail.index] = rail;
        if (moved) return restart(rail.index);
        drop_handles(rail.index);
    }
    void drop_handles(unsigned rail);
    // The device of `devices` with this index has died and is there again: its rails get new queue
    // pairs, with other numbers. On failure everything stays unchanged. Not between calls of next().
    [[nodiscard]] Status reopen(const verbs::Device& device, std::string& error);

    [[nodiscard]] std::vector<int> event_fds() const;
    [[nodiscard]] Status arm(); // busy: a datagram is there

private:
    struct Free {
        void operator()(std::uint8_t* p) const { std::free(p); }
    };
    struct Buffers {
        std::unique_ptr<std::uint8_t[], Free> memory; // whole pages of its own: fork() must not take neighbours along
        std::size_t stride = 0;
        verbs::MemoryRegion mr;
        [[nodiscard]] Status make(const verbs::Device& device, std::size_t count, std::size_t size);
        [[nodiscard]] std::uint8_t* at(std::uint64_t i) const { return memory.get() + i * stride; }
    };
    struct Queues { // per device
        verbs::CompletionChannel channel;
        verbs::CompletionQueue sent, arrived;
        std::vector<ibv_wc> early; // taken by arm(), not yet handled
    };
    struct Port { // per rail
        Buffers receives, sends;
        std::vector<std::uint32_t> free; // send buffers
        std::uint32_t receive_count = 0, send_count = 0;
        std::vector<verbs::AddressHandle> retired; // until all send buffers are free
        verbs::QueuePair qp;
        bool broken = false;
    };

    [[nodiscard]] Status open_device(const verbs::Device& device, Queues& out, std::string& error) const;
    [[nodiscard]] static Status open_rail(const verbs::Device& device, const verbs::Rail& rail, const Config& config,
                                          const Queues& queues, Port& out, std::string& error);
    static void fill(Port& port, unsigned rail); // all receives posted, all send buffers free
    static void post(Port& port, unsigned rail, std::uint64_t buffer);
    void take_back(Queues& queues, unsigned rail);
    void reap(Queues& queues);
    [[nodiscard]] bool fetch(Queues& queues); // false: nothing has arrived there any more
    [[nodiscard]] std::optional<Arrived> take(const ibv_wc& completion);
    const verbs::DeviceSet* devices_ = nullptr;
    std::vector<verbs::Rail> rails_; // present properties of the rails of devices_
    Config config_;
    std::vector<Queues> queues_; // before ports_: a queue pair goes before its completion queues
    std::vector<Port> ports_;
    verbs::AddressHandles handles_;
    // The state of next(): completions that were fetched from `fetching_`, and how many of them it has returned.
    std::vector<ibv_wc> fetched_;
    std::size_t taken_ = 0, fetching_ = 0;
    bool drained_ = false;         // the latest fetch was not a full one
    const ibv_wc* held_ = nullptr; // the datagram that the caller reads
};

} // namespace ucx_mp::connect
