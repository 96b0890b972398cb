// MAX_CONN: several interfaces talk to each other over fewer connections than there are peers. Programs notice nothing:
// messages, pending requests, puts and flushes.
#define BOOST_TEST_MODULE transport_ucx_limit
#include <boost/test/data/test_case.hpp>

#include <cstring>
#include <memory>
#include <random>

#include "fixture.h"

using namespace uct_test;

namespace {

constexpr unsigned kNodes = 4;
constexpr std::uint8_t kWord = 5;
const auto kTransports = boost::unit_test::data::make({"mp_rc", "mp_dc"});

struct Talk {
    Domain domain;
    std::vector<std::unique_ptr<Interface>> all;
    uct_ep_h to[kNodes][kNodes] = {};
    std::uint64_t sent[kNodes][kNodes] = {}, got[kNodes][kNodes] = {};
    unsigned mistakes = 0;
    struct Receiver {
        Talk* talk;
        unsigned index;
    } receivers[kNodes];

    Talk(const char* transport, const char* places) {
        for (unsigned i = 0; i < kNodes; ++i) {
            all.push_back(std::make_unique<Interface>(domain, transport, Options{{"MAX_CONN", places}}));
            receivers[i] = {this, i};
            const auto take = [](void* arg, void* data, std::size_t, unsigned) {
                const Receiver& receiver = *static_cast<Receiver*>(arg);
                std::uint64_t word[2]; // who, number
                std::memcpy(word, data, sizeof word);
                receiver.talk->mistakes += receiver.talk->got[word[0]][receiver.index]++ != word[1];
                return UCS_OK;
            };
            BOOST_REQUIRE(uct_iface_set_am_handler(all[i]->iface, kWord, take, &receivers[i], 0) == UCS_OK);
        }
        for (unsigned i = 0; i < kNodes; ++i)
            for (unsigned j = 0; j < kNodes; ++j)
                if (i != j) to[i][j] = all[i]->connect(*all[j]);
    }
    ~Talk() {
        for (auto& row : to)
            for (uct_ep_h ep : row)
                if (ep) uct_ep_destroy(ep);
    }
    ucs_status_t send(unsigned i, unsigned j) {
        const ucs_status_t status = uct_ep_am_short(to[i][j], kWord, i, &sent[i][j], sizeof sent[i][j]);
        if (status == UCS_OK) ++sent[i][j];
        return status;
    }
    bool arrived() const { return std::memcmp(sent, got, sizeof sent) == 0; }
};

struct Later : uct_pending_req_t {
    Talk* talk;
    unsigned i, j;
    bool done = false;
    Later(Talk& of, unsigned from, unsigned to) : uct_pending_req_t{}, talk(&of), i(from), j(to) {
        func = [](uct_pending_req_t* base) {
            auto& self = *static_cast<Later*>(base);
            const ucs_status_t status = self.talk->send(self.i, self.j);
            self.done = status == UCS_OK;
            return status;
        };
    }
};

} // namespace

BOOST_DATA_TEST_CASE(messages, kTransports* boost::unit_test::data::make({"1", "2"}), transport, places) {
    Talk talk(transport, places);
    std::mt19937 random(7);
    for (unsigned round = 0; round < 40; ++round) {
        std::vector<std::unique_ptr<Later>> waiting;
        for (unsigned k = 0; k < 6; ++k) {
            const unsigned i = random() % kNodes, j = random() % kNodes;
            if (i == j) continue;
            if (talk.send(i, j) == UCS_OK) continue;
            waiting.push_back(std::make_unique<Later>(talk, i, j));
            if (uct_ep_pending_add(talk.to[i][j], waiting.back().get(), 0) != UCS_OK) // there is room by now
                BOOST_REQUIRE(talk.domain.until([&] { return waiting.back()->func(waiting.back().get()) == UCS_OK; }));
        }
        BOOST_REQUIRE(talk.domain.until(
            [&] { return std::ranges::all_of(waiting, [](const auto& one) { return one->done; }) && talk.arrived(); }));
    }
    BOOST_TEST(talk.mistakes == 0u);
    for (const auto& iface : talk.all) BOOST_TEST(iface->errors.empty());
}

BOOST_DATA_TEST_CASE(puts_and_flushes, kTransports, transport) {
    Talk talk(transport, "1");
    alignas(64) std::uint64_t memory[kNodes][kNodes] = {};
    const Memory region(talk.domain, memory, sizeof memory);
    for (std::uint64_t round = 1; round <= 30; ++round) {
        for (unsigned i = 0; i < kNodes; ++i)
            for (unsigned j = 0; j < kNodes; ++j) {
                if (i == j) continue;
                const std::uint64_t value = round * 100 + i * 10 + j;
                BOOST_REQUIRE(talk.domain.until([&] {
                    return uct_ep_put_short(talk.to[i][j], &value, sizeof value,
                                            reinterpret_cast<std::uintptr_t>(&memory[i][j]), region.key.rkey) == UCS_OK;
                }));
                if (round % 2) talk.all[i]->flush(talk.to[i][j]);
                if (round % 2) BOOST_TEST(memory[i][j] == value);
            }
        for (unsigned i = 0; i < kNodes; ++i) {
            ucs_status_t status = UCS_INPROGRESS;
            BOOST_REQUIRE(talk.domain.until(
                [&] { return (status = uct_iface_flush(talk.all[i]->iface, 0, nullptr)) == UCS_OK; }));
            for (unsigned j = 0; j < kNodes; ++j)
                if (i != j) BOOST_TEST(memory[i][j] == round * 100 + i * 10 + j);
        }
    }
    for (const auto& iface : talk.all) BOOST_TEST(iface->errors.empty());
}

BOOST_AUTO_TEST_CASE(values) {
    Domain domain;
    uct_iface_h iface = nullptr;
    for (const char* const wrong : {"0", "auto", "2000000"})
        BOOST_TEST(Interface::open(domain, "mp_rc", {{"MAX_CONN", wrong}}, nullptr, &iface) == UCS_ERR_INVALID_PARAM);
    Interface good(domain, "mp_rc", {{"MAX_CONN", "inf"}});
}
