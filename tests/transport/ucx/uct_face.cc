// What UCX expects of a transport beside moving bytes: pending requests, kept messages, wake-up, errors, options.
#define BOOST_TEST_MODULE transport_ucx_face
#include "fixture.h"

#include <poll.h>

#include <boost/test/data/test_case.hpp>

#include "uct_mp/api/uct_mp.h"

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const auto each_transport = boost::unit_test::data::make(kTransports);

struct Inbox {
    struct Kept {
        void* descriptor;
        std::uint64_t value;
    };
    bool keep = false;
    std::vector<std::uint64_t> values;
    std::vector<Kept> kept;

    static ucs_status_t take(void* arg, void* data, std::size_t length, unsigned flags) {
        auto& self = *static_cast<Inbox*>(arg);
        BOOST_REQUIRE(length >= sizeof(std::uint64_t));
        std::uint64_t value = 0;
        std::memcpy(&value, data, sizeof value);
        self.values.push_back(value);
        if (!self.keep || !(flags & UCT_CB_PARAM_FLAG_DESC)) return UCS_OK;
        char* const start = static_cast<char*>(data) - kHeadroom;
        std::memset(start, 0x5a, kHeadroom); // a keeper may use all of it
        self.kept.push_back({start, value});
        return UCS_INPROGRESS;
    }
};

constexpr std::uint8_t kId = 5;

std::size_t pack_value(void* out, void* arg) {
    std::memcpy(out, arg, sizeof(std::uint64_t));
    std::memset(static_cast<char*>(out) + sizeof(std::uint64_t), 0x77, 1000);
    return sizeof(std::uint64_t) + 1000;
}

} // namespace

BOOST_DATA_TEST_CASE(attributes, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport);
    BOOST_TEST(a.attr.iface_addr_len <= 63u);
    BOOST_TEST(a.attr.device_addr_len <= 31u);
    const std::uint64_t wanted = UCT_IFACE_FLAG_CONNECT_TO_IFACE | UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_CB_SYNC |
                                 UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY |
                                 UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE;
    BOOST_TEST((a.attr.cap.flags & wanted) == wanted);
    BOOST_TEST(a.attr.cap.event_flags & UCT_IFACE_FLAG_EVENT_FD);
    BOOST_TEST(a.attr.bandwidth.dedicated + a.attr.bandwidth.shared > 1e8);
    BOOST_TEST(a.attr.cap.am.max_bcopy == 8192u + 64);
}

BOOST_DATA_TEST_CASE(hints_and_paths, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    Inbox inbox;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    const uct_ep_h ep = a.connect(b);
    unsigned count = 0;
    BOOST_TEST(uct_mp_iface_query_adapters(a.iface, &count) == UCS_OK);
    BOOST_TEST(count == 2u);
    BOOST_TEST(uct_mp_iface_query_adapters(nullptr, &count) == UCS_ERR_UNSUPPORTED);
    BOOST_TEST(uct_mp_iface_query_adapters(a.iface, nullptr) == UCS_ERR_INVALID_PARAM);
    count = 0;
    BOOST_TEST(uct_mp_ep_query_paths(ep, nullptr, 0, &count) == UCS_OK);
    BOOST_TEST(count == 0u); // not connected before the first operation
    BOOST_TEST(uct_mp_ep_set_hint(ep, UCT_MP_HINT_COLLECTIVE) == UCS_OK);
    BOOST_TEST(uct_mp_ep_set_hint(ep, static_cast<uct_mp_hint_t>(17)) == UCS_ERR_INVALID_PARAM);
    const std::uint64_t value = 5;
    BOOST_REQUIRE(
        domain.until([&] { return uct_ep_am_bcopy(ep, kId, pack_value, const_cast<std::uint64_t*>(&value), 0) >= 0; }));
    BOOST_REQUIRE(domain.until([&] { return inbox.values.size() == 1; }));
    a.flush(ep); // bytes count when they are known to have gone
    uct_mp_path_t paths[8];
    count = 8;
    BOOST_TEST(uct_mp_ep_query_paths(ep, paths, sizeof paths[0], &count) == UCS_OK);
    BOOST_REQUIRE(count == (transport == std::string("mp_dc") ? 4u : 2u)); // each with a place for RC beside it
    std::uint64_t written = 0;
    unsigned of_first = 0;
    for (unsigned i = 0; i < count; ++i) {
        written += paths[i].written;
        of_first += paths[i].local_rail == std::string("softhca_0:1");
    }
    BOOST_TEST(of_first == count / 2);
    BOOST_TEST(written >= 8u);
    a.flush(ep);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(kept_messages, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    Inbox inbox;
    inbox.keep = true;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    const uct_ep_h ep = a.connect(b);
    constexpr std::uint64_t kMessages = 40;
    for (std::uint64_t i = 0; i < kMessages; ++i)
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_bcopy(ep, kId, pack_value, &i, 0) >= 0; }));
    BOOST_REQUIRE(domain.until([&] { return inbox.values.size() == kMessages; }));
    BOOST_TEST(inbox.kept.size() > 0u);
    for (const auto& kept : inbox.kept) {
        std::uint64_t value = 0;
        std::memcpy(&value, static_cast<char*>(kept.descriptor) + kHeadroom, sizeof value);
        BOOST_TEST(value == kept.value);
        uct_iface_release_desc(kept.descriptor);
    }
    a.flush(ep);
    uct_ep_destroy(ep);
}

namespace {

struct Request : uct_pending_req_t {
    uct_ep_h ep;
    std::uint64_t value;
    bool sent = false, purged = false;
    static ucs_status_t send(uct_pending_req_t* base) {
        auto& self = *static_cast<Request*>(base);
        const ucs_status_t status = uct_ep_am_short(self.ep, kId, self.value, nullptr, 0);
        if (status == UCS_OK) self.sent = true;
        return status;
    }
    Request(uct_ep_h ep, std::uint64_t value) : uct_pending_req_t{}, ep(ep), value(value) { func = send; }
};

} // namespace

// Memory of no bytes cannot be registered, so it has no key.
BOOST_DATA_TEST_CASE(nothing_needs_no_key, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    const uct_ep_h ep = a.connect(b);
    Inbox inbox;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    const auto pack_nothing = [](void*, void*) -> std::size_t { return 0; };
    const uct_iov_t nothing{nullptr, 0, UCT_MEM_HANDLE_NULL, 0, 1}, none_of_8{nullptr, 8, UCT_MEM_HANDLE_NULL, 8, 0};
    const auto unpack = [](void*, const void*, std::size_t) {};
    for (const bool connected : {false, true}) {
        BOOST_TEST(uct_ep_put_short(ep, nullptr, 0, 0, UCT_INVALID_RKEY) == UCS_OK);
        BOOST_TEST(uct_ep_put_short(ep, nullptr, 0, 0, 0) == UCS_OK);
        BOOST_TEST(uct_ep_put_bcopy(ep, pack_nothing, nullptr, 0, UCT_INVALID_RKEY) == 0);
        for (const uct_iov_t* iov : {&nothing, &none_of_8}) {
            BOOST_TEST(uct_ep_put_zcopy(ep, iov, 1, 0, UCT_INVALID_RKEY, nullptr) == UCS_OK);
            BOOST_TEST(uct_ep_get_zcopy(ep, iov, 1, 0, UCT_INVALID_RKEY, nullptr) == UCS_OK);
        }
        BOOST_TEST(uct_ep_get_bcopy(ep, unpack, nullptr, 0, 0, UCT_INVALID_RKEY, nullptr) == UCS_OK);
        BOOST_TEST(uct_ep_get_bcopy(ep, unpack, nullptr, 8, 0, UCT_INVALID_RKEY, nullptr) == UCS_ERR_INVALID_PARAM);
        if (!connected) BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kId, 0, nullptr, 0) == UCS_OK; }));
    }
    a.flush(ep);
    uct_ep_destroy(ep);
}

// Entries of several elements: count and stride of uct_iov_t. Also by an endpoint that is not the first of its channel.
BOOST_DATA_TEST_CASE(strided_memory, each_transport* boost::unit_test::data::make({false, true}), transport, second) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    const uct_ep_h first = a.connect(b), other = a.connect(b), ep = second ? other : first;
    std::vector<char> here(4096), there(4096), back(4096);
    for (std::size_t i = 0; i < here.size(); ++i) here[i] = char(i * 7 + i / 256);
    Memory source(domain, here.data(), here.size()), target(domain, there.data(), there.size()),
        result(domain, back.data(), back.size());
    const uct_iov_t from[] = {{here.data() + 100, 10, source.handle, 64, 3},   // three of 10, 64 apart
                              {here.data() + 1000, 20, source.handle, 20, 50}, // one behind the other
                              {here.data() + 3000, 99, source.handle, 99, 0},  // none
                              {here.data() + 3500, 33, source.handle, 0, 1}};
    std::string wanted;
    for (unsigned i = 0; i < 3; ++i) wanted.append(here.data() + 100 + 64 * i, 10);
    wanted.append(here.data() + 1000, 1000).append(here.data() + 3500, 33);
    struct Seen {
        std::string text;
        static ucs_status_t take(void* arg, void* data, std::size_t length, unsigned) {
            static_cast<Seen*>(arg)->text.assign(static_cast<char*>(data), length);
            return UCS_OK;
        }
    } seen;
    uct_iface_set_am_handler(b.iface, kId, Seen::take, &seen, 0);
    const auto done = [&](const auto& call) {
        Done completion;
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        BOOST_REQUIRE(domain.until([&] { return (status = call(&completion)) != UCS_ERR_NO_RESOURCE; }));
        BOOST_REQUIRE((status == UCS_OK || status == UCS_INPROGRESS));
        if (status == UCS_INPROGRESS) BOOST_REQUIRE(domain.until([&] { return completion.fired; }));
        a.flush(ep);
    };
    done([&](Done* c) { return uct_ep_put_zcopy(ep, from, 4, std::uint64_t(there.data()), target.key.rkey, c); });
    BOOST_TEST(std::string(there.data(), wanted.size()) == wanted);
    BOOST_TEST(there[wanted.size()] == 0);
    done([&](Done* c) { return uct_ep_am_zcopy(ep, kId, nullptr, 0, from, 4, 0, c); });
    BOOST_TEST(domain.until([&] { return seen.text == wanted; }));
    const uct_iov_t to{back.data(), 10, result.handle, 100, 3};
    done([&](Done* c) { return uct_ep_get_zcopy(ep, &to, 1, std::uint64_t(there.data()), target.key.rkey, c); });
    for (unsigned i = 0; i < 3; ++i)
        BOOST_TEST(std::memcmp(back.data() + 100 * i, here.data() + 100 + 64 * i, 10) == 0);
    BOOST_TEST(back[10] == 0);
    // More pieces than an operation may have.
    static unsigned errors;
    errors = 0;
    ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t level,
                            const ucs_log_component_config_t*, const char*, va_list) {
        errors += level == UCS_LOG_LEVEL_ERROR;
        return UCS_LOG_FUNC_RC_STOP;
    });
    const uct_iov_t many{here.data(), 1, source.handle, 2, unsigned(a.attr.cap.put.max_iov) + 1};
    BOOST_TEST(uct_ep_put_zcopy(ep, &many, 1, std::uint64_t(there.data()), target.key.rkey, nullptr) ==
               UCS_ERR_INVALID_PARAM);
    ucs_log_pop_handler();
    BOOST_TEST(errors == 1u);
    uct_ep_destroy(first);
    uct_ep_destroy(other);
}

// UCT does not ask that an operation has been refused before.
BOOST_DATA_TEST_CASE(a_waiting_request_asks_for_a_connection, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    Inbox inbox;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    const uct_ep_h ep = a.connect(b), to_itself = b.connect(b);
    Request request(ep, 7), second(to_itself, 8);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &request, 0) == UCS_OK);
    BOOST_TEST(domain.until([&] { return request.sent; }));
    const ucs_status_t status = uct_ep_pending_add(to_itself, &second, 0);
    BOOST_TEST((status == UCS_ERR_BUSY || domain.until([&] { return second.sent; })));
    BOOST_TEST((second.sent || uct_ep_am_short(to_itself, kId, 8, nullptr, 0) == UCS_OK));
    BOOST_TEST(domain.until([&] { return inbox.values.size() == 2; }));
    a.flush(ep);
    b.flush(to_itself);
    uct_ep_destroy(ep);
    uct_ep_destroy(to_itself);
}

BOOST_DATA_TEST_CASE(pending_requests_keep_their_order, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    Inbox inbox;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    const uct_ep_h ep = a.connect(b), other = a.connect(b); // both on one channel
    std::uint64_t next = 0;
    for (int round = 0; round < 3; ++round) {
        ucs_status_t status = UCS_OK; // round 0: not even connected
        while ((status = uct_ep_am_short(ep, kId, next, nullptr, 0)) == UCS_OK) ++next;
        BOOST_REQUIRE(status == UCS_ERR_NO_RESOURCE);
        Request first(ep, next), second(other, next + 1), third(ep, next + 2), purged(other, 1000000);
        BOOST_REQUIRE(uct_ep_pending_add(ep, &first, 0) == UCS_OK);
        BOOST_REQUIRE(uct_ep_pending_add(other, &second, 0) == UCS_OK);
        BOOST_TEST(uct_ep_am_short(ep, kId, 2000000, nullptr, 0) == UCS_ERR_NO_RESOURCE);
        // Purging one endpoint leaves the other's requests where they are.
        BOOST_REQUIRE(uct_ep_pending_add(other, &purged, 0) == UCS_OK);
        std::vector<uct_pending_req_t*> taken;
        uct_ep_pending_purge(
            other,
            [](uct_pending_req_t* request, void* arg) {
                static_cast<std::vector<uct_pending_req_t*>*>(arg)->push_back(request);
            },
            &taken);
        BOOST_REQUIRE(taken.size() == 2u);
        BOOST_TEST(taken[0] == &second);
        BOOST_TEST(taken[1] == &purged);
        BOOST_REQUIRE(uct_ep_pending_add(other, &second, 0) == UCS_OK);
        BOOST_REQUIRE(uct_ep_pending_add(ep, &third, 0) == UCS_OK);
        BOOST_REQUIRE(domain.until([&] { return first.sent && second.sent && third.sent; }));
        next += 3;
    }
    BOOST_REQUIRE(domain.until([&] { return inbox.values.size() == next; }));
    for (std::uint64_t i = 0; i < next; ++i) BOOST_REQUIRE(inbox.values[i] == i);
    a.flush(ep);
    Request idle(ep, 0);
    BOOST_TEST(uct_ep_pending_add(ep, &idle, 0) == UCS_ERR_BUSY);
    uct_ep_destroy(other);
    uct_ep_destroy(ep);
}

// UCP takes a worker for flushed if its interfaces are, and asks nobody for what waits there. Nothing else is under way
// here, as in a partition.
BOOST_DATA_TEST_CASE(a_flush_covers_pending_requests, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    Inbox inbox;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    const uct_ep_h ep = a.connect(b);
    BOOST_REQUIRE(uct_ep_am_short(ep, kId, 0, nullptr, 0) == UCS_ERR_NO_RESOURCE);
    Request waiting(ep, 0);
    struct Flush : uct_pending_req_t {
        uct_ep_h ep;
        ucs_status_t status;
        static ucs_status_t again(uct_pending_req_t* base) {
            auto& self = *static_cast<Flush*>(base);
            self.status = uct_ep_flush(self.ep, 0, nullptr);
            return self.status == UCS_ERR_NO_RESOURCE ? self.status : UCS_OK;
        }
    } flush{};
    flush.func = Flush::again;
    flush.ep = ep;
    flush.status = UCS_ERR_NO_RESOURCE;
    BOOST_REQUIRE(uct_ep_pending_add(ep, &waiting, 0) == UCS_OK);
    BOOST_TEST(uct_iface_flush(a.iface, 0, nullptr) == UCS_INPROGRESS);
    BOOST_REQUIRE(uct_ep_flush(ep, 0, nullptr) == UCS_ERR_NO_RESOURCE);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &flush, 0) == UCS_OK);
    // It gets its turn while others wait behind it.
    Request behind(ep, 1);
    BOOST_REQUIRE(uct_ep_pending_add(ep, &behind, 0) == UCS_OK);
    BOOST_REQUIRE(domain.until([&] { return behind.sent; }));
    BOOST_TEST(waiting.sent);
    BOOST_TEST((flush.status == UCS_OK || flush.status == UCS_INPROGRESS));
    BOOST_REQUIRE(domain.until([&] { return uct_iface_flush(a.iface, 0, nullptr) == UCS_OK; }));
    BOOST_REQUIRE(domain.until([&] { return inbox.values.size() == 2; }));
    a.flush(ep);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(wakes_up, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    Inbox inbox;
    uct_iface_set_am_handler(b.iface, kId, Inbox::take, &inbox, 0);
    int fd = -1;
    BOOST_REQUIRE(uct_iface_event_fd_get(b.iface, &fd) == UCS_OK);
    const uct_ep_h ep = a.connect(b);
    for (std::uint64_t i = 0; i < 5; ++i) {
        // The first message wakes up for the handshake, too.
        const auto sleep = [&] {
            const double end = Domain::now() + 20;
            while (inbox.values.size() == i && Domain::now() < end) {
                const ucs_status_t status = uct_iface_event_arm(b.iface, UCT_EVENT_RECV | UCT_EVENT_SEND_COMP);
                if (status == UCS_OK) {
                    pollfd poll{fd, POLLIN, 0};
                    ::poll(&poll, 1, 20);
                } else {
                    BOOST_REQUIRE(status == UCS_ERR_BUSY);
                }
                uct_worker_progress(domain.worker);
            }
        };
        BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, kId, i, nullptr, 0) == UCS_OK; }));
        sleep();
        BOOST_REQUIRE(inbox.values.size() == i + 1);
        BOOST_TEST(inbox.values.back() == i);
    }
    // Nothing to do: asleep until the next timer at most, and awake by a message.
    a.flush(ep);
    BOOST_REQUIRE(domain.until([&] { return uct_iface_event_arm(b.iface, UCT_EVENT_RECV) == UCS_OK; }));
    BOOST_REQUIRE(uct_ep_am_short(ep, kId, 99, nullptr, 0) == UCS_OK);
    pollfd poll{fd, POLLIN, 0};
    BOOST_TEST(::poll(&poll, 1, 5000) == 1);
    BOOST_REQUIRE(domain.until([&] { return inbox.values.back() == 99; }));
    a.flush(ep);
    uct_ep_destroy(ep);
}

BOOST_DATA_TEST_CASE(a_failed_peer_is_told_to_every_endpoint, each_transport, transport) {
    Domain domain;
    Interface a(domain, transport), b(domain, transport);
    const uct_ep_h ep = a.connect(b), other = a.connect(b);
    alignas(64) char buffer[4096] = {};
    Memory memory(domain, buffer, sizeof buffer);
    BOOST_REQUIRE(domain.until([&] {
        return uct_ep_put_short(ep, "x", 1, reinterpret_cast<std::uint64_t>(buffer), memory.key.rkey) == UCS_OK;
    }));
    a.flush(ep);
    // Outside of the region: the adapter refuses, the queue pair ends.
    BOOST_REQUIRE(domain.until([&] {
        return uct_ep_put_short(ep, "x", 1, reinterpret_cast<std::uint64_t>(buffer) + (1 << 24), memory.key.rkey) ==
               UCS_OK;
    }));
    BOOST_REQUIRE(domain.until([&] { return a.errors.size() == 2; }));
    BOOST_TEST(a.errors[0].first != a.errors[1].first);
    BOOST_TEST(a.errors[0].second < 0);
    BOOST_TEST(uct_ep_am_short(ep, kId, 0, nullptr, 0) < 0);
    BOOST_TEST(uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, nullptr) == UCS_OK);
    uct_ep_destroy(ep);
    uct_ep_destroy(other);
}

BOOST_AUTO_TEST_CASE(impossible_options_are_refused) {
    Domain domain;
    const Options wrong[] = {{{"TX_WINDOW", "15"}}, {{"SEG_SIZE", "16"}},       {{"SL", "16"}},
                             {{"TIMEOUT", "1ns"}},  {{"RETRY_COUNT", "8"}},     {{"TX_SIGNAL_INTERVAL", "0"}},
                             {{"POLL_BATCH", "0"}}, {{"RX_QUEUE_LEN", "auto"}}, {{"RNR_TIMEOUT", "1s"}}};
    ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                            const char*, va_list) { return UCS_LOG_FUNC_RC_STOP; });
    for (const Options& options : wrong) {
        if (std::string(options[0].second) == "auto") continue; // refused by UCX's own parser
        uct_iface_h iface = nullptr;
        BOOST_TEST(Interface::open(domain, "mp_rc", options, nullptr, &iface) == UCS_ERR_INVALID_PARAM,
                   options[0].first);
    }
    for (const Options& options : {Options{{"POLICY", "nonsense"}},
                                   {{"NUM_PATHS", "0"}},
                                   {{"RAILS", "nonsense"}},
                                   {{"POLICY", "bss:n_batch=9"}, {"RAILS", "softhca_0:1,softhca_1:1"}},
                                   {{"POLICY", "weighted:weights=1,2,3"}, {"RAILS", "softhca_0:1,softhca_1:1"}}}) {
        uct_md_h md = nullptr;
        BOOST_TEST(open_md(options, &md) == UCS_ERR_INVALID_PARAM, options[0].first);
    }
    // A host may have fewer ports than others.
    for (const Options& options : {Options{{"POLICY", "bss:n_batch=9"}}, {{"POLICY", "weighted:weights=1,2,3"}}}) {
        uct_md_h md = nullptr;
        BOOST_TEST(open_md(options, &md) == UCS_OK, options[0].second);
        if (md) uct_md_close(md);
    }
    ucs_log_pop_handler();
}
