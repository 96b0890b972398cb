// Communicators that have the same number, one after the other, over a network of dice (collect_world.h): messages of
// one that has been broken, or has asked for queues, may come when the next one is in use.
#define BOOST_TEST_MODULE pml_lives
#include <boost/test/unit_test.hpp>

#include "tests/pml/collect_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

constexpr std::uint32_t kContext = 9;

// One communicator, from its making to its end at all members: only then there may be another one with its number.
// Nobody waits for what is still on its way.
class Life {
public:
    Life(CollectWorld& world, std::vector<unsigned> who, unsigned number)
        : world_(world), who_(std::move(who)), breaks_(world.dice(2) != 0), ranks_(who_.size()) {
        for (unsigned i = 1 + world.dice(6); i > 0; --i) calls_.push_back(world.draw(number * 16 + i, ranks()));
        calls_.push_back({MP_BARRIER, 0, 0, number * 16});
        if (breaks_) {
            gives_up_ = world.dice(ranks());
            if (world.dice(2)) absent_ = (gives_up_ + 1 + world.dice(ranks() - 1)) % ranks();
        }
        for (unsigned rank = 0; rank < ranks(); ++rank) {
            Rank& its = ranks_[rank];
            its.config = world.config(who_[rank], kContext, who_, 4);
            its.config.life = groups(rank).next_life(its.config);
            its.left = rank == absent_ ? 0 : calls_.size();
        }
    }
    void run() {
        unsigned over = 0;
        for (unsigned turn = 0; over < ranks(); ++turn) {
            BOOST_REQUIRE(turn < 100000);
            over = 0;
            for (unsigned rank = 0; rank < ranks(); ++rank) over += step(rank);
            if (over < ranks()) world_.progress();
        }
        for (unsigned rank = 0; rank < ranks(); ++rank) {
            if (ranks_[rank].group) ranks_[rank].group->free();
            groups(rank).drop(kContext);
        }
    }

private:
    struct Rank {
        mp_group_config_t config{};
        Group* group = nullptr;
        std::list<Under> under;
        std::size_t left = 0; // calls
    };
    [[nodiscard]] unsigned ranks() const { return static_cast<unsigned>(who_.size()); }
    [[nodiscard]] Groups& groups(unsigned rank) { return *world_.members[who_[rank]].groups; }
    // True: it has nothing more to do.
    bool step(unsigned rank) {
        Rank& its = ranks_[rank];
        if (its.left && world_.dice(3) == 0) {
            if (!its.group) its.group = groups(rank).create(its.config);
            BOOST_REQUIRE(its.group);
            if (breaks_ && rank == gives_up_ && world_.dice(3) == 0) its.group->give_up();
            const Called& call = calls_[calls_.size() - its.left--];
            if (breaks_ && its.left == 0 && rank == gives_up_) its.group->give_up();
            its.under.emplace_back();
            world_.start(*its.group, its.under.back(), call, ranks(), rank, world_.dice(2) != 0);
        }
        while (!its.under.empty() && its.under.front().complete()) {
            check(its.under.front(), rank);
            its.under.pop_front();
        }
        return !its.left && its.under.empty() && (!its.group || its.group->idle());
    }
    void check(Under& under, unsigned rank) const {
        BOOST_REQUIRE_EQUAL(under.open, 0);
        if (breaks_) return;
        BOOST_REQUIRE_EQUAL(under.storage.collective.error, MP_OK);
        BOOST_REQUIRE(under.call.gets(ranks(), rank) == under.result() ||
                      (under.call.kind == MP_BCAST && rank == under.call.root));
    }

    CollectWorld& world_;
    const std::vector<unsigned> who_;
    const bool breaks_;
    unsigned gives_up_ = UINT32_MAX, absent_ = UINT32_MAX; // the latter calls nothing, and makes no group
    std::vector<Called> calls_;
    std::vector<Rank> ranks_;
};

std::uint64_t late = 0;

void run(std::uint32_t seed) {
    CollectWorld world(seed, 2 + seed % 5, MP_NEVER, seed % 3 == 0 ? +[](unsigned) { return true; } : nullptr);
    if (seed % 3 == 0) world.engine = MP_ENGINE_ADAPTER;
    const auto all = static_cast<unsigned>(world.members.size());
    const bool same = seed % 2; // members
    std::vector<unsigned> who;
    for (unsigned i = 0; i < all; ++i) who.push_back(i);
    for (unsigned number = 0; number < 12; ++number) {
        std::vector<unsigned> its = who;
        if (!same && world.dice(2)) {
            std::shuffle(its.begin(), its.end(), world.network.random);
            its.resize(2 + world.dice(all - 1));
        }
        Life(world, its, number).run();
    }
    for (int i = 0; i < 500; ++i) world.progress();
    if (same) BOOST_REQUIRE_EQUAL(world.count("dropped"), 0u);
    BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
    BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
    late += world.count("late");
}

} // namespace

BOOST_AUTO_TEST_CASE(one_after_the_other) {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) BOOST_TEST_CONTEXT("seed " << seed) run(seed);
    BOOST_TEST(late > 100u);
}
