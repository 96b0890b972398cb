// The handshake's news of peers (connect::Peers, connect::News), on either side of Services::lock() and with it held.
// News for the data path go to progress by mail.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

struct Mail {
    enum class What : std::uint8_t {
        established,
        abandoned,
        failed,
        answered,
        path,
        rails,
        keys,
        ended,
        parted,
        wish,
        verdict,
        ring,
        ring_verdict
    } what;
    Channel* channel;
    Status status = Status::ok;                       // failed
    connect::Answer answer = connect::Answer::alive;  // answered, parted
    connect::Goodbye goodbye{};                       // ended
    connect::NewsKind kind = connect::NewsKind::down; // path
    connect::PathNews news{};
    std::uint32_t number = 0; // rails, verdict, ring_verdict
    std::vector<path::RemoteRail> rails{};
    verbs::RemoteKeys keys{};    // keys
    bool found = false;          // keys; verdict, ring_verdict: taken
    connect::ServiceWish wish{}; // wish
    connect::RingOffer ring{};   // ring
    std::uint32_t until = 0;     // ring_verdict
};

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

    Channel& channel_of(connect::Connection& connection);
    [[nodiscard]] bool mail_is_full() const; // with the lock held; who repeats himself is not heard then
    void tell(Mail mail);                    // likewise
    unsigned read_mail();                    // progress only
    // Progress only: the channel takes over what the handshake has made.
    void establish(Channel& channel);
    // To ourselves: no handshake, since we know both ends.
    void connect_self(Channel& channel);
    void describe_self(connect::Connection& connection) const;

    std::vector<Mail> mail;

private:
    Core& core_;
};

} // namespace ucx_mp::channel
