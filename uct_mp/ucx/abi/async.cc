#include "uct_mp/ucx/abi/async.h"

#include <cstring>
#include <initializer_list>

namespace ucx_mp::face::abi {

namespace {

struct CheckedMutex { // ucs_async_thread_mutex, where UCX was built with assertions; else the lock alone
    pthread_mutex_t lock;
    pthread_t owner;
    unsigned count;
};
const auto kNobody = static_cast<pthread_t>(-1); // UCS_ASYNC_PTHREAD_ID_NULL

// The union before the mode has the larger of both locks.
constexpr std::size_t kPlain = sizeof(pthread_mutex_t), kChecked = sizeof(CheckedMutex);
static_assert(sizeof(ucs_recursive_spinlock_t) <= kPlain);

std::size_t mode_at = 0;

int number_at(const ucs_async_context_t* async, std::size_t offset) {
    int value = 0;
    std::memcpy(&value, reinterpret_cast<const char*>(async) + offset, sizeof value);
    return value;
}

bool checked() { return mode_at == kChecked; }
ucs_recursive_spinlock_t* spinlock(ucs_async_context_t* async) {
    return reinterpret_cast<ucs_recursive_spinlock_t*>(async);
}
CheckedMutex* mutex(ucs_async_context_t* async) { return reinterpret_cast<CheckedMutex*>(async); }

void owned(ucs_async_context_t* async) {
    if (checked() && mutex(async)->count++ == 0) mutex(async)->owner = pthread_self();
}

} // namespace

bool find_async_mode() {
    ucs_async_context_t* async = nullptr;
    // With a mutex that keeps its owner, the owner stands at the place of the mode: nobody, which is no mode.
    if (async_create(UCS_ASYNC_MODE_THREAD_MUTEX, &async) != UCS_OK) return false;
    mode_at = 0;
    for (const std::size_t offset : {kPlain, kChecked})
        if (mode_at == 0 && number_at(async, offset) == UCS_ASYNC_MODE_THREAD_MUTEX) mode_at = offset;
    async_destroy(async);
    return mode_at != 0;
}

ucs_async_mode_t mode_of(const ucs_async_context_t* async) {
    return static_cast<ucs_async_mode_t>(number_at(async, mode_at));
}

void block(ucs_async_context_t* async) {
    if (mode_of(async) == UCS_ASYNC_MODE_THREAD_SPINLOCK) {
        ucs_recursive_spin_lock(spinlock(async));
        return;
    }
    (void)pthread_mutex_lock(&mutex(async)->lock);
    owned(async);
}

bool try_block(ucs_async_context_t* async) {
    if (mode_of(async) == UCS_ASYNC_MODE_THREAD_SPINLOCK) return ucs_recursive_spin_trylock(spinlock(async));
    if (pthread_mutex_trylock(&mutex(async)->lock) != 0) return false;
    owned(async);
    return true;
}

void unblock(ucs_async_context_t* async) {
    if (mode_of(async) == UCS_ASYNC_MODE_THREAD_SPINLOCK) {
        ucs_recursive_spin_unlock(spinlock(async));
        return;
    }
    if (checked() && --mutex(async)->count == 0) mutex(async)->owner = kNobody;
    (void)pthread_mutex_unlock(&mutex(async)->lock);
}

} // namespace ucx_mp::face::abi
