// Takes what the control plane tells about peers (connect::Peers, connect::News, which have the contracts). News for
// the data path are put into the mail, which progress reads.
//
// Threads: the interface's and the handshake's, with the lock held; read_mail() only the interface's, without it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "uct_mp/channel/mail.h"

namespace ucx_mp::channel {

class Peers final : public connect::Peers, public connect::News {
public:
    explicit Peers(Core& core) : core_(core) {}
    connect::Connection* accept(std::uint64_t peer_uid) override;
    connect::Connection* find(std::uint64_t peer_uid) override;
    connect::Connection* find_present(std::uint64_t peer_uid) override;
    connect::Connection* find_parked(std::uint64_t peer_uid) override;
    connect::Connection* find_local(std::uint32_t local_id) override;
    void established(connect::Connection& connection) override;
    void failed(connect::Connection& connection, Status status, const char* why) override;
    void abandoned(connect::Connection& connection) override;
    bool carries_data(connect::Connection& connection) override;
    connect::Connection* renew(connect::Connection& connection) override;
    void answered(connect::Connection& connection, connect::Answer answer) override;
    bool hears(std::uint64_t peer_uid) override;
    bool admits(connect::Connection& connection) override;
    void ended(connect::Connection& connection, const connect::Goodbye& goodbye) override;
    void parted(connect::Connection& connection, connect::Answer answer) override;
    std::string misfit(const connect::Terms& theirs) override;
    void path_news(connect::Connection& connection, connect::NewsKind kind, const connect::PathNews& news) override;
    void rails_told(connect::Connection& connection, std::uint32_t number,
                    const std::vector<path::RemoteRail>& list) override;
    bool find_keys(std::uint64_t region, verbs::RemoteKeys& out) override;
    void keys_told(connect::Connection& connection, bool found, const verbs::RemoteKeys& told) override;
    void wished(connect::Connection& connection, const connect::ServiceWish& wish) override;
    void wish_answered(connect::Connection& connection, std::uint32_t number, bool taken) override;
    void ring_offered(connect::Connection& connection, const connect::RingOffer& offer) override;
    void ring_answered(connect::Connection& connection, std::uint32_t number, bool taken, std::uint32_t until) override;

    unsigned read_mail(); // returns how many letters there were

private:
    void put(connect::Connection& connection, Mail mail);         // with the lock held
    void put_if_room(connect::Connection& connection, Mail mail); // what the peer repeats
    void take(Channel& channel, const Mail& m);                   // without the lock
    Core& core_;
};

} // namespace ucx_mp::channel
