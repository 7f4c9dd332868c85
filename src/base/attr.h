/* attr: hints for the compiler, and checks that always compile.                                     floor: base */
#ifndef TSLAB_BASE_ATTR_H
#define TSLAB_BASE_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define COLD     __attribute__((noinline, cold))
#define HIDDEN   __attribute__((visibility("hidden")))
#define WEAK     __attribute__((weak))
#define NORETURN __attribute__((noreturn))
#define ALIGNED(n) __attribute__((aligned(n)))
#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#if defined(__has_feature) /* clang says by __has_feature what gcc says by the macro */
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* LOAD_RACING is a load that may race with other threads' atomic stores, for values that may be stale. It is plain,
 * because compilers fold a plain load into the instruction that uses it, but not an atomic one. Under a race detector
 * it is atomic. STORE_RACING stores a value that only one thread writes; it is plain for the same reason. */
#if defined(__SANITIZE_THREAD__)
#define LOAD_RACING(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE_RACING(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELAXED)
#else
#define LOAD_RACING(place) (place)
#define STORE_RACING(place, value) ((place) = (value))
#endif

/* FENCE_STORES orders the stores before it before the stores after it; FENCE_ALL orders all accesses. ThreadSanitizer
 * knows no fences, so gcc compiles none for it. There both only hold the compiler back. */
#if defined(__SANITIZE_THREAD__)
#define FENCE_STORES() __atomic_signal_fence(__ATOMIC_RELEASE)
#define FENCE_ALL()    __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define FENCE_STORES() __atomic_thread_fence(__ATOMIC_RELEASE)
#define FENCE_ALL()    __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

/* FORGET hides the value's origin from the compiler, so that it does not merge the computation before with the code
 * after. */
#define FORGET(value) __asm__("" : "+r"(value))

/* KEEP_FOR_RETURN puts the function's result into the result's register early, which saves a move at the end. */
#if defined(__x86_64__)
#define KEEP_FOR_RETURN(value) __asm__("" : "+a"(value))
#else
#define KEEP_FOR_RETURN(value) ((void)0)
#endif

/* Tells the processor that this thread spins. */
#if defined(__x86_64__)
#define SPIN_HINT() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define SPIN_HINT() __asm__ volatile("isb" : : : "memory") /* yield does nothing on most cores */
#else
#define SPIN_HINT() ((void)0)
#endif

/* 64 bytes on every x86-64 and on the arm64 cores that servers use. */
#define CACHE_LINE 64
#define HOT ALIGNED(CACHE_LINE) /* starts a line of instructions: the fast path then takes two at most */

#ifndef TSLAB_CHECK_LEVEL
#define TSLAB_CHECK_LEVEL 0 /* 0: the checks of a release; 1: cheap invariants; 2: whole structures after each change */
#endif

#ifndef TSLAB_HARDENED
#define TSLAB_HARDENED 0 /* 1: the preset of that name; docs/decisions/0015 */
#endif

/* Reports the place of a broken invariant and aborts. The condition compiles at every level, so it stays correct
 * code. */
HIDDEN COLD NORETURN void check_failed(const char *condition, const char *file, int line);
#define INVARIANT(level, condition)                                    \
  do {                                                                 \
    if (TSLAB_CHECK_LEVEL >= (level) && UNLIKELY(!(condition)))        \
      check_failed(#condition, __FILE__, __LINE__);                    \
  } while (0)

#endif
