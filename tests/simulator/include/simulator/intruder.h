// A member of the job that sends what it likes to the others' control planes, in each other's names. It knows addresses
// and all numbers, also those that it would have to guess, but no secret.
#pragma once

#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "simulator/cluster.h"
#include "uct_mp/channel/core.h"
#include "uct_mp/connect/message.h"
#include "uct_mp/verbs/queue_pair.h"

namespace ucx_mp::sim {

class Intruder {
public:
    using Kind = connect::wire::Kind;
    static constexpr Kind kOfConnections[] = {
        Kind::ping,        Kind::pong,    Kind::path_down,     Kind::path_open, Kind::path_opened, Kind::path_probe,
        Kind::path_probed, Kind::rails,   Kind::rails_known,   Kind::keys,      Kind::keys_told,   Kind::ended,
        Kind::ended_known, Kind::service, Kind::service_known, Kind::ring,      Kind::ring_known};
    static constexpr Kind kOfHandshakes[] = {Kind::request, Kind::reply, Kind::confirm, Kind::ready, Kind::refuse};

    // A process of its own on the fabric's node `host`.
    Intruder(Cluster& cluster, unsigned host, std::uint64_t seed = 1) : cluster_(cluster), random_(seed) {
        cluster.world.select(host, cluster.size());
        std::string error;
        if (failed(verbs::DeviceSet::open({}, devices_, error))) throw std::runtime_error(error);
        const verbs::Device& device = devices_.devices()[0];
        cq_.reset(ibv_create_cq(device.context.get(), 2 * kSlots, nullptr, nullptr, 0));
        memory_.resize(kSlots * connect::wire::kMaxMessage);
        mr_.reset(ibv_reg_mr(device.pd.get(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
        qp_ = verbs::create_ud(device, devices_.rails()[0], cq_.get(), cq_.get(), kSlots, 1, 0x1234);
        if (!cq_ || !mr_ || !qp_) throw std::runtime_error("intruder");
        for (unsigned slot = 0; slot < kSlots; ++slot) free_.push_back(slot);
    }
    Intruder(const Intruder&) = delete;

    // To node `victim`, whose channel to node `peer` this is, in the name of that one: with all of some kind that may
    // be worth a try.
    void say(unsigned victim, const Channel& channel, unsigned peer, Kind kind) {
        const connect::Connection& c = channel.connection;
        if (!c.held.own_secret) return; // whoever is first is believed (PROTOCOL.md, U1)
        connect::Message m = message(victim, channel, peer, kind);
        switch (kind) {
        case Kind::request:
            for (const std::uint32_t transaction : {c.transaction, c.transaction + 1, c.seen + 1, 0x7fffffffu})
                for (const std::uint32_t incarnation : {0u, c.incarnation, 0x7fffffffu}) {
                    m.transaction = transaction ? transaction : 1;
                    m.incarnation = incarnation;
                    post(victim, m);
                }
            return;
        case Kind::refuse:
            for (const auto reason :
                 {connect::wire::Reason::limits, connect::wire::Reason::unknown, connect::wire::Reason::version})
                for (const Kind of : {Kind::request, Kind::reply, Kind::confirm}) {
                    m.reason = reason;
                    m.refused = of;
                    for (const bool bare : {false, true}) {
                        m.bare = bare;
                        post(victim, m);
                    }
                }
            return;
        case Kind::path_down:
        case Kind::path_open:
        case Kind::path_opened:
        case Kind::path_probe:
        case Kind::path_probed:
            for (unsigned path = 0; path < c.paths.size(); ++path) say_of_path(victim, channel, m, path);
            return;
        case Kind::ended:
            for (const bool idle : {false, true}) {
                m.goodbye.idle = idle;
                post(victim, m);
            }
            return;
        default:
            post(victim, m);
        }
    }

    // The same to whatever channel it has to that one now.
    void say(unsigned victim, unsigned peer, Kind kind) {
        const auto& known = cluster_.node(victim).iface().core().directory.by_uid;
        const auto found = known.find(cluster_.node(peer).iface().address().uid);
        if (found != known.end()) say(victim, *found->second, peer, kind);
    }

private:
    static constexpr unsigned kSlots = 256;

    connect::Message message(unsigned victim, const Channel& channel, unsigned peer, Kind kind) {
        const connect::Connection& c = channel.connection;
        const connect::InterfaceAddress to = cluster_.node(victim).iface().address(),
                                        from = cluster_.node(peer).iface().address();
        connect::Message m;
        m.kind = kind;
        m.cookie = to.cookie;
        m.sender_uid = from.uid;
        m.sender_cookie = from.cookie;
        m.sender_q_key = from.q_key;
        m.transport = from.transport;
        m.destination = kind == Kind::request ? 0 : channel.local_id;
        m.source = c.remote_id ? c.remote_id : 1;
        m.transaction = c.transaction ? c.transaction : 1;
        if (kind == Kind::pong && c.question.number) m.transaction = c.question.number;
        m.incarnation = kind == Kind::reply ? c.incarnation + 1 : c.incarnation;
        if (random_() % 4) m.shown = random_(); // or the 0 of who has none
        m.nonce = random_() | 1;
        if (kind == Kind::request || kind == Kind::reply) {
            for (const verbs::Rail& rail : devices_.rails()) {
                m.rails.push_back(path::describe(rail));
                m.rails.back().control_qpn = qp_->qp_num;
                if (from.transport == connect::Transport::dc) m.rails.back().dct_number = 99;
            }
            m.terms = {.features = connect::feature::known, .window = 64, .ring = 64, .segment = 8192};
        }
        const bool dc = from.transport == connect::Transport::dc;
        if (kind == Kind::reply)
            m.paths = {{.client_rail = 0, .server_rail = 0, .kind = connect::path_kind_of(m.transport)}};
        if (kind == Kind::reply || kind == Kind::confirm) {
            m.ends.assign(kind == Kind::reply ? 1 : std::max<std::size_t>(c.paths.size(), 1), {});
            for (connect::LocalEnd& end : m.ends)
                if (!dc) end = {qp_->qp_num, 5};
        }
        if (kind == Kind::rails) {
            m.rails = c.remote_rails;
            for (path::RemoteRail& rail : m.rails) rail.lid = devices_.rails()[0].lid, rail.lmc = 0;
            if (m.rails.empty()) m.rails.push_back(path::describe(devices_.rails()[0]));
            for (path::RemoteRail& rail : m.rails) rail.control_qpn = std::max(rail.control_qpn, 2u);
        }
        m.rails_number = kind == Kind::rails ? c.rails_number + 1 : c.telling.known + 1;
        m.goodbye = {.idle = false,
                     .delivered = channel.next_sequence,
                     .number = kind == Kind::ended ? std::uint16_t(c.parting.heard + 1) : c.parting.asked};
        m.wish = {.number = 1, .service = adapt::Service::shared};
        m.ring.number = 1;
        m.yes = kind == Kind::ended_known || (kind != Kind::pong && random_() % 2);
        if (kind == Kind::keys_told) m.yes = false;
        return m;
    }

    void say_of_path(unsigned victim, const Channel& channel, connect::Message& m, unsigned path) {
        const connect::Connection& c = channel.connection;
        const bool rc = c.paths[path].kind == path::Kind::rc;
        const bool open = m.kind == Kind::path_open || m.kind == Kind::path_opened;
        for (const std::uint32_t life : {0u, 1u, 2u})
            for (const bool answer : {false, true}) {
                m.news = {.path = std::uint8_t(path),
                          .answer = answer,
                          .life = life,
                          .marker = channel.fences.fence_number,
                          .delivered = channel.next_sequence,
                          .end = {}};
                if (rc && open) m.news.end = {qp_->qp_num, 5};
                post(victim, m);
                if (!open && m.kind != Kind::path_down) break;
            }
    }

    // Lost, if too many are on their way.
    void post(unsigned victim, const connect::Message& m) {
        ibv_wc wc;
        while (ibv_poll_cq(cq_.get(), 1, &wc) == 1) free_.push_back(unsigned(wc.wr_id));
        if (free_.empty()) return;
        const connect::InterfaceAddress to = cluster_.node(victim).iface().address();
        const connect::ControlAddress* at = nullptr;
        for (unsigned i = 0; i < to.count && !at; ++i)
            if (connect::reach(devices_.rails()[0].subnet_prefix, {}, to.control[i], false)) at = &to.control[i];
        if (!at) return;
        verbs::AddressHandle& ah = handles_[at->lid];
        if (!ah) ah = verbs::create_ah(devices_.devices()[0], devices_.rails()[0], {at->lid, 0, {}}, 0);
        const unsigned slot = free_.back();
        free_.pop_back();
        std::uint8_t* const bytes = memory_.data() + slot * connect::wire::kMaxMessage;
        const std::size_t length = connect::pack(m, bytes);
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(bytes), std::uint32_t(length), mr_->lkey};
        ibv_send_wr wr{}, *bad;
        wr.wr_id = slot;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud = {ah.get(), at->qp_number, to.q_key};
        if (ibv_post_send(qp_.get(), &wr, &bad) != 0) free_.push_back(slot);
    }

    Cluster& cluster_;
    std::mt19937_64 random_;
    verbs::DeviceSet devices_;
    verbs::CompletionQueue cq_;
    std::vector<std::uint8_t> memory_;
    verbs::MemoryRegion mr_;
    std::map<std::uint16_t, verbs::AddressHandle> handles_;
    verbs::QueuePair qp_;
    std::vector<unsigned> free_;
};

} // namespace ucx_mp::sim
