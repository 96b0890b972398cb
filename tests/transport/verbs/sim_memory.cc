// Registration with every device, all or none, and the packed keys.
#define BOOST_TEST_MODULE sim_memory
#include <dlfcn.h>

#include "uct_mp/verbs/memory.h"
#include "verbs_world.h"

using namespace verbs_test;

namespace {

int regions = 0;        // registered now
int fail_at = -1;       // this call (counted down) fails ...
int fail_with = ENOMEM; // ... with this errno
constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

template <class F> F next(F, const char* name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

} // namespace

// What ibv_reg_mr() becomes when its access flags are not a constant.
extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
    if (fail_at-- == 0) {
        errno = fail_with;
        return nullptr;
    }
    ibv_mr* region = next(&ibv_reg_mr_iova2, "ibv_reg_mr_iova2")(pd, address, length, iova, access);
    regions += region != nullptr;
    return region;
}
extern "C" int ibv_dereg_mr(ibv_mr* region) {
    --regions;
    const int result = next(&ibv_dereg_mr, "ibv_dereg_mr")(region);
    errno = EBUSY; // as it may: errno of the failure before must survive
    return result;
}

BOOST_AUTO_TEST_CASE(every_device_gets_it) {
    World world(fabric("two-rail"));
    const DeviceSet set = open_devices(world, 0);
    std::vector<char> memory(10000);
    {
        Registration registration;
        BOOST_CHECK(register_memory(set, memory.data(), memory.size(), kAccess, registration) == Status::ok);
        BOOST_TEST(registration.count == 2);
        for (unsigned i = 0; i < 2; ++i) {
            BOOST_REQUIRE(registration.mr[i]);
            BOOST_TEST(registration.mr[i]->context == set.devices()[i].context.get());
            BOOST_TEST(registration.mr[i]->addr == memory.data());
            BOOST_TEST(registration.mr[i]->length == memory.size());
            BOOST_TEST(registration.lkey[i] == registration.mr[i]->lkey);
            BOOST_TEST(registration.rkey[i] == registration.mr[i]->rkey);
        }
        BOOST_TEST(!registration.mr[2]);
        BOOST_TEST(regions == 2);
        // Into a registration that is in use: the old one is dropped.
        BOOST_CHECK(register_memory(set, memory.data(), 5000, kAccess, registration) == Status::ok);
        BOOST_TEST(regions == 2);
        BOOST_TEST(registration.mr[1]->length == 5000u);
    }
    BOOST_TEST(regions == 0);
}

BOOST_AUTO_TEST_CASE(all_or_none) {
    World world(fabric("two-rail"));
    const DeviceSet set = open_devices(world, 0);
    std::vector<char> memory(4096);
    struct Case {
        int at, with;
        Status status;
    };
    for (const Case& c : {Case{0, ENOMEM, Status::no_memory}, Case{1, ENOMEM, Status::no_memory},
                          Case{1, EFAULT, Status::invalid_param}, Case{1, EIO, Status::io_error}}) {
        Registration registration;
        fail_at = c.at;
        fail_with = c.with;
        const Status status = register_memory(set, memory.data(), memory.size(), kAccess, registration);
        const int error = errno;
        BOOST_CHECK(status == c.status);
        BOOST_TEST(error == c.with);
        BOOST_TEST(registration.count == 0);
        BOOST_TEST(!registration.mr[0]);
        BOOST_TEST(registration.rkey[0] == 0u);
        BOOST_TEST(regions == 0);
    }
    fail_at = -1;
}

BOOST_AUTO_TEST_CASE(what_devices_refuse) {
    World world(fabric("two-rail"));
    const DeviceSet set = open_devices(world, 0);
    char byte = 0;
    Registration registration;
    BOOST_CHECK(register_memory(set, &byte, 0, kAccess, registration) == Status::invalid_param);
    BOOST_CHECK(register_memory(set, &byte, 1, IBV_ACCESS_REMOTE_WRITE, registration) == Status::invalid_param);
    // Memory that is not there.
    BOOST_CHECK(register_memory(set, reinterpret_cast<void*>(0x1000), 8, kAccess, registration) ==
                Status::invalid_param);
    // Constants: without write access.
    static const char constant[64] = "read-only";
    BOOST_CHECK(register_memory(set, const_cast<char*>(constant), sizeof constant, IBV_ACCESS_REMOTE_READ,
                                registration) == Status::ok);
    BOOST_TEST(registration.count == 2);
}

BOOST_AUTO_TEST_CASE(keys_travel) {
    Registration registration;
    registration.count = 3;
    registration.id = 0x1122334455667788;
    registration.lives = 0x090007;
    registration.rkey = {0x04030201, 0xfffefdfc, 0};
    std::vector<uint8_t> wire(packed_keys_size(3) + 2, 0xee);
    pack_keys(registration, wire.data() + 1); // any alignment
    // The wire format, byte by byte.
    const std::vector<uint8_t> expected{0xee, 3, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 2, 3,
                                        4,    7, 0xfc, 0xfd, 0xfe, 0xff, 0,    0,    0,    0,    0, 9, 0xee};
    BOOST_TEST(wire == expected, boost::test_tools::per_element());
    RemoteKeys keys;
    BOOST_REQUIRE(unpack_keys(wire.data() + 1, keys));
    BOOST_TEST(keys.count == 3);
    BOOST_TEST(keys.rkey[0] == 0x04030201u);
    BOOST_TEST(keys.rkey[1] == 0xfffefdfcu);
    BOOST_TEST(keys.rkey[2] == 0u);
    BOOST_TEST(keys.id == 0x1122334455667788u);
    BOOST_TEST(keys.lives == 0x090007u);
    BOOST_TEST(keys.life(2) == 9);
}

BOOST_AUTO_TEST_CASE(hostile_bytes) {
    for (unsigned count = 0; count < 256; ++count) {
        // Exactly as long as the contract says may be read: a reader that trusts the count is caught by ASan.
        const bool good = count >= 1 && count <= kMaxDevices;
        const std::size_t size = good ? packed_keys_size(count) : 1;
        const auto wire = std::make_unique<uint8_t[]>(size);
        std::fill_n(wire.get(), size, 0xff);
        wire[0] = static_cast<uint8_t>(count);
        RemoteKeys keys;
        keys.count = 200;
        keys.rkey[7] = 77;
        BOOST_REQUIRE_EQUAL(unpack_keys(wire.get(), keys), good);
        BOOST_REQUIRE_EQUAL(keys.count, good ? count : 0u); // nothing of what was there before
        BOOST_REQUIRE_EQUAL(keys.rkey[7], good && count == 8 ? 0xffffffffu : 0u);
    }
}
