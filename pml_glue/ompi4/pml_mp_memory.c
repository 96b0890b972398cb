/* Unmapped memory. UCX's registration caches have to hear of it; but Open MPI has hooked the calls already, so it tells
 * them. Without this every large message, put and get would register its memory anew. */
#include "pml_mp.h"

#include <ucm/api/ucm.h>

#include "opal/mca/base/mca_base_framework.h"
#include "opal/mca/memory/base/base.h"
#include "opal/memoryhooks/memory.h"

static void unmapped(void* address, size_t length, void* unused, bool from_allocator) {
    (void)unused, (void)from_allocator;
    ucm_vm_munmap(address, length);
}

static bool registered;

void mca_pml_mp_watch_memory(void) {
    if (registered || mca_base_framework_open(&opal_memory_base_framework, 0) != OPAL_SUCCESS) return;
    const int needed = OPAL_MEMORY_FREE_SUPPORT | OPAL_MEMORY_MUNMAP_SUPPORT;
    if ((opal_mem_hooks_support_level() & needed) != needed) return; /* UCX hooks by itself, or goes without a cache */
    ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
    registered = opal_mem_hooks_register_release(unmapped, NULL) == OPAL_SUCCESS;
}

void mca_pml_mp_unwatch_memory(void) {
    if (registered) opal_mem_hooks_unregister_release(unmapped);
    registered = false;
}
