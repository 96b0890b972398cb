#include "uct_mp/ucx/config.h"
#include "uct_mp/ucx/variable_texts.h"

namespace ucx_mp::face {

namespace {
const char* const kModes[] = {"auto", "n", "y", nullptr};
static_assert(int(TasksMode::automatic) == 0 && int(TasksMode::no) == 1 && int(TasksMode::yes) == 2);
} // namespace

Variable tasks_variable() {
    return {Group::tuning,
            "TASKS",
            kModes[0],
            "Queues that wait: an adapter executes collective operations while the program computes "
            "(coll_mp_engine of pml/mp). Only where a self-test passes (see mp_info --check).\n"
            " - auto: on adapters that it has been tried with. That is the emulated one so far, no real one.\n"
            " - n: on none.\n"
            " - y: on all. They need raw requests and WAIT on data: ConnectX-7 or later.",
            Syntax::choice,
            offsetof(MdOptions, tasks),
            kModes};
}

} // namespace ucx_mp::face
