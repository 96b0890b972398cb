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

// Two threads of an application, each with a worker and interfaces of its own on one memory domain, which connect,
// send, write, read and register memory while links are pulled and given back, and while UCX's async thread answers for
// both. What races here ThreadSanitizer sees (tests/run --preset tsan); in any build all has to come through, once and
// in order.
BOOST_DATA_TEST_CASE(threads_on_one_domain_while_links_fail, each_transport, transport) {
    constexpr unsigned kThreads = 2, kRounds = 12;
    constexpr std::size_t kBytes = 1 << 18;
    struct Member {
        Domain domain;
        Interface iface;
        Counter counter;
        std::vector<char> window = std::vector<char>(kBytes + 1); // the last one is anybody's
        Memory memory{domain, window.data(), window.size()};
        Member(Domain& of, const char* transport) : domain(of), iface(domain, transport) {
            uct_iface_set_am_handler(iface.iface, kCounted, Counter::take, &counter, 0);
        }
    };
    struct Task {
        Member &self, &peer;
        std::atomic<unsigned>& finished;
        std::uint64_t sent = 0;
        unsigned wrong = 0, unfinished = 0;
        const char* name = nullptr;
        void until(const std::function<bool()>& condition) { unfinished += !self.domain.until(condition, 60); }
        // A write and a read of memory that is registered for them alone.
        void exchange(uct_ep_h ep, unsigned round) {
            std::vector<char> data(kBytes, static_cast<char>('a' + round));
            uct_mem_h handle = nullptr;
            if (uct_md_mem_reg(self.domain.md, data.data(), data.size(), UCT_MD_MEM_ACCESS_ALL, &handle) != UCS_OK)
                ++wrong;
            const uct_iov_t iov{data.data(), data.size(), handle, 0, 1};
            const auto remote = reinterpret_cast<std::uint64_t>(peer.window.data());
            for (const bool read : {false, true}) {
                if (read) std::fill(data.begin(), data.end(), 0);
                Done done;
                ucs_status_t status = UCS_OK;
                until([&] {
                    status = read ? uct_ep_get_zcopy(ep, &iov, 1, remote, peer.memory.key.rkey, &done)
                                  : uct_ep_put_zcopy(ep, &iov, 1, remote, peer.memory.key.rkey, &done);
                    return status != UCS_ERR_NO_RESOURCE;
                });
                until([&] { return done.fired; });
                until([&] { return uct_ep_flush(ep, 0, nullptr) == UCS_OK; });
                wrong += status != UCS_INPROGRESS || done.status != UCS_OK;
            }
            wrong += data != std::vector<char>(kBytes, static_cast<char>('a' + round));
            uct_md_mem_dereg(self.domain.md, handle);
        }
        void run() {
            const uct_ep_h ep = self.iface.connect(peer.iface);
            for (unsigned round = 0; round < kRounds; ++round) {
                const std::uint64_t more = sent + 200;
                until([&] {
                    while (sent < more && uct_ep_am_short(ep, kCounted, sent, nullptr, 0) == UCS_OK) ++sent;
                    return sent == more;
                });
                exchange(ep, round);
                // A first connection of an interface that goes again, meanwhile; to whoever of us answers.
                Interface other(self.domain, name);
                const uct_ep_h there = other.connect(peer.iface);
                const auto last = reinterpret_cast<std::uint64_t>(peer.window.data() + kBytes);
                until([&] { return uct_ep_put_short(there, "x", 1, last, peer.memory.key.rkey) == UCS_OK; });
                other.flush(there);
                uct_ep_destroy(there);
            }
            until([&] { return uct_ep_flush(ep, 0, nullptr) == UCS_OK && self.counter.messages == sent; });
            ++finished;
            until([&] { return finished.load() == kThreads; });
            uct_ep_destroy(ep);
        }
    };
    Domain domain;
    Member a(domain, transport), b(domain, transport);
    std::atomic<unsigned> finished{0};
    Task tasks[kThreads] = {{.self = a, .peer = b, .finished = finished, .name = transport},
                            {.self = b, .peer = a, .finished = finished, .name = transport}};
    const Restore restore{{"port up 0:softhca_0:1", "port up 0:softhca_1:1"}};
    std::vector<std::thread> threads;
    for (Task& task : tasks) threads.emplace_back([&task] { task.run(); });
    for (unsigned i = 0; finished.load() < kThreads && i < 1000; ++i) {
        const std::string port = "0:softhca_" + std::to_string(i % 2) + ":1";
        softhca("port down " + port);
        usleep(20'000);
        softhca("port up " + port);
        usleep(30'000);
    }
    for (std::thread& thread : threads) thread.join();
    for (const Task& task : tasks) {
        BOOST_TEST(task.unfinished == 0u);
        BOOST_TEST(task.wrong == 0u);
        BOOST_TEST(task.self.counter.wrong == 0u);
        BOOST_TEST(task.self.counter.messages == kRounds * 200u);
        BOOST_TEST(task.self.iface.errors.empty());
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
        BOOST_REQUIRE(domain.until(
            [&] { return uct_ep_put_zcopy(ep, &source, 1, other.hello.memory, key.rkey, &put) == UCS_INPROGRESS; }));
        const pid_t child = fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            usleep(round * 2000);
            _exit(round % 2 ? 0 : 1);
        }
        BOOST_REQUIRE(domain.until([&] { return put.fired; }));
        BOOST_REQUIRE(domain.until(
            [&] { return uct_ep_get_zcopy(ep, &target, 1, other.hello.memory, key.rkey, &get) == UCS_INPROGRESS; }));
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
