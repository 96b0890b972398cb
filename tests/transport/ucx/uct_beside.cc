// UCX's async thread recovers beside a program that makes no call (ucx/background.h), and stays out of one that does.
#define BOOST_TEST_MODULE transport_ucx_beside
#include "ears.h"
#include "fixture.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/test/data/test_case.hpp>
#include <memory>
#include <mutex>
#include <thread>

#include "uct_mp/channel/core.h"
#include "uct_mp/ucx/iface.h"

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const auto each_transport = boost::unit_test::data::make(kTransports);
constexpr double kMuch = 8, kSome = 0.25; // s
constexpr unsigned kId = 7;

struct Numbers {
    std::uint64_t next = 0, wrong = 0;
    static ucs_status_t take(void* arg, void* data, std::size_t, unsigned) {
        auto& self = *static_cast<Numbers*>(arg);
        std::uint64_t number = 0;
        std::memcpy(&number, data, sizeof number);
        self.wrong += number != self.next++;
        return UCS_OK;
    }
};

struct Side {
    Domain domain;
    Interface iface;
    Numbers taken;
    std::uint64_t sent = 0;
    uct_ep_h ep = nullptr;
    explicit Side(const char* transport) : iface(domain, transport) {
        uct_iface_set_am_handler(iface.iface, kId, Numbers::take, &taken, 0);
    }
    ~Side() {
        if (ep) uct_ep_destroy(ep);
    }
    bool say() {
        if (uct_ep_am_short(ep, kId, sent, nullptr, 0) != UCS_OK) return false;
        ++sent;
        return true;
    }
    void progress() { uct_worker_progress(domain.worker); }
    [[nodiscard]] std::uint64_t turns() {
        ucx_mp::channel::Interface& core = ucx_mp::face::Iface::of(iface.iface).core();
        const std::lock_guard lock(core.core().services);
        return ucx_mp::channel::beside(core).turns;
    }
};

// In one process the adapters' own loops must not save what the links lose.
struct Two {
    const Restore restore{{"fault loopback-fails off " + port(0), "fault loopback-fails off " + port(1),
                           "port up " + port(0), "port up " + port(1)}};
    std::unique_ptr<Side> a, b;
    explicit Two(const char* transport) {
        for (const unsigned adapter : {0u, 1u}) softhca("fault loopback-fails on " + port(adapter));
        a = std::make_unique<Side>(transport);
        b = std::make_unique<Side>(transport);
        a->ep = a->iface.connect(b->iface);
        b->ep = b->iface.connect(a->iface);
        UCT_TEST_REQUIRE(until([&] { return a->say(); }));
        UCT_TEST_REQUIRE(until([&] { return b->say(); }));
        UCT_TEST_REQUIRE(until([&] { return all_here(); }));
    }
    [[nodiscard]] static std::string port(unsigned adapter) { return "0:softhca_" + std::to_string(adapter) + ":1"; }
    [[nodiscard]] bool all_here() const { return b->taken.next == a->sent && a->taken.next == b->sent; }
    [[nodiscard]] std::uint64_t wrong() const { return a->taken.wrong + b->taken.wrong; }
    void progress() const {
        a->progress();
        b->progress();
    }
    [[nodiscard]] bool until(const std::function<bool()>& condition, double seconds = 20) const {
        for (const double end = Domain::now() + seconds; !condition(); progress())
            if (Domain::now() > end) return false;
        return true;
    }
};

// Ports of both adapters come and go meanwhile, one at a time.
class Flaps {
public:
    explicit Flaps(unsigned count)
        : thread_([this, count] {
              for (unsigned i = 0; i < count; ++i) {
                  softhca("port down " + Two::port(i % 2));
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  softhca("port up " + Two::port(i % 2));
                  std::this_thread::sleep_for(std::chrono::milliseconds(120));
              }
              over = true;
          }) {}
    ~Flaps() { thread_.join(); }
    std::atomic<bool> over{false};

private:
    std::thread thread_;
};

} // namespace

// There is a thread where there can be one. Who has insisted is told if there cannot.
BOOST_AUTO_TEST_CASE(whether_there_is_a_thread) {
    struct Case {
        Options wish;
        ucs_async_mode_t mode;
        bool thread;
        long lines;
    };
    const Case cases[] = {{{}, UCS_ASYNC_MODE_THREAD_SPINLOCK, true, 0},
                          {{}, UCS_ASYNC_MODE_THREAD_MUTEX, true, 0},
                          {{}, UCS_ASYNC_MODE_POLL, false, 0},
                          {{{"RECOVERY_THREAD", "n"}}, UCS_ASYNC_MODE_THREAD_SPINLOCK, false, 0},
                          {{{"RECOVERY_THREAD", "y"}}, UCS_ASYNC_MODE_THREAD_SPINLOCK, true, 0},
                          {{{"RECOVERY_THREAD", "y"}}, UCS_ASYNC_MODE_POLL, false, 1}};
    for (const Case& each : cases) {
        const Ears ears(UCS_LOG_LEVEL_WARN, "RECOVERY_THREAD");
        Domain domain(each.wish, each.mode);
        const Interface iface(domain, "mp_rc");
        BOOST_TEST(ucx_mp::face::Iface::of(iface.iface).config().recovery.thread == each.thread);
        BOOST_TEST(Ears::lines_with("needs an asynchronous thread of the worker") == each.lines);
        const bool wanted = each.wish.empty() || each.wish.front().second != std::string("n");
        BOOST_TEST(ucx_mp::face::Iface::of(iface.iface).why_no_thread().empty() == (each.thread || !wanted));
    }
}

// Descriptors may be short: an interface that could be opened without the thread is opened without it.
BOOST_AUTO_TEST_CASE(no_descriptor_for_a_thread) {
    const auto opens = [](const char* wish, rlim_t descriptors) {
        rlimit before{};
        Domain domain(Options{{"RECOVERY_THREAD", wish}});
        getrlimit(RLIMIT_NOFILE, &before);
        const rlimit few{descriptors, before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &few);
        uct_iface_h iface = nullptr;
        const bool opened = Interface::open(domain, "mp_rc", {}, nullptr, &iface) == UCS_OK;
        const bool thread = opened && ucx_mp::face::Iface::of(iface).config().recovery.thread;
        if (opened) uct_iface_close(iface);
        setrlimit(RLIMIT_NOFILE, &before);
        return std::pair(opened, thread);
    };
    const Ears ears(UCS_LOG_LEVEL_FATAL, "descriptor"); // each failure has its line
    Domain of_another;
    const Interface another(of_another, "mp_rc"); // UCX's thread is there, which needs descriptors of its own
    unsigned only_without = 0;
    const int first = dup(0); // the first that is free: the limit is one of numbers
    close(first);
    for (auto descriptors = static_cast<rlim_t>(first); descriptors < static_cast<rlim_t>(first) + 48; ++descriptors) {
        const bool without = opens("n", descriptors).first;
        const auto [opened, thread] = opens("try", descriptors);
        BOOST_TEST(opened == without);
        only_without += opened && !thread;
    }
    BOOST_TEST(only_without > 0u);
}

// UCX asks from threads of its own, which the program knows nothing of.
BOOST_AUTO_TEST_CASE(others_ask_meanwhile) {
    Two two("mp_rc");
    uct_iface_h iface = two.a->iface.iface;
    std::atomic<bool> over{false};
    std::thread asks([&] {
        uct_iface_attr_t attr;
        std::vector<std::uint8_t> address(4096);
        while (!over) {
            (void)uct_iface_query(iface, &attr);
            (void)uct_iface_get_address(iface, reinterpret_cast<uct_iface_addr_t*>(address.data()));
            (void)uct_iface_is_reachable(iface, nullptr, reinterpret_cast<uct_iface_addr_t*>(address.data()));
        }
    });
    for (const double end = Domain::now() + kSome; Domain::now() < end;)
        for (unsigned i = 0; i < 1000; ++i) two.a->progress();
    over = true;
    asks.join();
    BOOST_TEST(!ucx_mp::turn::is_inside(ucx_mp::face::Iface::of(iface).turn().calls));
}

// The sender makes no call until its messages have come, or for long.
BOOST_DATA_TEST_CASE(a_sender_that_computes, each_transport, transport) {
    Two two(transport);
    for (unsigned round = 0; round < 4; ++round) {
        softhca("port down " + Two::port(round % 2));
        for (unsigned i = 0; i < 8; ++i) (void)two.a->say();
        const double end = Domain::now() + kMuch;
        while (two.b->taken.next != two.a->sent && Domain::now() < end) two.b->progress();
        BOOST_TEST(two.b->taken.next == two.a->sent);
        softhca("port up " + Two::port(round % 2));
        BOOST_REQUIRE(two.until([&] { return two.a->say(); }));
        (void)two.until([] { return false; }, kSome);
    }
    BOOST_TEST(two.until([&] { return two.all_here(); }));
    BOOST_TEST(two.wrong() == 0u);
}

// The same if it has dealt with such a loss itself before. No port tells of either: a failed send does, or the peer.
BOOST_DATA_TEST_CASE(a_sender_that_computes_later, each_transport, transport) {
    Two two(transport);
    const Restore restore{{"fault drop 0% all"}};
    for (unsigned round = 0; round < 4; ++round) {
        const bool computes = round % 2;
        softhca("fault drop 100% " + Two::port(round / 2));
        for (unsigned i = 0; i < 8; ++i) (void)two.a->say();
        const double end = Domain::now() + kMuch;
        while (two.b->taken.next != two.a->sent && Domain::now() < end) {
            two.b->progress();
            if (!computes) two.a->progress();
        }
        BOOST_TEST(two.b->taken.next == two.a->sent);
        softhca("fault drop 0% all");
        BOOST_REQUIRE(two.until([&] { return two.a->say(); }));
        (void)two.until([] { return false; }, kSome);
    }
    BOOST_TEST(two.wrong() == 0u);
}

// A path may be away for long: a program that makes calls is not asked again and again.
BOOST_AUTO_TEST_CASE(asks_no_program_that_recovers) {
    Two two("mp_rc");
    softhca("port down " + Two::port(0));
    BOOST_REQUIRE(two.until([&] { return two.a->say(); }));
    (void)two.until([] { return false; }, kSome);
    const auto heard = [&] {
        return ucx_mp::channel::beside(ucx_mp::face::Iface::of(two.a->iface.iface).core()).heard();
    };
    const std::uint32_t before = heard();
    (void)two.until([] { return false; }, kSome);
    BOOST_TEST(heard() - before < 10);
}

// Turns take what has come for a program that sleeps: it wakes, and gets it.
BOOST_DATA_TEST_CASE(a_sleeper_is_woken, each_transport, transport) {
    Two two(transport);
    int fd = -1;
    BOOST_REQUIRE(uct_iface_event_fd_get(two.b->iface.iface, &fd) == UCS_OK);
    for (unsigned round = 0; round < 4; ++round) {
        softhca("port down " + Two::port(round % 2));
        for (unsigned i = 0; i < 8; ++i) (void)two.a->say();
        const double end = Domain::now() + kMuch;
        while (two.b->taken.next != two.a->sent && Domain::now() < end) {
            two.b->progress();
            if (two.b->taken.next == two.a->sent) break; // nothing more would wake it
            if (uct_iface_event_arm(two.b->iface.iface, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP) != UCS_OK) continue;
            pollfd polled{fd, POLLIN, 0};
            const auto woken = [&] { return poll(&polled, 1, int(kMuch * 1000)) == 1; };
            if (woken() || woken()) continue; // once may have been while nobody had a processor
            for (unsigned i = 0; i < 100; ++i) two.b->progress();
            BOOST_FAIL("nobody woke it, and so many messages wait: " << two.b->taken.next << " of " << two.a->sent);
        }
        BOOST_TEST(two.b->taken.next == two.a->sent);
        softhca("port up " + Two::port(round % 2));
        BOOST_REQUIRE(two.until([&] { return two.a->say(); }));
        (void)two.until([] { return false; }, kSome);
    }
    BOOST_TEST(two.wrong() == 0u);
}

// Its own sends wake a program that sleeps, and nothing is wrong: the thread leaves it alone.
BOOST_DATA_TEST_CASE(a_sleeper_whose_sends_complete, each_transport, transport) {
    Two two(transport);
    constexpr std::size_t kBytes = 1 << 16;
    std::vector<std::uint8_t> from(kBytes, 3), to(kBytes);
    const Memory source(two.a->domain, from.data(), kBytes), target(two.b->domain, to.data(), kBytes);
    uct_iface_h iface = two.a->iface.iface;
    int fd = -1;
    BOOST_REQUIRE(uct_iface_event_fd_get(iface, &fd) == UCS_OK);
    (void)two.until([] { return false; }, kSome);
    const std::uint64_t before = two.a->turns();
    unsigned slept = 0;
    const auto arm = [&] { return uct_iface_event_arm(iface, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP) == UCS_OK; };
    for (unsigned round = 0; round < 20; ++round) {
        BOOST_REQUIRE(two.until(arm));
        Done done; // begun only now, so that the event comes
        uct_iov_t iov{from.data(), kBytes, source.handle, 0, 1};
        BOOST_REQUIRE(uct_ep_put_zcopy(two.a->ep, &iov, 1, reinterpret_cast<std::uint64_t>(to.data()), target.key.rkey,
                                       &done) == UCS_INPROGRESS);
        pollfd polled{fd, POLLIN, 0};
        slept += poll(&polled, 1, int(kMuch * 1000)) == 1;
        BOOST_REQUIRE(two.until([&] { return done.fired; }));
        BOOST_REQUIRE(two.until(arm));
        (void)poll(&polled, 1, 25); // the thread would have its turn now
    }
    BOOST_TEST(slept == 20u);
    BOOST_TEST(two.a->turns() - before < slept / 4); // it has a few where this program gets no processor for long
}

// Both work while ports come and go, with pauses in which the thread has its turn.
BOOST_DATA_TEST_CASE(turns_amid_calls, each_transport, transport) {
    Two two(transport);
    Flaps flaps(12);
    constexpr std::size_t kBytes = 5000;
    std::vector<std::uint8_t> from(kBytes, 3), to(kBytes);
    const Memory source(two.a->domain, from.data(), kBytes), target(two.b->domain, to.data(), kBytes);
    std::uint64_t wrong = 0;
    for (unsigned round = 0; !flaps.over; ++round) {
        for (unsigned i = 0; i < 20; ++i) (void)two.a->say(), (void)two.b->say();
        Done done, flushed;
        uct_iov_t iov{from.data(), kBytes, source.handle, 0, 1};
        const auto put = [&] {
            return uct_ep_put_zcopy(two.a->ep, &iov, 1, reinterpret_cast<std::uint64_t>(to.data()), target.key.rkey,
                                    &done);
        };
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        BOOST_REQUIRE(two.until([&] { return (status = put()) != UCS_ERR_NO_RESOURCE; }));
        if (status == UCS_OK) done.fired = true;
        BOOST_REQUIRE(
            two.until([&] { return (status = uct_ep_flush(two.a->ep, 0, &flushed)) != UCS_ERR_NO_RESOURCE; }));
        if (status == UCS_OK) flushed.fired = true;
        if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        BOOST_REQUIRE(two.until([&] { return done.fired && flushed.fired; }));
        wrong += to != from;
        std::fill(from.begin(), from.end(), static_cast<std::uint8_t>(round));
    }
    BOOST_TEST(two.until([&] { return two.all_here(); }));
    BOOST_TEST(two.wrong() + wrong == 0u);
}

// Interfaces that end while the thread has its turn, and processes that begin meanwhile.
BOOST_DATA_TEST_CASE(ends_amid_turns, each_transport, transport) {
    Flaps flaps(8);
    for (unsigned round = 0; !flaps.over; ++round) {
        Side a(transport), b(transport);
        a.ep = a.iface.connect(b.iface);
        const double end = Domain::now() + kMuch;
        while (!a.say() && Domain::now() < end) a.progress(), b.progress();
        std::this_thread::sleep_for(std::chrono::milliseconds(round % 8));
        const pid_t child = fork();
        if (child == 0) { // has no such thread: nobody would end its turn
            alarm(unsigned(kMuch));
            int fd = -1;
            _exit(uct_iface_event_fd_get(a.iface.iface, &fd) == UCS_OK ? 0 : 1);
        }
        int status = 1;
        BOOST_TEST_REQUIRE(waitpid(child, &status, 0) == child);
        BOOST_TEST(status == 0);
    }
}
