// What no engine and no window sends (forge.h): single lies, and conversations in which everything is twisted.
#define BOOST_TEST_MODULE pml_forged
#include <boost/test/unit_test.hpp>

#include "tests/pml/forge.h"

using namespace ucx_mp::glue;
using namespace ucx_mp::glue::test;

namespace {

template <class Header> Bytes bytes_of(const Header& header) {
    const auto* const first = reinterpret_cast<const std::byte*>(&header);
    return {first, first + sizeof header};
}
template <class Header> Bytes operator+(Bytes bytes, const Header& header) {
    const Bytes more = bytes_of(header);
    bytes.insert(bytes.end(), more.begin(), more.end());
    return bytes;
}

std::uint64_t dropped(const std::string& statistics) {
    const std::size_t found = statistics.rfind("dropped ");
    BOOST_REQUIRE(found != std::string::npos);
    return std::strtoull(statistics.c_str() + found + 8, nullptr, 10);
}

// The windows of all seeds but those of dynamic ones.
constexpr std::uint32_t kFixed = 12, kDynamic = 4;

wire::OperationHeader operation(mp_rma_kind_t kind, std::uint32_t bytes, std::uint32_t unit, std::uint32_t extent) {
    const bool brings = kind != MP_GET;
    return {.window = Scene::kId,
            .origin = 1,
            .reply = 0,
            .position = 0,
            .bytes = bytes,
            .unit = unit,
            .extent = extent,
            .op = 0,
            .type = 0,
            .runs = 1,
            .kind = static_cast<std::uint8_t>(kind),
            .brings = brings};
}

// Elements that lie on each other, or are larger in the end than they were when the window was looked at.
BOOST_AUTO_TEST_CASE(elements_of_other_sizes) {
    Scene scene(kFixed);
    const auto behind = scene.base() + 8 * (Scene::kEnd - Scene::kFirst);
    for (const mp_rma_kind_t kind : {MP_PUT, MP_ACCUMULATE, MP_GET_ACCUMULATE})
        for (const std::uint32_t unit : {1u, 2u, 4u, 8u, 400u})
            for (const std::uint32_t extent : {0u, 1u, 2u, 4u, 8u, 400u})
                for (const std::uint64_t from : {8u, 16u, 64u, 399u}) {
                    const wire::WireRun run{.address = behind - from, .stride = 0, .bytes = 400, .repeat = 1};
                    Bytes message = bytes_of(operation(kind, 400, unit, extent)) + run;
                    message.resize(message.size() + 400, std::byte{0xee});
                    scene.say(wire::kWindowOperation, message);
                    BOOST_REQUIRE(scene.intact());
                }
    // In the window, but of elements that the operation does not have.
    const std::vector<std::uint64_t> before = scene.victim().cells;
    for (const std::uint32_t unit : {1u, 2u, 4u, 16u})
        for (const std::uint32_t extent : {unit, 2 * unit}) {
            const wire::WireRun run{.address = scene.base(), .stride = 0, .bytes = 64, .repeat = 1};
            Bytes message = bytes_of(operation(MP_ACCUMULATE, 64, unit, extent)) + run;
            message.resize(message.size() + 64, std::byte{0xee});
            scene.say(wire::kWindowOperation, message);
            BOOST_REQUIRE(scene.victim().cells == before);
        }
}

// Numbers that make a loop, or room, of 2^32. Many of them: who goes through all blocks does not come to an end.
BOOST_AUTO_TEST_CASE(numbers_without_end) {
    for (const std::uint32_t seed : {kFixed, kDynamic}) {
        Scene scene(seed);
        const std::uint64_t before = dropped(scene.victim().windows->statistics());
        constexpr unsigned kTimes = 1000;
        for (unsigned i = 0; i < kTimes; ++i) {
            const wire::WireRun run{.address = scene.base(), .stride = 0, .bytes = 1, .repeat = UINT32_MAX};
            scene.say(wire::kWindowOperation, bytes_of(operation(MP_GET, 8, 1, 1)) + run);
            scene.say(wire::kWindowOperation, bytes_of(operation(MP_GET, UINT32_MAX, 1, 1)) + run);
            // Sums that are right when they have gone over 2^64.
            auto header = operation(MP_GET, 8, 1, 1);
            header.runs = 3;
            const wire::WireRun half{.address = scene.base(), .stride = 0, .bytes = 1u << 31, .repeat = UINT32_MAX},
                rest{.address = scene.base(), .stride = 0, .bytes = 8, .repeat = 536'870'913};
            scene.say(wire::kWindowOperation, bytes_of(header) + half + half + rest);
        }
        BOOST_TEST(dropped(scene.victim().windows->statistics()) - before == 3 * kTimes);
    }
}

struct Asked { // a read of 8 cells that has left, and is not answered yet
    Guarded result{64};
    Done counts;
    std::uint64_t name = 0;
};

// By a message: elements are combined with nothing.
void ask(Scene& scene, unsigned target, Asked& asked) {
    const mp_run_t run{.address = reinterpret_cast<std::uint64_t>(scene.world.ranks[target].cells.data() + 600),
                       .stride = 0,
                       .bytes = 64,
                       .repeat = 1};
    const mp_rma_t rma{.kind = MP_GET_ACCUMULATE,
                       .target = target,
                       .runs = &run,
                       .run_count = 1,
                       .origin = {nullptr, 0, nullptr},
                       .result = {asked.result.data(), 64, nullptr},
                       .op = 0,
                       .type = 0,
                       .unit = 8,
                       .extent = 8,
                       .user = &asked.counts};
    scene.world.network.tap = [&](FakePort&, MessageKind kind, const Bytes& data) {
        if (kind == wire::kWindowOperation) std::memcpy(&asked.name, data.data() + 8, sizeof asked.name);
    };
    BOOST_REQUIRE(scene.victim().window->start(rma) == MP_OK);
    scene.world.ranks[target].port->stalls = true; // its answer stays there
    for (int i = 0; i < 1000 && !asked.name; ++i) scene.world.progress();
    scene.world.network.tap = nullptr;
    BOOST_REQUIRE(asked.name);
}

BOOST_AUTO_TEST_CASE(replies_that_were_not_asked_for) {
    Scene scene(kFixed);
    Asked one, two;
    ask(scene, 1, one);
    ask(scene, 2, two);
    const auto reply = [&](std::uint64_t name, std::uint64_t position, std::uint32_t bytes, std::uint32_t error = 0) {
        const std::uint64_t before = dropped(scene.victim().windows->statistics());
        Bytes message =
            bytes_of(wire::ReplyHeader{.reply = name, .position = position, .bytes = bytes, .error = error});
        if (!error) message.resize(message.size() + bytes, std::byte{0x77});
        scene.say(wire::kWindowReply, message);
        BOOST_REQUIRE(one.result.intact() && two.result.intact());
        return dropped(scene.victim().windows->statistics()) == before;
    };
    BOOST_TEST(!reply(one.name, std::uint64_t{0} - 32, 32)); // in front of the result
    BOOST_TEST(!reply(one.name, std::uint64_t{0} - 32, 96));
    BOOST_TEST(!reply(one.name, 8, 8)); // not in order
    BOOST_TEST(!reply(one.name, 0, 72));
    BOOST_TEST(!reply(one.name, 0, 0));
    BOOST_TEST(!reply(one.name, 0, UINT32_MAX, MP_FAILED));
    BOOST_TEST(!reply(one.name, 0, 64, MP_RANGE + 1));
    // Of somebody who has been told another name only: the slot is easy to guess, the rest is not.
    for (std::uint64_t guess = 0; guess < 64; ++guess) {
        const std::uint64_t number = (two.name >> 32) + guess - 32;
        BOOST_TEST(!reply(number << 32 | (one.name & UINT32_MAX), 0, 64));
        BOOST_TEST(!reply(guess << 32 | (one.name & UINT32_MAX), 0, 64));
    }
    BOOST_TEST(one.counts.count == 0u);
    BOOST_TEST(reply(one.name, 0, 32));
    BOOST_TEST(!reply(one.name, 0, 32)); // again
    BOOST_TEST(!reply(one.name, 32, 40));
    BOOST_TEST(reply(one.name, 32, 32));
    BOOST_TEST(one.counts.count == 1u);
    BOOST_TEST(!reply(one.name, 0, 64)); // it is over
    BOOST_TEST(two.counts.count == 0u);
    for (Rank& rank : scene.world.ranks) rank.port->stalls = false;
    BOOST_REQUIRE(scene.world.until([&](Rank&, unsigned) { return two.counts.count == 1; }));
    // What was owed is not less than nothing: the next ones go.
    for (int i = 0; i < 3; ++i) {
        Asked more;
        ask(scene, 1, more);
        scene.world.ranks[1].port->stalls = false;
        BOOST_REQUIRE(scene.world.until([&](Rank&, unsigned) { return more.counts.count == 1; }));
        BOOST_TEST(more.counts.failed == 0u);
    }
}

// Puts that are not as long as they say: the epoch that they come with is not over.
BOOST_AUTO_TEST_CASE(ends_of_epochs) {
    Scene scene(kFixed);
    Window& window = *scene.victim().window;
    window.expose(1, false);
    const wire::WindowSync end{
        .window = Scene::kId, .origin = 1, .number = 0, .what = wire::Sync::done, .error = 0, .zero = 0};
    wire::HeldPut put{.address = scene.base(), .bytes = 9};
    Bytes message = bytes_of(end) + put;
    message.resize(message.size() + 8, std::byte{0x77});
    scene.say(wire::kWindowSync, message);
    scene.say(wire::kWindowSync, Bytes(message.begin(), message.end() - 9));
    BOOST_TEST(!window.closed(1));
    put = {.address = scene.base() - 8, .bytes = 16}; // one that is as long as it says, and outside
    message = bytes_of(end) + put;
    message.resize(message.size() + 16, std::byte{0x77});
    scene.say(wire::kWindowSync, message);
    BOOST_TEST(window.closed(1));
    BOOST_TEST(scene.intact());
    BOOST_TEST(scene.victim().cells[Scene::kFirst] == Guarded::kGuard);
}

// What a rank has sent before it failed comes behind that: it does not get a lock that nobody would give back.
BOOST_AUTO_TEST_CASE(locks_for_somebody_who_is_gone) {
    Scene scene(kFixed);
    Rank& victim = scene.victim();
    Peer* const peer = victim.engine->peer(101);
    (void)victim.window->locked(1); // it is known
    victim.port->listener->endpoint_failed(*peer->endpoint);
    static_cast<FakeEndpoint&>(*peer->endpoint).fail();
    victim.engine->progress();
    BOOST_REQUIRE(victim.window->gone(1));
    scene.say(wire::kWindowSync, bytes_of(wire::WindowSync{.window = Scene::kId,
                                                           .origin = 1,
                                                           .number = 0,
                                                           .what = wire::Sync::lock_exclusive,
                                                           .error = 0,
                                                           .zero = 0}));
    scene.world.ranks[2].window->want_lock(0, true);
    BOOST_TEST(scene.world.until([](Rank& rank, unsigned i) { return i != 2 || rank.window->locked(0); }));
}

// A receive that waits for its data in fragments: nobody may say that it has been written.
BOOST_AUTO_TEST_CASE(data_that_has_not_come) {
    Scene scene(kFixed); // receivers read, but not from who has no key
    Engine& engine = *scene.victim().engine;
    Guarded in(20000);
    mp_request_storage_t storage;
    engine.receive(Request::of(storage), {5, 1, 3}, {in.data(), 20000, nullptr}, Hint::none);
    std::uint64_t name = 0;
    scene.world.network.tap = [&](FakePort&, MessageKind kind, const Bytes& data) {
        if (kind == wire::kClear) std::memcpy(&name, data.data() + 8, sizeof name);
    };
    const wire::RequestHeader offer{.envelope = {.context = 5, .source = 1, .tag = 3, .zero = 0},
                                    .sender = 101,
                                    .request = 77,
                                    .bytes = 20000,
                                    .address = 0,
                                    .flags = 0,
                                    .hint = 0,
                                    .key_bytes = 0,
                                    .zero = 0};
    scene.say(wire::kRequest, bytes_of(offer));
    for (int i = 0; i < 1000 && !name; ++i) scene.world.progress();
    BOOST_REQUIRE(name);
    scene.say(wire::kFinish, bytes_of(wire::DoneHeader{.id = name, .ok = 1, .zero = 0}));
    BOOST_TEST(!storage.request.complete);
    Bytes fragment = bytes_of(wire::FragmentHeader{.receive = name, .offset = 0});
    fragment.resize(fragment.size() + 10000, std::byte{0x77});
    scene.say(wire::kFragment, fragment);
    scene.say(wire::kFragment, fragment); // again
    scene.say(wire::kFinish, bytes_of(wire::DoneHeader{.id = name, .ok = 1, .zero = 0}));
    BOOST_TEST(!storage.request.complete);
    const std::uint64_t offset = 10000;
    std::memcpy(fragment.data() + 8, &offset, sizeof offset);
    scene.say(wire::kFragment, fragment);
    BOOST_TEST(storage.request.complete);
    BOOST_TEST((storage.request.status.error == MP_OK && storage.request.status.bytes == 20000));
    BOOST_TEST(in.intact());
}

// No message has the pattern of a receive.
BOOST_AUTO_TEST_CASE(messages_from_nobody) {
    Scene scene(kFixed);
    Engine& engine = *scene.victim().engine;
    Guarded in(100);
    mp_request_storage_t storage;
    engine.receive(Request::of(storage), {5, kAnySource, kAnyTag}, {in.data(), 100, nullptr}, Hint::none);
    for (const auto& [source, tag] : {std::pair{kAnySource, 1}, {-1, 1}, {1, kAnyTag}}) {
        const wire::EagerHeader envelope{.context = 5, .source = source, .tag = tag, .zero = 0};
        scene.say(wire::kEager, bytes_of(envelope) + std::uint64_t{7});
        scene.say(wire::kEagerSync,
                  bytes_of(wire::SyncHeader{.envelope = envelope, .sender = 101, .request = 1}) + std::uint64_t{7});
        scene.say(wire::kRequest, bytes_of(wire::RequestHeader{.envelope = envelope,
                                                               .sender = 101,
                                                               .request = 1,
                                                               .bytes = 8,
                                                               .address = 0,
                                                               .flags = 0,
                                                               .hint = 0,
                                                               .key_bytes = 0,
                                                               .zero = 0}));
        scene.say(wire::kFirst, bytes_of(wire::FirstHeader{
                                    .envelope = envelope, .sender = 101, .bytes = 20, .number = 1, .zero = 0}) +
                                    std::uint64_t{7});
    }
    BOOST_TEST(!storage.request.complete);
    BOOST_TEST(engine.statistics().find("dropped 12;") != std::string::npos);
}

// A conversation in which what the victim is told is twisted now and then, said twice, or said late.
BOOST_AUTO_TEST_CASE(twisted_conversations) {
    std::uint64_t refused = 0, executed = 0;
    for (std::uint32_t seed = 1; seed <= 300; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed) {
            Scene scene(seed);
            std::map<MessageKind, std::vector<Bytes>> heard;
            scene.world.network.tap = [&](FakePort& to, MessageKind kind, const Bytes& data) {
                heard[kind].push_back(data);
                if (&to != scene.victim().port.get() || scene.world.dice(3)) return;
                Bytes message = scene.world.dice(4) ? data : heard[kind][scene.world.dice(heard[kind].size())];
                if (scene.world.dice(8)) scene.change(message, heard[kind]);
                scene.say(kind, message);
                BOOST_REQUIRE(scene.intact());
            };
            for (int i = 0; i < 150; ++i) {
                scene.act();
                if (scene.world.dice(2)) scene.world.progress();
            }
            for (int i = 0; i < 200; ++i) scene.world.progress();
            BOOST_REQUIRE(scene.intact());
            const std::string windows = scene.victim().windows->statistics();
            refused += dropped(windows);
            executed += std::strtoull(windows.c_str() + windows.find("executed ") + 9, nullptr, 10);
        }
    }
    BOOST_TEST(refused > 500u);
    BOOST_TEST(executed > 500u);
}

} // namespace
