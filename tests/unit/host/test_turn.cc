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

// One state of both. The program makes `kCalls` calls, each: enter (add to the word, look), work, leave (take from the
// word), and is outside between them. The thread takes turns again and again. The program's stores to the word reach
// memory at any later moment, in their order, and then hide what the thread has stored meanwhile; those to what it
// works on, in any order. A barrier of the thread makes all of them reach it.
constexpr std::uint8_t kLook = 0x80; // of the word; below it: number << 1 | inside
constexpr unsigned kCalls = 3;
struct State {
    // memory
    std::uint8_t calls = 0, attention = 0;
    bool data = false;    // what the program has written in calls is not in memory yet: no order to the word's stores
    bool unheard = false; // what the thread has written: the program has not looked since
    // program: stores of the word that are not in memory yet, what an addition has loaded, where it is
    std::vector<std::uint8_t> pending{};
    std::uint8_t loaded = 0, step = 0, made = 0;
    std::uint8_t thread = 0, before = 0;
    auto operator<=>(const State&) const = default;

    [[nodiscard]] std::uint8_t own() const { return pending.empty() ? calls : pending.back(); }
    void one_reaches_memory() {
        calls = pending.front();
        pending.erase(pending.begin());
    }
    void all_reach_memory() {
        calls = own();
        pending.clear();
        data = false;
    }
    void add(int calls_more) { pending.push_back(static_cast<std::uint8_t>(loaded + calls_more)); }
};

enum Program : std::uint8_t { outside, entering, entered, inside, waits, hears, leaving };
enum Thread : std::uint8_t { idle, looked, taken, marked, passed, works, tells, told };

struct Rules {
    bool barrier = true;   // the thread's barrier makes the program's stores seen
    bool unchanged = true; // a call that has come and gone refuses the turn
    bool whole = true;     // a barrier is before an addition or behind it
    bool by_sign = true;   // the program looks if the sum says so; else it loads `attention` behind its store
};

constexpr Rules kInParts{.whole = false, .by_sign = false};

// The program's next step, if it has one.
void go_on(State& next, Rules rules) {
    const auto enter = [&] {
        next.add(3);
        if (rules.by_sign)
            next.step = next.loaded & kLook ? waits : inside;
        else
            next.step = entered;
    };
    const auto leave = [&] {
        next.add(-1);
        ++next.made;
        next.step = outside;
    };
    switch (next.step) {
    case outside:
        if (next.made == kCalls) return;
        next.loaded = next.own();
        next.step = entering;
        if (rules.whole) enter();
        break;
    case entering:
        enter();
        break;
    case entered:
        next.step = next.attention ? waits : inside;
        break; // not held up by the store before it
    case waits:
        if (!(next.attention & MP_TURN_TAKEN)) next.step = hears;
        break;
    case hears: // an atomic instruction
        next.all_reach_memory();
        next.calls &= static_cast<std::uint8_t>(~kLook);
        if (next.attention & MP_TURN_NEWS) next.attention &= static_cast<std::uint8_t>(~MP_TURN_NEWS);
        next.unheard = false;
        next.step = inside;
        break;
    case inside:
        next.data = true;
        next.loaded = next.own();
        next.step = leaving;
        if (rules.whole) leave();
        break;
    case leaving:
        leave();
        break;
    }
}

// The thread's: the steps of take() and give().
void take_and_give(State& next, Rules rules) {
    const std::uint8_t calls = next.calls & static_cast<std::uint8_t>(~kLook);
    switch (next.thread) {
    case idle:
        next.before = calls;
        next.thread = calls & 1 ? idle : looked;
        break;
    case looked:
        next.attention |= MP_TURN_TAKEN;
        next.thread = taken;
        break;
    case taken:
        next.calls |= kLook;
        next.thread = marked;
        break;
    case marked:
        if (rules.barrier) next.all_reach_memory();
        next.thread = passed;
        break;
    case passed: {
        const bool refused = rules.unchanged ? calls != next.before : (calls & 1) != 0;
        if (refused) next.attention &= static_cast<std::uint8_t>(~MP_TURN_TAKEN);
        next.thread = refused ? idle : works;
        break;
    }
    case works:
        next.unheard = true;
        next.attention |= MP_TURN_NEWS;
        next.thread = tells;
        break;
    case tells:
        next.calls |= kLook;
        next.thread = told;
        break;
    case told:
        next.attention &= static_cast<std::uint8_t>(~MP_TURN_TAKEN);
        next.thread = idle;
        break;
    }
}

bool is_good(const State& now) {
    const bool has_turn = now.thread == works || now.thread == tells || now.thread == told;
    if (has_turn && (now.step == inside || now.step == leaving || now.data)) return false;
    if (now.step == inside && now.unheard) return false;
    // Nobody is stuck: a waiting program is waited for by a thread that goes on.
    return !(now.step == waits && now.thread == idle && (now.attention & MP_TURN_TAKEN));
}

// Every state that can be reached. False: both are inside, or one of them is beside stores that it does not see.
bool holds(Rules rules) {
    std::set<State> seen;
    std::vector<State> open{State{}};
    bool thread_worked = false, met = false;
    const auto reach = [&](const State& next) {
        if (seen.insert(next).second) open.push_back(next);
    };
    while (!open.empty()) {
        const State now = open.back();
        open.pop_back();
        if (!is_good(now)) return false;
        thread_worked |= now.thread == works;
        met |= now.step == waits && now.thread == works;
        State next = now;
        if (!now.pending.empty()) {
            next.one_reaches_memory();
            reach(next);
        }
        if (now.data) {
            next = now;
            next.data = false;
            reach(next);
        }
        next = now;
        go_on(next, rules);
        reach(next);
        next = now;
        take_and_give(next, rules);
        reach(next);
    }
    return thread_worked && met;
}

} // namespace

BOOST_AUTO_TEST_CASE(one_is_inside_at_a_time) {
    BOOST_TEST(holds({}));
    BOOST_TEST(holds(kInParts));
}
BOOST_AUTO_TEST_CASE(without_the_barrier_both_are) {
    BOOST_TEST(!holds({.barrier = false}));
    BOOST_TEST(!holds({.barrier = false, .whole = false, .by_sign = false}));
}
BOOST_AUTO_TEST_CASE(a_call_that_came_and_went_is_not_seen_in_time) { BOOST_TEST(!holds({.unchanged = false})); }
BOOST_AUTO_TEST_CASE(an_addition_in_parts_misses_the_sign) { BOOST_TEST(!holds({.whole = false})); }

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
            {
                const std::lock_guard forks_wait(forks_wait_for());
                Words words(turn);
                if (take(words)) {
                    begun = true;
                    give(words);
                }
            }
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
