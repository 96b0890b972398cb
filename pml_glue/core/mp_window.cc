// The C header of windows.
#include "pml_glue/core/mp_window.h"

#include <cstdlib>
#include <exception>

#include "pml_glue/core/core.h"
#include "pml_glue/core/no_memory.h"

using namespace ucx_mp::glue;

namespace {
Window& of(mp_window_t* window) { return *reinterpret_cast<Window*>(window); }

// Without memory: `otherwise`. Only for calls that have not begun then: else that ends the process (no_memory.h).
template <class Result, class F> Result guarded(Result otherwise, F&& function) {
    try {
        return function();
    } catch (const std::exception&) { return otherwise; }
}
} // namespace

extern "C" {

mp_window_t* mp_window_create(mp_core_t* core, const mp_window_config_t* config, const mp_window_hooks_t* hooks) {
    try {
        return reinterpret_cast<mp_window_t*>(core->windows->create(*config, *hooks));
    } catch (const std::exception&) { return nullptr; }
}

void* mp_window_keys(mp_window_t* window, size_t* length) {
    return guarded<void*>(nullptr, [&] {
        const auto keys = of(window).keys();
        *length = keys.size();
        void* const out = std::malloc(keys.size() + 1);
        if (out && !keys.empty()) std::memcpy(out, keys.data(), keys.size());
        return out;
    });
}

void mp_window_set_keys(mp_window_t* window, const void* keys, size_t stride) {
    or_end("taking keys", [&] { of(window).set_keys(static_cast<const std::byte*>(keys), stride); });
}

bool mp_window_settled(mp_window_t* window) {
    return or_end("settling a window", [&] { return of(window).settled(); });
}
void mp_window_free(mp_window_t* window) { of(window).free(); }

bool mp_window_attach(mp_window_t* window, void* base, size_t size) {
    try {
        of(window).attach(base, size);
    } catch (const std::exception&) { return false; }
    return true;
}
bool mp_window_detach(mp_window_t* window, const void* base) { return of(window).detach(base); }

mp_error_t mp_window_start(mp_window_t* window, const mp_rma_t* rma) {
    return guarded(MP_FAILED, [&] { return of(window).start(*rma); });
}
bool mp_window_put_now(mp_window_t* window, uint32_t rank, const void* from, size_t bytes, uint64_t address,
                       mp_epoch_t epoch) {
    return guarded(false, [&] { return of(window).put_now(rank, from, bytes, address, epoch); });
}
bool mp_window_get_now(mp_window_t* window, uint32_t rank, void* to, size_t bytes, uint64_t address, mp_epoch_t epoch) {
    return guarded(false, [&] { return of(window).get_now(rank, to, bytes, address, epoch); }); // the other way says so
}
bool mp_window_flush(mp_window_t* window, uint32_t rank, unsigned* polls, mp_error_t* error) {
    return or_end("flushing", [&] { return of(window).flush(rank, *polls, *error); });
}
bool mp_window_flushed(mp_window_t* window, uint32_t rank, bool local, uint64_t* call) {
    return or_end("flushing",
                  [&] { return call ? of(window).flushed(rank, local, *call) : of(window).flushed(rank, local); });
}
mp_error_t mp_window_error(mp_window_t* window, uint32_t rank) { return of(window).error(rank); }
bool mp_window_gone(mp_window_t* window, uint32_t rank) {
    return or_end("looking for a rank", [&] { return of(window).gone(rank); });
}

void mp_window_want_lock(mp_window_t* window, uint32_t rank, bool exclusive) {
    or_end("locking", [&] { of(window).want_lock(rank, exclusive); });
}
bool mp_window_wants_lock(mp_window_t* window, uint32_t rank) {
    return or_end("locking", [&] { return of(window).wants_lock(rank); });
}
bool mp_window_locked(mp_window_t* window, uint32_t rank) {
    return or_end("locking", [&] { return of(window).locked(rank); });
}
bool mp_window_unlocked(mp_window_t* window, uint32_t rank) {
    return or_end("unlocking", [&] { return of(window).unlocked(rank); });
}

void mp_window_access(mp_window_t* window, uint32_t rank, bool check) {
    or_end("an epoch", [&] { of(window).access(rank, check); });
}
bool mp_window_completed(mp_window_t* window, uint32_t rank) {
    return or_end("an epoch", [&] { return of(window).completed(rank); });
}
void mp_window_expose(mp_window_t* window, uint32_t rank, bool check) {
    or_end("an epoch", [&] { of(window).expose(rank, check); });
}
bool mp_window_closed(mp_window_t* window, uint32_t rank) {
    return or_end("an epoch", [&] { return of(window).closed(rank); });
}
bool mp_window_wants_direct_fences(const mp_window_t* window) {
    return reinterpret_cast<const Window*>(window)->wants_direct_fences();
}
void mp_window_set_direct_fences(mp_window_t* window, bool direct) { of(window).set_direct_fences(direct); }
bool mp_window_fence(mp_window_t* window) {
    return or_end("a fence", [&] { return of(window).fence(); });
}
bool mp_window_barrier(mp_window_t* window) {
    return or_end("a barrier", [&] { return of(window).barrier(); });
}

} // extern "C"
