// What a process in virtual time is made of, whoever gives it its turns: timers, and memory that peers may access.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "softhca/world.h"
#include "uct_mp/channel/interface.h"

namespace ucx_mp::sim {

// The world's clock. What is due waits until the process gets its turn: run_due(); while it computes only that of the
// background: run_background().
class SimTimers : public Services {
public:
    explicit SimTimers(softhca::sim::World& world) : world_(world) {}
    Nanos now() override { return world_.now() + spent; }
    Nanos spent = 0; // in the call under way, by whoever charges processes for what they do
    Timer at(Nanos t, std::function<void()> fn) override { return at(t, std::move(fn), due_); }
    Timer at_in_background(Nanos t, std::function<void()> fn) override {
        return at(t, std::move(fn), due_in_background_);
    }
    void cancel(Timer timer) override {
        const auto found = timers_.find(timer);
        if (found == timers_.end()) { // perhaps it is due, and waits for its turn
            for (auto* list : {&due_, &due_in_background_, &running_})
                for (auto& [id, fn] : *list)
                    if (id == timer) fn = {};
            return;
        }
        world_.cancel(found->second);
        timers_.erase(found);
    }
    bool run_due() { return run(due_) | run_background(); }
    bool run_background() { return run(due_in_background_); }
    [[nodiscard]] bool has_due() const { return !due_.empty() || !due_in_background_.empty(); }

protected:
    virtual void became_due() {}
    softhca::sim::World& world_;

private:
    using List = std::vector<std::pair<Timer, std::function<void()>>>;
    Timer at(Nanos t, std::function<void()> fn, List& due) {
        const Timer id = ++last_;
        timers_[id] = world_.at(std::max<Nanos>(t, world_.now() + 1), [this, &due, id, fn = std::move(fn)] {
            timers_.erase(id);
            due.emplace_back(id, fn);
            became_due();
        });
        return id;
    }
    bool run(List& list) {
        if (list.empty()) return false;
        running_ = std::exchange(list, {});
        for (auto& [id, due] : running_)
            if (const auto fn = std::exchange(due, {})) fn(); // which may cancel others
        running_.clear();
        return true;
    }
    Timer last_ = 0;
    std::map<Timer, softhca::sim::World::Timer> timers_;
    List due_, due_in_background_, running_;
};

// Registered memory; `keys` as peers see it.
struct SimMemory {
    std::unique_ptr<verbs::Registration> registration = std::make_unique<verbs::Registration>();
    verbs::RemoteKeys keys;
    std::byte* data = nullptr;
    std::size_t size = 0;
    [[nodiscard]] channel::Iov iov(std::size_t offset, std::size_t length) {
        return {data + offset, length, registration.get(), 0, 1};
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(data + offset);
    }
};

// The bytes live as long as this, a registration as long as its SimMemory.
class SimHeap {
public:
    [[nodiscard]] SimMemory allocate(const verbs::DeviceSet& devices, std::size_t size) {
        SimMemory memory;
        memory.data = static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
        memory.size = size;
        owned_.emplace_back(memory.data, std::free);
        const int access =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        if (failed(verbs::register_memory(devices, memory.data, size, access, *memory.registration)))
            throw std::runtime_error("register_memory");
        std::byte packed[64];
        memory.registration->pack(packed);
        if (!verbs::unpack_keys(packed, memory.keys)) throw std::runtime_error("unpack_keys");
        keys.insert(memory.registration->id, memory.address(), size);
        return memory;
    }
    verbs::KeyTable keys; // of all of it, for the interface

private:
    std::vector<std::unique_ptr<std::byte, void (*)(void*)>> owned_;
};

} // namespace ucx_mp::sim
