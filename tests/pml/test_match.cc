// The matcher against a model that walks lists, as the standard is written: random programs of receives, messages,
// probes, cancels and matched receives, few keys, so that everything competes with everything.
#define BOOST_TEST_MODULE pml_match
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <list>
#include <memory>
#include <random>

#include "pml_glue/core/match/matcher.h"

using namespace ucx_mp::glue;

namespace {

struct Receive : PostedReceive {
    Envelope pattern;
    int id;
};
struct Message : StoredMessage {
    int id;
};

// Oldest first.
struct Model {
    std::list<Receive*> receives;
    std::list<Message*> messages;

    Receive* arrive(const Envelope& message) {
        for (auto at = receives.begin(); at != receives.end(); ++at)
            if ((*at)->pattern.takes(message)) {
                Receive* const found = *at;
                receives.erase(at);
                return found;
            }
        return nullptr;
    }
    [[nodiscard]] Message* find(const Envelope& pattern) const {
        for (Message* message : messages)
            if (pattern.takes(message->envelope)) return message;
        return nullptr;
    }
};

struct Program {
    explicit Program(std::uint32_t seed) : random(seed) {}
    std::mt19937 random;
    Matcher matcher;
    Model model;
    std::list<std::unique_ptr<Receive>> receives;
    std::list<std::unique_ptr<Message>> messages;
    int next_id = 0;
    // Programs differ in how many keys they have, and in what prevails.
    const int contexts = 1 + static_cast<int>(random() % 3), sources = 1 + static_cast<int>(random() % 5);
    const int tags = 1 + static_cast<int>(random() % 6);
    const unsigned arrivals = 1 + random() % 9;

    int below(int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); }
    Envelope message() { return {static_cast<std::uint32_t>(below(contexts)), below(sources), below(tags) - tags / 3}; }
    Envelope pattern() {
        Envelope result = message();
        if (below(3) == 0) result.source = kAnySource;
        if (below(3) == 0) result.tag = kAnyTag;
        return result;
    }
    void arrive() {
        const Envelope envelope = message();
        auto* const found = static_cast<Receive*>(matcher.arrive(envelope));
        BOOST_REQUIRE_EQUAL(found, model.arrive(envelope));
        if (found) return;
        Message& stored = *messages.emplace_back(std::make_unique<Message>());
        stored.envelope = envelope;
        stored.id = ++next_id;
        matcher.store(stored);
        model.messages.push_back(&stored);
    }
    void receive(bool only_probe) {
        const Envelope wanted = pattern();
        auto* const found = static_cast<Message*>(matcher.find(wanted));
        BOOST_REQUIRE_EQUAL(found, model.find(wanted));
        if (only_probe) return;
        if (found) {
            matcher.take(*found);
            model.messages.remove(found);
            return;
        }
        Receive& posted = *receives.emplace_back(std::make_unique<Receive>());
        posted.pattern = wanted;
        posted.id = ++next_id;
        matcher.post(posted, wanted);
        model.receives.push_back(&posted);
    }
    void cancel() {
        if (receives.empty()) return;
        auto at = receives.begin();
        std::advance(at, below(static_cast<int>(receives.size())));
        const bool waits = std::find(model.receives.begin(), model.receives.end(), at->get()) != model.receives.end();
        BOOST_REQUIRE_EQUAL(matcher.cancel(**at), waits);
        model.receives.remove(at->get());
        receives.erase(at);
    }
    void run(int steps) {
        for (int i = 0; i < steps; ++i) {
            const unsigned dice = random() % 12;
            if (dice < arrivals)
                arrive();
            else if (dice < 10)
                receive(false);
            else if (dice == 10)
                receive(true);
            else
                cancel();
            BOOST_REQUIRE_EQUAL(matcher.posted(), model.receives.size());
            BOOST_REQUIRE_EQUAL(matcher.stored(), model.messages.size());
        }
        // What is left can be seen, and taken away in any order.
        std::size_t seen = 0;
        matcher.each_posted([&](PostedReceive& each, const Envelope& pattern) {
            BOOST_REQUIRE(static_cast<Receive&>(each).pattern == pattern);
            BOOST_REQUIRE(matcher.cancel(each));
            ++seen;
        });
        BOOST_REQUIRE_EQUAL(seen, model.receives.size());
        matcher.each_stored([&](StoredMessage& each) { matcher.take(each); });
        BOOST_REQUIRE_EQUAL(matcher.posted() + matcher.stored(), 0u);
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(random_programs_match_as_the_lists_do) {
    const char* const given = std::getenv("TESTS_SEED");
    const std::uint32_t first = given ? static_cast<std::uint32_t>(std::atol(given)) : 1;
    for (std::uint32_t seed = first; seed < (given ? first + 1 : first + 400); ++seed) {
        BOOST_TEST_INFO("TESTS_SEED=" << seed);
        Program(seed).run(1500);
    }
}

BOOST_AUTO_TEST_CASE(wildcards_compete_by_the_order_of_posting) {
    Matcher matcher;
    const Envelope message{7, 3, 5};
    const Envelope patterns[] = {{7, 3, 5}, {7, kAnySource, 5}, {7, 3, kAnyTag}, {7, kAnySource, kAnyTag},
                                 {7, 3, 5}, {8, 3, 5}};
    PostedReceive receives[6];
    for (const int first : {0, 1, 2, 3}) {
        for (int i = 0; i < 6; ++i) matcher.post(receives[(first + i) % 6], patterns[(first + i) % 6]);
        for (int i = 0; i < 6; ++i) {
            if ((first + i) % 6 == 5) continue; // another communicator
            BOOST_TEST(matcher.arrive(message) == &receives[(first + i) % 6]);
        }
        BOOST_TEST(matcher.arrive(message) == nullptr);
        BOOST_TEST(matcher.cancel(receives[5]));
    }
}

BOOST_AUTO_TEST_CASE(any_tag_does_not_take_the_librarys_own_messages) {
    Matcher matcher;
    PostedReceive any, own;
    matcher.post(any, {1, kAnySource, kAnyTag});
    matcher.post(own, {1, kAnySource, -20});
    BOOST_TEST(matcher.arrive({1, 4, -20}) == &own);
    StoredMessage message;
    message.envelope = {1, 4, -21};
    BOOST_TEST(matcher.arrive(message.envelope) == nullptr);
    matcher.store(message);
    BOOST_TEST(matcher.find({1, 4, kAnyTag}) == nullptr);
    BOOST_TEST(matcher.find({1, kAnySource, kAnyTag}) == nullptr);
    BOOST_TEST(matcher.find({1, kAnySource, -21}) == &message);
    matcher.take(message);
    BOOST_TEST(matcher.cancel(any));
}

BOOST_AUTO_TEST_CASE(many_keys_make_the_table_grow) {
    Matcher matcher;
    std::vector<PostedReceive> receives(20000);
    for (int i = 0; i < 20000; ++i) matcher.post(receives[static_cast<unsigned>(i)], {1, i % 200, i / 200});
    for (int i = 19999; i >= 0; --i)
        BOOST_REQUIRE(matcher.arrive({1, i % 200, i / 200}) == &receives[static_cast<unsigned>(i)]);
    BOOST_TEST(matcher.posted() == 0u);
}

// The place of the last key is another one when the table has grown.
BOOST_AUTO_TEST_CASE(the_last_key_is_found_in_a_table_that_has_grown) {
    Matcher matcher;
    std::vector<PostedReceive> receives(3 * 2000);
    for (int i = 0; i < 2000; ++i) {
        PostedReceive* const three = &receives[3 * static_cast<unsigned>(i)];
        for (unsigned k = 0; k < 3; ++k) matcher.post(three[k], {1, i % 200, i / 200});
        for (unsigned k = 0; k < 2; ++k) BOOST_REQUIRE(matcher.arrive({1, i % 200, i / 200}) == &three[k]);
    }
    for (int i = 0; i < 2000; ++i)
        BOOST_REQUIRE(matcher.arrive({1, i % 200, i / 200}) == &receives[3 * static_cast<unsigned>(i) + 2]);
    BOOST_TEST(matcher.posted() == 0u);
}

BOOST_AUTO_TEST_CASE(a_receive_is_cancelled_once) {
    Matcher matcher;
    PostedReceive first, second;
    for (const bool alone : {true, false}) {
        matcher.post(first, {1, 1, 1});
        if (!alone) matcher.post(second, {1, 2, 2});
        BOOST_TEST(matcher.cancel(first));
        BOOST_TEST(!matcher.cancel(first));
    }
    BOOST_TEST(matcher.posted() == 1u);
}

// Entries come from pools: one that has stood behind another under a key may come back as the only one.
BOOST_AUTO_TEST_CASE(entries_are_used_again) {
    Matcher matcher;
    Receive other, first, second;
    const Envelope key{1, 1, 1};
    matcher.post(other, {1, 2, 2}); // not the lone one any more
    matcher.post(first, key);
    matcher.post(second, key);
    BOOST_TEST(matcher.cancel(second));
    BOOST_TEST(matcher.cancel(first));
    matcher.post(second, key);
    BOOST_TEST(matcher.cancel(second));
    BOOST_TEST(matcher.arrive(key) == nullptr);
    BOOST_TEST(matcher.posted() == 1u);
}

// Messages of the library itself have negative tags: who takes any tag does not see them, and who names theirs does.
BOOST_AUTO_TEST_CASE(negative_tags) {
    for (const bool early : {false, true}) { // the tables for patterns are made before or after the messages
        Matcher matcher;
        Message hidden, seen;
        hidden.envelope = {1, 1, -5};
        seen.envelope = {1, 1, 3};
        const Envelope patterns[] = {{1, 1, kAnyTag}, {1, kAnySource, kAnyTag}, {1, kAnySource, -5}};
        for (const Envelope& pattern : patterns)
            if (early) BOOST_TEST(matcher.find(pattern) == nullptr);
        matcher.store(hidden);
        matcher.store(seen);
        BOOST_TEST(matcher.find(patterns[0]) == &seen);
        BOOST_TEST(matcher.find(patterns[1]) == &seen);
        BOOST_TEST(matcher.find(patterns[2]) == &hidden);
        BOOST_TEST(matcher.find({1, 1, -5}) == &hidden);
    }
}
