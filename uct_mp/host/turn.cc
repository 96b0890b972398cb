#include "uct_mp/host/turn.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace ucx_mp::turn {

namespace {
constexpr unsigned kSpins = 2000, kYields = 20;

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }
} // namespace

bool can_take_turns() { return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

bool Words::barrier() { return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0; }

std::mutex& forks_wait_for() {
    static std::mutex held;
    static const int once = pthread_atfork([] { held.lock(); }, [] { held.unlock(); }, [] { held.unlock(); });
    (void)once;
    return held;
}

} // namespace ucx_mp::turn

using namespace ucx_mp::turn;

// The thread leaves within a slice if it has a processor. If it has not, spinning would only keep it from one.
extern "C" void mp_turn_wait(mp_turn_t* turn) {
    if (mp_turn_depth(turn) > 1) return; // the outermost call has waited
    Words words(*turn);
    for (unsigned tries = 0; words.attention() & MP_TURN_TAKEN; ++tries) {
        if (tries < kSpins) {
#if defined __x86_64__ || defined __i386__
            __builtin_ia32_pause();
#endif
        } else if (tries < kSpins + kYields) {
            sched_yield();
        } else {
            const timespec pause{0, 20'000};
            nanosleep(&pause, nullptr);
        }
    }
    words.looks();
    if (!(words.attention() & MP_TURN_NEWS)) return;
    words.clear(MP_TURN_NEWS);
    if (turn->tell) turn->tell(turn->core);
}
