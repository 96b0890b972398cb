// Queues that wait by the public functions (uct_mp.h): between two interfaces of one process, in real time.
#define BOOST_TEST_MODULE uct_tasks
#include <atomic>
#include <memory>

#include "fixture.h"

extern "C" {
#include "uct_mp/api/uct_mp.h"
}

using namespace uct_test;

namespace {

// Registered words, and the key that others have.
struct Words {
    explicit Words(Domain& domain) : domain(domain), words(4096) {
        BOOST_REQUIRE(uct_md_mem_reg(domain.md, words.data(), words.size() * 8, UCT_MD_MEM_ACCESS_ALL, &memh) ==
                      UCS_OK);
        std::vector<char> packed(domain.attr.rkey_packed_size);
        BOOST_REQUIRE(uct_md_mkey_pack(domain.md, memh, packed.data()) == UCS_OK);
        BOOST_REQUIRE(uct_rkey_unpack(component(), packed.data(), &rkey) == UCS_OK);
    }
    ~Words() {
        uct_rkey_release(component(), &rkey);
        uct_md_mem_dereg(domain.md, memh);
    }
    [[nodiscard]] std::uint64_t at(std::size_t i) const { return reinterpret_cast<std::uint64_t>(&words[i]); }
    std::uint64_t look(std::size_t i) { return std::atomic_ref(words[i]).load(); }
    void store(std::size_t i, std::uint64_t value) { std::atomic_ref(words[i]).store(value); }
    Domain& domain;
    std::vector<std::uint64_t> words;
    uct_mem_h memh = nullptr;
    uct_rkey_bundle_t rkey{};
};

ucs_status_t asked(const Domain& domain, uct_iface_h iface, unsigned rail) {
    ucs_status_t is = UCS_INPROGRESS;
    (void)domain.until([&] {
        (void)uct_mp_tasks_progress(iface);
        return (is = uct_mp_tasks_query(iface, rail)) != UCS_INPROGRESS;
    });
    return is;
}

void connect(uct_mp_task_queue_h x, uct_mp_task_queue_h y) {
    char a[UCT_MP_TASK_HALF_SIZE], b[UCT_MP_TASK_HALF_SIZE];
    BOOST_REQUIRE(uct_mp_task_queue_tell(x, a) == UCS_OK);
    BOOST_REQUIRE(uct_mp_task_queue_tell(y, b) == UCS_OK);
    BOOST_TEST(uct_mp_task_queue_connect(x, b, sizeof b - 1) == UCS_ERR_INVALID_PARAM);
    BOOST_REQUIRE(uct_mp_task_queue_connect(x, b, sizeof b) == UCS_OK);
    BOOST_REQUIRE(uct_mp_task_queue_connect(y, a, sizeof a) == UCS_OK);
}

} // namespace

BOOST_AUTO_TEST_CASE(a_task_from_end_to_end) {
    Domain domain;
    Interface a(domain, "mp_rc"), b(domain, "mp_rc");
    uct_mp_task_queue_h q = nullptr, r = nullptr;
    BOOST_TEST(uct_mp_task_queue_create(a.iface, 0, 16, &q) == UCS_ERR_UNSUPPORTED); // not asked yet
    BOOST_TEST(uct_mp_tasks_query(a.iface, 99) == UCS_ERR_INVALID_PARAM);
    BOOST_TEST(uct_mp_tasks_query(nullptr, 0) == UCS_ERR_UNSUPPORTED);
    for (const unsigned rail : {0u, 1u}) {
        BOOST_REQUIRE(asked(domain, a.iface, rail) == UCS_OK);
        BOOST_REQUIRE(asked(domain, b.iface, 1 - rail) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_queue_create(a.iface, rail, 16, &q) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_queue_create(b.iface, 1 - rail, 16, &r) == UCS_OK);
        connect(q, r); // keys of the other adapter
        Words mine(domain), theirs(domain);
        BOOST_REQUIRE(uct_mp_task_wait(q, &mine.words[0], mine.memh, 5) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_write(q, &mine.words[8], 8000, mine.memh, theirs.at(8), theirs.rkey.rkey) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_word(q, 6, theirs.at(0), theirs.rkey.rkey) == UCS_OK);
        BOOST_TEST(uct_mp_task_word(q, 6, theirs.at(0), UCT_INVALID_RKEY) == UCS_ERR_UNREACHABLE);
        uct_mp_task_forget(q); // and again
        BOOST_TEST(uct_mp_task_post(q) == UCS_ERR_INVALID_PARAM);
        BOOST_REQUIRE(uct_mp_task_wait(q, &mine.words[0], mine.memh, 5) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_write(q, &mine.words[8], 8000, mine.memh, theirs.at(8), theirs.rkey.rkey) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_word(q, 6, theirs.at(0), theirs.rkey.rkey) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_post(q) == UCS_OK);
        BOOST_TEST(!domain.until([&] { return uct_mp_tasks_progress(a.iface), theirs.look(0) != 0; }, 0.01));
        for (std::size_t i = 8; i < 1008; ++i) mine.words[i] = i;
        mine.store(0, 5);
        uct_mp_task_queue_attr_t attr{};
        BOOST_TEST(domain.until([&] {
            (void)uct_mp_tasks_progress(a.iface);
            return uct_mp_task_queue_query(q, &attr, sizeof attr) == UCS_OK && attr.done == 1;
        }));
        BOOST_TEST(theirs.look(0) == 6u);
        for (std::size_t i = 8; i < 1008; ++i) BOOST_REQUIRE(theirs.words[i] == i);
        BOOST_TEST(attr.posted == 1u);
        BOOST_TEST(!attr.failed);
        // Both halves end; one task has waited in vain.
        BOOST_REQUIRE(uct_mp_task_wait(q, &mine.words[0], mine.memh, 7) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_word(q, 8, theirs.at(0), theirs.rkey.rkey) == UCS_OK);
        BOOST_REQUIRE(uct_mp_task_post(q) == UCS_OK);
        char ended[UCT_MP_TASK_ENDED_SIZE], other[UCT_MP_TASK_ENDED_SIZE] = {};
        std::uint64_t done = 0;
        const auto ends = [&](uct_iface_h iface, uct_mp_task_queue_h queue, char* told) {
            return domain.until([&] {
                (void)uct_mp_tasks_progress(iface);
                return uct_mp_task_queue_end(queue, told) == UCS_OK;
            });
        };
        BOOST_REQUIRE(ends(b.iface, r, other));
        BOOST_TEST(uct_mp_task_queue_how_far(q, other, sizeof other, &done) == UCS_INPROGRESS);
        BOOST_REQUIRE(ends(a.iface, q, ended));
        BOOST_TEST(uct_mp_task_queue_how_far(q, other, 3, &done) == UCS_ERR_INVALID_PARAM);
        BOOST_REQUIRE(uct_mp_task_queue_how_far(q, other, sizeof other, &done) == UCS_OK);
        BOOST_TEST(done == 1u);
        BOOST_TEST(uct_mp_task_post(q) == UCS_ERR_IO_ERROR);
        uct_mp_task_queue_destroy(q);
        if (rail == 0) uct_mp_task_queue_destroy(r); // the other one with its interface
    }
}

BOOST_AUTO_TEST_CASE(only_if_wanted) {
    for (const auto& [wish, expected] : {std::pair{"n", UCS_ERR_UNSUPPORTED}, {"y", UCS_OK}, {"auto", UCS_OK}}) {
        Domain domain(Options{{"TASKS", wish}});
        Interface a(domain, "mp_rc");
        BOOST_TEST(asked(domain, a.iface, 0) == expected);
        uct_mp_task_queue_h q = nullptr;
        BOOST_TEST(uct_mp_task_queue_create(a.iface, 0, 16, &q) == expected);
    }
}

BOOST_AUTO_TEST_CASE(an_adapter_that_does_not_wait) {
    Restore restore{{"fault lacks wait off '*:*'"}};
    softhca("fault lacks wait on '*:*'");
    Domain domain;
    Interface a(domain, "mp_rc");
    BOOST_TEST(asked(domain, a.iface, 0) == UCS_ERR_UNSUPPORTED);
}
