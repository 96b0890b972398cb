// When collective operations may start (pml_glue/core/plan/slot_rules.h). All orders of up to four ranks are tried, and
// more by dice: what comes for an operation never finds its slot used by another one, and nobody waits for ever. With a
// slot less, or without a rule, both would be seen.
#define BOOST_TEST_MODULE pml_slots
#include <boost/test/unit_test.hpp>

#include <deque>
#include <random>
#include <string>
#include <unordered_set>
#include <vector>

#include "pml_glue/core/plan/plan.h"
#include "pml_glue/core/plan/slot_rules.h"

using namespace ucx_mp::glue;

namespace {

// What is tried: the rules as they are, or without a part of them.
struct Without {
    bool slot = false, rule_1 = false, rule_2 = false, barriers = false;
};

struct Call {
    Collective collective;
    std::uint32_t root;
};

// The calls of all ranks, with the barriers that are put in; plans of each.
struct Program {
    std::uint32_t ranks;
    unsigned in_flight;
    Without without;
    std::vector<Call> operations;         // by number
    std::vector<std::vector<Plan>> plans; // of rank, of number

    Program(std::uint32_t n, unsigned w, const std::vector<Call>& calls, Without left_out = {})
        : ranks(n), in_flight(w), without(left_out), plans(n) {
        SlotRules rules(w);
        for (const Call& call : calls) {
            if (!synchronises(call.collective) && rules.barrier_due() && !left_out.barriers) {
                BOOST_REQUIRE_EQUAL(rules.next(true), operations.size());
                operations.push_back({Collective::barrier, 0});
            }
            BOOST_REQUIRE_EQUAL(rules.next(synchronises(call.collective)), operations.size());
            operations.push_back(call);
        }
        for (std::uint32_t rank = 0; rank < n; ++rank)
            for (const Call& call : operations) {
                plans[rank].emplace_back();
                make_plan({.collective = call.collective, .ranks = n, .rank = rank, .root = call.root},
                          plans[rank].back());
            }
    }
    [[nodiscard]] unsigned slots() const { return 2 * in_flight - (without.slot ? 1 : 0); }
};

struct Part {
    std::uint8_t number, edge;
};

// Of a run of it. Small numbers throughout, so that a state is a short string.
struct State {
    struct Rank {
        std::uint8_t started = 0, lowest = 0, synchronised = 0; // as in SlotRules
        std::vector<std::uint8_t> at;                           // of each operation: the next action
        std::vector<std::uint64_t> arrived;                     // edges whose part is here
        std::vector<std::uint8_t> user;                         // of each slot: the number whose parts are there, + 1
    };
    std::vector<Rank> ranks;
    std::vector<std::deque<Part>> channels; // from * ranks + to, in order
    bool overwritten = false;

    explicit State(const Program& program)
        : ranks(program.ranks), channels(std::size_t{program.ranks} * program.ranks) {
        for (Rank& rank : ranks) {
            rank.at.resize(program.operations.size());
            rank.arrived.resize(program.operations.size());
            rank.user.resize(program.slots());
        }
    }
    [[nodiscard]] std::string name() const {
        std::string text;
        for (const Rank& rank : ranks) {
            text += static_cast<char>(rank.started);
            for (std::size_t i = 0; i < rank.at.size(); ++i) {
                text += static_cast<char>(rank.at[i]);
                text += static_cast<char>(rank.arrived[i]);
            }
        }
        for (const auto& channel : channels) {
            for (const Part& part : channel) text += {static_cast<char>(part.number), static_cast<char>(part.edge)};
            text += '\xff';
        }
        return text;
    }
    [[nodiscard]] bool over(const Program& program) const {
        for (const Rank& rank : ranks)
            if (rank.lowest < program.operations.size()) return false;
        return true;
    }
};

void advance(const Program& program, State& state, std::uint32_t number, std::uint32_t i) {
    State::Rank& rank = state.ranks[i];
    const Plan& plan = program.plans[i][number];
    while (rank.at[number] < plan.actions.size()) {
        const Action& action = plan.actions[rank.at[number]];
        if (action.what == Action::What::put)
            state.channels[std::size_t{i} * program.ranks + action.partner].push_back(
                {static_cast<std::uint8_t>(number), action.edge});
        if (action.what == Action::What::take && !(rank.arrived[number] >> action.edge & 1)) return;
        ++rank.at[number];
    }
    if (synchronises(program.operations[number].collective))
        rank.synchronised = std::max<std::uint8_t>(rank.synchronised, static_cast<std::uint8_t>(number + 1));
    while (rank.lowest < rank.started && rank.at[rank.lowest] == program.plans[i][rank.lowest].actions.size())
        ++rank.lowest;
    if (rank.user[number % program.slots()] == number + 1) rank.user[number % program.slots()] = 0;
}

// Takes the slot, unless another operation has it.
void use(const Program& program, State& state, std::uint32_t number, std::uint32_t i) {
    std::uint8_t& user = state.ranks[i].user[number % program.slots()];
    if (user != 0 && user != number + 1) state.overwritten = true;
    user = static_cast<std::uint8_t>(number + 1);
}

bool may_start(const Program& program, const State::Rank& rank) {
    const std::uint32_t number = rank.started;
    return number < program.operations.size() && (program.without.rule_1 || number < rank.lowest + program.in_flight) &&
           (program.without.rule_2 || number < rank.synchronised + program.in_flight);
}

void start(const Program& program, State& state, std::uint32_t i) {
    const std::uint32_t number = state.ranks[i].started++;
    use(program, state, number, i);
    advance(program, state, number, i);
}

void arrive(const Program& program, State& state, std::size_t channel) {
    const Part part = state.channels[channel].front();
    state.channels[channel].pop_front();
    const auto i = static_cast<std::uint32_t>(channel % program.ranks);
    State::Rank& rank = state.ranks[i];
    use(program, state, part.number, i);
    rank.arrived[part.number] |= std::uint64_t{1} << part.edge;
    if (part.number < rank.started) advance(program, state, part.number, i);
}

// In every order: which rank starts its next operation, or which pair's next part arrives.
struct Explored {
    std::size_t states = 0;
    bool overwritten = false, stuck = false;
};
Explored explore(const Program& program) {
    Explored out;
    std::unordered_set<std::string> seen;
    std::vector<State> open{State(program)};
    while (!open.empty()) {
        const State state = std::move(open.back());
        open.pop_back();
        ++out.states;
        bool goes_on = false;
        const auto then = [&](auto&& happens) {
            State next = state;
            happens(next);
            goes_on = true;
            out.overwritten |= next.overwritten;
            if (!next.overwritten && seen.insert(next.name()).second) open.push_back(std::move(next));
        };
        for (std::uint32_t i = 0; i < program.ranks; ++i)
            if (may_start(program, state.ranks[i])) then([&](State& next) { start(program, next, i); });
        for (std::size_t channel = 0; channel < state.channels.size(); ++channel)
            if (!state.channels[channel].empty()) then([&](State& next) { arrive(program, next, channel); });
        out.stuck |= !goes_on && !state.over(program);
        if (out.overwritten && (program.without.slot || program.without.rule_1 || program.without.rule_2)) break;
    }
    return out;
}

std::vector<Call> bcasts(unsigned count, std::uint32_t root) {
    return std::vector<Call>(count, Call{Collective::bcast, root});
}

void require_right(const Program& program) {
    const Explored out = explore(program);
    BOOST_TEST_MESSAGE(program.ranks << " ranks, " << program.in_flight << " in flight, " << program.operations.size()
                                     << " operations: " << out.states << " states");
    BOOST_REQUIRE(!out.overwritten);
    BOOST_REQUIRE(!out.stuck);
}

BOOST_AUTO_TEST_CASE(all_orders_of_two) {
    for (const unsigned in_flight : {2u, 3u, 4u, 6u})
        for (std::uint32_t root = 0; root < 2; ++root) require_right({2, in_flight, bcasts(3 * in_flight, root)});
    require_right({2,
                   4,
                   {{Collective::bcast, 0},
                    {Collective::gather, 0},
                    {Collective::barrier, 0},
                    {Collective::bcast, 1},
                    {Collective::scatter, 0},
                    {Collective::allgather, 0},
                    {Collective::reduce, 1},
                    {Collective::bcast, 0},
                    {Collective::bcast, 1},
                    {Collective::bcast, 0},
                    {Collective::bcast, 0}}});
}

BOOST_AUTO_TEST_CASE(all_orders_of_three) {
    require_right({3, 2, bcasts(8, 0)});
    require_right({3, 2, bcasts(5, 1)});
    require_right({3, 4, bcasts(8, 2)});
    require_right({3,
                   2,
                   {{Collective::gather, 0},
                    {Collective::bcast, 1},
                    {Collective::allgather, 0},
                    {Collective::bcast, 2},
                    {Collective::scatter, 0}}});
}

BOOST_AUTO_TEST_CASE(all_orders_of_four) {
    require_right({4, 2, bcasts(3, 0)});
    require_right({4, 2, bcasts(4, 2)});
    require_right({4, 2, {{Collective::gather, 1}, {Collective::bcast, 3}, {Collective::reduce, 0}}});
    require_right({4, 2, {{Collective::bcast, 1}, {Collective::allgather, 0}, {Collective::scatter, 3}}});
}

// The explorer sees what the rules are for.
BOOST_AUTO_TEST_CASE(without_a_rule) {
    BOOST_REQUIRE(explore({2, 2, bcasts(8, 0), {.rule_2 = true, .barriers = true}}).overwritten);
    BOOST_REQUIRE(explore({2, 2, bcasts(8, 0), {.rule_1 = true, .rule_2 = true}}).overwritten);
    BOOST_REQUIRE(explore({3, 2, bcasts(6, 0), {.slot = true}}).overwritten);
    BOOST_REQUIRE(explore({2, 2, bcasts(8, 0), {.barriers = true}}).stuck);
}

// The same by dice, with many ranks and the class itself.
struct Dice {
    std::mt19937 random;
    Program program;
    State state;
    std::vector<SlotRules> rules;
    unsigned slow;                       // a rank that hardly ever does anything
    bool compares;                       // with the class
    std::vector<std::vector<bool>> told; // its finish(), of each rank

    static std::vector<Call> calls(std::mt19937& random, std::uint32_t ranks) {
        static constexpr Collective kinds[] = {Collective::bcast,     Collective::bcast,  Collective::scatter,
                                               Collective::gather,    Collective::reduce, Collective::barrier,
                                               Collective::allgather, Collective::bcast};
        std::vector<Call> out;
        const unsigned few = random() % 3 ? 5 : 8; // those that do not synchronise, or all
        for (unsigned i = 60 + random() % 60; i > 0; --i)
            out.push_back({kinds[random() % few], static_cast<std::uint32_t>(random() % ranks)});
        return out;
    }
    Dice(std::uint32_t seed, Without without)
        : random(seed), program([&] {
              const std::uint32_t ranks = 2 + random() % 8;
              const unsigned in_flight = 2 + random() % 15;
              return Program(ranks, in_flight, calls(random, ranks), without);
          }()),
          state(program), rules(program.ranks, SlotRules(program.in_flight)), slow(random() % program.ranks),
          compares(!without.slot && !without.rule_2),
          told(program.ranks, std::vector<bool>(program.operations.size())) {}
    void run() {
        while (!state.over(program) && !state.overwritten) {
            std::vector<std::uint32_t> starts;
            std::vector<std::size_t> arrivals;
            for (std::uint32_t i = 0; i < program.ranks; ++i)
                if (may_start(program, state.ranks[i])) starts.push_back(i);
            for (std::size_t i = 0; i < state.channels.size(); ++i)
                if (!state.channels[i].empty()) arrivals.push_back(i);
            if (starts.empty() && arrivals.empty()) BOOST_FAIL("somebody waits for ever");
            const std::size_t choice = random() % (starts.size() + arrivals.size());
            if (choice < starts.size()) {
                if (starts[choice] == slow && random() % 50) continue;
                start(program, state, starts[choice]);
                if (compares) compare(starts[choice]);
            } else {
                const std::size_t channel = arrivals[choice - starts.size()];
                if (channel % program.ranks == slow && random() % 20) continue;
                arrive(program, state, channel);
                if (compares) compare(static_cast<std::uint32_t>(channel % program.ranks));
            }
        }
    }
    // The class says the same of a rank that has done something.
    void compare(std::uint32_t i) {
        const State::Rank& rank = state.ranks[i];
        SlotRules& its = rules[i];
        const auto all = static_cast<unsigned>(program.operations.size());
        for (unsigned number = 0; number < rank.started; ++number)
            if (!told[i][number] && rank.at[number] == program.plans[i][number].actions.size()) {
                told[i][number] = true;
                its.finish(number, synchronises(program.operations[number].collective));
            }
        bool same = rank.started == all || its.may_start(rank.started) == may_start(program, rank);
        const unsigned first = rank.lowest > 3 ? rank.lowest - 3u : 0;
        for (unsigned number = first; number < std::min(all, rank.lowest + its.slots() + 3); ++number) {
            std::uint64_t found = 0;
            const bool there = its.find(number, 0xfffff, found);
            const bool open = number >= rank.lowest && number < rank.lowest + its.slots() && !told[i][number];
            same = same && there == open && (!there || found == number);
        }
        BOOST_REQUIRE(same);
    }
};

BOOST_AUTO_TEST_CASE(by_dice) {
    for (std::uint32_t seed = 1; seed <= 400; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Dice dice(seed, {});
            dice.run();
            BOOST_REQUIRE(!dice.state.overwritten);
        }
    }
}

BOOST_AUTO_TEST_CASE(by_dice_without_a_rule) {
    unsigned without_slot = 0, without_rule = 0;
    for (std::uint32_t seed = 1; seed <= 400; ++seed) {
        Dice one(seed, {.slot = true}), other(seed, {.rule_2 = true});
        one.run();
        other.run();
        without_slot += one.state.overwritten;
        without_rule += other.state.overwritten;
    }
    BOOST_TEST_MESSAGE(without_slot << " of 400 overwrite with a slot less, " << without_rule << " without rule 2");
    BOOST_REQUIRE(without_slot > 0);
    BOOST_REQUIRE(without_rule > 0);
}

// Numbers that have wrapped on the wire.
BOOST_AUTO_TEST_CASE(numbers_wrap) {
    SlotRules rules(4);
    for (std::uint64_t number = 0; number < 1000; ++number) {
        BOOST_REQUIRE_EQUAL(rules.next(true), number);
        BOOST_REQUIRE(rules.may_start(number));
        std::uint64_t found = 0;
        for (unsigned ahead = 0; ahead < 8; ++ahead) {
            BOOST_REQUIRE(rules.find((number + ahead) & 0xff, 0xff, found));
            BOOST_REQUIRE_EQUAL(found, number + ahead);
        }
        BOOST_REQUIRE(!rules.find((number + 8) & 0xff, 0xff, found));
        BOOST_REQUIRE(!rules.find((number - 1) & 0xff, 0xff, found));
        BOOST_REQUIRE(!rules.idle());
        rules.finish(number, true);
        BOOST_REQUIRE(rules.idle());
    }
}

} // namespace
