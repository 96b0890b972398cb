// The parts of the stress traffic (simulator/stress.h): a node's memory, and what one node does to another.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "simulator/stress.h"

namespace ucx_mp::sim {

inline constexpr unsigned kSlots = 4;                // puts of a flow that may be under way
inline constexpr unsigned kNumbered = 1, kCheck = 2; // handlers
inline constexpr std::uint64_t kAdded = 3;           // by a fetch-add behind a put
inline constexpr std::byte kKept{0xe7};              // what targets store where a put has been checked

struct Numbered { // header of a numbered message
    std::uint32_t from, length;
    std::uint64_t number;
};
struct CheckMessage { // a put of ours is there: look
    std::uint32_t from, slot;
    std::uint64_t length, seed, added;
};

struct Stress::Side {
    Side(Node& node, unsigned nodes, unsigned index, const StressOptions& options);
    Node::Memory slots, constant, scratch, read, counter, flags;
    std::set<std::uint64_t> results; // of fetch-adds here
    std::vector<std::size_t> kept;   // per slot: bytes that the target has stored itself
};

class Stress::Flow {
public:
    Flow(Stress& stress, unsigned from, unsigned to);
    // Starts what there is to start, until there is no room or nothing to be done before something completes.
    void pump();
    [[nodiscard]] bool finished() const;
    // How far it has come, for who reads a verdict.
    [[nodiscard]] std::string progress() const;
    void mistake(const std::string& what);
    void not_while_computing(unsigned node, const char* what); // calls of the user
    // `data` must be what the put `f` has left. `when`: end of the sentence.
    void compare(const std::byte* data, const Following& f, const char* when);

    Stress& stress;
    const unsigned from, to;
    Channel& channel;
    // What the target's side counts.
    std::uint64_t delivered = 0, adds = 0;
    unsigned checks = 0;
    bool rests = false; // starts nothing: StressOptions::lull
    unsigned slots_free = (1u << kSlots) - 1;
    Sequence kinds[kSlots] = {}; // of the last put to each

private:
    // The kinds of traffic, as drawn. 0 to 2: numbered messages, short, bcopy, zcopy.
    enum Kind : unsigned { am_short, am_bcopy, am_zcopy, put, get, fetch_add, flush, fence, kKinds };
    struct Op : Completion { // deletes itself
        Flow* flow;
        std::function<void()> then;
        static void fired(Completion* self);
    };

    [[nodiscard]] channel::Interface& iface() { return stress.cluster_.node(from).iface(); }
    [[nodiscard]] Side& mine() { return stress.sides_[from]; }
    [[nodiscard]] Side& theirs() { return stress.sides_[to]; }
    [[nodiscard]] std::size_t slot_at(unsigned slot) const {
        return (from * kSlots + slot) * stress.options_.slot; // in the target's `slots`
    }
    Op* op(std::function<void()> then = {});
    // What an operation with a completion has returned. True: it went.
    bool took(Status status, Op* made);

    bool step(); // the next one. False: refused, or there is none
    void draw();
    [[nodiscard]] std::uint64_t random_size(std::uint64_t max);
    // What has been drawn. False: refused.
    bool start();
    bool send_numbered();
    bool start_put();
    bool start_get();
    bool start_add();
    bool start_flush();

    // One of those whose turn it may be; sooner or later than what is new.
    Following* next_following();
    // The next step of what follows a put. False: refused.
    bool advance(Following& f);
    Op* op_of(Following& f, std::function<void()> then = {}); // which waits for it
    bool goes_on(Following& f, Status status, Op* done);      // what an operation of it has returned
    bool put_flag(Following& f);
    bool read_back(Following& f);
    bool add_to(Following& f);
    bool tell(Following& f);

    std::mt19937_64 random_;
    unsigned started_ = 0, open_ = 0, puts_ = 0;
    std::uint64_t numbered_sent_ = 0;
    bool pumping_ = false;
    bool idle_ = false; // nothing was tried: there is nothing to be done before something completes
    // Puts that have been started, until the target has been told.
    std::vector<std::unique_ptr<Following>> following_;
    Following* active_ = nullptr; // whose next step was refused: it goes first
    unsigned kind_ = 0;
    bool chosen_ = false, trying_ = false; // what comes next; it was refused, and goes first when there is room
    std::uint64_t size_ = 0, offset_ = 0;
};

struct Stress::Polled {
    Flow* flow;
    Following put;
    std::uint64_t value;
};

} // namespace ucx_mp::sim
