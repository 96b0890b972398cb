// Turns of the program and a thread beside it: every order of their steps, with stores that others see late.
#define BOOST_TEST_MODULE turn
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "uct_mp/host/turn.h"

using namespace ucx_mp::turn;

namespace {

// One state of both. The program makes `kCalls` calls, each: enter (a store that may stay in its store buffer), look,
// work, leave (a store, too), and is outside between them. The thread takes turns again and again. The program's stores
// to the word reach memory at any later moment, in their order; those to what it works on, in any order. A barrier of
// the thread makes all of them reach it.
struct State {
    // memory
    std::uint8_t calls = 0, attention = 0; // calls: number << 1 | inside
    // program: its own view of `calls`, how many of its stores are not in memory yet, and where it is
    std::uint8_t own = 0, pending = 0, step = 0, made = 0;
    bool data = false; // what it has written in calls is not in memory yet: no order to the stores of `calls`
    std::uint8_t thread = 0, before = 0;
    auto operator<=>(const State&) const = default;
};

constexpr std::uint8_t kCalls = 3;
enum Program : std::uint8_t { outside, entered, inside, waits };
enum Thread : std::uint8_t { idle, looked, marked, passed, works };

// Stores are +2 +1 (enter) and -1 (leave): what memory has once `pending` of them are missing.
std::uint8_t stored(std::uint8_t own, std::uint8_t pending) {
    for (; pending; --pending) own = own & 1 ? static_cast<std::uint8_t>(own - 3) : static_cast<std::uint8_t>(own + 1);
    return own;
}

struct Rules {
    bool barrier = true;   // the thread's barrier makes the program's stores seen
    bool unchanged = true; // a call that has come and gone refuses the turn
};

// Every state that can be reached. False: both are inside, or the thread is beside stores that it does not see.
bool holds(Rules rules) {
    std::set<State> seen;
    std::vector<State> open{State{}};
    bool good = true, thread_worked = false, met = false;
    const auto reach = [&](State next) {
        next.calls = stored(next.own, next.pending);
        if (seen.insert(next).second) open.push_back(next);
    };
    while (!open.empty()) {
        const State now = open.back();
        open.pop_back();
        if (now.thread == works) {
            thread_worked = true;
            if (now.step == inside || now.data) good = false;
        }
        State next = now;
        if (now.pending) { // a store reaches memory
            --next.pending;
            reach(next);
            next = now;
        }
        if (now.data) {
            next.data = false;
            reach(next);
            next = now;
        }
        switch (now.step) {
        case outside:
            if (now.made == kCalls) break;
            next.own = static_cast<std::uint8_t>(now.own + 3);
            ++next.pending;
            next.step = entered;
            reach(next);
            break;
        case entered: // the look is not held up by the store before it
            next.step = now.attention & MP_TURN_TAKEN ? waits : inside;
            met |= next.step == waits;
            reach(next);
            break;
        case waits:
            if (now.attention & MP_TURN_TAKEN) break;
            next.step = inside;
            reach(next);
            break;
        case inside:
            next.data = true;
            next.own = static_cast<std::uint8_t>(now.own - 1);
            ++next.pending;
            ++next.made;
            next.step = outside;
            reach(next);
            break;
        }
        next = now;
        switch (now.thread) { // the steps of take() and give()
        case idle:
            next.before = now.calls;
            next.thread = now.calls & 1 ? idle : looked;
            reach(next);
            break;
        case looked:
            next.attention |= MP_TURN_TAKEN;
            next.thread = marked;
            reach(next);
            break;
        case marked:
            if (rules.barrier) next.pending = 0, next.data = false;
            next.thread = passed;
            reach(next);
            break;
        case passed: {
            const bool refused = rules.unchanged ? now.calls != now.before : (now.calls & 1) != 0;
            if (refused) next.attention = 0;
            next.thread = refused ? idle : works;
            reach(next);
            break;
        }
        case works:
            next.attention = 0;
            next.thread = idle;
            reach(next);
            break;
        }
        // Nobody is stuck: a waiting program is waited for by a thread that goes on.
        if (now.step == waits && now.thread == idle && now.attention) good = false;
    }
    return good && thread_worked && met;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_is_inside_at_a_time) { BOOST_TEST(holds({})); }
BOOST_AUTO_TEST_CASE(without_the_barrier_both_are) { BOOST_TEST(!holds({.barrier = false})); }
BOOST_AUTO_TEST_CASE(a_call_that_came_and_went_is_not_seen_in_time) { BOOST_TEST(!holds({.unchanged = false})); }

// Before this process has registered for it.
BOOST_AUTO_TEST_CASE(without_a_barrier_there_is_no_turn) {
    mp_turn_t turn{};
    Words words(turn);
    BOOST_TEST(!take(words));
    BOOST_TEST(words.attention() == 0u);
    BOOST_TEST_REQUIRE(can_take_turns());
    BOOST_TEST(take(words));
}

// The real words, with real threads: the sum of what both add without a lock.
BOOST_AUTO_TEST_CASE(two_threads_count_together) {
    BOOST_TEST_REQUIRE(can_take_turns());
    mp_turn_t turn{};
    unsigned told = 0;
    turn.tell = [](void* count) { ++*static_cast<unsigned*>(count); };
    turn.core = &told;
    std::uint64_t sum = 0, taken = 0; // not atomic
    std::atomic<bool> over{false};
    std::thread other([&] {
        Words words(turn);
        for (; !over; std::this_thread::yield()) {
            if (!take(words)) continue;
            for (int i = 0; i < 100; ++i) ++sum;
            ++taken;
            give(words);
        }
    });
    constexpr std::uint64_t kRounds = 200'000;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        mp_turn_enter(&turn);
        mp_turn_enter(&turn); // a call within a call
        ++sum;
        mp_turn_leave(&turn);
        mp_turn_leave(&turn);
        if (i % 1000 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    over = true;
    other.join();
    mp_turn_enter(&turn);
    mp_turn_leave(&turn);
    BOOST_TEST(sum == kRounds + 100 * taken);
    BOOST_TEST(taken > 0);
    BOOST_TEST((told > 0 && told <= taken));
    BOOST_TEST(mp_turn_depth(&turn) == 0u);
}

// A child has no such thread: it must not find a turn that never ends.
BOOST_AUTO_TEST_CASE(a_fork_waits_for_the_end_of_a_turn) {
    BOOST_TEST_REQUIRE(can_take_turns());
    mp_turn_t turn{};
    std::atomic<bool> over{false}, begun{false};
    std::thread other([&] {
        while (!over) {
            const Taken taken{Words(turn)};
            begun = begun || taken;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    while (!begun) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        if (child == 0) _exit(Words(turn).attention() & MP_TURN_TAKEN ? 1 : 0);
        int status = 1;
        BOOST_TEST_REQUIRE(waitpid(child, &status, 0) == child);
        BOOST_TEST(status == 0);
    }
    over = true;
    other.join();
    BOOST_TEST(!(Words(turn).attention() & MP_TURN_TAKEN));
}
