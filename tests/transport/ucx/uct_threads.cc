// UCX's async modes, several threads with a worker each, fork().
#define BOOST_TEST_MODULE transport_ucx_threads
#include "other_process.h"

#include <atomic>
#include <boost/test/data/test_case.hpp>
#include <memory>
#include <numeric>
#include <thread>

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const auto each_transport = boost::unit_test::data::make(kTransports);
const ucs_async_mode_t kModes[] = {UCS_ASYNC_MODE_THREAD_SPINLOCK, UCS_ASYNC_MODE_THREAD_MUTEX, UCS_ASYNC_MODE_SIGNAL,
                                   UCS_ASYNC_MODE_POLL};

struct Counter {
    std::uint64_t messages = 0, wrong = 0;
    static ucs_status_t take(void* arg, void* data, std::size_t, unsigned) {
        auto& self = *static_cast<Counter*>(arg);
        std::uint64_t value = 0;
        std::memcpy(&value, data, sizeof value);
        self.wrong += value != self.messages++;
        return UCS_OK;
    }
};

} // namespace

BOOST_AUTO_TEST_CASE(other_side, *boost::unit_test::disabled()) { serve_other_process(); }

BOOST_DATA_TEST_CASE(async_modes, boost::unit_test::data::make({0, 1, 2, 3}) * each_transport, mode, transport) {
    Domain domain({}, kModes[mode]);
    Counter counter;
    Interface a(domain, transport), b(domain, transport);
    uct_iface_set_am_handler(b.iface, kCounted, Counter::take, &counter, 0);
    for (int round = 0; round < 2; ++round) {
        const uct_ep_h ep = a.connect(b);
        for (std::uint64_t i = 0; i < 500; ++i) {
            const std::uint64_t value = counter.messages;
            BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kCounted, value, nullptr, 0) == UCS_OK; }));
            BOOST_REQUIRE(domain.until([&] { return counter.messages == value + 1; }));
        }
        a.flush(ep);
        uct_ep_destroy(ep);
    }
    BOOST_TEST(counter.wrong == 0u);
}

// Every thread progresses its own worker and sends to the next one's, all connecting at once, round and round.
BOOST_DATA_TEST_CASE(threads_with_a_worker_each, each_transport, transport) {
    constexpr unsigned kThreads = 4;
    constexpr std::uint64_t kMessages = 3000;
    struct Member {
        Domain domain;
        Interface iface;
        Counter counter;
        uct_ep_h ep = nullptr;
        explicit Member(const char* transport) : iface(domain, transport) {
            uct_iface_set_am_handler(iface.iface, kCounted, Counter::take, &counter, 0);
        }
    };
    std::vector<std::unique_ptr<Member>> members;
    for (unsigned i = 0; i < kThreads; ++i) members.push_back(std::make_unique<Member>(transport));
    for (unsigned i = 0; i < kThreads; ++i)
        members[i]->ep = members[i]->iface.connect(members[(i + 1) % kThreads]->iface);
    std::atomic<unsigned> finished{0};
    std::vector<std::thread> threads;
    for (auto& member : members)
        threads.emplace_back([&finished, &member = *member] {
            const double end = Domain::now() + 60;
            std::uint64_t sent = 0;
            bool told = false;
            while (finished.load() < kThreads && Domain::now() < end) {
                while (sent < kMessages && uct_ep_am_short(member.ep, kCounted, sent, nullptr, 0) == UCS_OK) ++sent;
                uct_worker_progress(member.domain.worker);
                if (!told && sent == kMessages && member.counter.messages == kMessages &&
                    uct_ep_flush(member.ep, 0, nullptr) == UCS_OK) {
                    told = true;
                    ++finished;
                }
            }
        });
    for (std::thread& thread : threads) thread.join();
    BOOST_TEST(finished.load() == kThreads);
    for (auto& member : members) {
        BOOST_TEST(member->counter.messages == kMessages);
        BOOST_TEST(member->counter.wrong == 0u);
        BOOST_TEST(member->iface.errors.empty());
        uct_ep_destroy(member->ep);
    }
}

// As with stock UCX: the parent goes on, the child touches nothing of ours and exits, even while operations are open.
BOOST_DATA_TEST_CASE(fork_with_open_connections, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport);
    Other other(transport);
    uct_rkey_bundle_t key{};
    BOOST_REQUIRE(uct_rkey_unpack(component(), other.hello.key, &key) == UCS_OK);
    std::vector<std::uint32_t> out(100000), in(100000);
    Memory from(domain, out.data(), out.size() * 4), to(domain, in.data(), in.size() * 4);
    const uct_ep_h ep = other.connect(a);
    for (std::uint32_t round = 1; round < 12; ++round) {
        std::iota(out.begin(), out.end(), round * 1000003u);
        const uct_iov_t source{out.data(), out.size() * 4, from.handle, 0, 1};
        const uct_iov_t target{in.data(), in.size() * 4, to.handle, 0, 1};
        Done put, get;
        BOOST_REQUIRE(domain.until([&] {
            return uct_ep_put_zcopy(ep, &source, 1, other.hello.memory, key.rkey, &put) == UCS_INPROGRESS;
        }));
        const pid_t child = fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            usleep(round * 2000);
            _exit(round % 2 ? 0 : 1);
        }
        BOOST_REQUIRE(domain.until([&] { return put.fired; }));
        BOOST_REQUIRE(domain.until([&] {
            return uct_ep_get_zcopy(ep, &target, 1, other.hello.memory, key.rkey, &get) == UCS_INPROGRESS;
        }));
        BOOST_REQUIRE(domain.until([&] { return get.fired; }));
        BOOST_TEST(put.status == UCS_OK);
        BOOST_TEST(get.status == UCS_OK);
        BOOST_TEST((in == out));
        BOOST_TEST(waitpid(child, nullptr, 0) == child);
    }
    BOOST_TEST(a.errors.empty());
    uct_ep_destroy(ep);
    uct_rkey_release(component(), &key);
    // A first connection after all that: the asynchronous side is still there.
    Other third(transport);
    const uct_ep_h late = third.connect(a);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(late, kCounted, 0, nullptr, 0) == UCS_OK; }));
    a.flush(late);
    uct_ep_destroy(late);
}
