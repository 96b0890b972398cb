// Events of channels that the handshake's side of Services::lock() leaves for progress, in order. Peers::read_mail()
// handles them when progress has its turn. So the control plane never calls into the data path.
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
    Channel* channel = nullptr;
    // Each field is set for the events named beside it.
    Status status = Status::ok;                       // failed
    connect::Answer answer = connect::Answer::alive;  // answered, parted
    connect::Goodbye goodbye{};                       // ended
    connect::NewsKind kind = connect::NewsKind::down; // path
    connect::PathNews news{};
    std::uint32_t number = 0; // rails, verdict, ring_verdict
    std::vector<path::RemoteRail> rails{};
    verbs::RemoteKeys keys{};    // keys
    bool found = false;          // keys: found; verdict, ring_verdict: accepted
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
    std::atomic<bool>& attention_; // Core::attention, which makes progress read the mail
};

} // namespace ucx_mp::channel
