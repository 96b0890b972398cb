// Peers that compute, stop, are killed, or are given up: what is a failure and what is not, and that everything
// outstanding ends exactly once.
#define BOOST_TEST_MODULE transport_ucx_peer
#include "other_process.h"

#include <boost/test/data/test_case.hpp>

#include <memory>

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const auto each_transport = boost::unit_test::data::make(kTransports);
// A path counts as failed after 4 * 17 ms of silence.
const Options kImpatient{{"TIMEOUT", "17ms"}, {"RETRY_COUNT", "3"}};

// Nobody else is on the peer's node, who could tell a dead process from a lost route: after this it makes no
// difference.
const Options kBrief{{"PARTITION_TIMEOUT", "1s"}};

struct Key {
    uct_rkey_bundle_t bundle{};
    explicit Key(const Hello& hello) { BOOST_REQUIRE(uct_rkey_unpack(component(), hello.key, &bundle) == UCS_OK); }
    ~Key() { uct_rkey_release(component(), &bundle); }
};

struct Waiting : uct_pending_req_t {
    uct_ep_h ep;
    unsigned purged = 0, sent = 0;
    explicit Waiting(uct_ep_h to) : uct_pending_req_t{}, ep(to) {
        func = [](uct_pending_req_t* base) {
            auto& self = *static_cast<Waiting*>(base);
            const ucs_status_t status = uct_ep_am_short(self.ep, kCounted, 0, nullptr, 0);
            if (status == UCS_OK) ++self.sent;
            return status;
        };
    }
};

void purge(uct_ep_h ep) {
    uct_ep_pending_purge(
        ep, [](uct_pending_req_t* request, void*) { ++static_cast<Waiting*>(request)->purged; }, nullptr);
}

// Until the endpoint takes no more: the window is full and nothing is left to send.
unsigned fill(Domain& domain, Interface& a, uct_ep_h ep) {
    unsigned sent = 0;
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_OK; }));
    a.flush(ep);
    for (++sent; uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_OK; ++sent) a.flush(ep);
    return sent;
}

void failed_once(Domain& domain, Interface& a, uct_ep_h ep, ucs_status_t status = UCS_ERR_ENDPOINT_TIMEOUT,
                 ucs_status_t other = UCS_OK) {
    BOOST_REQUIRE(domain.until([&] { return !a.errors.empty(); }));
    (void)domain.until([] { return false; }, 0.2);
    BOOST_TEST(a.errors.size() == 1u);
    BOOST_TEST(a.errors[0].first == ep);
    BOOST_TEST((a.errors[0].second == status || a.errors[0].second == other), "status " << a.errors[0].second);
    BOOST_TEST(uct_ep_am_short(ep, kCounted, 0, nullptr, 0) < 0);
}

} // namespace

BOOST_AUTO_TEST_CASE(other_side, *boost::unit_test::disabled()) { serve_other_process(); }

BOOST_DATA_TEST_CASE(a_peer_that_computes_can_be_connected_to, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport);
    Other other(transport);
    const Key key(other.hello);
    const uct_ep_h ep = other.connect(a);
    // It makes no progress: it waits for an order.
    BOOST_REQUIRE(
        domain.until([&] { return uct_ep_put_short(ep, "x", 1, other.hello.memory, key.bundle.rkey) == UCS_OK; }));
    a.flush(ep);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_OK; }));
    a.flush(ep);
    BOOST_TEST(other.tell(Order::count) == 0u);
    other.tell(Order::progress);
    BOOST_TEST(domain.until([&] { return other.tell(Order::count) == 1; }));
    BOOST_TEST(a.errors.empty());
    uct_ep_destroy(ep);
    other.tell(Order::quit);
    BOOST_TEST(other.wait() == 0);
}

BOOST_DATA_TEST_CASE(an_idle_peer_is_killed, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, kImpatient);
    BOOST_TEST((a.attr.cap.flags & UCT_IFACE_FLAG_EP_CHECK) != 0u);
    Other other(transport);
    const uct_ep_h ep = other.connect(a);
    BOOST_TEST(uct_ep_check(ep, 0, nullptr) == UCS_OK); // never connects
    other.tell(Order::progress);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_OK; }));
    BOOST_REQUIRE(domain.until([&] { return other.tell(Order::count) == 1; }));
    a.flush(ep);
    for (int i = 0; i < 3; ++i) { // alive
        BOOST_TEST(uct_ep_check(ep, 0, nullptr) == UCS_OK);
        (void)domain.until([] { return false; }, 0.1);
    }
    BOOST_TEST(a.errors.empty());
    other.kill();
    (void)domain.until([] { return false; }, 0.2);
    BOOST_TEST(a.errors.empty()); // nobody has asked
    BOOST_TEST(uct_ep_check(ep, 0, nullptr) == UCS_OK);
    failed_once(domain, a, ep);
    BOOST_TEST(uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, nullptr) == UCS_OK);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(killed_while_the_window_is_full, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, kImpatient);
    Other other(transport);
    const uct_ep_h ep = other.connect(a);
    BOOST_TEST(fill(domain, a, ep) >= 64u);
    Waiting first(ep), second(ep);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &first, 0) == UCS_OK);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &second, 0) == UCS_OK);
    other.kill();
    failed_once(domain, a, ep);
    purge(ep);
    BOOST_TEST(first.purged == 1u);
    BOOST_TEST(second.purged == 1u);
    BOOST_TEST(first.sent + second.sent == 0u);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(killed_under_load, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, kImpatient);
    std::vector<char> data(kShared, 'x');
    Memory memory(domain, data.data(), data.size());
    for (int round = 0; round < 4; ++round) {
        a.errors.clear();
        Other other(transport);
        const Key key(other.hello);
        const uct_ep_h ep = other.connect(a);
        if (round % 2) other.tell(Order::progress);
        struct Counted : Done {
            unsigned fired = 0;
            Counted() {
                func = [](uct_completion_t* self) { ++static_cast<Counted*>(self)->fired; };
            }
        };
        std::vector<std::unique_ptr<Counted>> open;
        const auto put = [&] {
            auto done = std::make_unique<Counted>();
            const uct_iov_t iov{data.data(), data.size(), memory.handle, 0, 1};
            const ucs_status_t status = uct_ep_put_zcopy(ep, &iov, 1, other.hello.memory, key.bundle.rkey, done.get());
            if (status == UCS_INPROGRESS) open.push_back(std::move(done));
            return status == UCS_INPROGRESS;
        };
        const auto message = [&] {
            auto done = std::make_unique<Counted>();
            const std::uint64_t header = 0;
            const uct_iov_t iov{data.data(), 4000, memory.handle, 0, 1};
            const ucs_status_t status = uct_ep_am_zcopy(ep, kCounted, &header, sizeof header, &iov, 1, 0, done.get());
            if (status == UCS_INPROGRESS) open.push_back(std::move(done));
            return status == UCS_INPROGRESS;
        };
        BOOST_REQUIRE(domain.until(put));
        for (int i = 0; i < 10; ++i) (void)put(), (void)message();
        Done flushed;
        const ucs_status_t flushing = uct_ep_flush(ep, 0, &flushed);
        other.kill();
        // What has all been done before the kill leaves nothing to notice.
        (void)uct_ep_am_short(ep, kCounted, 0, nullptr, 0);
        failed_once(domain, a, ep, UCS_ERR_ENDPOINT_TIMEOUT, UCS_ERR_CONNECTION_RESET); // its memory may go first
        BOOST_TEST(domain.until([&] {
            for (const auto& done : open)
                if (!done->fired) return false;
            return flushing != UCS_INPROGRESS || flushed.fired;
        }));
        for (const auto& done : open) BOOST_TEST(done->fired == 1u);
        purge(ep);
        uct_ep_destroy(ep);
    }
}

BOOST_DATA_TEST_CASE(killed_before_it_can_connect, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, {{"CONNECT_TIMEOUT", "1s"}});
    Other other(transport);
    const uct_ep_h ep = other.connect(a);
    other.kill();
    BOOST_TEST(uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_ERR_NO_RESOURCE);
    Waiting waiting(ep);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &waiting, 0) == UCS_OK);
    failed_once(domain, a, ep);
    purge(ep);
    BOOST_TEST(waiting.purged == 1u);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(a_stopped_peer_is_not_dead, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, kImpatient);
    Other other(transport);
    const uct_ep_h ep = other.connect(a);
    const unsigned sent = fill(domain, a, ep);
    Waiting waiting(ep);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &waiting, 0) == UCS_OK);
    other.signal(SIGSTOP);
    for (int i = 0; i < 30; ++i) { // longer than the watchdog waits
        BOOST_TEST(uct_ep_check(ep, 0, nullptr) == UCS_OK);
        (void)domain.until([] { return false; }, 0.1);
    }
    BOOST_TEST(a.errors.empty());
    BOOST_TEST(waiting.sent == 0u);
    other.signal(SIGCONT);
    other.tell(Order::progress);
    BOOST_TEST(domain.until([&] { return waiting.sent == 1; }));
    BOOST_TEST(domain.until([&] { return other.tell(Order::count) == sent + 1; }));
    BOOST_TEST(a.errors.empty());
    a.flush(ep);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(cancelling_does_not_wait_for_the_peer, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport);
    std::vector<char> data(8000, 'x');
    Memory memory(domain, data.data(), data.size());
    Other other(transport);
    uct_ep_h ep = other.connect(a);
    (void)fill(domain, a, ep);
    uct_ep_destroy(ep); // and the channel stays as it is
    ep = other.connect(a);
    Done cancelled;
    // Acknowledgments of messages are missing, which is nothing that a flush waits for.
    BOOST_TEST(uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, &cancelled) == UCS_OK);
    uct_ep_destroy(ep);
    other.tell(Order::progress);
    ep = other.connect(a);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_OK; }));
    other.tell(Order::compute);
    a.flush(ep);
    // A zcopy message needs the peer's acknowledgment.
    Done sent;
    const uct_iov_t iov{data.data(), 4000, memory.handle, 0, 1};
    BOOST_REQUIRE(
        domain.until([&] { return uct_ep_am_zcopy(ep, kCounted, nullptr, 0, &iov, 1, 0, &sent) == UCS_INPROGRESS; }));
    const ucs_status_t status = uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, &cancelled);
    BOOST_TEST((status == UCS_OK || status == UCS_INPROGRESS));
    BOOST_TEST(domain.until([&] { return sent.fired && (status == UCS_OK || cancelled.fired); }));
    BOOST_TEST(a.errors.empty());
    uct_ep_destroy(ep);
    // The same peer again.
    const std::uint64_t before = other.tell(Order::progress);
    ep = other.connect(a);
    for (int i = 0; i < 10; ++i)
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kCounted, 0, nullptr, 0) == UCS_OK; }));
    BOOST_TEST(domain.until([&] { return other.tell(Order::count) >= before + 10; }));
    BOOST_TEST(a.errors.empty());
    a.flush(ep);
    uct_ep_destroy(ep);
}

// Its queue pairs tell over RC; over DC nothing but the watchdog's question does.
BOOST_DATA_TEST_CASE(a_peer_that_has_ended_its_channel_is_noticed, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, kImpatient), b(domain, transport, kImpatient);
    const auto ignore = [](void*, void*, std::size_t, unsigned) { return UCS_OK; };
    uct_iface_set_am_handler(a.iface, kCounted, ignore, nullptr, 0);
    uct_iface_set_am_handler(b.iface, kCounted, ignore, nullptr, 0);
    const uct_ep_h there = a.connect(b), back = b.connect(a);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(there, kCounted, 0, nullptr, 0) == UCS_OK; }));
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(back, kCounted, 0, nullptr, 0) == UCS_OK; }));
    a.flush(there);
    b.flush(back);
    (void)domain.until([] { return false; }, 0.1);
    BOOST_TEST(v2::invalidate(there, nullptr) == UCS_OK);
    failed_once(domain, a, there, UCS_ERR_CONNECTION_RESET);
    BOOST_REQUIRE(b.errors.empty());
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(back, kCounted, 0, nullptr, 0) == UCS_OK; }));
    failed_once(domain, b, back, UCS_ERR_CONNECTION_RESET, UCS_ERR_ENDPOINT_TIMEOUT);
    uct_ep_destroy(there);
    uct_ep_destroy(back);
}

BOOST_DATA_TEST_CASE(a_given_up_peer_gets_a_new_channel, each_transport, transport) {
    Domain domain(kBrief);
    Interface a(domain, transport, kImpatient), b(domain, transport, kImpatient);
    unsigned at_a = 0, at_b = 0;
    const auto count = [](void* arg, void*, std::size_t, unsigned) {
        ++*static_cast<unsigned*>(arg);
        return UCS_OK;
    };
    uct_iface_set_am_handler(a.iface, kCounted, count, &at_a, 0);
    uct_iface_set_am_handler(b.iface, kCounted, count, &at_b, 0);
    for (int round = 0; round < 5; ++round) {
        a.errors.clear();
        b.errors.clear();
        at_a = at_b = 0;
        const uct_ep_h there = a.connect(b), back = b.connect(a);
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(there, kCounted, 0, nullptr, 0) == UCS_OK; }));
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(back, kCounted, 0, nullptr, 0) == UCS_OK; }));
        BOOST_REQUIRE(domain.until([&] { return at_a == 1 && at_b == 1; }));
        BOOST_TEST(v2::invalidate(there, nullptr) == UCS_OK);
        failed_once(domain, a, there, UCS_ERR_CONNECTION_RESET);
        uct_ep_destroy(there);
        // A new endpoint to the same peer works; the peer's old one learns of it, and can be replaced, too.
        const uct_ep_h again = a.connect(b);
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(again, kCounted, 0, nullptr, 0) == UCS_OK; }));
        BOOST_TEST(domain.until([&] { return at_b == 2; }));
        failed_once(domain, b, back, UCS_ERR_CONNECTION_RESET);
        uct_ep_destroy(back);
        const uct_ep_h once_more = b.connect(a);
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(once_more, kCounted, 0, nullptr, 0) == UCS_OK; }));
        BOOST_TEST(domain.until([&] { return at_a == 2; }));
        BOOST_TEST(a.errors.size() == 1u);
        a.flush(again);
        b.flush(once_more);
        uct_ep_destroy(again);
        uct_ep_destroy(once_more);
    }
}
