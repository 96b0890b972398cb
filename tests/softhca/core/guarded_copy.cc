#include "core/guarded_copy.h"

#include <dlfcn.h>
#include <ucontext.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>

#if defined(__x86_64__)

// Everything between _begin and _end is a leaf without stack frame: returning from anywhere in it is returning to its
// caller. Arguments rdi, rsi, rdx, rcx; result rax.
asm(R"(
    .text
    .p2align 4
    .hidden softhca_guarded_begin, softhca_guarded_end, softhca_guarded_fault
    .globl softhca_guarded_begin, softhca_guarded_end, softhca_guarded_fault
    .hidden softhca_guarded_copy, softhca_guarded_add, softhca_guarded_swap, softhca_guarded_touch
    .globl softhca_guarded_copy, softhca_guarded_add, softhca_guarded_swap, softhca_guarded_touch
    .type softhca_guarded_copy, @function
    .type softhca_guarded_add, @function
    .type softhca_guarded_swap, @function
    .type softhca_guarded_touch, @function
softhca_guarded_begin:

softhca_guarded_copy:
    cmpq $8, %rdx
    ja 10f
    jb 11f
    movq (%rsi), %rax
    movq %rax, (%rdi)
    xorl %eax, %eax
    ret
11: # less than 8
    cmpq $4, %rdx
    ja 12f
    jb 13f
    movl (%rsi), %eax
    movl %eax, (%rdi)
    xorl %eax, %eax
    ret
12: # 5 to 7: two that overlap
    movl (%rsi), %eax
    movl -4(%rsi,%rdx), %ecx
    movl %eax, (%rdi)
    movl %ecx, -4(%rdi,%rdx)
    xorl %eax, %eax
    ret
13: # 0 to 3: first, middle, last
    xorl %eax, %eax
    testq %rdx, %rdx
    je 14f
    movq %rdx, %r8
    shrq $1, %r8
    movzbl (%rsi), %eax
    movzbl (%rsi,%r8), %r9d
    movzbl -1(%rsi,%rdx), %ecx
    movb %al, (%rdi)
    movb %r9b, (%rdi,%r8)
    movb %cl, -1(%rdi,%rdx)
    xorl %eax, %eax
14: ret
10: # more than 8
    cmpq $16, %rdx
    ja 20f
    movq (%rsi), %rax
    movq -8(%rsi,%rdx), %rcx
    movq %rax, (%rdi)
    movq %rcx, -8(%rdi,%rdx)
    xorl %eax, %eax
    ret
20: # more than 16
    cmpq $32, %rdx
    ja 30f
    movups (%rsi), %xmm0
    movups -16(%rsi,%rdx), %xmm1
    movups %xmm0, (%rdi)
    movups %xmm1, -16(%rdi,%rdx)
    xorl %eax, %eax
    ret
30: # more than 32; does the target begin inside of the source?
    movq %rdi, %rax
    subq %rsi, %rax
    cmpq %rdx, %rax
    jb 50f
    cmpq $1024, %rdx
    ja 40f
    movups -32(%rsi,%rdx), %xmm2
    movups -16(%rsi,%rdx), %xmm3
    leaq -32(%rdx), %rcx
    xorl %eax, %eax
31: movups (%rsi,%rax), %xmm0
    movups 16(%rsi,%rax), %xmm1
    movups %xmm0, (%rdi,%rax)
    movups %xmm1, 16(%rdi,%rax)
    addq $32, %rax
    cmpq %rcx, %rax
    jb 31b
    movups %xmm2, -32(%rdi,%rdx)
    movups %xmm3, -16(%rdi,%rdx)
    xorl %eax, %eax
    ret
40: movq %rdx, %rcx
    rep movsb
    xorl %eax, %eax
    ret
50: movq %rdx, %rcx
    leaq -1(%rsi,%rdx), %rsi
    leaq -1(%rdi,%rdx), %rdi
    std
    rep movsb
    cld
    xorl %eax, %eax
    ret
    .size softhca_guarded_copy, . - softhca_guarded_copy

softhca_guarded_add:
    movq %rsi, %rax
    lock xaddq %rax, (%rdi)
    movq %rax, (%rdx)
    xorl %eax, %eax
    ret
    .size softhca_guarded_add, . - softhca_guarded_add

softhca_guarded_swap:
    movq %rsi, %rax
    lock cmpxchgq %rdx, (%rdi)
    movq %rax, (%rcx)
    xorl %eax, %eax
    ret
    .size softhca_guarded_swap, . - softhca_guarded_swap

softhca_guarded_touch:
    movzbl (%rdi), %eax
    testl %esi, %esi
    je 60f
    lock orb $0, (%rdi)
60: xorl %eax, %eax
    ret
    .size softhca_guarded_touch, . - softhca_guarded_touch

softhca_guarded_end:
softhca_guarded_fault: # rax is what the handler has put there
    cld
    ret
)");

extern "C" const char softhca_guarded_begin[], softhca_guarded_end[], softhca_guarded_fault[];

namespace softhca {

namespace {

using Sigaction = int (*)(int, const struct sigaction*, struct sigaction*);

std::mutex g_install;
struct sigaction g_next[2]; // of SIGSEGV, SIGBUS: who was there before

// The C library's: programs and libraries (UCX) put their own in front of it, which may refuse.
Sigaction real_sigaction() {
    static const Sigaction real = [] {
        void* libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        void* found = libc ? dlsym(libc, "sigaction") : nullptr;
        return found ? reinterpret_cast<Sigaction>(found) : &sigaction;
    }();
    return real;
}

// The signal that is being passed on in this thread. A handler may leave by a jump, so nobody says that it is over: the
// one before us calls us in its turn if we find the same signal below our own frame.
struct Passing {
    const void* context;
    uintptr_t frame;
};
thread_local Passing t_passing [[gnu::tls_model("initial-exec")]];

void pass_on(int signal, siginfo_t* info, void* context, uintptr_t frame) {
    const struct sigaction next = g_next[signal == SIGBUS];
    const bool again = t_passing.context == context && frame < t_passing.frame;
    const bool plain = !(next.sa_flags & SA_SIGINFO);
    if (plain && next.sa_handler == SIG_IGN && info->si_code <= 0) return; // sent by somebody
    // Default; or the one before us calls the one that it has found, which is us.
    if ((plain && (next.sa_handler == SIG_DFL || next.sa_handler == SIG_IGN)) || again) {
        struct sigaction nobody {};
        nobody.sa_handler = SIG_DFL;
        (void)real_sigaction()(signal, &nobody, nullptr);
        if (info->si_code <= 0) (void)raise(signal); // else the instruction faults again
        return;
    }
    if (next.sa_flags & SA_RESETHAND) { // it counts on not being asked twice
        g_next[signal == SIGBUS] = {};
        g_next[signal == SIGBUS].sa_handler = SIG_DFL;
    }
    const Passing outer = t_passing;
    t_passing = {context, frame};
    if (plain)
        next.sa_handler(signal);
    else
        next.sa_sigaction(signal, info, context);
    t_passing = outer;
}

void on_fault(int signal, siginfo_t* info, void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const auto at = reinterpret_cast<const char*>(registers[REG_RIP]);
    if (at < softhca_guarded_begin || at >= softhca_guarded_end || info->si_code <= 0)
        return pass_on(signal, info, context, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    const auto address = reinterpret_cast<greg_t>(info->si_addr);
    registers[REG_RAX] = address ? address : 1;
    registers[REG_RIP] = reinterpret_cast<greg_t>(softhca_guarded_fault);
}

} // namespace

void guard_against_faults() {
    const Sigaction call = real_sigaction();
    std::lock_guard lock(g_install);
    for (const int signal : {SIGSEGV, SIGBUS}) {
        struct sigaction now;
        if (call(signal, nullptr, &now) != 0 || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)) continue;
        g_next[signal == SIGBUS] = now;
        struct sigaction ours {};
        ours.sa_sigaction = on_fault;
        ours.sa_mask = now.sa_mask;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & (SA_NODEFER | SA_RESTART));
        (void)call(signal, &ours, nullptr);
    }
}

} // namespace softhca

#else

namespace softhca {

void guard_against_faults() {}
uintptr_t softhca_guarded_copy(void* to, const void* from, size_t length) {
    std::memmove(to, from, length);
    return 0;
}
uintptr_t softhca_guarded_add(uint64_t* word, uint64_t add, uint64_t* old) {
    *old = std::atomic_ref(*word).fetch_add(add);
    return 0;
}
uintptr_t softhca_guarded_swap(uint64_t* word, uint64_t compare, uint64_t swap, uint64_t* old) {
    (void)std::atomic_ref(*word).compare_exchange_strong(compare, swap);
    *old = compare;
    return 0;
}
uintptr_t softhca_guarded_touch(char*, int) { return 0; }

} // namespace softhca

#endif
