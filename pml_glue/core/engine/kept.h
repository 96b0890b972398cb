// Results of the progress thread's turns, which the program's next call tells.
// Until then the program may look at its requests, so no result shows before.
#pragma once

#include <string>
#include <vector>

#include "pml_glue/core/engine/request.h"

namespace ucx_mp::glue {

struct Kept {
    struct Operation {
        void (*done)(void* user, mp_error_t error);
        void* user;
        mp_error_t error;
    };
    bool in_thread = false; // the progress thread has the turn

    [[nodiscard]] bool any() const { return first || !operations.empty() || !lines.empty(); }
    void add(Request& request) {
        request.next_bulk = nullptr;
        (first ? last->next_bulk : first) = &request;
        last = &request;
    }
    // An operation's hook: called now, or kept.
    void tell(void (*done)(void* user, mp_error_t error), void* user, mp_error_t error) {
        if (in_thread) [[unlikely]]
            return operations.push_back({done, user, error});
        done(user, error);
    }

    Request *first = nullptr, *last = nullptr; // requests that have ended, by next_bulk
    std::vector<Operation> operations;
    std::vector<std::string> lines; // for the user
};

} // namespace ucx_mp::glue
