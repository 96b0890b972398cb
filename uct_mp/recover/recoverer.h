// Hides faults from an interface's channels. The channel room tells it of faults: it is the room's Observer.
//
// Its parts are listed in members.h. PROTOCOL.md explains the protocol and why it is safe. Completions and refused
// posts only record what was lost (Failure). step() does everything else, once per round of progress.
//
// Core makes it by make(). Its functions pass a call on to a part, or call several parts.
// Threads: the interface's, except load_first_alternate(), which the handshake calls with the lock held.
#pragma once

#include <memory>

#include "uct_mp/recover/members.h"

namespace ucx_mp::recover {

// A base, so that the parts are there when Observer gets them.
struct Owned {
    explicit Owned(Core& core) : core_(core), all_(core) {}
    Core& core_;
    Members all_;
};

class Recoverer final : Owned, channel::ChannelLife, channel::PeerNews, public channel::Observer {
public:
    explicit Recoverer(Core& core)
        : Owned(core), Observer(all_.failure, all_.replay, all_.demand, *this, *this), job_runner_(core, all_) {}
    ~Recoverer() override;
    [[nodiscard]] static std::unique_ptr<channel::Observer> make(Core& core); // channel::MakeObserver

    // -- channel::ChannelLife, PeerNews, Observer (channel/observer.h has the contracts)
    void load_first_alternate(connect::Connection& connection, PathIndex path, Path& sub) override;
    void established(Channel& channel) override;
    void connected(Channel& channel) override;
    void check(Channel& channel) override;
    void parting(Channel& channel) override;
    void ended(Channel& channel, Status status) override;
    bool names(Channel& channel) override;
    void take_news(Channel& channel, connect::NewsKind kind, const connect::PathNews& news) override;
    void take_path_up(Channel& channel, PathIndex path, std::uint32_t life) override;
    void rails_changed(Channel& channel) override;
    bool present_keys(Channel& channel, const verbs::RemoteKeys*& keys) override;
    void take_keys(Channel& channel, bool found, const verbs::RemoteKeys& told) override;
    void hear_answer(Channel& channel, connect::Answer answer) override;
    void step() override;
    void read_rails() override;
    void read_events() override;
    void watch_peers(Nanos now) override;
    void watch_paths(Nanos now) override;
    [[nodiscard]] bool busy() const override;
    [[nodiscard]] bool recovers() const override;
    void describe(channel::InterfaceStatistics& out) const override;
    void describe(const Channel& channel, channel::ChannelStatistics& out) const override;
    void describe(const Channel& channel, std::vector<channel::PathLook>& out) const override;

private:
    void fail_dead_routes(Channel& channel);

    JobRunner job_runner_;
};

} // namespace ucx_mp::recover
