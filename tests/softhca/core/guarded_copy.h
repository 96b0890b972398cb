// Copies and atomics on memory that may be gone: a program can unmap what it has registered. An address that faults is
// reported instead of killing the process.
//
// No cost where nothing faults: the copying instructions lie in one piece of code without a stack frame; the handler of
// SIGSEGV and SIGBUS knows its bounds and lets it return. The handler passes on whatever happens elsewhere to the one
// that was there before. Not caught: a program that sets a handler of its own after its last registration of memory, or
// blocks these signals. Only on x86-64; elsewhere a fault is the program's.
#pragma once
#include <cstddef>
#include <cstdint>

namespace softhca {

// Puts the handler in front (again). Any thread; at joining a session and at every registration of memory.
void guard_against_faults();

// What each returns: 0, or the address that faulted (1 if the system did not tell). Then part may be copied.
#if defined(__x86_64__)
extern "C" {
// Ranges may overlap. Lengths 8 and 4 are one load and one store.
[[nodiscard, gnu::visibility("hidden")]] uintptr_t softhca_guarded_copy(void* to, const void* from, size_t length);
// `word` is aligned; the operations are atomic, `old` is the caller's own memory.
[[nodiscard, gnu::visibility("hidden")]] uintptr_t softhca_guarded_add(uint64_t* word, uint64_t add, uint64_t* old);
[[nodiscard, gnu::visibility("hidden")]] uintptr_t softhca_guarded_swap(uint64_t* word, uint64_t compare, uint64_t swap,
                                                                        uint64_t* old);
// Reads the byte; with `store` also writes it back, unchanged.
[[nodiscard, gnu::visibility("hidden")]] uintptr_t softhca_guarded_touch(char* byte, int store);
}
#else
[[nodiscard]] uintptr_t softhca_guarded_copy(void* to, const void* from, size_t length);
[[nodiscard]] uintptr_t softhca_guarded_add(uint64_t* word, uint64_t add, uint64_t* old);
[[nodiscard]] uintptr_t softhca_guarded_swap(uint64_t* word, uint64_t compare, uint64_t swap, uint64_t* old);
[[nodiscard]] uintptr_t softhca_guarded_touch(char* byte, int store);
#endif

} // namespace softhca
