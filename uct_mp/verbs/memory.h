// Memory registered with every device of a domain, and the keys that the other side needs.
//
// Adapters that have died have no key any more: 0. When one is there again, its keys are made anew (registry.h), in
// place.
//
// Packed keys (wire format, version 2), little endian: u8 count, u64 id, then per device (in the order of the owner's
// DeviceSet) u32 rkey and u8 life. Cookie and range are not in it: the adapter checks key and range of every access.
// Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "uct_mp/verbs/device.h"

namespace ucx_mp::verbs {

class Registry;
struct RemoteKeys;

// The data path's view of registered memory. It stays in place: operations under way point to its keys.
struct MemoryKeys {
    std::array<std::uint32_t, kMaxDevices> lkey{};
    std::array<std::uint32_t, kMaxDevices> rkey{};
    std::uint64_t lives = 0; // byte i: which life of device i its keys belong to
    std::uint64_t id = 0;    // names the region where no adapter is involved: random, never given to another
    std::uint8_t count = 0;

    [[nodiscard]] std::uint8_t life(unsigned device) const { return static_cast<std::uint8_t>(lives >> (8 * device)); }
};

// One memory region per device, all or none. But devices that have died have none until they are there again.
class Registration : public MemoryKeys {
public:
    Registration() = default;
    Registration(const Registration&) = delete;
    ~Registration() { reset(); }
    void reset();

    // Gives `copy` the same keys, also when they are made anew, until drop_copy(). It lives as long as this.
    void add_copy(MemoryKeys& copy);
    void drop_copy(const MemoryKeys& copy);
    // Writes packed_keys_size(count) bytes, for all devices at one moment. From now on peers may ask for its keys.
    void pack(void* out);
    void withdraw(); // ... and from now on they may not
    // The present keys, for its owner.
    void look_up(RemoteKeys& out) const;

    std::array<MemoryRegion, kMaxDevices> mr;

private:
    friend class Registry;
    friend Status register_once(const DeviceSet&, void*, std::size_t, int, Registration&);
    void set_key(const Device& device, MemoryRegion region); // with the registry's lock held
    void copy_keys(RemoteKeys& out) const;                   // with the registry's lock held, too

    std::shared_ptr<Registry> registry_; // set while registered
    void* address_ = nullptr;
    std::size_t length_ = 0;
    int access_ = 0;
    bool packed_ = false;
    std::vector<MemoryKeys*> copies_;
    std::array<std::shared_ptr<ibv_pd>, kMaxDevices> pds_; // for `mr`: kept for as long as these are there
};

// IBV_ACCESS_* in `access`: as given, never weakened. Memory that is read-only for this process
// can be registered without LOCAL_WRITE, REMOTE_WRITE and REMOTE_ATOMIC only; with them,
// current kernels refuse (invalid_param, errno EFAULT). Either every device has it afterwards
// or `out` is empty; errno tells why. Where no more memory may be locked, unused registered
// memory is given back (Registry::set_relief), and it is tried again. register_once() does not.
[[nodiscard]] Status register_memory(const DeviceSet& devices, void* address, std::size_t length, int access,
                                     Registration& out);
[[nodiscard]] Status register_once(const DeviceSet& devices, void* address, std::size_t length, int access,
                                   Registration& out);

// Why memory could not be registered, for people: the meaning of `error`,
// and for ENOMEM what to do about it. `who`: who has locked how much.
[[nodiscard]] std::string registration_trouble(int error, const std::string& who = {});

struct RemoteKeys {
    std::uint8_t count = 0;
    std::uint64_t id = 0;
    std::uint64_t lives = 0;              // as in MemoryKeys
    std::uint32_t rkey[kMaxDevices] = {}; // by the remote device's index

    [[nodiscard]] std::uint8_t life(unsigned device) const { return static_cast<std::uint8_t>(lives >> (8 * device)); }
};
inline constexpr std::size_t packed_keys_size(unsigned devices) { return 9 + 5 * devices; }
void pack_keys(const MemoryKeys& keys, void* out); // packed_keys_size(count) bytes; see Registration::pack
// False: not written by pack_keys (count out of range).
// Reads at most packed_keys_size(kMaxDevices) bytes.
[[nodiscard]] bool unpack_keys(const void* in, RemoteKeys& out);

} // namespace ucx_mp::verbs
