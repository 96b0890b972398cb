// Who knows addresses, names and numbers, and sends what it likes: for tests of what that may do, which is nothing.
#pragma once

#include <span>
#include <stdexcept>
#include <vector>

#include "connect/handshake_fixture.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::test {

using connect::Message;
namespace wire = connect::wire;

// A datagram queue pair of its own on some node, which sends any bytes.
class Intruder {
public:
    Intruder(Cluster& c, std::uint32_t node) : cluster_(c) {
        c.world().select(node);
        std::string error;
        if (failed(verbs::DeviceSet::open({}, devices_, error))) throw std::runtime_error(error);
        const verbs::Device& d = devices_.devices()[0];
        cq_.reset(ibv_create_cq(d.context.get(), 256, nullptr, nullptr, 0));
        memory_.resize(4096);
        mr_.reset(ibv_reg_mr(d.pd.get(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
        qp_ = verbs::create_ud(d, devices_.rails()[0], cq_.get(), cq_.get(), 128, 16, 0x1234);
        if (!cq_ || !mr_ || !qp_) throw std::runtime_error("intruder");
    }
    // One at a time: waits until it has left.
    void send(const Node& to, std::span<const std::uint8_t> bytes, std::uint32_t q_key) {
        const connect::ControlAddress& a = to.plane->address().control[0];
        const verbs::AddressHandle ah = verbs::create_ah(devices_.devices()[0], devices_.rails()[0], {a.lid, 0}, 0);
        std::copy(bytes.begin(), bytes.end(), memory_.begin());
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory_.data()), std::uint32_t(bytes.size()), mr_->lkey};
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud = {ah.get(), a.qp_number, q_key};
        if (ibv_post_send(qp_.get(), &wr, &bad) != 0) throw std::runtime_error("ibv_post_send");
        ibv_wc wc;
        if (!cluster_.run([&] { return ibv_poll_cq(cq_.get(), 1, &wc) == 1; })) throw std::runtime_error("not sent");
        cluster_.settle(5 * kMicro);
    }
    void send(const Node& to, std::span<const std::uint8_t> bytes) { send(to, bytes, to.plane->address().q_key); }
    void send(const Node& to, const Message& m) { send(to, pack(m)); }
    static std::vector<std::uint8_t> pack(const Message& m) {
        std::vector<std::uint8_t> bytes(wire::kMaxMessage);
        bytes.resize(connect::pack(m, bytes.data()));
        return bytes;
    }

private:
    Cluster& cluster_;
    verbs::DeviceSet devices_;
    verbs::CompletionQueue cq_;
    std::vector<std::uint8_t> memory_;
    verbs::MemoryRegion mr_;
    verbs::QueuePair qp_;
};

inline std::vector<path::RemoteRail> rails_of(const Node& node) {
    std::vector<path::RemoteRail> rails;
    for (const verbs::Rail& r : node.devices.rails()) {
        rails.push_back(path::describe(r));
        rails.back().control_qpn = node.plane->address().control[r.index].qp_number;
    }
    return rails;
}

// A message as `from` would write it for its connection with `to`, secrets and all.
inline Message forge(wire::Kind kind, const Node& from, const Node& to, const Connection& c) {
    Message m;
    m.kind = kind;
    m.cookie = to.plane->address().cookie;
    m.sender_uid = from.plane->address().uid;
    m.sender_cookie = from.plane->address().cookie;
    m.sender_q_key = from.plane->address().q_key;
    m.destination = kind == wire::Kind::request ? 0 : c.remote_id;
    m.source = c.local_id;
    m.transaction = c.transaction;
    m.incarnation = kind == wire::Kind::request ? c.incarnation - (c.incarnation > 0) : c.incarnation;
    m.shown = kind == wire::Kind::request ? c.held.peer_secret : c.peer_secret;
    m.nonce = c.own_secret;
    if (kind == wire::Kind::request || kind == wire::Kind::reply) m.rails = rails_of(from);
    if (kind == wire::Kind::reply) m.paths = c.paths;
    if (kind == wire::Kind::reply || kind == wire::Kind::confirm) m.ends = c.ends;
    if (kind == wire::Kind::reply) m.ends.resize(m.paths.size()); // they are gone when it has failed
    return m;
}

// The same without what only the two sides know: their secrets. The nonce is as good as any.
inline Message pretend(wire::Kind kind, const Node& from, const Node& to, const Connection& c) {
    Message m = forge(kind, from, to, c);
    m.shown = 0;
    m.nonce = 0x1234567812345678;
    return m;
}

// A connection's facts as they must stay.
struct Facts {
    explicit Facts(const Peer& p)
        : state(p.connection.state), incarnation(p.connection.incarnation), remote_id(p.connection.remote_id),
          transaction(p.connection.transaction), established(p.times_established), failures(p.times_failed) {
        for (const auto& e : p.connection.ends) numbers.push_back(e.qp_number);
        for (const auto& e : p.connection.remote_ends) numbers.push_back(e.qp_number);
    }
    bool operator==(const Facts&) const = default;
    State state;
    std::uint32_t incarnation, remote_id, transaction;
    unsigned established, failures;
    std::vector<std::uint32_t> numbers;
};

} // namespace ucx_mp::test
