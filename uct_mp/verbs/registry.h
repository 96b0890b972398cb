// Shared by all users of a DeviceSet: the present life of each device, and the memory that is registered with them.
//
// An adapter that has died (IBV_EVENT_DEVICE_FATAL: its firmware is restarted, the card is exchanged) never works again
// for a process that has it open. Nor does anything that was made with it. It may be there again under the same GUID:
// then it is opened anew, and all memory is registered with it anew, under other keys. `life` counts that. Keys name
// the life that they belong to, so that nobody uses one that has been given to other memory since.
//
// Threads: any. reopen() may take long (registering pins memory). Meanwhile a thread that registers, releases or
// packs memory, or looks keys up for a peer, waits as long as the present region takes; the data path does not wait.
//
// Ids are secrets, as keys of adapters are meant to be: 64 random bits, known to those for whom the region's keys have
// been packed. A peer that names one may ask for its keys, as long as they are offered (Registration::pack, withdraw).
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "uct_mp/verbs/memory.h"

namespace ucx_mp::verbs {

class Registry {
public:
    explicit Registry(std::vector<Device> devices) : devices_(std::move(devices)) {}
    Registry(const Registry&) = delete;

    // The life of the device that may be used: all memory is registered with it. Wraps.
    [[nodiscard]] std::uint8_t life(unsigned device) const { return lives_[device].load(std::memory_order_acquire); }
    // May be one life further than life() says.
    [[nodiscard]] Device device(unsigned index) const;
    // Whether it was opened again since life `mine`, may be used, and has not died again as far as known: `out`.
    [[nodiscard]] bool is_there(unsigned device, std::uint8_t mine, Device& out) const;
    // Opens a device that has died. False: it is not there (yet), `trouble`
    // says why; empty: it has not died, or another thread opens it.
    [[nodiscard]] bool reopen(unsigned device, std::string& trouble);
    // A process says once that it lacks a life of a device, not with each interface.
    [[nodiscard]] bool is_first_to_miss(const Device& device) {
        const unsigned life = device.life + 1u;
        return missed_[device.index].exchange(life, std::memory_order_relaxed) != life;
    }
    // The same for a later life that is there.
    [[nodiscard]] bool is_first_to_find(const Device& device) {
        return found_[device.index].exchange(device.life, std::memory_order_relaxed) != device.life;
    }

    // Gives back about `bytes` of registered memory that nobody uses; false: there is
    // none. Called with no lock held when memory could not be registered; then it is tried
    // again. To be set before anybody registers, and taken back when nobody does any more.
    using Relief = std::function<bool(std::size_t bytes)>;
    void set_relief(Relief relief) { relief_ = std::move(relief); }
    [[nodiscard]] bool relieve(std::size_t bytes) const { return relief_ && relief_(bytes); }
    // Registered bytes, counted once for each adapter, as kernels count them.
    [[nodiscard]] std::size_t locked() const { return locked_.load(std::memory_order_relaxed); }

    // The present keys of a region that is offered to peers, by its id; false: there is none (any more).
    [[nodiscard]] bool find(std::uint64_t id, RemoteKeys& out) const;

private:
    friend class Registration;
    friend Status register_once(const DeviceSet&, void*, std::size_t, int, Registration&);
    [[nodiscard]] std::uint64_t new_id() const; // with the lock held
    [[nodiscard]] bool register_all(unsigned device, std::string& trouble);
    [[nodiscard]] int register_again(std::uint64_t id, const Device& device, std::size_t& bytes);

    mutable std::mutex mutex_; // guards all but lives_
    std::vector<Device> devices_;
    std::array<std::atomic<std::uint8_t>, kMaxDevices> lives_{};
    std::array<std::atomic<unsigned>, kMaxDevices> missed_{};  // the life, from 1
    std::array<std::atomic<unsigned>, kMaxDevices> found_{};   // the life; 0 is there at the start
    std::unordered_map<std::uint64_t, Registration*> regions_; // by id
    std::mutex reopening_;
    std::atomic<std::size_t> locked_{0};
    Relief relief_;
};

} // namespace ucx_mp::verbs
