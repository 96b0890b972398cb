// Engines that talk to each other over a network of dice (fake_port.h): random programs of all kinds of sends and
// receives. Every message has contents of its own. Checked: contents, lengths, truncation, MPI's order, that
// synchronous sends end after their receive began, that everything ends, and that nothing stays registered.
#define BOOST_TEST_MODULE pml_engine
#include <boost/test/unit_test.hpp>

#include "tests/pml/engine_world.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

BOOST_AUTO_TEST_CASE(random_programs_end_with_the_right_contents) {
    const auto [first, end] = seeds(300);
    unsigned kept = 0;
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_INFO("TESTS_SEED=" << seed);
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 1 + static_cast<int>(seed % 4), seed % 2);
            world.threads = seed % 3 == 2;
            for (int step = 0; step < 400; ++step) {
                Rank& rank = *world.ranks[static_cast<std::size_t>(world.below(world.ranks.size()))];
                const int what = world.below(16);
                if (what < 6)
                    world.send(rank);
                else if (what < 11)
                    world.receive(rank, world.pattern(), false);
                else if (what == 11)
                    world.cancel(rank);
                else
                    world.progress();
            }
            world.finish();
            BOOST_REQUIRE_EQUAL(world.open, 0u);
            BOOST_REQUIRE(world.sent.empty());
            BOOST_REQUIRE_EQUAL(world.network.registered, 0u);
            BOOST_REQUIRE_EQUAL(world.network.keys, 0u);
            BOOST_REQUIRE_EQUAL(world.reports, 0u);
            kept += world.kept;
        }
    }
    BOOST_TEST((kept > 0 || end - first == 1)); // somebody who was not connected has sent while a thread had its turn
}

// An operation that the network refuses has failed, or takes another way; the peer has not, and hears of it.
// Who is waited for is asked whether it lives: a source, one that has our offer; nobody else.
// Messages of one sender with one tag are received in the order in which they were sent, whatever their sizes and
// protocols (MPI-3.1 3.5), although the queue has to wait for room at every other message.
BOOST_AUTO_TEST_CASE(messages_do_not_overtake) {
    const auto [first, end] = seeds(200);
    for (std::uint32_t seed = first; seed < end; ++seed) {
        BOOST_TEST_CONTEXT("TESTS_SEED=" << seed) {
            World world(seed, 2, seed % 2);
            world.threads = seed % 3 == 2;
            Rank &from = *world.ranks[0], &to = *world.ranks[1];
            Peer* const peer = from.engine->peer(101);
            std::vector<Operation> sends(60), receives(60);
            const auto receive = [&](std::size_t i) {
                to.operations.emplace_back().resize(20000);
                Operation& each = to.operations.back();
                each.envelope = {kContext, i % 3 ? 0 : kAnySource, i % 5 ? 7 : kAnyTag};
                ++world.open;
                to.engine->receive(each.request(), each.envelope, each.data(), Hint::none);
            };
            const std::size_t early = seed % 60;
            for (std::size_t i = 0; i < early; ++i) receive(i);
            for (int i = 1; i <= 60; ++i) {
                from.operations.emplace_back().derived = world.below(4) == 0;
                Operation& each = from.operations.back();
                each.send = true;
                each.number = i;
                each.resize(kSizes[world.below(std::size(kSizes))]);
                for (std::size_t k = 0; k < each.bytes; ++k)
                    each.memory[each.derived ? 2 * k : k] =
                        k < 4 ? reinterpret_cast<unsigned char*>(&i)[k] : content(0, i, k);
                world.sent[{0, i}] = each.bytes;
                ++world.open;
                from.engine->send(each.request(), *peer, {kContext, 0, 7}, each.data(), world.below(5) == 0,
                                  Hint::none);
                if (world.below(3) == 0) world.progress();
            }
            for (std::size_t i = early; i < 60; ++i) {
                receive(i);
                if (world.below(3) == 0) world.progress();
            }
            BOOST_REQUIRE(world.settle());
            BOOST_REQUIRE_EQUAL(world.open, 0u);
            int expected = 0;
            for (Operation& each : to.operations) {
                int number;
                unsigned char bytes[4] = {each.at(0), each.at(1), each.at(2), each.at(3)};
                std::memcpy(&number, bytes, 4);
                BOOST_REQUIRE_EQUAL(number, ++expected);
            }
        }
    }
}

// 0 says that a request has no name: it is never one, however often a slot has been used.
BOOST_AUTO_TEST_CASE(names_are_never_zero) {
    for (const std::uint32_t secret : {0u, 1u, 0x12345678u, 0xffffffffu}) {
        SlotsOf<int, std::uint8_t> slots;
        int one = 1;
        std::uint64_t before = 0;
        for (int i = 0; i < 1000; ++i) {
            const std::uint64_t id = slots.add(one, secret);
            BOOST_REQUIRE(id != 0 && id != before);
            BOOST_REQUIRE(slots.find(id) == &one);
            BOOST_REQUIRE(!slots.find(before) && !slots.find(0));
            slots.remove(id);
            before = id;
        }
    }
}

// What would leave in one piece without a copy, if its memory could be registered: it goes in pieces, of which the
// first must not be all, also where it can be registered then.
BOOST_AUTO_TEST_CASE(registrations_that_fail_for_a_while) {
    for (const unsigned fails : {0u, 1u, 2u, 3u, 4u})
        for (const std::size_t bytes : {585u, 600u, 1000u, 3000u}) {
            BOOST_TEST_CONTEXT(bytes << " bytes, " << fails << " fail") {
                World world(7, 2, false);
                world.network.no_room = 0;
                world.network.most_zero_copy = 3000;
                Rank &from = *world.ranks[0], &to = *world.ranks[1];
                Operation& send = from.operations.emplace_back();
                send.send = true;
                send.number = 1;
                send.resize(bytes);
                std::memcpy(send.memory.data(), &send.number, 4);
                for (std::size_t i = 4; i < bytes; ++i) send.memory[i] = content(0, 1, i);
                world.sent[{0, 1}] = bytes;
                Operation& receive = to.operations.emplace_back();
                receive.resize(bytes);
                receive.envelope = {kContext, 0, 3};
                world.open = 2;
                to.engine->receive(receive.request(), receive.envelope, receive.data(), Hint::none);
                world.network.unregistered = fails;
                from.engine->send(send.request(), *from.engine->peer(101), {kContext, 0, 3}, send.data(), false,
                                  Hint::none);
                BOOST_REQUIRE(world.settle());
                BOOST_TEST(send.done);
                BOOST_TEST(receive.done);
                BOOST_TEST(world.reports == 0u);
            }
        }
}

// A synchronous send is not complete before its receive has been posted (MPI-3.1 3.4).
BOOST_AUTO_TEST_CASE(synchronous_sends_wait_for_their_receive) {
    for (const std::size_t bytes : {0u, 8u, 500u, 20000u}) {
        World world(7, 2, false);
        Rank &from = *world.ranks[0], &to = *world.ranks[1];
        Operation& send = from.operations.emplace_back();
        send.send = true;
        send.resize(bytes);
        const int number = 1;
        if (bytes) std::memcpy(send.memory.data(), &number, 4);
        for (std::size_t i = 4; i < bytes; ++i) send.memory[i] = content(0, 1, i);
        world.sent[{0, bytes ? 1 : static_cast<int>(0xeeeeeeee)}] = bytes;
        world.open = 1;
        from.engine->send(send.request(), *from.engine->peer(101), {kContext, 0, 3}, send.data(), true, Hint::none);
        BOOST_REQUIRE(world.settle());
        BOOST_TEST(!send.done);
        BOOST_TEST(to.engine->find({kContext, kAnySource, kAnyTag}) != nullptr);
        BOOST_REQUIRE(world.settle());
        BOOST_TEST(!send.done);
        Operation& receive = to.operations.emplace_back();
        receive.resize(bytes ? bytes : 4);
        receive.envelope = {kContext, 0, 3};
        ++world.open;
        to.engine->receive(receive.request(), receive.envelope, receive.data(), Hint::none);
        BOOST_REQUIRE(world.settle());
        BOOST_TEST(send.done);
        BOOST_TEST(receive.done);
    }
}

// A peer that is gone ends everything that needs it, and nothing else.
// What no engine sends: nothing is believed, nothing changes, nothing is read beyond its end.
