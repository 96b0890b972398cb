// Handles a lack of memory where no caller can be told that nothing has happened. A message that has come would be
// lost, an operation half done, or an answer awaited that nobody has asked for. It prints one line, and ends the
// process: its peers hear of that. No exception passes C: libraries between, and programs behind, cannot handle one.
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

// Calls it. `what`: the present work, in words.
template <class F> auto or_end(const char* what, F&& function) noexcept -> decltype(function()) {
    try {
        return function();
    } catch (const std::bad_alloc&) { end_process(what, "no memory"); } catch (const std::exception& exception) {
        end_process(what, exception.what());
    }
}

} // namespace ucx_mp::glue
