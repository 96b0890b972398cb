// Our ends of paths, made and connected for the handshake (connect::Ends), and queue pairs that nobody wants any more.
//
// Threads: either side of Services::lock(), with it held, where not said otherwise.
#pragma once

#include <memory>
#include <vector>

#include "uct_mp/channel/channel.h"

namespace ucx_mp::channel {

class Ends final : public connect::Ends {
public:
    explicit Ends(Core& core) : core_(core) {}
    Status make_end(connect::Connection& connection, std::size_t path) override;
    Status connect_end(connect::Connection& connection, std::size_t path) override;
    void drop_ends(connect::Connection& connection) override;
    std::uint32_t probe_key(const verbs::Rail& rail) override;

    // Half of a path of mp_rc. Null: logged, errno.
    verbs::QueuePair make_half(const verbs::Rail& rail, LogLevel level, verbs::QueuePair* broken = nullptr);
    [[nodiscard]] verbs::RemoteEnd remote_end(const connect::Connection& connection, const path::PathSpec& route,
                                              const connect::LocalEnd& end) const;
    void drop_prepared(Channel& channel);
    unsigned clear_graves(bool occupied); // progress only, without the lock

    // Queue pairs that a handshake has made and dropped, whole or half-way. Progress destroys them, since a completion
    // queue has one user (Adapter's are made for a single thread, and destroying takes what is left of a queue pair out
    // of them): a few at a time, each is a command.
    std::vector<std::unique_ptr<SendQueue>> graves;

private:
    [[nodiscard]] bool may_do_without(const Channel& channel, const verbs::Rail& rail) const;
    [[nodiscard]] bool is_news(const connect::Connection& connection, const verbs::Rail& rail) const;
    void entomb(verbs::QueuePair qp, const verbs::Rail& rail);

    Core& core_;
    Nanos next_clearing_ = 0;
};

} // namespace ucx_mp::channel
