/*
 * Memory that the program gives back. Registrations are kept for later, so UCX has to hear of it before it is gone.
 * UCX hooks munmap() and its like for that, but Open MPI's own hooks come later and take their place: UCX then hears
 * nothing, finds that out, and keeps no registration at all. So Open MPI's hooks tell it.
 */
#include "pml_mp.h"

#include <ucm/api/ucm.h>

#include "opal/mca/memory/base/base.h"
#include "opal/memoryhooks/memory.h"

static uint64_t times; /* memory has been given back, by any thread */

static void released(void* address, size_t length, void* unused, bool from_alloc) {
    (void)unused, (void)from_alloc;
    __atomic_fetch_add(&times, 1, __ATOMIC_RELEASE);
    ucm_vm_munmap(address, length);
}

/* Where nobody tells, memory may always have been given back. */
uint64_t mca_pml_mp_unmapped(void* unused) {
    (void)unused;
    return mca_pml_mp.watching ? __atomic_load_n(&times, __ATOMIC_ACQUIRE) : ++times;
}

/* Before UCT is opened: it asks then. Without support UCX tries by itself. */
void mca_pml_mp_watch_memory(void) {
    static const int kNeeded = OPAL_MEMORY_FREE_SUPPORT | OPAL_MEMORY_MUNMAP_SUPPORT;
    if (mca_base_framework_open(&opal_memory_base_framework, 0) != OPAL_SUCCESS) return;
    mca_pml_mp.memory_open = true;
    if ((opal_mem_hooks_support_level() & kNeeded) != kNeeded) return;
    ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
    opal_mem_hooks_register_release(released, NULL);
    mca_pml_mp.watching = true;
}

/* Behind the last registration. */
void mca_pml_mp_forget_memory(void) {
    if (mca_pml_mp.watching) opal_mem_hooks_unregister_release(released);
    if (mca_pml_mp.memory_open) mca_base_framework_close(&opal_memory_base_framework);
    mca_pml_mp.watching = mca_pml_mp.memory_open = false;
}
