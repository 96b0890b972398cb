// Devices that die and are there again, and the memory that is registered with them.
#define BOOST_TEST_MODULE sim_registry
#include <sys/mman.h>

#include <set>

#include "uct_mp/verbs/memory.h"
#include "uct_mp/verbs/registry.h"
#include "verbs_world.h"

using namespace verbs_test;

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

struct Fixture {
    World world{fabric("two-rail")};
    DeviceSet set = open_devices(world, 0);
    Registry& registry = *set.registry();
    std::vector<char> memory = std::vector<char>(10000);
    std::string trouble;

    bool reopen(unsigned device) {
        world.select(0);
        return registry.reopen(device, trouble);
    }
    Status add(Registration& registration, int access = kAccess) {
        return register_memory(set, memory.data(), memory.size(), access, registration);
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_new_life, Fixture) {
    Registration registration;
    MemoryKeys copy;
    BOOST_CHECK(add(registration) == Status::ok);
    registration.add_copy(copy);
    BOOST_TEST(copy.rkey[0] == registration.rkey[0]);
    const MemoryKeys before = registration;
    BOOST_TEST(!reopen(0)); // it has not died
    BOOST_TEST(trouble == "");
    world.fault("adapter-death 0:softhca_0");
    BOOST_TEST(!reopen(0));
    BOOST_TEST(has(trouble, "softhca_0"));
    BOOST_TEST(registry.life(0) == 0);
    world.fault("adapter-revive 0:softhca_0");
    BOOST_TEST(reopen(0));
    BOOST_TEST(registry.life(0) == 1);
    BOOST_TEST(registry.device(0).context.get() != set.devices()[0].context.get());
    BOOST_TEST(registry.device(0).index == 0u);
    for (const MemoryKeys* keys :
         {static_cast<const MemoryKeys*>(&registration), static_cast<const MemoryKeys*>(&copy)}) {
        BOOST_TEST(keys->lkey[0] == registration.mr[0]->lkey);
        BOOST_TEST(keys->rkey[0] == registration.mr[0]->rkey);
        BOOST_TEST(keys->rkey[0] != before.rkey[0]);
        BOOST_TEST(keys->rkey[1] == before.rkey[1]);
        BOOST_TEST(keys->id == before.id);
        BOOST_TEST(keys->lives == 1u);
    }
    BOOST_TEST(registration.mr[0]->pd == registry.device(0).pd.get());
    RemoteKeys told, unpacked;
    std::vector<uint8_t> packed(packed_keys_size(2));
    registration.pack(packed.data());
    BOOST_TEST(registry.find(before.id, told));
    BOOST_TEST(unpack_keys(packed.data(), unpacked));
    for (const RemoteKeys& keys : {told, unpacked}) {
        BOOST_TEST(keys.rkey[0] == registration.rkey[0]);
        BOOST_TEST(keys.lives == 1u);
        BOOST_TEST(keys.count == 2);
    }
    registration.drop_copy(copy);
    registration.reset();
    BOOST_TEST(!registry.find(before.id, told));
}

// Registered while the device is dead: it has keys of the others only, until the device is back.
BOOST_FIXTURE_TEST_CASE(registered_meanwhile, Fixture) {
    world.fault("adapter-death 0:softhca_1");
    Registration registration;
    BOOST_CHECK(add(registration) == Status::ok);
    BOOST_TEST(registration.rkey[1] == 0u);
    world.fault("adapter-revive 0:softhca_1");
    BOOST_TEST(reopen(1));
    BOOST_TEST(registration.rkey[1] != 0u);
    world.fault("adapter-death 0:softhca_0");
    Registration later;
    BOOST_CHECK(add(later) == Status::ok);
    world.fault("adapter-death 0:softhca_1");
    Registration none; // all of them are dead: operations will wait, as in a partition
    BOOST_CHECK(add(none) == Status::ok);
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(none.rkey[i] == 0u);
    for (const char* adapter : {"0:softhca_0", "0:softhca_1"}) world.fault(std::string("adapter-revive ") + adapter);
    BOOST_TEST(reopen(0));
    BOOST_TEST(reopen(1));
    for (unsigned i = 0; i < 2; ++i) BOOST_TEST(none.rkey[i] != 0u);
    BOOST_TEST(later.life(0) == 1);
    BOOST_TEST(later.life(1) == 2);
    BOOST_TEST(later.mr[1]->context == registry.device(1).context.get());
}

// Again and again; what has died in between is closed as soon as nobody uses it.
BOOST_FIXTURE_TEST_CASE(many_lives, Fixture) {
    std::vector<std::unique_ptr<Registration>> all;
    std::set<std::uint64_t> ids;
    std::weak_ptr<ibv_context> earlier = set.devices()[0].context;
    for (unsigned life = 1; life <= kLastLife; ++life) {
        all.push_back(std::make_unique<Registration>());
        BOOST_CHECK(add(*all.back()) == Status::ok);
        BOOST_TEST(ids.insert(all.back()->id).second);
        world.fault("adapter-death 0:softhca_0");
        world.fault("adapter-revive 0:softhca_0");
        BOOST_REQUIRE(reopen(0));
        BOOST_TEST(registry.life(0) == static_cast<std::uint8_t>(life));
        for (const auto& registration : all) BOOST_REQUIRE(registration->life(0) == static_cast<std::uint8_t>(life));
        set.renew(registry.device(0));
        BOOST_TEST(earlier.expired());
        earlier = set.devices()[0].context;
        if (all.size() > 20) all.erase(all.begin());
    }
    // Keys of the first lives would be taken for those of the next ones.
    world.fault("adapter-death 0:softhca_0");
    world.fault("adapter-revive 0:softhca_0");
    BOOST_TEST(!reopen(0));
    BOOST_TEST(trouble == "softhca_0: it has died 241 times");
    BOOST_TEST(registry.life(0) == kLastLife);
}

// What has never been packed for a peer, or is offered no longer, is told to nobody.
BOOST_FIXTURE_TEST_CASE(private_memory, Fixture) {
    Registration registration;
    BOOST_CHECK(add(registration) == Status::ok);
    RemoteKeys keys;
    BOOST_TEST(!registry.find(registration.id, keys));
    std::vector<std::uint8_t> packed(packed_keys_size(registration.count));
    registration.pack(packed.data());
    BOOST_TEST(registry.find(registration.id, keys));
    BOOST_TEST(keys.rkey[0] == registration.rkey[0]);
    BOOST_TEST(!registry.find(registration.id + 1, keys));
    registration.withdraw();
    BOOST_TEST(!registry.find(registration.id, keys));
    const std::uint64_t id = registration.id;
    registration.pack(packed.data());
    BOOST_TEST(registry.find(id, keys));
    registration.reset();
    BOOST_TEST(!registry.find(id, keys));
    // Not to be guessed from another.
    BOOST_CHECK(add(registration) == Status::ok);
    BOOST_TEST((registration.id ^ id) >> 32 != 0u);
    BOOST_TEST(!registry.find(id, keys));
}

// Memory that is unmapped before it is released has no key any more, and stands in nobody's way.
BOOST_FIXTURE_TEST_CASE(unmapped_memory, Fixture) {
    constexpr std::size_t kBytes = 1 << 16;
    void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    Registration gone, other;
    BOOST_CHECK(register_memory(set, mapped, kBytes, kAccess, gone) == Status::ok);
    BOOST_CHECK(add(other) == Status::ok);
    munmap(mapped, kBytes);
    world.fault("adapter-death 0:softhca_0");
    world.fault("adapter-revive 0:softhca_0");
    BOOST_TEST(reopen(0));
    BOOST_TEST(gone.rkey[0] == 0u);
    BOOST_TEST(gone.life(0) == 1);
    BOOST_TEST(other.rkey[0] != 0u);
}
