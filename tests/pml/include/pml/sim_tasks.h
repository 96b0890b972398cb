// Queues that wait in virtual time, for SimPort: the transport's own (uct_mp/tasks) on a node's adapters.
#pragma once

#include <cstring>

#include "pml_glue/core/task_port.h"
#include "simulator/cluster.h"
#include "uct_mp/tasks/pool.h"

namespace ucx_mp::sim {

class SimTasks final : public glue::TaskPort {
public:
    explicit SimTasks(Node& node) : node_(node), pool_(node.devices(), node.services(), {}) {}
    [[nodiscard]] unsigned rails() override { return static_cast<unsigned>(node_.devices().rails().size()); }
    [[nodiscard]] Can can_wait(unsigned rail) override {
        switch (pool_.can_wait(node_.devices().rails()[rail])) {
        case tasks::Waits::yes:
            return Can::yes;
        case tasks::Waits::no:
            return Can::no;
        default:
            return Can::later;
        }
    }
    [[nodiscard]] std::unique_ptr<glue::TaskMemory> expose(void* address, std::size_t length) override {
        auto memory = std::make_unique<Memory>();
        const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        if (failed(verbs::register_memory(node_.devices(), address, length, access, memory->registration)))
            return nullptr;
        memory->packed.resize(verbs::packed_keys_size(static_cast<unsigned>(node_.devices().devices().size())));
        memory->registration.pack(memory->packed.data());
        return memory;
    }
    [[nodiscard]] std::unique_ptr<glue::TaskQueue> create(unsigned rail, unsigned depth, const glue::TaskMemory& words,
                                                          const glue::TaskMemory& data) override {
        auto queue = std::make_unique<Queue>();
        const verbs::Rail& on = node_.devices().rails()[rail];
        if (failed(pool_.create(on, depth, queue->queue))) return nullptr;
        queue->device = &node_.devices().device_of(on);
        queue->word_lkey = static_cast<const Memory&>(words).registration.lkey[on.device];
        queue->data_lkey = static_cast<const Memory&>(data).registration.lkey[on.device];
        return queue;
    }
    void progress() override { (void)pool_.poll(); }

private:
    struct Memory final : glue::TaskMemory {
        [[nodiscard]] std::vector<std::byte> keys() const override { return packed; }
        verbs::Registration registration;
        std::vector<std::byte> packed;
    };
    struct Queue final : glue::TaskQueue {
        void tell(std::byte* half) const override {
            tasks::Half told;
            queue->tell(told);
            static_assert(sizeof told == kHalf);
            std::memcpy(half, &told, sizeof told);
        }
        [[nodiscard]] static bool unpack(std::span<const std::byte> packed, unsigned device, std::uint32_t& rkey) {
            if (packed.empty()) return true;
            verbs::RemoteKeys all;
            if (!verbs::unpack_keys(packed.data(), all) || device >= all.count) return false;
            rkey = all.rkey[device];
            return true;
        }
        [[nodiscard]] bool connect(const std::byte* half, std::span<const std::byte> word_keys,
                                   std::span<const std::byte> data_keys) override {
            tasks::Half told;
            std::memcpy(&told, half, sizeof told);
            return unpack(word_keys, told.device, word_rkey) && unpack(data_keys, told.device, data_rkey) &&
                   queue->connect(told) == Status::ok;
        }
        [[nodiscard]] bool post(const glue::Task& task) override {
            Status status = Status::ok;
            const auto at = [](const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); };
            for (const std::uint64_t* const word : task.words)
                if (!failed(status)) status = queue->wait(at(word), word_lkey, task.value);
            if (!failed(status) && task.bytes)
                status =
                    queue->write(at(task.from), static_cast<std::uint32_t>(task.bytes), data_lkey, task.to, data_rkey);
            if (!failed(status)) status = queue->word(task.value, task.word, word_rkey);
            if (!failed(status)) status = queue->post();
            if (failed(status)) queue->forget();
            return !failed(status);
        }
        [[nodiscard]] State state() const override {
            return {queue->posted(), queue->done(), queue->failed() || verbs::is_dead(*device)};
        }
        std::unique_ptr<tasks::Queue> queue;
        const verbs::Device* device = nullptr;
        std::uint32_t word_lkey = 0, data_lkey = 0, word_rkey = 0, data_rkey = 0;
    };
    Node& node_;
    tasks::Pool pool_;
};

} // namespace ucx_mp::sim
