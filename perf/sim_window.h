// The bandwidth test of MPI benchmarks, in virtual time: one process sends a window of non-blocking messages, the other
// one answers when it has them all; then the next window. Messages are what an MPI library makes of them over this
// transport:
//
//   eager  one active message
//   get    request to send, the receiver reads, finish message: UCP's rendezvous by default
//   put    request, answer, the sender writes; when that is complete, a finish message: UCP with
//   UCX_RNDV_SCHEME=put_zcopy fence  the same without waiting: write, fence, finish message (later UCP). Each path that
//   has carried a stripe gets a
//          message of its own, as "one per each physical subchannel" in the dissertation (4.2.3)
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "simulator/cluster.h"

namespace ucx_mp::sim {

class WindowTest {
public:
    enum class Protocol { eager, get, put, fence };
    static std::optional<Protocol> protocol(const std::string& name) {
        if (name == "eager") return Protocol::eager;
        if (name == "rendezvous_get") return Protocol::get;
        if (name == "rendezvous_put") return Protocol::put;
        if (name == "rendezvous_fence") return Protocol::fence;
        return std::nullopt;
    }

    WindowTest(Cluster& cluster, unsigned from, unsigned to, Protocol protocol, std::size_t size, unsigned window)
        : cluster_(cluster), protocol_(protocol), size_(size),
          window_(window), sender_{*this, from, cluster.channel(from, to), cluster.node(from).memory(size)},
          receiver_{*this, to, cluster.channel(to, from), cluster.node(to).memory(size)} {
        for (Side* side : {&sender_, &receiver_}) {
            for (unsigned what = 0; what < kMessages; ++what) cluster.node(side->node).on_am(what, arrived[what], side);
            cluster.node(side->node).on_room = [side](Channel&) { side->test.pump(*side); };
        }
    }
    void start() {
        ended = cluster_.world.now();
        add(sender_, protocol_ == Protocol::eager ? eager : request, window_);
        pump(sender_);
    }
    void set_hint(schedule::TrafficHint hint) {
        for (Side* side : {&sender_, &receiver_}) cluster_.node(side->node).iface().set_hint(side->channel, hint);
    }
    // Of the windows that are over: what was in them, and when the last one ended. Messages of one window may well come
    // all at its end.
    std::uint64_t bytes = 0;
    Nanos ended = 0;

private:
    enum What : std::uint8_t { eager, request, answer, finish, reply, kMessages, read = kMessages, write };
    struct Side {
        WindowTest& test;
        unsigned node;
        Channel& channel;
        Node::Memory memory;        // of all messages: payload is not carried
        std::deque<What> todo = {}; // what there was no room for is tried again, in order
        bool pumping = false;
        unsigned finished = 0; // messages of this window
    };
    struct Done : Completion {
        Side* side;
        What what;
    };

    static void add(Side& side, What what, unsigned n = 1) { side.todo.insert(side.todo.end(), n, what); }

    void pump(Side& side) {
        if (std::exchange(side.pumping, true)) return;
        auto& iface = cluster_.node(side.node).iface();
        while (!side.todo.empty()) {
            const What what = side.todo.front();
            if (post(side, what)) {
                side.todo.pop_front();
                if (what == write && protocol_ == Protocol::fence) side.todo.push_front(finish);
            } else if (iface.want_room(side.channel) != Status::busy) {
                break;
            }
        }
        side.pumping = false;
    }

    bool post(Side& side, What what) {
        using channel::Interface;
        if (what == eager) {
            const auto pack = [](void* to, void* size) {
                return std::memset(to, 0, 8), *static_cast<std::size_t*>(size);
            };
            return Interface::am_bcopy(side.channel, eager, pack, &size_) >= 0;
        }
        if (what < kMessages) {
            const Status status = Interface::am_short(side.channel, what, 0, nullptr, 0);
            if (failed(status) && status != Status::no_resource) throw std::runtime_error("message");
            return status == Status::ok;
        }
        const Node::Memory& theirs = (&side == &sender_ ? receiver_ : sender_).memory;
        auto* done = new Done{{completed, 1, Status::ok}, &side, what};
        const Iov iov = side.memory.iov(0, size_);
        const auto call = what == read ? Interface::get_zcopy : Interface::put_zcopy;
        const Status status = call(side.channel, &iov, 1, theirs.address(), theirs.keys, done);
        if (status != Status::in_progress) {
            delete done;
            if (status != Status::no_resource) throw std::runtime_error("post");
            return false;
        }
        if (what == write && protocol_ == Protocol::fence) (void)Interface::fence(side.channel);
        return true;
    }

    static void completed(Completion* self) {
        auto* done = static_cast<Done*>(self);
        Side& side = *done->side;
        const What what = done->what;
        delete done;
        WindowTest& test = side.test;
        if (what == write) ++side.finished; // its buffer may be used again
        if (what == read) test.received();
        if (what == read || test.protocol_ == Protocol::put) add(side, finish);
        test.next_window();
        test.pump(side);
    }

    void received() {
        if (++receiver_.finished < window_) return;
        receiver_.finished = 0;
        add(receiver_, reply);
    }

    void take(Side& side, What what) {
        switch (what) {
        case eager:
            received();
            break;
        case request:
            add(side, protocol_ == Protocol::get ? read : answer);
            break;
        case answer:
            add(side, write);
            break;
        case finish:
            if (&side == &receiver_)
                received();
            else
                ++side.finished;
            break;
        case reply:
            replied_ = true;
            break;
        default:
            break;
        }
        next_window();
        pump(side);
    }

    void next_window() {
        if (!replied_ || (protocol_ != Protocol::eager && sender_.finished < window_)) return;
        replied_ = false;
        sender_.finished = 0;
        bytes += window_ * size_;
        ended = cluster_.world.now();
        add(sender_, protocol_ == Protocol::eager ? eager : request, window_);
    }

    template <What what> static Status handler(void* side, void*, std::size_t, unsigned) {
        Side& of = *static_cast<Side*>(side);
        of.test.take(of, what);
        return Status::ok;
    }
    static constexpr Status (*arrived[kMessages])(void*, void*, std::size_t, unsigned) = {
        handler<eager>, handler<request>, handler<answer>, handler<finish>, handler<reply>};

    Cluster& cluster_;
    const Protocol protocol_;
    std::size_t size_;
    const unsigned window_;
    Side sender_, receiver_;
    bool replied_ = false;
};

} // namespace ucx_mp::sim
