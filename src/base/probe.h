/* probe: places at which a tracer outside the process can stop it (USDT).                           floor: base
 *
 * A probe is one nop on a slow path. A note in the section .note.stapsdt names it, and says where its arguments are at
 * that moment. bpftrace, perf, gdb and SystemTap read these notes. docs/probes.md lists the probes.
 *
 *   note:  sizes of the name and of the rest, 3 | "stapsdt" | address of the nop | address of .stapsdt.base | 0 |
 *          "provider" | "name" | "8@%rdi 8@$1"
 *
 * The form is that of <sys/sdt.h>, which most machines lack, and its words are an interface of all these tools. Each
 * argument is an unsigned word of 64 bits, in a register or constant: every reader understands these two. The last 0
 * says that no counter tells the program if anyone traces.
 *
 * Threads: any. A probe reads and writes nothing but its arguments. */
#ifndef TSLAB_BASE_PROBE_H
#define TSLAB_BASE_PROBE_H

#include <stdint.h>

#define PROBE_NOTE_(provider, name, arguments)                                   \
                   ".pushsection .note.stapsdt, \"?\", \"note\"\n"               \
                   ".balign 4\n"                                                 \
                   ".4byte 992f - 991f, 994f - 993f, 3\n"                        \
                   "991: .asciz \"stapsdt\"\n"                                   \
                   "992: .balign 4\n"                                            \
                   "993: .8byte 990b, _.stapsdt.base, 0\n"                       \
                   ".asciz \"" provider "\", \"" name "\", \"" arguments "\"\n"  \
                   "994: .balign 4\n"                                            \
                   ".popsection\n"                                               \
                   ".ifndef _.stapsdt.base\n"                                    \
                   ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
                   ".weak _.stapsdt.base\n"                                      \
                   ".hidden _.stapsdt.base\n"                                    \
                   "_.stapsdt.base: .space 1\n"                                  \
                   ".size _.stapsdt.base, 1\n"                                   \
                   ".popsection\n"                                               \
                   ".endif\n"
#define PROBE_(provider, name, arguments, ...) \
  __asm__ volatile("990: nop\n" PROBE_NOTE_(provider, name, arguments) : : __VA_ARGS__)
#define PROBE_ARGUMENT_(value) "nr"((uint64_t)(value))

#define PROBE1(provider, name, a) PROBE_(provider, name, "8@%0", PROBE_ARGUMENT_(a))
#define PROBE2(provider, name, a, b) PROBE_(provider, name, "8@%0 8@%1", PROBE_ARGUMENT_(a), PROBE_ARGUMENT_(b))
#define PROBE3(provider, name, a, b, c) \
  PROBE_(provider, name, "8@%0 8@%1 8@%2", PROBE_ARGUMENT_(a), PROBE_ARGUMENT_(b), PROBE_ARGUMENT_(c))

/* The same with a frame of a function further up as this function's own. Our functions keep no frame pointers on
 * x86-64, so tracers that take the stack by these would find no caller. Behind the nop the register is as it was.
 * No argument may be in it, so each has a register of its own. */
#if defined(__x86_64__)
#define PROBE3_IN_FRAME(provider, name, frame, a, b, c)                                                        \
  do {                                                                                                         \
    uint64_t kept_;                                                                                            \
    __asm__ volatile("mov %%rbp, %0\nmov %1, %%rbp\n990: nop\nmov %0, %%rbp\n"                                \
                     PROBE_NOTE_(provider, name, "8@%2 8@%3 8@%4")                                             \
                     : "=&c"(kept_)                                                                            \
                     : "a"(frame), "D"((uint64_t)(a)), "S"((uint64_t)(b)), "d"((uint64_t)(c)));                \
  } while (0)
#else
#define PROBE3_IN_FRAME(provider, name, frame, a, b, c) \
  do {                                                  \
    (void)(frame);                                      \
    PROBE3(provider, name, a, b, c);                    \
  } while (0)
#endif

#endif
