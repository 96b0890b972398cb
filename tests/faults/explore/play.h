// A handful of operations between two nodes, written down as a word, and everything that can be seen of them checked at
// once and at the end. Letters, per node:
//   s b z    numbered message: short, bcopy of 3000 bytes, zcopy of 200 bytes
//   p P q    put of 64 bytes, of 6000, short one of 32: each into a place of its own
//   f        fence
//   c        message that tells of all puts before (so a fence has to be between them)
//   g G      get of 500 bytes, of 6000
//   a o      atomic: fetch and add 1; add 1
//   x        flush; X: nothing follows before it is done
//   w        nothing follows before all completions are in
//   .        nothing follows for 30 us
//   R K N    messages of the other side shall come by a ring, by RC (and a ring), by neither
//   D        the connection shall be given back, if it is idle
//   t r      a task for a queue that waits; the word that the next task waits for (tasks.h)
//
// A target that has learned of a put (by `c`, because the origin's flush is over, or by polling if `polled`) stores
// something else there, which must stay. So do origins with memory that a completion has given back to them.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "simulator/cluster.h"
#include "tasks.h"

namespace ucx_mp::sim {

class Play {
public:
    Play(Cluster& cluster, const char* const (&scripts)[2], bool polled) : cluster_(cluster), polled_(polled) {
        for (unsigned i = 0; i < 2; ++i) {
            Side& side = sides_[i];
            Node& node = cluster.node(i);
            side.play = this;
            side.index = i;
            side.script = side.next = scripts[i];
            unsigned puts = 0;
            for (const char* c = scripts[i]; *c; ++c) puts += *c == 'p' || *c == 'P' || *c == 'q';
            side.source = node.memory((puts + 1) * kPlace);
            side.theirs = cluster.node(1 - i).memory((puts + 1) * kPlace);
            std::memset(side.theirs.data, 0, side.theirs.size);
            side.lengths.resize(puts);
            side.taken.resize(puts);
            side.constant = node.memory(kConstant);
            for (std::size_t b = 0; b < kConstant; ++b) side.constant.data[b] = pattern(b, 90 + i);
            side.counter = node.memory(64);
            std::memset(side.counter.data, 0, 64);
            node.on_am(
                kNumbered,
                [](void* s, void* data, std::size_t n, unsigned) { return static_cast<Side*>(s)->numbered(data, n); },
                &side);
            node.on_am(
                kTells,
                [](void* s, void* data, std::size_t n, unsigned) { return static_cast<Side*>(s)->told(data, n); },
                &side);
            node.on_room = [&side](Channel&) { side.blocked = false; };
        }
        for (unsigned i = 0; i < 2; ++i) sides_[i].to = &cluster.channel(i, 1 - i);
    }

    // Starts what can be started; from outside of callbacks.
    void pump() {
        for (Side& side : sides_)
            if (!cluster_.node(side.index).closed()) side.pump();
    }
    // What a program would see that polls its memory: puts that are there. After every step.
    void look() {
        if (tasks) {
            tasks->look();
            if (mistakes_.empty()) mistakes_ = tasks->mistakes();
        }
        if (!polled_) return;
        for (Side& side : sides_)
            for (unsigned k = 0; k < side.started; ++k)
                if (!side.taken[k] && side.there(k)) side.take(k);
    }
    // Its script is over and so is all that it has started.
    [[nodiscard]] bool over(unsigned i) const { return !*sides_[i].next && sides_[i].open == 0; }
    [[nodiscard]] bool finished() const {
        return over(0) && over(1) && (!tasks || tasks->finished()) && sides_[0].delivered == sides_[1].sent &&
               sides_[1].delivered == sides_[0].sent && sides_[0].heard == sides_[1].tells &&
               sides_[1].heard == sides_[0].tells;
    }
    [[nodiscard]] const std::string& mistakes() const { return mistakes_; }
    TaskPlay* tasks = nullptr; // of a scenario that has them

    // When all is over. Adds to mistakes().
    void check_end() {
        if (tasks) {
            tasks->check_end();
            mistakes_ += tasks->mistakes();
        }
        for (Side& side : sides_) {
            for (unsigned k = 0; k < side.started; ++k) {
                if (!side.taken[k] && !side.there(k)) side.mistake("put " + std::to_string(k) + " is not there");
                if (side.taken[k] && !side.kept(k)) side.mistake("put " + std::to_string(k) + " was executed again");
            }
            for (const auto& got : side.got)
                for (std::size_t b = 0; b < got.size; ++b)
                    if (got.data[b] != kMine) {
                        side.mistake("a get has written after its completion");
                        break;
                    }
            const Side& other = sides_[1 - side.index];
            std::uint64_t counter;
            std::memcpy(&counter, other.counter.data, 8);
            if (counter != side.adds)
                side.mistake("the counter is " + std::to_string(counter) + " after " + std::to_string(side.adds) +
                             " additions");
            if (!side.results_differ()) side.mistake("a fetched value came twice");
        }
    }
    [[nodiscard]] std::string state() const {
        std::string text;
        for (const Side& side : sides_)
            text += "node " + std::to_string(side.index) + ": at '" + side.next + "', " + std::to_string(side.open) +
                    " open, " + std::to_string(side.delivered) + " of " + std::to_string(sides_[1 - side.index].sent) +
                    " messages delivered, " + std::to_string(side.heard) + " of " +
                    std::to_string(sides_[1 - side.index].tells) + " tellings" +
                    (side.blocked ? ", waits for room" : "") + "\n";
        return text;
    }

private:
    static constexpr std::uint8_t kNumbered = 1, kTells = 2;
    static constexpr std::size_t kPlace = 6144, kConstant = 8192;
    static constexpr std::byte kMine{0xe7};
    static constexpr Nanos kRest = 30'000; // longer than a round trip of the control plane

    static std::byte pattern(std::size_t i, std::uint64_t seed) {
        return static_cast<std::byte>(i * 167 + seed * 59 + (i >> 8));
    }

    struct Side {
        Play* play;
        unsigned index;
        const char *script, *next;
        Channel* to;
        unsigned open = 0, started = 0; // completions to come; puts
        bool flushing = false, blocked = false, resting = false;
        std::uint64_t sent = 0, delivered = 0, tells = 0, heard = 0, adds = 0;
        Node::Memory source, theirs; // `theirs`: at the other node, where our puts go
        Node::Memory constant, counter;
        std::vector<std::size_t> lengths;
        std::vector<char> taken; // the target has stored something else there
        std::vector<Node::Memory> got, pieces;
        std::vector<std::unique_ptr<std::uint64_t>> results;

        struct Op : Completion {
            Side* side;
            std::function<void()> then;
            static void fired(Completion* self) {
                const std::unique_ptr<Op> op(static_cast<Op*>(self));
                --op->side->open;
                if (failed(op->status))
                    return op->side->mistake("a completion with status " + std::to_string(int(op->status)));
                if (op->then) op->then();
            }
        };
        Op* op(std::function<void()> then = {}) {
            Op* made = new Op;
            made->callback = Op::fired;
            made->count = 1;
            made->status = Status::ok;
            made->side = this;
            made->then = std::move(then);
            return made;
        }
        // True: it has gone.
        bool went(Status status, Op* made) {
            if (status == Status::in_progress) return ++open, true;
            if (status == Status::ok && made && made->then) made->then();
            delete made;
            if (failed(status) && status != Status::no_resource) mistake("refused with " + std::to_string(int(status)));
            return status == Status::ok;
        }
        void mistake(const std::string& what) {
            if (play->mistakes_.size() < 1000) play->mistakes_ += "node " + std::to_string(index) + ": " + what + "\n";
        }

        void pump() {
            for (unsigned refusals = 0; *next && !blocked;) {
                if (flushing || resting || (*next == 'w' && open)) return;
                if (*next == 'w' || start(*next)) {
                    ++next;
                    continue;
                }
                if (!play->mistakes_.empty()) return;
                if (play->cluster_.node(index).iface().want_room(*to) != Status::busy)
                    blocked = true;
                else if (++refusals > 100)
                    return mistake(std::string("there is room, but not for '") + *next + "'");
            }
        }

        bool start(char what) {
            using channel::Interface;
            Side& peer = play->sides_[1 - index];
            switch (what) {
            case 's':
            case 'b':
            case 'z':
                return message(what);
            case 'f':
                return Interface::fence(*to) == Status::ok;
            case 'c': {
                if (!went(Interface::am_short(*to, kTells, started, nullptr, 0), nullptr)) return false;
                ++tells;
                return true;
            }
            case 'p':
            case 'P':
            case 'q': {
                const std::size_t length = what == 'p' ? 64 : what == 'P' ? 6000 : 32, at = started * kPlace;
                for (std::size_t i = 0; i < length; ++i) source.data[at + i] = pattern(i, started + index * 7);
                lengths[started] = length;
                bool gone;
                if (what == 'q') {
                    gone =
                        went(Interface::put_short(*to, source.data + at, 32, theirs.address(at), theirs.keys), nullptr);
                } else {
                    Op* done = op([this, at, length] { std::memset(source.data + at, int(kMine), length); });
                    const Iov iov = source.iov(at, length);
                    gone = went(Interface::put_zcopy(*to, &iov, 1, theirs.address(at), theirs.keys, done), done);
                }
                started += gone;
                return gone;
            }
            case 'g':
            case 'G': {
                const std::size_t length = what == 'g' ? 500 : 6000;
                got.push_back(play->cluster_.node(index).memory(length));
                std::byte* const data = got.back().data;
                const std::size_t where = 64 * got.size();
                Op* done = op([this, data, where, length] {
                    for (std::size_t i = 0; i < length; ++i)
                        if (data[i] != pattern(where + i, 90 + 1 - index)) return mistake("wrong bytes got");
                    std::memset(data, int(kMine), length);
                });
                const Iov iov = got.back().iov(0, length);
                if (went(Interface::get_zcopy(*to, &iov, 1, peer.constant.address(where), peer.constant.keys, done),
                         done))
                    return true;
                got.pop_back();
                return false;
            }
            case 'a': {
                auto& result = results.emplace_back(std::make_unique<std::uint64_t>(~0ull));
                Op* done = op();
                if (went(Interface::atomic_fetch(*to, channel::AtomicOp::add, 8, 1, 0, result.get(),
                                                 peer.counter.address(), peer.counter.keys, done),
                         done))
                    return ++adds, true;
                results.pop_back();
                return false;
            }
            case 'o':
                if (!went(Interface::atomic_post(*to, channel::AtomicOp::add, 8, 1, peer.counter.address(),
                                                 peer.counter.keys),
                          nullptr))
                    return false;
                return ++adds, true;
            case 'x':
            case 'X': {
                flushing = what == 'X';
                Op* done = op([this, puts = started, added = adds, all = what == 'X'] {
                    if (all) flushing = false;
                    learned(puts, "its flush was over");
                    std::uint64_t counter;
                    std::memcpy(&counter, play->sides_[1 - index].counter.data, 8);
                    if (counter < added) mistake("an addition was missing when the flush was over");
                });
                const bool gone = went(play->cluster_.node(index).iface().flush(*to, done), done);
                if (!gone) flushing = false;
                return gone;
            }
            case '.':
                resting = true;
                play->cluster_.world.at(play->cluster_.world.now() + kRest, [this] {
                    resting = false;
                    play->pump();
                });
                return true;
            case 'R':
            case 'K':
            case 'N': // refused: there are none of that kind here, or not yet
                (void)play->cluster_.node(index).iface().serve_by(*to, what == 'R'   ? adapt::Service::dc_ring
                                                                       : what == 'K' ? adapt::Service::rc
                                                                                     : adapt::Service::shared);
                return true;
            case 't':
                return play->tasks->give(index), true;
            case 'r':
                return play->tasks->release(index), true;
            case 'D': // refused: it is busy
                (void)play->cluster_.node(index).iface().park(*to);
                return true;
            default:
                mistake(std::string("unknown operation ") + what);
                return true;
            }
        }

        bool message(char what) {
            using channel::Interface;
            std::byte body[3000];
            const std::size_t length = what == 's' ? 24 : what == 'b' ? sizeof body : 200;
            std::memcpy(body, &sent, 8);
            for (std::size_t i = 8; i < length; ++i) body[i] = pattern(i, sent + index * 5);
            bool gone;
            if (what == 's') {
                gone = went(Interface::am_short(*to, kNumbered, sent, body + 8, static_cast<unsigned>(length - 8)),
                            nullptr);
            } else if (what == 'b') {
                const auto pack = [](void* to, void* from) { return std::memcpy(to, from, sizeof body), sizeof body; };
                const ssize_t packed = Interface::am_bcopy(*to, kNumbered, pack, body);
                gone = packed >= 0 || went(static_cast<Status>(packed), nullptr);
            } else {
                pieces.push_back(play->cluster_.node(index).memory(length));
                std::byte* const data = pieces.back().data;
                std::memcpy(data, body + 8, length - 8);
                Op* done = op([data, length] { std::memset(data, int(kMine), length); });
                const Iov iov = pieces.back().iov(0, length - 8);
                gone = went(Interface::am_zcopy(*to, kNumbered, body, 8, &iov, 1, done), done);
                if (!gone) pieces.pop_back();
            }
            sent += gone;
            return gone;
        }

        // A message of the other side.
        Status numbered(void* data, std::size_t length) {
            std::uint64_t number;
            std::memcpy(&number, data, 8);
            if (number != delivered)
                mistake("message " + std::to_string(number) + " instead of " + std::to_string(delivered));
            ++delivered;
            for (std::size_t i = 8; i < length; ++i)
                if (static_cast<std::byte*>(data)[i] != pattern(i, number + (1 - index) * 5)) {
                    mistake("wrong bytes in message " + std::to_string(number));
                    break;
                }
            return Status::ok;
        }
        Status told(void* data, std::size_t) {
            std::uint64_t puts;
            std::memcpy(&puts, data, 8);
            ++heard;
            play->sides_[1 - index].learned(static_cast<unsigned>(puts), "a message told of it");
            return Status::ok;
        }

        // Our puts, at the target
        [[nodiscard]] bool there(unsigned k) const {
            for (std::size_t i = lengths[k]; i-- > 0;)
                if (theirs.data[k * kPlace + i] != pattern(i, k + index * 7)) return false;
            return true;
        }
        [[nodiscard]] bool kept(unsigned k) const {
            for (std::size_t i = 0; i < lengths[k]; ++i)
                if (theirs.data[k * kPlace + i] != kMine) return false;
            return true;
        }
        void take(unsigned k) {
            taken[k] = true;
            std::memset(theirs.data + k * kPlace, int(kMine), lengths[k]);
        }
        void learned(unsigned puts, const char* how) {
            for (unsigned k = 0; k < puts; ++k) {
                if (taken[k]) continue;
                if (!there(k)) mistake("put " + std::to_string(k) + " was not there when " + how);
                take(k);
            }
        }
        [[nodiscard]] bool results_differ() const {
            for (std::size_t i = 0; i < results.size(); ++i)
                for (std::size_t k = 0; k < i; ++k)
                    if (*results[i] == *results[k]) return false;
            return true;
        }
    };

    Cluster& cluster_;
    const bool polled_;
    Side sides_[2];
    std::string mistakes_;
};

} // namespace ucx_mp::sim
