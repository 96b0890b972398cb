#include "uct_mp/connect/datagrams.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "uct_mp/connect/wire.h"
#include "uct_mp/verbs/memory.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::connect {

namespace {

constexpr std::size_t kGrh = verbs::kGlobalHeader; // UD receives keep so much room for it, used or not
constexpr std::size_t kPage = 4096;
constexpr int kBatch = 16;

constexpr std::uint64_t pack_id(unsigned rail, std::uint64_t buffer) { return std::uint64_t{rail} << 32 | buffer; }
constexpr unsigned rail_of(std::uint64_t id) { return unsigned(id >> 32); }
constexpr std::uint32_t buffer_of(std::uint64_t id) { return std::uint32_t(id); }

std::uint32_t depth(std::uint32_t wish, unsigned limit) {
    return std::max(1u, limit ? std::min<std::uint32_t>(wish, limit) : wish);
}

// The way back; nothing: the header does not tell it.
std::optional<verbs::Destination> sender(const verbs::Rail& rail, const ibv_wc& c, const std::uint8_t* buffer) {
    if (c.byte_len < kGrh) return std::nullopt;
    if (!rail.ethernet) return verbs::Destination{c.slid, c.dlid_path_bits, {}};
    const bool ipv4 = rail.roce_2 && verbs::is_ipv4(rail.gid); // version 1 has an IPv6 header for all addresses
    const auto gid = verbs::sender_of(std::span<const std::uint8_t, kGrh>(buffer, kGrh), ipv4);
    return gid ? std::optional(verbs::Destination{0, 0, *gid}) : std::nullopt;
}

std::string reason() { return std::string(": ") + std::strerror(errno); }

} // namespace

Status Datagrams::Buffers::make(const verbs::Device& device, std::size_t count, std::size_t size) {
    stride = (size + 63) / 64 * 64;
    const std::size_t bytes = (count * stride + kPage - 1) / kPage * kPage;
    memory.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kPage, bytes)));
    if (!memory) return Status::no_memory;
    mr.reset(ibv_reg_mr(device.pd.get(), memory.get(), bytes, IBV_ACCESS_LOCAL_WRITE));
    return mr ? Status::ok : Status::no_memory;
}

Status Datagrams::open(const verbs::DeviceSet& devices, std::span<const verbs::Rail> rails, const Config& config,
                       std::string& error) {
    devices_ = &devices;
    rails_.assign(rails.begin(), rails.end());
    config_ = config;
    for (const verbs::Device& device : devices.devices())
        if (const Status s = open_device(device, queues_.emplace_back(), error); failed(s)) return s;
    for (const verbs::Rail& rail : rails_) {
        const Status s =
            open_rail(devices.device_of(rail), rail, config_, queues_[rail.device], ports_.emplace_back(), error);
        if (failed(s)) return s;
    }
    return Status::ok;
}

Status Datagrams::reopen(const verbs::Device& device, std::string& error) {
    Queues queues;
    std::vector<std::pair<unsigned, Port>> ports;
    if (const Status s = open_device(device, queues, error); failed(s)) return s;
    for (verbs::Rail rail : rails_) {
        if (rail.device != device.index) continue;
        rail.active = false; // it may come up with any MTU
        const Status s = open_rail(device, rail, config_, queues, ports.emplace_back(rail.index, Port{}).second, error);
        if (failed(s)) return s;
    }
    // The old ones go in the reverse order: queue pairs, completion queues, their channel.
    for (auto& [rail, port] : ports) {
        (void)handles_.take(rail);
        std::swap(ports_[rail], port);
    }
    ports.clear();
    std::swap(queues_[device.index], queues);
    return Status::ok;
}

Status Datagrams::open_device(const verbs::Device& device, Queues& q, std::string& error) const {
    const auto rails = std::size_t(std::ranges::count(rails_, device.index, &verbs::Rail::device));
    const auto entries = [&](std::uint32_t wish) {
        return int(std::max<std::size_t>(1, rails * depth(wish, device.max_qp_wr)));
    };
    const auto fail = [&](const char* what) {
        error = "control plane: " + device.name + ": " + what + reason();
        return Status::io_error;
    };
    q.channel.reset(ibv_create_comp_channel(device.context.get()));
    if (!q.channel) return fail("completion channel");
    // arm() empties it without waiting.
    if (fcntl(q.channel->fd, F_SETFL, fcntl(q.channel->fd, F_GETFL) | O_NONBLOCK) != 0)
        return fail("completion channel");
    q.arrived.reset(ibv_create_cq(device.context.get(), entries(config_.receive_depth), nullptr, q.channel.get(), 0));
    q.sent.reset(ibv_create_cq(device.context.get(), entries(config_.send_depth), nullptr, nullptr, 0));
    if (!q.arrived || !q.sent) return fail("completion queue");
    return Status::ok;
}

Status Datagrams::open_rail(const verbs::Device& device, const verbs::Rail& rail, const Config& config,
                            const Queues& queues, Port& port, std::string& error) {
    const std::uint32_t receives = depth(config.receive_depth, device.max_qp_wr);
    const std::uint32_t sends = depth(config.send_depth, device.max_qp_wr);
    const auto fail = [&](const char* what) {
        error = "control plane: rail " + rail.name + ": " + what + reason();
        return Status::io_error;
    };
    // A datagram longer than the buffer breaks the queue pair (IB 11.6.2), so it must have room for the largest MTU.
    if (failed(port.receives.make(device, receives, kGrh + mtu_bytes(rail.active ? rail.mtu : IBV_MTU_4096))) ||
        failed(port.sends.make(device, sends, wire::kMaxMessage))) {
        error = "control plane: rail " + rail.name + ": buffers: " + verbs::registration_trouble(errno);
        return Status::no_memory;
    }
    port.qp = verbs::create_ud(device, rail, queues.sent.get(), queues.arrived.get(), sends, receives, config.q_key);
    if (!port.qp) return fail("UD queue pair");
    port.receive_count = receives;
    port.send_count = sends;
    fill(port, rail.index);
    if (port.broken) return fail("receive buffers");
    return Status::ok;
}

void Datagrams::fill(Port& port, unsigned rail) {
    for (std::uint32_t i = 0; i < port.receive_count; ++i) post(port, rail, i);
    port.free.clear();
    for (std::uint32_t i = port.send_count; i-- > 0;) port.free.push_back(i);
}

// Drops completions of the rail's queue pair, and keeps those of others.
void Datagrams::take_back(Queues& queues, unsigned rail) {
    reap(queues);
    ibv_wc wc[kBatch];
    for (int n; (n = ibv_poll_cq(queues.arrived.get(), kBatch, wc)) > 0;)
        queues.early.insert(queues.early.end(), wc, wc + n);
    std::erase_if(queues.early, [&](const ibv_wc& c) { return rail_of(c.wr_id) == rail; });
}

void Datagrams::restart(unsigned rail) {
    const verbs::Rail& own = rails_[rail];
    const verbs::Device& device = devices_->device_of(own);
    if (device.events->seen(own.port).fatal) return; // nothing of it works any more: reopen()
    Port& port = ports_[rail];
    Queues& queues = queues_[own.device];
    // Some adapters leave completions in the queue when a queue pair is reset, others remove them.
    (void)verbs::to_error(port.qp.get());
    take_back(queues, rail);
    if (verbs::restart_ud(port.qp.get(), own, config_.q_key) != 0) return;
    take_back(queues, rail);
    port.broken = false;
    fill(port, rail);
    drop_handles(rail);
}

void Datagrams::drop_handles(unsigned rail) {
    Port& port = ports_[rail];
    for (verbs::AddressHandle& handle : handles_.take(rail)) port.retired.push_back(std::move(handle));
    reap(queues_[rails_[rail].device]);
}

void Datagrams::post(Port& port, unsigned rail, std::uint64_t buffer) {
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(port.receives.at(buffer)), std::uint32_t(port.receives.stride),
                port.receives.mr->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = pack_id(rail, buffer);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (ibv_post_recv(port.qp.get(), &wr, &bad) != 0) port.broken = true;
}

Status Datagrams::send(const Target& to, std::span<const std::uint8_t> payload) {
    assert(payload.size() <= wire::kMaxMessage);
    Port& port = ports_[to.rail];
    if (port.broken) return Status::io_error;
    if (port.free.empty()) reap(queues_[rails_[to.rail].device]);
    if (port.free.empty()) return Status::no_resource;
    ibv_ah* ah = handles_.get(*devices_, rails_[to.rail], to.to, config_.service_level);
    if (!ah) return Status::io_error;
    const std::uint32_t buffer = port.free.back();
    std::memcpy(port.sends.at(buffer), payload.data(), payload.size());
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(port.sends.at(buffer)), std::uint32_t(payload.size()),
                port.sends.mr->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = pack_id(to.rail, buffer);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud = {ah, to.qp_number, to.q_key};
    if (ibv_post_send(port.qp.get(), &wr, &bad) != 0) {
        port.broken = true;
        return Status::io_error;
    }
    port.free.pop_back();
    return Status::ok;
}

void Datagrams::reap(Queues& queues) {
    ibv_wc wc[kBatch];
    for (int n; (n = ibv_poll_cq(queues.sent.get(), kBatch, wc)) > 0;)
        for (const ibv_wc& c : std::span(wc, std::size_t(n))) {
            Port& port = ports_[rail_of(c.wr_id)];
            port.free.push_back(buffer_of(c.wr_id));
            if (c.status != IBV_WC_SUCCESS) port.broken = true;
        }
    for (Port& port : ports_)
        if (!port.retired.empty() && port.free.size() == port.send_count) port.retired.clear();
}

std::optional<Datagrams::Arrived> Datagrams::take(const ibv_wc& c) {
    const unsigned rail = rail_of(c.wr_id);
    Port& port = ports_[rail];
    if (c.status != IBV_WC_SUCCESS) {
        port.broken = true;
        return {};
    }
    const std::uint8_t* const buffer = port.receives.at(buffer_of(c.wr_id));
    const auto from = sender(rails_[rail], c, buffer);
    if (!from) {
        post(port, rail, buffer_of(c.wr_id));
        return {};
    }
    held_ = &c;
    return Arrived{.way_back = {.rail = rail, .to = *from, .qp_number = c.src_qp, .q_key = 0},
                   .payload = {buffer + kGrh, c.byte_len - kGrh}};
}

bool Datagrams::fetch(Queues& q) {
    taken_ = 0;
    fetched_.clear();
    if (!q.early.empty()) [[unlikely]] {
        fetched_.swap(q.early);
        return true;
    }
    if (drained_) return false;
    ibv_wc wc[kBatch];
    const int n = ibv_poll_cq(q.arrived.get(), kBatch, wc);
    if (n > 0) fetched_.assign(wc, wc + n);
    drained_ = n < kBatch;
    return n > 0;
}

std::optional<Datagrams::Arrived> Datagrams::next() {
    if (held_) {
        const unsigned rail = rail_of(held_->wr_id);
        post(ports_[rail], rail, buffer_of(held_->wr_id));
        held_ = nullptr;
    }
    for (; fetching_ < queues_.size(); ++fetching_, drained_ = false) {
        do {
            while (taken_ < fetched_.size())
                if (auto arrived = take(fetched_[taken_++])) return arrived;
        } while (fetch(queues_[fetching_]));
    }
    fetching_ = 0;
    return {};
}

std::vector<int> Datagrams::event_fds() const {
    std::vector<int> fds;
    for (const Queues& q : queues_) fds.push_back(q.channel->fd);
    return fds;
}

Status Datagrams::arm() {
    bool busy = false;
    for (Queues& q : queues_) {
        ibv_cq* cq;
        void* context;
        unsigned events = 0;
        while (ibv_get_cq_event(q.channel.get(), &cq, &context) == 0) ++events;
        if (events) ibv_ack_cq_events(q.arrived.get(), events);
        if (ibv_req_notify_cq(q.arrived.get(), 0) != 0) return Status::io_error;
        // Datagrams that came before the request raise no event.
        ibv_wc wc;
        if (ibv_poll_cq(q.arrived.get(), 1, &wc) > 0) q.early.push_back(wc);
        busy = busy || !q.early.empty();
    }
    return busy ? Status::busy : Status::ok;
}

} // namespace ucx_mp::connect
