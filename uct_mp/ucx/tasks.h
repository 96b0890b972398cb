// Queues that wait, for the public functions (uct_mp.h): the pool of an interface, and the queues that users have.
#pragma once

#include <memory>
#include <vector>

#include "uct_mp/tasks/pool.h"
#include "uct_mp/ucx/config.h"

struct uct_mp_task_queue;

namespace ucx_mp::face {

class Tasks {
public:
    Tasks(const verbs::DeviceSet& devices, Services& services, TasksMode mode);
    ~Tasks(); // ends all queues

    [[nodiscard]] const verbs::Rail* rail(unsigned index) const; // null: there is none
    [[nodiscard]] bool wanted(const verbs::Rail& rail) const;    // else its adapter is not tried
    Status create(const verbs::Rail& rail, unsigned depth, uct_mp_task_queue*& out);
    void destroy(const uct_mp_task_queue* queue);

    tasks::Pool pool;

private:
    const verbs::DeviceSet& devices_;
    const TasksMode mode_;
    std::vector<std::unique_ptr<uct_mp_task_queue>> queues_;
};

} // namespace ucx_mp::face
