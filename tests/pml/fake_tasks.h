// Queues that wait within one process: adapters of dice that execute tasks at any moment, whoever looks. A queue fails
// whenever the dice say so, in the middle of a task, too.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>

#include "pml_glue/core/task_port.h"

namespace ucx_mp::glue::test {

class FakeTaskQueue;

struct FakeAdapters {
    explicit FakeAdapters(std::uint32_t seed) : random(seed) {}
    std::mt19937 random;
    unsigned fails = 0;         // one of so many steps of a queue is its end; 0: none is
    unsigned refuses = 0;       // one of so many queues is not made
    unsigned full = 0;          // one of so many tasks is not taken
    std::size_t stray = 0;      // writes to memory that is not exposed: must be 0
    std::size_t missed = 0;     // waits for a value that the word has passed: must be 0
    std::size_t changed = 0;    // data that were not the same when they were read again: must be 0
    std::uint64_t tasks = 0;    // executed
    std::uint64_t unmapped = 0; // as of FakeNetwork
    std::vector<std::pair<std::uint64_t, std::size_t>> exposed;
    std::vector<FakeTaskQueue*> queues; // by number; null: gone
    [[nodiscard]] bool dice(unsigned n) { return n && random() % n == 0; }
    void step();
};

class FakeTaskMemory final : public TaskMemory {
public:
    FakeTaskMemory(FakeAdapters& all, void* address, std::size_t length) : all_(all) {
        pages = all.unmapped;
        range_ = {reinterpret_cast<std::uint64_t>(address), length};
        all_.exposed.push_back(range_);
    }
    FakeTaskMemory(const FakeTaskMemory&) = delete;
    ~FakeTaskMemory() override { std::erase(all_.exposed, range_); }
    [[nodiscard]] std::vector<std::byte> keys() const override {
        std::vector<std::byte> out(9, std::byte{0x6b});
        out[1] = static_cast<std::byte>(pages);
        return out;
    }
    std::uint64_t pages;

private:
    FakeAdapters& all_;
    std::pair<std::uint64_t, std::size_t> range_;
};

class FakeTaskQueue final : public TaskQueue {
public:
    FakeTaskQueue(FakeAdapters& all, unsigned depth, std::uint64_t pages)
        : all_(all), number_(all.queues.size()), depth_(depth), pages_(pages) {
        all.queues.push_back(this);
    }
    FakeTaskQueue(const FakeTaskQueue&) = delete;
    ~FakeTaskQueue() override { all_.queues[number_] = nullptr; }
    void tell(std::byte* half) const override {
        std::memset(half, 0, kHalf);
        std::memcpy(half, &number_, sizeof number_);
    }
    [[nodiscard]] bool connect(const std::byte* half, std::span<const std::byte> keys,
                               std::span<const std::byte> data_keys) override {
        if (keys.size() != data_keys.size() || all_.dice(all_.refuses) || (!keys.empty() && keys[0] != std::byte{0x6b}))
            return false;
        std::memcpy(&peer_, half, sizeof peer_);
        if (peer_ >= all_.queues.size()) return false;
        writes_ = !keys.empty();
        if (!data_keys.empty()) their_pages_ = std::to_integer<std::uint64_t>(data_keys[1]);
        return true;
    }
    [[nodiscard]] bool post(const Task& task) override {
        if (failed_ || !writes_ || used_ + task.requests() > depth_ || all_.dice(all_.full)) return false;
        Pending& one = pending_.emplace_back();
        std::copy(task.words.begin(), task.words.end(), one.words.begin());
        one.task = task;
        one.waits = task.words.size();
        used_ += task.requests();
        ++posted_;
        return true;
    }
    [[nodiscard]] State state() const override { return {posted_, seen_done_, seen_failed_}; }
    void look() {
        seen_done_ = done_;
        seen_failed_ = failed_;
    }
    // One thing happens, or nothing.
    void step() {
        if (failed_ || pending_.empty()) return;
        Pending& one = pending_.front();
        if (one.phase == Phase::waits) {
            for (std::size_t i = 0; i < one.waits; ++i) {
                const std::uint64_t is = read(one.words[i]), number = (std::uint64_t{1} << 43) - 1;
                if ((is & number) > (one.task.value & number)) ++all_.missed;
                if (is != one.task.value) return;
            }
            one.phase = Phase::data;
            return;
        }
        if (all_.dice(all_.fails) || !all_.queues[peer_]) {
            failed_ = true;
            return;
        }
        const auto* const from = static_cast<const std::byte*>(one.task.from);
        switch (one.phase) {
        case Phase::data:
            if (one.task.bytes && pages_ == all_.unmapped && their_pages_ == all_.unmapped)
                put(one.task.to, from, one.task.bytes);
            one.data.assign(from, from + one.task.bytes);
            one.phase = Phase::word;
            return;
        case Phase::word: // an adapter may send again what is not acknowledged
            if (!std::equal(one.data.begin(), one.data.end(), from)) ++all_.changed;
            put(one.task.word, &one.task.value, sizeof one.task.value);
            one.phase = Phase::acknowledged;
            return;
        default:
            if (!std::equal(one.data.begin(), one.data.end(), from)) ++all_.changed;
            used_ -= one.task.requests();
            pending_.pop_front();
            ++done_;
            ++all_.tasks;
        }
    }

private:
    enum class Phase : std::uint8_t { waits, data, word, acknowledged };
    struct Pending {
        Task task;
        std::array<const std::uint64_t*, 20> words{};
        std::size_t waits = 0;
        Phase phase = Phase::waits;
        std::vector<std::byte> data;
    };
    static std::uint64_t read(const std::uint64_t* word) {
        return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
    }
    void put(std::uint64_t to, const void* data, std::size_t bytes) {
        const bool there = std::ranges::any_of(all_.exposed, [&](const auto& range) {
            return to >= range.first && to + bytes <= range.first + range.second;
        });
        if (there)
            std::memcpy(reinterpret_cast<void*>(to), data, bytes);
        else
            ++all_.stray;
    }
    FakeAdapters& all_;
    const std::size_t number_;
    const unsigned depth_;
    const std::uint64_t pages_;
    std::uint64_t their_pages_ = 0;
    std::size_t peer_ = 0;
    bool writes_ = false, failed_ = false, seen_failed_ = false;
    unsigned used_ = 0;
    std::uint64_t posted_ = 0, done_ = 0, seen_done_ = 0;
    std::deque<Pending> pending_;
};

inline void FakeAdapters::step() {
    for (std::size_t i = 0; i < queues.size(); ++i)
        if (queues[i] && random() % 2) queues[i]->step();
}

class FakeTaskPort final : public TaskPort {
public:
    FakeTaskPort(FakeAdapters& all, Can can) : all_(all), can_(can) {}
    [[nodiscard]] unsigned rails() override { return 2; }
    [[nodiscard]] Can can_wait(unsigned) override { return can_ == Can::yes && tried_ < 2 ? Can::later : can_; }
    [[nodiscard]] std::unique_ptr<TaskMemory> expose(void* address, std::size_t length) override {
        return std::make_unique<FakeTaskMemory>(all_, address, length);
    }
    [[nodiscard]] std::unique_ptr<TaskQueue> create(unsigned, unsigned depth, const TaskMemory&,
                                                    const TaskMemory& data) override {
        if (all_.dice(all_.refuses)) return nullptr;
        return std::make_unique<FakeTaskQueue>(all_, depth, static_cast<const FakeTaskMemory&>(data).pages);
    }
    // All ports' are looked at: that comes at any moment anyway.
    void progress() override {
        ++tried_;
        for (FakeTaskQueue* queue : all_.queues)
            if (queue) queue->look();
    }

private:
    FakeAdapters& all_;
    const Can can_;
    unsigned tried_ = 0;
};

} // namespace ucx_mp::glue::test
