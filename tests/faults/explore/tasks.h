// Queues that wait (uct_mp/tasks) between the two nodes of a play, and everything that can be seen of them:
//   t    a task for the next rail's queue: when a word of ours is there, 6000 bytes and a word to the other node
//   r    the program stores the word of the first task that waits
//
// Checked at every step: where a word is, all its data are, before and after a completion tells so. A target that has
// seen a word stores something else in place of the data, which must stay. A queue that fails is ended on both sides;
// only then its tasks whose word has not come go by messages, which this does by itself. Nothing may come behind them.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "simulator/cluster.h"
#include "uct_mp/tasks/pool.h"
#include "uct_mp/verbs/memory.h"

namespace ucx_mp::sim {

class TaskPlay {
public:
    explicit TaskPlay(Cluster& cluster) : cluster_(cluster) {
        for (unsigned i = 0; i < 2; ++i) {
            Side& side = sides_[i];
            Node& node = cluster.node(i);
            side.pool = std::make_unique<tasks::Pool>(
                node.devices(), node.services(),
                tasks::Limits{.queues = 64,
                              .requests = 4096,
                              .reliability = {.timeout = 5, .retry_count = 3, .max_rd_atomic = 1}});
            side.memory.resize(kMost * (2 * kPlace + 2 * kWord));
            if (failed(verbs::register_memory(node.devices(), side.memory.data(), side.memory.size(),
                                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, side.registration)))
                throw std::runtime_error("memory for tasks is not registered");
        }
        for (unsigned tries = 0; !waits(); ++tries) {
            if (tries > 1000) throw std::runtime_error("an adapter does not wait");
            (void)cluster.world.at(cluster.world.now() + 20'000, [] {});
            cluster.run_for(20'000);
            for (Side& side : sides_) (void)side.pool->poll();
        }
        for (unsigned rail = 0; rail < 2; ++rail) {
            tasks::Half halves[2];
            for (unsigned i = 0; i < 2; ++i) {
                auto& queue = sides_[i].queues[rail];
                if (failed(sides_[i].pool->create(cluster.node(i).devices().rails()[rail], 64, queue)))
                    throw std::runtime_error("no queue for tasks");
                queue->tell(halves[i]);
            }
            for (unsigned i = 0; i < 2; ++i)
                if (failed(sides_[i].queues[rail]->connect(halves[1 - i])))
                    throw std::runtime_error("a queue for tasks is not connected");
        }
    }
    TaskPlay(const TaskPlay&) = delete;

    void give(unsigned i) {
        Side& side = sides_[i];
        const auto number = static_cast<unsigned>(side.tasks.size());
        if (number == kMost) return mistake(i, "more tasks than there is room for");
        Task& task = side.tasks.emplace_back();
        task.rail = number % 2;
        for (std::size_t b = 0; b < kLength; ++b) side.source(number)[b] = pattern(i, number, b);
        tasks::Queue& queue = *side.queues[task.rail];
        if (side.ended[task.rail]) return; // by a message
        const verbs::Rail& rail = cluster_.node(i).devices().rails()[task.rail];
        const std::uint32_t lkey = side.registration.lkey[rail.device];
        const Side& other = sides_[1 - i];
        const std::uint32_t rkey = other.registration.rkey[rail.device];
        (void)queue.wait(address(side.release(number)), lkey, number + 1);
        (void)queue.write(address(side.source(number)), kLength, lkey, address(other.place(number)), rkey);
        (void)queue.word(number + 1, address(other.word(number)), rkey);
        task.posted = queue.post() == Status::ok;
        task.number = queue.posted();
    }
    void release(unsigned i) {
        Side& side = sides_[i];
        if (side.released == side.tasks.size()) return mistake(i, "no task waits");
        store(side.release(side.released), side.released + 1);
        ++side.released;
        (void)side.pool->poll(); // in virtual time the adapter sees it then
    }
    // After every step.
    void look() {
        for (Side& side : sides_) (void)side.pool->poll();
        for (unsigned rail = 0; rail < 2; ++rail)
            if (sides_[0].queues[rail]->failed() || sides_[1].queues[rail]->failed()) end(rail);
        for (unsigned i = 0; i < 2; ++i)
            for (unsigned k = 0; k < sides_[i].tasks.size(); ++k) look(i, k);
    }
    [[nodiscard]] bool finished() const {
        for (const Side& side : sides_)
            for (const Task& task : side.tasks)
                if (!task.taken) return false;
        return true;
    }
    void check_end() {
        for (unsigned i = 0; i < 2; ++i)
            for (unsigned k = 0; k < sides_[i].tasks.size(); ++k) {
                const Side& other = sides_[1 - i];
                if (load(other.word(k)) != k + 1)
                    mistake(i, "the word of task " + std::to_string(k) + " is another one");
                for (std::size_t b = 0; b < kLength; ++b)
                    if (other.place(k)[b] != kMine) {
                        mistake(i, "task " + std::to_string(k) + " has come again, or late");
                        break;
                    }
            }
    }
    [[nodiscard]] const std::string& mistakes() const { return mistakes_; }
    [[nodiscard]] unsigned by_messages() const { return by_messages_; }
    [[nodiscard]] unsigned ended() const { return sides_[0].ended[0] + sides_[0].ended[1]; }

private:
    static constexpr std::size_t kLength = 6000, kPlace = 6144, kWord = 64;
    static constexpr unsigned kMost = 16;
    static constexpr std::byte kMine{0xe7};
    struct Task {
        unsigned rail = 0;
        std::uint64_t number = 0; // in its queue
        bool posted = false, taken = false;
    };
    struct Side {
        std::unique_ptr<tasks::Pool> pool;
        verbs::Registration registration;
        std::vector<std::byte> memory;
        std::array<std::unique_ptr<tasks::Queue>, 2> queues; // by rail; gone before the pool
        std::array<bool, 2> ended{};
        std::vector<Task> tasks;
        unsigned released = 0;
        [[nodiscard]] std::byte* source(unsigned k) const { return base() + k * kPlace; }
        [[nodiscard]] std::byte* place(unsigned k) const { return base() + (kMost + k) * kPlace; }
        [[nodiscard]] std::byte* release(unsigned k) const { return base() + 2 * kMost * kPlace + k * kWord; }
        [[nodiscard]] std::byte* word(unsigned k) const { return base() + 2 * kMost * kPlace + (kMost + k) * kWord; }
        [[nodiscard]] std::byte* base() const { return const_cast<std::byte*>(memory.data()); }
    };
    static std::byte pattern(unsigned i, unsigned k, std::size_t b) {
        return static_cast<std::byte>(b * 167 + k * 59 + i * 101 + (b >> 8));
    }
    static std::uint64_t address(const std::byte* at) { return reinterpret_cast<std::uint64_t>(at); }
    static void store(std::byte* at, std::uint64_t value) { std::memcpy(at, &value, sizeof value); }
    static std::uint64_t load(const std::byte* at) {
        std::uint64_t value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    bool waits() {
        bool all = true;
        for (unsigned i = 0; i < 2; ++i)
            for (unsigned rail = 0; rail < 2; ++rail)
                all &= sides_[i].pool->can_wait(cluster_.node(i).devices().rails()[rail]) == tasks::Waits::yes;
        return all;
    }
    void mistake(unsigned i, const std::string& what) {
        if (mistakes_.size() < 1000) mistakes_ += "node " + std::to_string(i) + ": " + what + "\n";
    }
    // In the end both halves are dead.
    void end(unsigned rail) {
        bool dead = true;
        for (Side& side : sides_) {
            const Status status = side.queues[rail]->end();
            if (failed(status) && status != Status::in_progress)
                mistake(0, "a queue does not end: status " + std::to_string(int(status)));
            dead &= side.queues[rail]->dead();
        }
        if (dead) sides_[0].ended[rail] = sides_[1].ended[rail] = true;
    }
    void look(unsigned i, unsigned k) {
        Side &side = sides_[i], &other = sides_[1 - i];
        Task& task = side.tasks[k];
        const std::uint64_t word = load(other.word(k));
        const bool complete = task.posted && side.queues[task.rail]->done() >= task.number;
        if (word != 0 && word != k + 1) mistake(i, "task " + std::to_string(k) + " has brought another word");
        if (complete && word == 0) mistake(i, "task " + std::to_string(k) + " is complete, and its word is not there");
        if (word != 0 && k >= side.released) mistake(i, "task " + std::to_string(k) + " has not waited");
        if (task.taken) return;
        if (word != 0) {
            for (std::size_t b = 0; b < kLength; ++b)
                if (other.place(k)[b] != pattern(i, k, b)) {
                    mistake(i, "the word of task " + std::to_string(k) + " is there before its data");
                    break;
                }
        } else if (side.ended[task.rail] && k < side.released) {
            ++by_messages_;
            store(other.word(k), k + 1);
        } else {
            return;
        }
        task.taken = true;
        std::memset(other.place(k), int(kMine), kLength);
    }

    Cluster& cluster_;
    Side sides_[2];
    std::string mistakes_;
    unsigned by_messages_ = 0;
};

} // namespace ucx_mp::sim
