// Locked memory is used up: what is registered and unused is given back, and the transport goes on with what it has.
#define BOOST_TEST_MODULE transport_ucx_locked
#include "fixture.h"

#include <sys/mman.h>

#include <memory>

using namespace uct_test;

namespace {

constexpr std::size_t kLimit = 96 << 20; // for two adapters, each of which counts

struct Limited { // before anything is registered
    Limited() { setenv("SOFTHCA_MEMLOCK", "96M", 1); }
};

struct Pages {
    explicit Pages(std::size_t bytes)
        : size(bytes), data(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        BOOST_REQUIRE(data != MAP_FAILED);
    }
    ~Pages() { munmap(data, size); }
    Pages(const Pages&) = delete;
    std::size_t size;
    void* data;
};

ucs_status_t registers(Domain& domain, const Pages& pages, uct_mem_h& handle) {
    return uct_md_mem_reg(domain.md, pages.data, pages.size, UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS,
                          &handle);
}

// All that is left, in pieces.
struct Everything {
    explicit Everything(Domain& domain) : domain_(domain) {
        for (std::size_t bytes = 8 << 20; bytes >= 4096; bytes /= 2)
            for (;;) {
                auto next = std::make_unique<Pages>(bytes);
                uct_mem_h handle = UCT_MEM_HANDLE_NULL;
                if (registers(domain, *next, handle) != UCS_OK) break;
                pages_.push_back(std::move(next));
                handles_.push_back(handle);
            }
    }
    ~Everything() {
        for (uct_mem_h handle : handles_) uct_md_mem_dereg(domain_.md, handle);
    }
    Everything(const Everything&) = delete;

private:
    Domain& domain_;
    std::vector<std::unique_ptr<Pages>> pages_;
    std::vector<uct_mem_h> handles_;
};

} // namespace

BOOST_TEST_GLOBAL_FIXTURE(Limited);

// The cache keeps what was used. What is in use stays.
BOOST_AUTO_TEST_CASE(unused_memory_is_given_back) {
    Domain domain;
    std::vector<std::unique_ptr<Pages>> all;
    Pages used(4 << 20);
    uct_mem_h in_use = UCT_MEM_HANDLE_NULL;
    BOOST_REQUIRE(registers(domain, used, in_use) == UCS_OK);
    for (std::size_t bytes = 0; bytes < 3 * kLimit; bytes += 8 << 20) {
        all.push_back(std::make_unique<Pages>(8 << 20));
        uct_mem_h handle = UCT_MEM_HANDLE_NULL;
        BOOST_REQUIRE(registers(domain, *all.back(), handle) == UCS_OK);
        uct_md_mem_dereg(domain.md, handle);
    }
    // As much as there can be at once, without what is in use: all else has gone.
    Pages large(kLimit / 2 - (8 << 20));
    uct_mem_h handle = UCT_MEM_HANDLE_NULL;
    BOOST_REQUIRE(registers(domain, large, handle) == UCS_OK);
    uct_md_mem_dereg(domain.md, handle);
    Pages too_large(kLimit);
    BOOST_TEST(registers(domain, too_large, handle) == UCS_ERR_NO_MEMORY);
    uct_md_mem_dereg(domain.md, in_use);
}

// What the transport needs was there before: messages go, by copies, however many and to whomever.
BOOST_AUTO_TEST_CASE(messages_go_without) {
    for (const char* transport : {"mp_rc", "mp_dc"}) {
        Domain domain;
        Interface a(domain, transport), b(domain, transport);
        Everything everything(domain);
        static unsigned got;
        got = 0;
        uct_iface_set_am_handler(
            b.iface, 3, [](void*, void*, std::size_t, unsigned) { return ++got, UCS_OK; }, nullptr, 0);
        const uct_ep_h ep = a.connect(b);
        constexpr unsigned kMany = 1000;
        for (unsigned i = 0; i < kMany; ++i)
            BOOST_REQUIRE(domain.until([&] {
                return uct_ep_am_bcopy(
                           ep, 3, [](void* to, void*) { return std::memset(to, 1, 5000), std::size_t(5000); }, nullptr,
                           0) > 0;
            }));
        BOOST_TEST(domain.until([&] { return got == kMany; }));
        uct_ep_destroy(ep);
    }
}

// The transport's own buffers, too: what the program has used and given back makes room for them.
BOOST_AUTO_TEST_CASE(buffers_take_what_is_unused) {
    Domain domain;
    Interface a(domain, "mp_rc");
    { Everything everything(domain); }
    Interface b(domain, "mp_rc");
    uct_ep_h ep = a.connect(b);
    BOOST_REQUIRE(domain.until([&] { return uct_ep_am_short(ep, 3, 0, nullptr, 0) == UCS_OK; }));
    a.flush(ep);
    uct_ep_destroy(ep);
}
