// The C header of collective operations.
#include "pml_glue/core/mp_collect.h"

#include "pml_glue/core/core.h"
#include "pml_glue/core/no_memory.h"

using namespace ucx_mp::glue;

namespace {
Group& of(mp_group_t* group) { return *reinterpret_cast<Group*>(group); }
const Group& of(const mp_group_t* group) { return *reinterpret_cast<const Group*>(group); }
} // namespace

extern "C" {

uint32_t mp_group_next_life(mp_core_t* core, const mp_group_config_t* communicator) {
    uint32_t life = 0;
    or_end("the number of a communicator", [&] { life = core->groups->next_life(*communicator); });
    return life;
}

mp_group_t* mp_group_create(mp_core_t* core, const mp_group_config_t* config) {
    Group* group = nullptr;
    or_end("a communicator's collective operations", [&] { group = core->groups->create(*config); });
    return reinterpret_cast<mp_group_t*>(group);
}

mp_group_t* mp_group_create_request(mp_group_t* communicator) {
    Group* request = nullptr;
    or_end("a persistent request", [&] { request = of(communicator).create_request(); });
    return reinterpret_cast<mp_group_t*>(request);
}

void mp_group_free(mp_group_t* group) { of(group).free(); }
void mp_group_give_up(mp_group_t* group) {
    or_end("saying that there is no memory", [&] { of(group).give_up(); });
}

bool mp_group_takes(const mp_group_t* group, mp_collective_kind_t kind, size_t bytes) {
    return of(group).takes(static_cast<Collective>(kind), bytes);
}
bool mp_group_is_small(const mp_group_t* group, size_t bytes) { return of(group).is_bruck(bytes); }
mp_error_t mp_group_error(const mp_group_t* group) { return of(group).error(); }
bool mp_group_idle(const mp_group_t* group) { return of(group).idle(); }

void mp_collective_start(mp_group_t* group, mp_collective_storage_t* operation) {
    or_end("a collective operation", [&] { of(group).start(GroupOperation::of(*operation)); });
}

} // extern "C"
