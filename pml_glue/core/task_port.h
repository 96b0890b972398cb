// Queues that wait, of a network: writes into one peer's memory that an adapter executes when words of ours are there,
// while no processor looks. Implemented over uct_mp.h (uct/uct_tasks.h); by a network within one process, and in
// virtual time, for tests.
//
// Threads: as port.h. Slow path, but post() and state().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ucx_mp::glue {

// Registered memory of ours, in which words and data are, until it is destroyed: after the queues that use it.
class TaskMemory {
public:
    virtual ~TaskMemory() = default;
    [[nodiscard]] virtual std::vector<std::byte> keys() const = 0; // for TaskQueue::connect()
};

// When all `words` are `value`: `bytes` from `from`, if there are any, then `value` as the word at `word`. Addresses
// `to` and `word` are the peer's, in its memory for data and for words.
struct Task {
    std::span<const std::uint64_t* const> words;
    std::uint64_t value = 0;
    const void* from = nullptr;
    std::size_t bytes = 0;
    std::uint64_t to = 0, word = 0;
    [[nodiscard]] unsigned requests() const { return static_cast<unsigned>(words.size()) + (bytes ? 2u : 1u); }
};

// One half; the other one is the peer's. Tasks are executed in their order. It fails as a whole.
class TaskQueue {
public:
    static constexpr std::size_t kHalf = 32; // bytes that the other half needs
    // Tasks under way are lost: nothing leaves or arrives any more.
    virtual ~TaskQueue() = default;
    virtual void tell(std::byte* half) const = 0;
    // Keys of the peer's memory: its words, and the places of data. Empty: nothing is written there. False: not a half,
    // or the adapter refuses.
    [[nodiscard]] virtual bool connect(const std::byte* half, std::span<const std::byte> word_keys,
                                       std::span<const std::byte> data_keys) = 0;
    // False: no room, or it has failed. Nothing has happened then.
    [[nodiscard]] virtual bool post(const Task& task) = 0;
    struct State {
        std::uint64_t posted = 0, done = 0; // tasks; of them, complete for certain: all of it is in the peer's memory
        bool failed = false;
    };
    [[nodiscard]] virtual State state() const = 0; // after TaskPort::progress()
};

class TaskPort {
public:
    virtual ~TaskPort() = default;
    enum class Can : std::uint8_t { yes, no, later };
    [[nodiscard]] virtual unsigned rails() = 0;
    // Whether the rail's adapter waits. `later`: it is being tried, or cannot be now.
    [[nodiscard]] virtual Can can_wait(unsigned rail) = 0;
    // Null: it cannot be registered.
    [[nodiscard]] virtual std::unique_ptr<TaskMemory> expose(void* address, std::size_t length) = 0;
    // A queue whose tasks have `depth` requests under way at most, wait for words in `words`, and put data out of
    // `data`, which may be the same. Null: no room, or not now.
    [[nodiscard]] virtual std::unique_ptr<TaskQueue> create(unsigned rail, unsigned depth, const TaskMemory& words,
                                                            const TaskMemory& data) = 0;
    virtual void progress() = 0;
};

} // namespace ucx_mp::glue
