// The object behind mp_core_t.
#pragma once

#include <optional>

#include "pml_glue/core/async/thread.h"
#include "pml_glue/core/collect/group.h"
#include "pml_glue/core/engine/engine.h"
#include "pml_glue/core/uct/uct_port.h"
#include "pml_glue/core/window/window.h"

// Groups, windows and engine go first: their endpoints belong to the port's interfaces.
struct mp_core {
    ucx_mp::glue::UctPort port;
    std::optional<ucx_mp::glue::Engine> engine;
    std::optional<ucx_mp::glue::Windows> windows;
    std::optional<ucx_mp::glue::Groups> groups;
    std::optional<ucx_mp::glue::async::Thread> thread; // destroyed first
};
