// Where there is no memory, and nobody can be told that nothing has happened: a message that has come would be lost, an
// operation half done, or something waited for that nobody has asked for. One line, and the process ends: its peers
// hear of that. Nothing thrown passes C: libraries between, and programs behind, know nothing of it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

namespace ucx_mp::glue {

[[noreturn, gnu::cold, gnu::noinline]] inline void end_process(const char* what, const char* why) noexcept {
    std::fprintf(stderr, "pml/mp: %s: %s: this process ends\n", what, why);
    std::abort();
}

// Calls it. `what`: what is done meanwhile, in words.
template <class F> auto or_end(const char* what, F&& function) noexcept -> decltype(function()) {
    try {
        return function();
    } catch (const std::bad_alloc&) { end_process(what, "no memory"); } catch (const std::exception& exception) {
        end_process(what, exception.what());
    }
}

} // namespace ucx_mp::glue
