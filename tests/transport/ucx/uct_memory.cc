// Registered memory: the cache, keys, invalidation.
#define BOOST_TEST_MODULE transport_ucx_memory
#include "fixture.h"

#include <sys/mman.h>

#include <boost/test/data/test_case.hpp>

using namespace uct_test;

namespace {

std::uint64_t at(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

// Writes `text` by a key and waits until it is there.
void put(Domain& domain, Interface& from, uct_ep_h ep, const char* text, char* to, uct_rkey_t key) {
    BOOST_REQUIRE(domain.until(
        [&] { return uct_ep_put_short(ep, text, unsigned(std::strlen(text) + 1), at(to), key) == UCS_OK; }));
    from.flush(ep);
    BOOST_TEST(std::string(to) == text);
}

} // namespace

BOOST_AUTO_TEST_CASE(reads_and_writes_large_and_small) {
    for (const char* cache : {"yes", "no"}) {
        Domain domain(Options{{"RCACHE", cache}});
        Interface a(domain, "mp_rc"), b(domain, "mp_rc");
        const uct_ep_h ep = a.connect(b);
        std::vector<char> here(3 << 20), there(3 << 20);
        for (std::size_t i = 0; i < here.size(); ++i) here[i] = char(i * 7 + i / 4096);
        Memory source(domain, here.data(), here.size()), target(domain, there.data(), there.size());
        for (const std::size_t length : {std::size_t(1), std::size_t(5000), here.size()}) {
            std::memset(there.data(), 0, there.size());
            uct_iov_t iov{here.data(), length, source.handle, 0, 1};
            Done done;
            ucs_status_t status = UCS_ERR_NO_RESOURCE;
            BOOST_REQUIRE(domain.until([&] {
                status = uct_ep_put_zcopy(ep, &iov, 1, at(there.data()), target.key.rkey, &done);
                return status != UCS_ERR_NO_RESOURCE;
            }));
            if (status == UCS_INPROGRESS) BOOST_REQUIRE(domain.until([&] { return done.fired; }));
            a.flush(ep);
            BOOST_TEST(std::memcmp(here.data(), there.data(), length) == 0);
        }
        uct_ep_destroy(ep);
    }
}

BOOST_AUTO_TEST_CASE(cached_regions_go_with_the_mapping) {
    Domain domain;
    Interface a(domain, "mp_rc"), b(domain, "mp_rc");
    const uct_ep_h ep = a.connect(b);
    constexpr std::size_t kBytes = 1 << 20;
    void* where = nullptr;
    for (int round = 0; round < 5; ++round) {
        // The same addresses, other pages: a stale registration would write into the old ones.
        where =
            mmap(where, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
        BOOST_REQUIRE(where != MAP_FAILED);
        {
            Memory memory(domain, where, kBytes);
            put(domain, a, ep, "fresh", static_cast<char*>(where) + 100, memory.key.rkey);
        }
        munmap(where, kBytes);
    }
    uct_ep_destroy(ep);
}

// UCP leaves a memory domain out that cannot be reached, and releases what it has unpacked after any other error: also
// what it has not got.
BOOST_AUTO_TEST_CASE(malformed_keys_are_refused) {
    for (const unsigned char number : {0, 9, 0x80, 0xff}) {
        const std::vector<unsigned char> packed(64, number);
        uct_rkey_bundle_t key;
        std::memset(&key, 0x5a, sizeof key); // as the caller's memory is
        BOOST_TEST(uct_rkey_unpack(component(), packed.data(), &key) == UCS_ERR_UNREACHABLE);
        BOOST_TEST(key.rkey == UCT_INVALID_RKEY);
        BOOST_TEST(!key.handle);
        uct_rkey_release(component(), &key);
    }
}

// What could not be made is nothing.
BOOST_AUTO_TEST_CASE(what_failed_is_nothing) {
    Domain domain;
    Interface a(domain, "mp_rc");
    ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                            const char*, va_list) { return UCS_LOG_FUNC_RC_STOP; });
    auto rubbish = reinterpret_cast<uct_mem_h>(0x5a5a5a5a5a5a5a5a);
    BOOST_TEST(uct_md_mem_reg(domain.md, reinterpret_cast<void*>(8), 4096, UCT_MD_MEM_ACCESS_RMA, &rubbish) != UCS_OK);
    BOOST_TEST((rubbish == UCT_MEM_HANDLE_NULL));
    auto ep = reinterpret_cast<uct_ep_h>(0x5a5a5a5a5a5a5a5a);
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = a.iface;
    BOOST_TEST(uct_ep_create(&params, &ep) != UCS_OK);
    BOOST_TEST(!ep);
    ucs_log_pop_handler();
}

// Error mode PEER: UCP gives the buffer back to the user once invalidation has completed, so nothing may write into it
// afterwards; and nobody else who uses the same memory may notice.
BOOST_DATA_TEST_CASE(invalidated_keys_stop_working, boost::unit_test::data::make({"yes", "no"}), cache) {
    Domain domain(Options{{"RCACHE", cache}});
    Interface a(domain, "mp_rc"), b(domain, "mp_rc"), c(domain, "mp_rc");
    const uct_ep_h ep = a.connect(b), late = c.connect(b);
    alignas(4096) static char buffer[1 << 16];
    Memory user(domain, buffer, sizeof buffer);
    Memory revocable(domain, buffer, sizeof buffer, v2::kPackRevocable);
    Memory neighbour(domain, buffer, sizeof buffer, v2::kPackRevocable);
    BOOST_TEST(revocable.packed != user.packed);
    BOOST_TEST(revocable.packed != neighbour.packed);
    put(domain, a, ep, "by a revocable key", buffer, revocable.key.rkey);

    Done done;
    namespace abi = ucx_mp::face::abi;
    const v2::DeregParameters params{.field_mask = abi::kDeregMemh | abi::kDeregFlags | abi::kDeregCompletion,
                                     .flags = abi::kDeregInvalidate,
                                     .memh = revocable.handle,
                                     .comp = &done};
    BOOST_REQUIRE(v2::dereg(domain.md, &params) == UCS_OK);
    revocable.handle = nullptr;
    BOOST_REQUIRE(domain.until([&] { return done.fired; }));
    BOOST_TEST(done.status == UCS_OK);

    put(domain, a, ep, "by the user's key", buffer, user.key.rkey);
    put(domain, a, ep, "by the neighbour's key", buffer, neighbour.key.rkey);

    // A late write fails, and with it its endpoint.
    BOOST_REQUIRE(
        domain.until([&] { return uct_ep_put_short(late, "late", 5, at(buffer), revocable.key.rkey) == UCS_OK; }));
    BOOST_REQUIRE(domain.until([&] { return !c.errors.empty(); }));
    BOOST_TEST(std::string(buffer) == "by the neighbour's key");
    BOOST_TEST(a.errors.empty());
    uct_ep_destroy(late);
    uct_ep_destroy(ep);
}

// One handle, packed both ways: both keys end.
BOOST_DATA_TEST_CASE(both_keys_of_a_handle_are_invalidated, boost::unit_test::data::make({"yes", "no"}), cache) {
    ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                            const char*, va_list) { return UCS_LOG_FUNC_RC_STOP; });
    {
        Domain domain(Options{{"RCACHE", cache}});
        Interface a(domain, "mp_rc"), b(domain, "mp_rc");
        const uct_ep_h ep = a.connect(b);
        alignas(4096) static char buffer[1 << 16];
        Memory memory(domain, buffer, sizeof buffer, v2::kPackRevocable);
        std::vector<std::byte> plain(domain.attr.rkey_packed_size);
        const v2::PackParameters pack{.field_mask = ucx_mp::face::abi::kPackFlags, .flags = 0};
        BOOST_REQUIRE(v2::pack(domain.md, memory.handle, buffer, sizeof buffer, &pack, plain.data()) == UCS_OK);
        uct_rkey_bundle_t key{};
        BOOST_REQUIRE(uct_rkey_unpack(component(), plain.data(), &key) == UCS_OK);
        put(domain, a, ep, "before", buffer, key.rkey);
        Done done;
        namespace abi = ucx_mp::face::abi;
        const v2::DeregParameters params{.field_mask = abi::kDeregMemh | abi::kDeregFlags | abi::kDeregCompletion,
                                         .flags = abi::kDeregInvalidate,
                                         .memh = memory.handle,
                                         .comp = &done};
        BOOST_REQUIRE(v2::dereg(domain.md, &params) == UCS_OK);
        memory.handle = nullptr;
        BOOST_REQUIRE(domain.until([&] { return done.fired; }));
        BOOST_REQUIRE(domain.until([&] { return uct_ep_put_short(ep, "late", 5, at(buffer), key.rkey) == UCS_OK; }));
        BOOST_TEST(domain.until([&] { return !a.errors.empty(); }));
        BOOST_TEST(std::string(buffer) == "before");
        uct_rkey_release(component(), &key);
        uct_ep_destroy(ep);
    }
    ucs_log_pop_handler();
}

// The transport executes atomics itself, so it must know what its adapters would know: that the memory has been
// released, or is not there. The operation fails at its origin; the target lives on.
BOOST_DATA_TEST_CASE(atomics_end_with_their_memory,
                     boost::unit_test::data::make({"yes", "no"}) *
                         boost::unit_test::data::make({"released", "unmapped", "not packed"}) *
                         boost::unit_test::data::make({true, false}),
                     cache, end, fetches) {
    ucs_log_push_handler([](const char*, unsigned, const char*, ucs_log_level_t, const ucs_log_component_config_t*,
                            const char*, va_list) { return UCS_LOG_FUNC_RC_STOP; });
    {
        Domain domain(Options{{"RCACHE", cache}});
        Interface a(domain, "mp_rc"), b(domain, "mp_rc");
        const uct_ep_h ep = a.connect(b);
        constexpr std::size_t kBytes = 1 << 16;
        void* const where = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        BOOST_REQUIRE(where != MAP_FAILED);
        auto* const counter = static_cast<std::uint64_t*>(where);
        *counter = 40;
        auto memory = std::make_unique<Memory>(domain, where, kBytes);
        std::uint64_t result = 0;
        const auto fetch_add = [&] {
            Done done;
            ucs_status_t status = UCS_ERR_NO_RESOURCE;
            BOOST_REQUIRE(domain.until([&] {
                status = uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 1, &result, at(counter), memory->key.rkey, &done);
                return status != UCS_ERR_NO_RESOURCE;
            }));
            BOOST_REQUIRE(status == UCS_INPROGRESS);
            BOOST_REQUIRE(domain.until([&] { return done.fired; }));
            return done.status;
        };
        BOOST_TEST(fetch_add() == UCS_OK);
        BOOST_TEST(result == 40u);
        BOOST_TEST(*counter == 41u);
        const std::string how = end;
        if (how == "unmapped") {
            BOOST_REQUIRE(munmap(where, kBytes) == 0);
        } else {
            uct_md_mem_dereg(domain.md, std::exchange(memory->handle, nullptr));
            // The cache may give the same region to who registers again; nobody has been told of it.
            if (how == "not packed")
                BOOST_REQUIRE(uct_md_mem_reg(domain.md, where, kBytes, UCT_MD_MEM_ACCESS_ALL, &memory->handle) ==
                              UCS_OK);
        }
        if (fetches) {
            BOOST_TEST(fetch_add() != UCS_OK);
            BOOST_TEST(result == 40u);
        } else {
            BOOST_REQUIRE(domain.until([&] {
                return uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, at(counter), memory->key.rkey) == UCS_OK;
            }));
            BOOST_TEST(domain.until([&] { return !a.errors.empty(); }));
        }
        if (how != "unmapped") {
            BOOST_TEST(*counter == 41u);
            munmap(where, kBytes);
        }
        BOOST_TEST(b.errors.size() <= 1u);
        uct_ep_destroy(ep);
        memory.reset();
    }
    ucs_log_pop_handler();
}
