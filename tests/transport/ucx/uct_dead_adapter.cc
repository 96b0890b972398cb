// An adapter that is dead when a memory domain or an interface opens: that is said, the others carry the traffic, and
// it joins when it is there again.
#define BOOST_TEST_MODULE transport_ucx_dead_adapter
#include "ears.h"
#include "fixture.h"
#include "uct_mp/api/uct_mp.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/test/data/test_case.hpp>

using namespace uct_test;

namespace {

const char* const kTransports[] = {"mp_rc", "mp_dc"};
const char* const kAdapters[] = {"softhca_0", "softhca_1"}; // the first is the one that others stand behind
const auto each = boost::unit_test::data::make(kTransports) * boost::unit_test::data::make(kAdapters);

// Paths that are up.
unsigned paths(uct_ep_h ep) {
    uct_mp_path_t all[32];
    unsigned count = 32, up = 0;
    if (uct_mp_ep_query_paths(ep, all, sizeof all[0], &count) != UCS_OK) return 0;
    for (unsigned i = 0; i < std::min(count, 32u); ++i) up += all[i].state == 0;
    return up;
}

// No paths of RC that come on demand.
Options options(const std::string& transport) { return transport == "mp_dc" ? Options{{"ADAPT", "off"}} : Options{}; }

void writes(Domain& domain, Interface& from, uct_ep_h ep) {
    constexpr std::size_t kBytes = 1 << 20;
    std::vector<char> here(kBytes), there(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) here[i] = char(i * 7 + i / 4096);
    Memory source(domain, here.data(), kBytes), target(domain, there.data(), kBytes);
    uct_iov_t iov{here.data(), kBytes, source.handle, 0, 1};
    Done done;
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    BOOST_REQUIRE(domain.until([&] {
        status = uct_ep_put_zcopy(ep, &iov, 1, reinterpret_cast<std::uint64_t>(there.data()), target.key.rkey, &done);
        return status != UCS_ERR_NO_RESOURCE;
    }));
    if (status == UCS_INPROGRESS) BOOST_REQUIRE(domain.until([&] { return done.fired; }));
    from.flush(ep);
    BOOST_TEST((here == there));
}

// Both interfaces are on the node whose adapter is dead.
void runs_without_and_with(Domain& domain, const char* transport, const std::string& adapter, unsigned all) {
    Interface a(domain, transport, options(transport)), b(domain, transport, options(transport));
    BOOST_TEST(Ears::lines_with(adapter + " is dead: this process runs on 1 of 2 adapters") == 1);
    const uct_ep_h ep = a.connect(b), back = b.connect(a);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, 7, 0, nullptr, 0) == UCS_OK; }));
    writes(domain, a, ep);
    BOOST_TEST(paths(ep) == all / 2);
    softhca("fault adapter-revive 0:" + adapter);
    BOOST_TEST(domain.until([&] { return paths(ep) >= all; }));                                   // with a spare one
    BOOST_TEST(domain.until([&] { return Ears::lines_with(adapter + " is there again") == 1; })); // of both interfaces
    writes(domain, a, ep);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(back, 7, 0, nullptr, 0) == UCS_OK; }));
    writes(domain, b, back);
    BOOST_TEST(a.errors.empty());
    BOOST_TEST(b.errors.empty());
    uct_ep_destroy(back);
    uct_ep_destroy(ep);
}

unsigned all_paths(const char* transport) {
    Domain domain;
    Interface a(domain, transport, options(transport)), b(domain, transport, options(transport));
    const uct_ep_h ep = a.connect(b);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, 7, 0, nullptr, 0) == UCS_OK; }));
    const unsigned count = paths(ep);
    uct_ep_destroy(ep);
    return count;
}

} // namespace

BOOST_DATA_TEST_CASE(dies_before_an_interface_opens, each, transport, adapter) {
    const unsigned all = all_paths(transport);
    const Restore restore{{std::string("fault adapter-revive 0:") + adapter}};
    const Ears ears(UCS_LOG_LEVEL_WARN);
    Domain domain;
    softhca(std::string("fault adapter-death 0:") + adapter);
    runs_without_and_with(domain, transport, adapter, all);
}

// Keys have room for it from the beginning.
BOOST_DATA_TEST_CASE(is_dead_before_anything_opens, each, transport, adapter) {
    const unsigned all = all_paths(transport);
    const auto key_bytes = [](Domain& domain) {
        uct_md_attr_t attributes{};
        BOOST_REQUIRE(uct_md_query(domain.md, &attributes) == UCS_OK);
        return attributes.rkey_packed_size;
    };
    const std::size_t bytes = [&] {
        Domain domain;
        return key_bytes(domain);
    }();
    const Restore restore{{std::string("fault adapter-revive 0:") + adapter}};
    softhca(std::string("fault adapter-death 0:") + adapter);
    const Ears ears(UCS_LOG_LEVEL_WARN);
    Domain domain;
    BOOST_TEST(key_bytes(domain) == bytes);
    runs_without_and_with(domain, transport, adapter, all);
}

// An adapter that has few queue pairs left: mp_dc goes on with what could be made, and says so.
BOOST_AUTO_TEST_CASE(few_queue_pairs) {
    const Restore restore{{"fault queue-pair-limit none 0:softhca_0", "fault queue-pair-limit none 0:softhca_1"}};
    const Ears ears(UCS_LOG_LEVEL_WARN);
    Domain domain;
    for (const std::string adapter : {"softhca_0", "softhca_1"}) softhca("fault queue-pair-limit 6 0:" + adapter);
    Interface a(domain, "mp_dc");
    BOOST_TEST(Ears::lines_with("goes on with 4") == 1);
    const uct_ep_h ep = a.connect(a);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, 7, 0, nullptr, 0) == UCS_OK; }));
    writes(domain, a, ep);
    BOOST_TEST(a.errors.empty());
    uct_ep_destroy(ep);
}
