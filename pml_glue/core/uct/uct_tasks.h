// Queues that wait over uct_mp.h: of the first lane that has them, mp_rc's or mp_dc's.
#pragma once

#include "pml_glue/core/task_port.h"
#include "pml_glue/core/uct/lane.h"
#include "uct_mp/api/uct_mp.h"

namespace ucx_mp::glue {

class UctTaskQueue;

class UctTasks final : public TaskPort {
public:
    explicit UctTasks(const Lane& lane);     // outlives it
    [[nodiscard]] unsigned rails() override; // the first call begins self-tests
    [[nodiscard]] Can can_wait(unsigned rail) override;
    [[nodiscard]] std::unique_ptr<TaskMemory> expose(void* address, std::size_t length) override;
    [[nodiscard]] std::unique_ptr<TaskQueue> create(unsigned rail, unsigned depth, const TaskMemory& words,
                                                    const TaskMemory& data) override;
    void progress() override;

private:
    friend class UctTaskQueue;
    const Lane& lane_;
    unsigned looks_ = 0;           // calls of progress()
    std::vector<unsigned> queues_; // of each rail; empty: not asked yet
    std::vector<bool> gone_;       // rails whose adapter has died
};

} // namespace ucx_mp::glue
