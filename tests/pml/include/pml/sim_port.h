// The port over the transport in virtual time: engines and windows of pml_glue's core on the nodes of a Cluster, with
// its faults. Null for everything that the transport refuses; addresses are numbers of nodes.
//
// The cluster drives: a node's own turn (Node::on_turn) has to call the engine's and the windows' progress(), which
// look at what waits; messages and completions come from the interface.
#pragma once

#include <cstring>

#include "pml/sim_local.h"
#include "pml/sim_tasks.h"
#include "pml_glue/core/port.h"
#include "simulator/cluster.h"

namespace ucx_mp::sim {

class SimPort;

class SimEndpoint final : public glue::Endpoint {
public:
    SimEndpoint(Node& node, Channel& channel) : node_(node), channel_(channel) {
        const channel::Limits& can = node.iface().limits();
        limits_ = {.max_short = can.max_am_short - 8,
                   .max_packed = can.max_bcopy,
                   .max_zero_copy = can.max_am_zcopy - 64,
                   .max_header = can.max_am_zcopy_header,
                   .max_get = can.max_rdma,
                   .max_put = can.max_rdma,
                   .max_put_short = can.max_put_short,
                   .max_put_packed = can.max_bcopy,
                   .max_get_packed = can.max_bcopy,
                   .key_bytes = verbs::packed_keys_size(static_cast<unsigned>(node.devices().devices().size()))};
        costs_ = {.message = 100,
                  .latency = 1000,
                  .byte = 0.5,
                  .copy = 0.2,
                  .move = 100,
                  .move_latency = 2000,
                  .move_byte = 0.5};
    }
    SimEndpoint(const SimEndpoint&) = delete;
    ~SimEndpoint() override {
        if (!node_.closed()) node_.iface().detach(channel_);
    }
    [[nodiscard]] const Channel& channel() const { return channel_; }

    glue::Posted send_short(glue::MessageKind kind, std::uint64_t header, const void* payload,
                            std::size_t length) override {
        return outcome(channel::Interface::am_short(channel_, kind, header, payload, static_cast<unsigned>(length)));
    }
    glue::Posted send_packed(glue::MessageKind kind, glue::Packer packer, void* argument) override {
        return outcome(channel::Interface::am_bcopy(channel_, kind, packer, argument));
    }
    glue::Posted send_zero_copy(glue::MessageKind kind, const void* header, std::size_t header_length, const void* data,
                                std::size_t length, glue::Memory* memory, glue::Completion& completion) override {
        const Iov iov = iov_of(const_cast<void*>(data), length, memory);
        return outcome(channel::Interface::am_zcopy(channel_, kind, header, static_cast<unsigned>(header_length), &iov,
                                                    1, inner(completion)));
    }
    glue::Posted put(const void* from, std::size_t length, glue::Memory* memory, std::uint64_t to, glue::RemoteKey* key,
                     glue::Completion& completion) override {
        const Iov iov = iov_of(const_cast<void*>(from), length, memory);
        return outcome(channel::Interface::put_zcopy(channel_, &iov, 1, to, keys_of(key), inner(completion)));
    }
    glue::Posted get(void* to, std::size_t length, glue::Memory* memory, std::uint64_t from, glue::RemoteKey* key,
                     glue::Completion& completion) override {
        const Iov iov = iov_of(to, length, memory);
        return outcome(channel::Interface::get_zcopy(channel_, &iov, 1, from, keys_of(key), inner(completion)));
    }
    glue::Posted put_packed(glue::Packer packer, void* argument, std::uint64_t to, glue::RemoteKey* key) override {
        return outcome(channel::Interface::put_bcopy(channel_, packer, argument, to, keys_of(key)));
    }
    glue::Posted put_short(const void* from, std::size_t length, std::uint64_t to, glue::RemoteKey* key) override {
        return outcome(channel::Interface::put_short(channel_, from, static_cast<unsigned>(length), to, keys_of(key)));
    }
    glue::Posted get_packed(void* to, std::size_t length, std::uint64_t from, glue::RemoteKey* key,
                            glue::Completion& completion) override {
        const auto unpack = [](void* out, const void* data, std::size_t bytes) { std::memcpy(out, data, bytes); };
        return outcome(
            channel::Interface::get_bcopy(channel_, unpack, to, length, from, keys_of(key), inner(completion)));
    }
    glue::Posted fence() override { return outcome(channel::Interface::fence(channel_)); }
    glue::Posted flush(glue::Completion& completion) override {
        return outcome(node_.iface().flush(channel_, inner(completion)));
    }
    void hint(glue::Hint hint) override { node_.iface().set_hint(channel_, static_cast<schedule::TrafficHint>(hint)); }
    [[nodiscard]] glue::Memory* register_memory(void* address, std::size_t length) override {
        auto registration = std::make_unique<verbs::Registration>();
        const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if (failed(verbs::register_memory(node_.devices(), address, length, access, *registration))) return nullptr;
        return reinterpret_cast<glue::Memory*>(registration.release());
    }
    void deregister(glue::Memory* memory) override { delete reinterpret_cast<verbs::Registration*>(memory); }
    void check() override { node_.iface().check(channel_); }
    [[nodiscard]] bool pack_key(glue::Memory* memory, std::byte* out) override {
        reinterpret_cast<verbs::Registration*>(memory)->pack(out);
        return true;
    }
    [[nodiscard]] glue::RemoteKey* unpack_key(const std::byte* key) override {
        auto keys = std::make_unique<verbs::RemoteKeys>();
        if (!verbs::unpack_keys(key, *keys)) return nullptr;
        return reinterpret_cast<glue::RemoteKey*>(keys.release());
    }
    void release_key(glue::RemoteKey* key) override { delete reinterpret_cast<verbs::RemoteKeys*>(key); }
    [[nodiscard]] glue::RemoteKey* unpack_exposed(const std::byte* keys, std::size_t length) override {
        return length < limits_.key_bytes ? nullptr : unpack_key(keys);
    }

private:
    static glue::Posted outcome(Status status) {
        if (status == Status::ok) return glue::Posted::done;
        if (status == Status::in_progress) return glue::Posted::in_progress;
        return status == Status::no_resource ? glue::Posted::no_room : glue::Posted::failed;
    }
    static glue::Posted outcome(ssize_t bytes_or_status) {
        return bytes_or_status >= 0 ? glue::Posted::done : outcome(static_cast<Status>(bytes_or_status));
    }
    static Iov iov_of(void* address, std::size_t length, glue::Memory* memory) {
        return {address, length, reinterpret_cast<verbs::Registration*>(memory), 0, 1};
    }
    static const verbs::RemoteKeys& keys_of(glue::RemoteKey* key) { return *reinterpret_cast<verbs::RemoteKeys*>(key); }
    static Completion* inner(glue::Completion& completion) {
        static_assert(sizeof(Completion) <= sizeof completion.port);
        return new (&completion.port) Completion{completed, 1, Status::ok};
    }
    static void completed(Completion* inner) {
        auto* const completion =
            reinterpret_cast<glue::Completion*>(reinterpret_cast<char*>(inner) - offsetof(glue::Completion, port));
        completion->done(*completion, inner->status == Status::ok);
    }

    Node& node_;
    Channel& channel_;
};

class SimPort final : public glue::Port {
public:
    SimPort(Cluster& cluster, unsigned node) : cluster_(cluster), node_(node) {
        cluster.node(node).on_failure = [this](Channel& channel, Status) {
            ++failures;
            for (SimEndpoint* endpoint : endpoints_)
                if (&endpoint->channel() == &channel && listener_) listener_->endpoint_failed(*endpoint);
        };
    }
    SimPort(const SimPort&) = delete;
    // Processes of a host talk by memory: `all` has what each process of the job gets so.
    void share_hosts(const std::vector<std::unique_ptr<LocalInbox>>& all) { inboxes_ = &all; }
    void pretend_host(std::uint64_t one) { host_ = one; }
    [[nodiscard]] std::uint64_t host() const override { return inboxes_ ? 1 + cluster_.node(node_).host() : host_; }
    void handle(glue::MessageKind kind, glue::Handler handler, void* argument) override {
        handlers_.set(kind, handler, argument);
        cluster_.node(node_).on_am(kind, arrived, &handlers_.of(kind));
    }
    void listen(glue::FailureListener& listener) override { listener_ = &listener; }
    [[nodiscard]] std::vector<std::byte> address() const override { return address_of(node_); }
    static std::vector<std::byte> address_of(unsigned node) {
        std::vector<std::byte> out(sizeof node);
        std::memcpy(out.data(), &node, sizeof node);
        return out;
    }
    [[nodiscard]] std::unique_ptr<glue::Endpoint> connect(const std::byte* address, std::size_t, bool,
                                                          std::string&) override {
        unsigned peer;
        std::memcpy(&peer, address, sizeof peer);
        if (inboxes_ && peer != node_ && cluster_.node(peer).host() == cluster_.node(node_).host())
            return std::make_unique<LocalEndpoint>(node_, *(*inboxes_)[peer]);
        auto endpoint = std::make_unique<SimEndpoint>(cluster_.node(node_), cluster_.channel(node_, peer));
        endpoints_.push_back(endpoint.get());
        return endpoint;
    }
    [[nodiscard]] std::unique_ptr<glue::Exposed> expose(void* address, std::size_t length) override {
        auto exposed = std::make_unique<SimExposed>();
        const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        const verbs::DeviceSet& devices = cluster_.node(node_).devices();
        if (failed(verbs::register_memory(devices, address, length, access, exposed->registration))) return nullptr;
        exposed->packed.resize(verbs::packed_keys_size(static_cast<unsigned>(devices.devices().size())));
        exposed->registration.pack(exposed->packed.data());
        return exposed;
    }
    [[nodiscard]] bool fences_cost() const override { return cluster_.node(node_).devices().devices().size() > 1; }
    [[nodiscard]] glue::TaskPort* tasks() override {
        if (!tasks_) tasks_ = std::make_unique<SimTasks>(cluster_.node(node_));
        return tasks_.get();
    }
    unsigned progress() override { return inboxes_ ? (*inboxes_)[node_]->take(handlers_) : 0; }
    void drain() override {}
    [[nodiscard]] std::uint64_t now() const override { return static_cast<std::uint64_t>(cluster_.world.now()); }
    [[nodiscard]] std::string traffic() const override { return "simulated"; }
    unsigned failures = 0;

private:
    struct SimExposed final : glue::Exposed {
        [[nodiscard]] std::vector<std::byte> keys() const override { return packed; }
        verbs::Registration registration;
        std::vector<std::byte> packed;
    };
    static Status arrived(void* called, void* data, std::size_t length, unsigned) {
        const auto& to = *static_cast<const glue::MessageHandlers::Called*>(called);
        to(static_cast<const std::byte*>(data), length);
        return Status::ok;
    }
    Cluster& cluster_;
    const unsigned node_;
    std::unique_ptr<SimTasks> tasks_;
    std::vector<SimEndpoint*> endpoints_;
    glue::FailureListener* listener_ = nullptr;
    const std::vector<std::unique_ptr<LocalInbox>>* inboxes_ = nullptr;
    std::uint64_t host_ = 0;
};

} // namespace ucx_mp::sim
