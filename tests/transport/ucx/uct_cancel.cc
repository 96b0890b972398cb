// UCT_FLUSH_FLAG_CANCEL on one of two endpoints to the same peer: what it has started ends, whatever the peer does, and
// its memory is its own again; the other endpoint's operations are all done, once.
#define BOOST_TEST_MODULE transport_ucx_cancel
#include "fixture.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <memory>

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const auto each_transport = boost::unit_test::data::make(kTransports);
const auto each_order = boost::unit_test::data::make({false, true}); // is the cancelled endpoint the channel's first?

constexpr std::uint8_t kWord = 7, kText = 8;
constexpr std::size_t kTextBytes = 4000, kBig = 1 << 22;

struct Peer {
    Domain domain;
    Interface iface;
    std::vector<std::uint64_t> words; // in the order in which they have come
    std::vector<std::string> texts;
    std::vector<char> bytes = std::vector<char>(2 * kBig);
    Memory memory{domain, bytes.data(), bytes.size()};
    explicit Peer(const char* transport) : iface(domain, transport) {
        uct_iface_set_am_handler(
            iface.iface, kWord,
            [](void* arg, void* data, std::size_t, unsigned) {
                std::uint64_t word;
                std::memcpy(&word, data, sizeof word);
                static_cast<Peer*>(arg)->words.push_back(word);
                return UCS_OK;
            },
            this, 0);
        uct_iface_set_am_handler(
            iface.iface, kText,
            [](void* arg, void* data, std::size_t length, unsigned) {
                static_cast<Peer*>(arg)->texts.emplace_back(static_cast<char*>(data), length);
                return UCS_OK;
            },
            this, 0);
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset) {
        return reinterpret_cast<std::uint64_t>(bytes.data() + offset);
    }
};

// Memory of an endpoint's. end(): gone, and whoever still uses it finds out.
struct Own {
    char* data = static_cast<char*>(mmap(nullptr, kBig, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::unique_ptr<Memory> memory;
    Own(Domain& domain, char fill) {
        std::memset(data, fill, kBig);
        memory = std::make_unique<Memory>(domain, data, kBig);
    }
    ~Own() { munmap(data, kBig); }
    void end(char fill) {
        memory.reset();
        std::memset(data, fill, kBig);
    }
    [[nodiscard]] bool all(char c) const {
        return std::all_of(data, data + kBig, [c](char x) { return x == c; });
    }
    [[nodiscard]] uct_iov_t iov(std::size_t length) { return {data, length, memory->handle, 0, 1}; }
};

struct Counted : Done {
    unsigned times = 0;
    Counted() {
        func = [](uct_completion_t* self) { ++static_cast<Counted*>(self)->times; };
    }
};

struct Waiting : uct_pending_req_t {
    uct_ep_h ep;
    std::uint64_t word;
    bool sent = false, purged = false;
    Waiting(uct_ep_h to, std::uint64_t what) : uct_pending_req_t{}, ep(to), word(what) {
        func = [](uct_pending_req_t* base) {
            auto& self = *static_cast<Waiting*>(base);
            const ucs_status_t status = uct_ep_am_short(self.ep, kWord, self.word, nullptr, 0);
            self.sent = status == UCS_OK;
            return status;
        };
    }
};

struct Two {
    Domain domain;
    Interface iface;
    Peer peer;
    uct_ep_h first, second, cancelled, other;
    Two(const char* transport, bool cancel_first, const Options& options = {})
        : iface(domain, transport, options), peer(transport), first(iface.connect(peer.iface)),
          second(iface.connect(peer.iface)), cancelled(cancel_first ? first : second),
          other(cancel_first ? second : first) {
        BOOST_REQUIRE(until([&] { return uct_ep_am_short(first, kWord, 0, nullptr, 0) == UCS_OK; }));
        BOOST_REQUIRE(until([&] { return peer.words.size() == 1; }));
        BOOST_REQUIRE(until([&] { return uct_ep_flush(first, 0, nullptr) == UCS_OK; }));
        peer.words.clear();
    }
    ~Two() { uct_ep_destroy(other); }
    // Both sides make progress.
    bool until(const std::function<bool()>& condition, double seconds = 20) {
        return domain.until([&] { return uct_worker_progress(peer.domain.worker), condition(); }, seconds);
    }
    // Returns what is left to wait for.
    Done flushed;
    ucs_status_t cancel(uct_pending_purge_callback_t purge = nullptr) {
        if (purge) uct_ep_pending_purge(cancelled, purge, nullptr);
        return uct_ep_flush(cancelled, UCT_FLUSH_FLAG_CANCEL, &flushed);
    }
};

} // namespace

// The peer computes: it acknowledges no message, and answers nothing.
BOOST_DATA_TEST_CASE(while_the_peer_computes, each_transport* each_order, transport, cancel_first) {
    Two two(transport, cancel_first);
    Own mine(two.domain, 'm'), others(two.domain, 'o');
    const uct_iov_t from = mine.iov(kTextBytes), other_from = others.iov(kTextBytes);
    Counted sent, other_sent, fetched, own_flush;
    std::uint64_t result = 77;
    BOOST_REQUIRE(uct_ep_am_short(two.other, kWord, 1, nullptr, 0) == UCS_OK);
    BOOST_REQUIRE(uct_ep_am_zcopy(two.cancelled, kText, nullptr, 0, &from, 1, 0, &sent) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_am_zcopy(two.other, kText, nullptr, 0, &other_from, 1, 0, &other_sent) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_atomic64_fetch(two.cancelled, UCT_ATOMIC_OP_ADD, 5, &result, two.peer.address(0),
                                        two.peer.memory.key.rkey, &fetched) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_am_short(two.other, kWord, 2, nullptr, 0) == UCS_OK);
    BOOST_REQUIRE(uct_ep_flush(two.cancelled, 0, &own_flush) == UCS_INPROGRESS);
    // And the window is full, so that both have requests that wait.
    std::uint64_t next = 3;
    const auto fill = [&] {
        for (; uct_ep_am_short(two.other, kWord, next, nullptr, 0) == UCS_OK; ++next) {}
        return false;
    };
    (void)two.domain.until(fill, 0.2);
    Waiting gone(two.cancelled, 1000), stays(two.other, next);
    BOOST_REQUIRE(uct_ep_pending_add(two.cancelled, &gone, 0) == UCS_OK);
    BOOST_REQUIRE(uct_ep_pending_add(two.other, &stays, 0) == UCS_OK);
    BOOST_TEST(two.cancel() == UCS_INPROGRESS);
    BOOST_TEST(two.domain.until([&] { return two.flushed.fired; }, 5)); // only our side makes progress
    BOOST_TEST(two.flushed.status == UCS_ERR_CANCELED);
    for (const Counted* done : {&sent, &fetched, &own_flush}) {
        BOOST_TEST(done->times == 1u);
        BOOST_TEST(done->status == UCS_ERR_CANCELED);
    }
    BOOST_TEST(uct_ep_am_short(two.cancelled, kWord, 0, nullptr, 0) == UCS_ERR_CANCELED);
    uct_ep_pending_purge(
        two.cancelled, [](uct_pending_req_t* request, void*) { static_cast<Waiting*>(request)->purged = true; },
        nullptr);
    BOOST_TEST(gone.purged);
    BOOST_TEST(!gone.sent);
    uct_ep_destroy(two.cancelled);
    mine.end('x');
    // What is sent again now must not come from there.
    softhca("port down 0:softhca_0:1");
    const Restore restore{{"port up 0:softhca_0:1"}};
    BOOST_TEST(two.until([&] {
        return stays.sent && two.peer.words.size() == next && two.peer.texts.size() == 2 && other_sent.times == 1;
    }));
    BOOST_TEST(two.until([&] { return uct_ep_flush(two.other, 0, nullptr) == UCS_OK; }));
    BOOST_TEST(other_sent.status == UCS_OK);
    BOOST_REQUIRE(two.peer.words.size() == next);
    for (std::uint64_t i = 0; i < next; ++i) BOOST_TEST(two.peer.words[i] == i + 1);
    BOOST_TEST(two.peer.texts.at(0) == std::string(kTextBytes, 'm'));
    BOOST_TEST(two.peer.texts.at(1) == std::string(kTextBytes, 'o'));
    BOOST_TEST(result == 77u);
    BOOST_TEST(two.iface.errors.empty());
}

// It goes while its flush is under way: that ends at once, and once, as with rc_verbs. (UCP destroys its worker so, and
// would wait for the completion for good.) The other one's goes on.
BOOST_DATA_TEST_CASE(destroyed_before_its_flush_ends,
                     each_transport* each_order* boost::unit_test::data::make({false, true}), transport, cancel_first,
                     by_cancel) {
    Two two(transport, cancel_first);
    Own mine(two.domain, 'm');
    const uct_iov_t from = mine.iov(kTextBytes);
    Counted sent, own, again, others, nexts;
    BOOST_REQUIRE(uct_ep_am_zcopy(two.cancelled, kText, nullptr, 0, &from, 1, 0, &sent) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_am_short(two.other, kWord, 1, nullptr, 0) == UCS_OK);
    const unsigned flags = by_cancel ? UCT_FLUSH_FLAG_CANCEL : UCT_FLUSH_FLAG_LOCAL;
    BOOST_REQUIRE(uct_ep_flush(two.cancelled, 0, &own) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_flush(two.cancelled, flags, &again) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_flush(two.other, 0, &others) == UCS_INPROGRESS);
    // Who comes now may get the number of one that has cancelled.
    uct_ep_h next = two.iface.connect(two.peer.iface);
    BOOST_REQUIRE(uct_ep_am_short(next, kWord, 2, nullptr, 0) == UCS_OK);
    BOOST_REQUIRE(uct_ep_flush(next, 0, &nexts) == UCS_INPROGRESS);
    uct_ep_destroy(two.cancelled);
    for (const Counted* flush : {&own, &again}) {
        BOOST_TEST(flush->times == 1u);
        BOOST_TEST(flush->status == UCS_ERR_CANCELED);
    }
    BOOST_TEST(others.times + nexts.times == 0u);
    BOOST_TEST(two.until([&] { return others.times == 1 && nexts.times == 1; }));
    BOOST_TEST((others.status == UCS_OK && nexts.status == UCS_OK));
    BOOST_TEST(two.until([&] { return sent.times == 1; }));
    BOOST_TEST(own.times + again.times == 2u);
    uct_ep_destroy(next);
    BOOST_TEST(two.iface.errors.empty());
}

// Likewise one that has its channel for itself.
BOOST_DATA_TEST_CASE(the_only_one_is_destroyed, each_transport* boost::unit_test::data::make({false, true}), transport,
                     by_cancel) {
    Counted flushed; // outlives the interface
    {
        Domain domain;
        Interface iface(domain, transport);
        Peer peer(transport);
        uct_ep_h ep = iface.connect(peer.iface);
        BOOST_REQUIRE(domain.until([&] {
            return uct_worker_progress(peer.domain.worker), uct_ep_am_short(ep, kWord, 0, nullptr, 0) == UCS_OK;
        }));
        const unsigned flags = by_cancel ? UCT_FLUSH_FLAG_CANCEL : UCT_FLUSH_FLAG_LOCAL;
        BOOST_REQUIRE(uct_ep_flush(ep, flags, &flushed) == UCS_INPROGRESS);
        uct_ep_destroy(ep);
        BOOST_TEST(flushed.times == 1u);
        BOOST_TEST(flushed.status == UCS_ERR_CANCELED);
        (void)domain.until([&] { return uct_worker_progress(peer.domain.worker), false; }, 0.1);
    }
    BOOST_TEST(flushed.times == 1u);
}

// Nothing comes through: neither what is posted nor the answers to recovery.
BOOST_DATA_TEST_CASE(while_nothing_comes_through, each_transport* each_order, transport, cancel_first) {
    Two two(transport, cancel_first);
    Own source(two.domain, 's'), target(two.domain, 't'), others(two.domain, 'o');
    std::fill(two.peer.bytes.begin(), two.peer.bytes.end(), 'p');
    const Restore restore{{"fault drop 0% all"}};
    softhca("fault drop 100% all");
    const uct_iov_t from = source.iov(kBig), to = target.iov(kBig), other_from = others.iov(kBig);
    Counted put, get, other_put;
    const uct_rkey_t key = two.peer.memory.key.rkey;
    BOOST_REQUIRE(uct_ep_put_zcopy(two.cancelled, &from, 1, two.peer.address(0), key, &put) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_put_zcopy(two.other, &other_from, 1, two.peer.address(kBig), key, &other_put) ==
                  UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_get_zcopy(two.cancelled, &to, 1, two.peer.address(0), key, &get) == UCS_INPROGRESS);
    const uct_iov_t text = source.iov(kTextBytes);
    Counted sent;
    BOOST_REQUIRE(uct_ep_am_zcopy(two.cancelled, kText, nullptr, 0, &text, 1, 0, &sent) == UCS_INPROGRESS);
    BOOST_TEST(two.cancel() == UCS_INPROGRESS);
    BOOST_TEST(two.until([&] { return two.flushed.fired; }, 5));
    BOOST_TEST(two.flushed.status == UCS_ERR_CANCELED);
    for (const Counted* done : {&put, &get, &sent}) {
        BOOST_TEST(done->times == 1u);
        BOOST_TEST(done->status == UCS_ERR_CANCELED);
    }
    uct_ep_destroy(two.cancelled);
    source.end('x');
    target.end('y');
    BOOST_TEST(other_put.times == 0u);
    softhca("fault drop 0% all");
    BOOST_REQUIRE(two.until([&] { return uct_ep_am_short(two.other, kWord, 1, nullptr, 0) == UCS_OK; }));
    BOOST_TEST(two.until([&] { return other_put.times == 1 && two.peer.words.size() == 1; }));
    BOOST_TEST(two.until([&] { return uct_ep_flush(two.other, 0, nullptr) == UCS_OK; }));
    BOOST_TEST(other_put.status == UCS_OK);
    BOOST_TEST(std::all_of(two.peer.bytes.begin() + kBig, two.peer.bytes.end(), [](char c) { return c == 'o'; }));
    BOOST_TEST(std::none_of(two.peer.bytes.begin(), two.peer.bytes.begin() + kBig, [](char c) { return c == 'x'; }));
    BOOST_TEST(target.all('y'));
    BOOST_REQUIRE(two.peer.texts.size() == 1u); // before the word: it has kept its number
    BOOST_TEST(two.peer.texts[0] == std::string(kTextBytes, 's'));
    BOOST_TEST(two.iface.errors.empty());
}

// In the middle of everything, round after round, with endpoints that come and go.
BOOST_DATA_TEST_CASE(under_load, each_transport* each_order, transport, cancel_first) {
    Two two(transport, cancel_first);
    Own others(two.domain, 'o');
    const uct_rkey_t key = two.peer.memory.key.rkey;
    std::uint64_t word = 0;
    for (unsigned round = 0; round < 20; ++round) {
        Own mine(two.domain, 'm');
        const uct_iov_t from = mine.iov(kBig), text = mine.iov(kTextBytes), other_from = others.iov(kBig);
        std::fill(two.peer.bytes.begin() + kBig, two.peer.bytes.end(), 'p');
        std::vector<std::unique_ptr<Counted>> open;
        Counted other_put;
        bool other_posted = false;
        for (unsigned i = 0; i < 12; ++i) {
            auto done = std::make_unique<Counted>();
            const ucs_status_t status =
                i % 3 == 0   ? uct_ep_put_zcopy(two.cancelled, &from, 1, two.peer.address(0), key, done.get())
                : i % 3 == 1 ? uct_ep_get_zcopy(two.cancelled, &from, 1, two.peer.address(0), key, done.get())
                             : uct_ep_am_zcopy(two.cancelled, kText, nullptr, 0, &text, 1, 0, done.get());
            if (status == UCS_INPROGRESS) open.push_back(std::move(done));
            if (!other_posted)
                other_posted = uct_ep_put_zcopy(two.other, &other_from, 1, two.peer.address(kBig), key, &other_put) ==
                               UCS_INPROGRESS;
            word += uct_ep_am_short(two.other, kWord, word, nullptr, 0) == UCS_OK;
            for (unsigned turn = 0; turn < round; ++turn) uct_worker_progress(two.domain.worker);
        }
        Done flushed;
        const ucs_status_t status = uct_ep_flush(two.cancelled, UCT_FLUSH_FLAG_CANCEL, &flushed);
        BOOST_TEST((status == UCS_OK || status == UCS_INPROGRESS));
        if (status == UCS_INPROGRESS) BOOST_TEST(two.until([&] { return flushed.fired; }, 5));
        for (const auto& done : open) BOOST_TEST(done->times == 1u);
        uct_ep_destroy(two.cancelled);
        mine.end('x');
        if (other_posted) {
            BOOST_TEST(two.until([&] { return other_put.times == 1; }));
            BOOST_TEST(other_put.status == UCS_OK);
        }
        BOOST_TEST(
            two.until([&] { return uct_ep_flush(two.other, 0, nullptr) == UCS_OK && two.peer.words.size() == word; }));
        if (other_posted)
            BOOST_TEST(
                std::all_of(two.peer.bytes.begin() + kBig, two.peer.bytes.end(), [](char c) { return c == 'o'; }));
        two.cancelled = two.iface.connect(two.peer.iface);
    }
    uct_ep_destroy(two.cancelled);
    BOOST_REQUIRE(two.peer.words.size() == word);
    for (std::uint64_t i = 0; i < word; ++i) BOOST_TEST(two.peer.words[i] == i);
    for (const std::string& text : two.peer.texts) // the peer's bytes, if it was read before it was written
        BOOST_TEST(std::none_of(text.begin(), text.end(), [](char c) { return c == 'x'; }));
    BOOST_TEST(two.iface.errors.empty());
}
