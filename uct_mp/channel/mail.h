// Events for progress: what the handshake's side of Services::lock() tells of channels, in the order in which it came.
// Whoever has something to tell puts it here, and Peers::read_mail() hands it on when progress has its turn: nothing is
// called upwards.
//
// Threads: either side, with the lock held.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
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

class Mailbox {
public:
    explicit Mailbox(std::atomic<bool>& attention) : attention_(attention) {}
    void tell(Mail mail) {
        list.push_back(std::move(mail));
        attention_.store(true, std::memory_order_relaxed);
    }
    std::vector<Mail> list; // not read yet

private:
    std::atomic<bool>& attention_; // Core's: progress looks here
};

} // namespace ucx_mp::channel
