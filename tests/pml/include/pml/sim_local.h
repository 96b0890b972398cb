// Messages between processes of one host in virtual time: by memory that they share, without an adapter. Only messages:
// no writes, no reads.
#pragma once

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "pml_glue/core/port.h"
#include "simulator/cluster.h"

namespace ucx_mp::sim {

struct LocalCosts {      // ns
    Nanos latency = 0;   // of a message; 0: those of a host talk over the adapter, as all others
    Nanos processor = 0; // of who sends one, and of who takes one
};

// Of a process: what has come for it.
class LocalInbox {
public:
    LocalInbox(Cluster& cluster, unsigned node, const LocalCosts& costs)
        : costs(costs), cluster_(cluster), node_(node) {}
    LocalInbox(const LocalInbox&) = delete;
    [[nodiscard]] unsigned node() const { return node_; }
    // From now on; it comes when its latency is over.
    void send(unsigned from, glue::MessageKind kind, std::vector<std::byte> data) {
        cluster_.node(from).spend(costs.processor);
        (void)cluster_.world.at(cluster_.world.now_at(from) + costs.latency, [this, kind, data = std::move(data)] {
            come_.emplace_back(kind, data);
            cluster_.node(node_).services().on_due();
        });
    }
    unsigned take(const glue::MessageHandlers& handlers) {
        unsigned count = 0;
        for (; !come_.empty() && !cluster_.node(node_).busy(); ++count) {
            const auto [kind, data] = std::move(come_.front());
            come_.pop_front();
            cluster_.node(node_).spend(costs.processor);
            handlers.of(kind)(data.data(), data.size());
        }
        return count;
    }
    const LocalCosts costs;

private:
    Cluster& cluster_;
    const unsigned node_;
    std::deque<std::pair<glue::MessageKind, std::vector<std::byte>>> come_;
};

class LocalEndpoint final : public glue::Endpoint {
public:
    LocalEndpoint(unsigned from, LocalInbox& to) : from_(from), to_(to) {
        limits_.max_short = 96;
        limits_.max_packed = 8192;
        costs_ = {.message = static_cast<double>(to.costs.processor), .latency = static_cast<double>(to.costs.latency)};
    }
    glue::Posted send_short(glue::MessageKind kind, std::uint64_t header, const void* payload,
                            std::size_t length) override {
        std::vector<std::byte> data(sizeof header + length);
        std::memcpy(data.data(), &header, sizeof header);
        if (length) std::memcpy(data.data() + sizeof header, payload, length);
        to_.send(from_, kind, std::move(data));
        return glue::Posted::done;
    }
    glue::Posted send_packed(glue::MessageKind kind, glue::Packer packer, void* argument) override {
        std::vector<std::byte> data(limits_.max_packed);
        data.resize(packer(data.data(), argument));
        to_.send(from_, kind, std::move(data));
        return glue::Posted::done;
    }
    glue::Posted send_zero_copy(glue::MessageKind, const void*, std::size_t, const void*, std::size_t, glue::Memory*,
                                glue::Completion&) override {
        return glue::Posted::refused;
    }
    glue::Posted put(const void*, std::size_t, glue::Memory*, std::uint64_t, glue::RemoteKey*,
                     glue::Completion&) override {
        return glue::Posted::refused;
    }
    glue::Posted get(void*, std::size_t, glue::Memory*, std::uint64_t, glue::RemoteKey*, glue::Completion&) override {
        return glue::Posted::refused;
    }
    glue::Posted fence() override { return glue::Posted::done; }
    void hint(glue::Hint) override {}
    [[nodiscard]] glue::Memory* register_memory(void*, std::size_t) override { return nullptr; }
    void deregister(glue::Memory*) override {}
    [[nodiscard]] bool pack_key(glue::Memory*, std::byte*) override { return false; }
    [[nodiscard]] glue::RemoteKey* unpack_key(const std::byte*) override { return nullptr; }
    void release_key(glue::RemoteKey*) override {}

private:
    const unsigned from_;
    LocalInbox& to_;
};

} // namespace ucx_mp::sim
