/* attr: what the compiler is told, and checks that always compile.                                  floor: base */
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

#if defined(__has_feature) /* clang's way of saying what gcc says by the macro */
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* A load that other threads' atomic stores may race with, where nothing depends on its age. Plain, because compilers
 * fold a plain load into the instruction that uses it and an atomic one not; atomic where a race detector watches. The
 * store, of what one thread alone writes, for the same reason. */
#if defined(__SANITIZE_THREAD__)
#define LOAD_RACING(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define STORE_RACING(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELAXED)
#else
#define LOAD_RACING(place) (place)
#define STORE_RACING(place, value) ((place) = (value))
#endif

/* Stores before it are seen before stores after it; and everything before it before everything after it. gcc compiles
 * no fence for ThreadSanitizer, which knows none; there they only hold the compiler back. */
#if defined(__SANITIZE_THREAD__)
#define FENCE_STORES() __atomic_signal_fence(__ATOMIC_RELEASE)
#define FENCE_ALL()    __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define FENCE_STORES() __atomic_thread_fence(__ATOMIC_RELEASE)
#define FENCE_ALL()    __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

/* Compilers know nothing of the value from here on, so what was computed before stays apart from what comes after. */
#define FORGET(value) __asm__("" : "+r"(value))

/* The value will be the function's result: in its register from the start it needs no move at the end. */
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
#define TSLAB_CHECK_LEVEL 0 /* 0: what release needs; 1: cheap invariants; 2: whole structures after each change */
#endif

#ifndef TSLAB_HARDENED
#define TSLAB_HARDENED 0 /* 1: the preset of that name; docs/decisions/0015 */
#endif

/* Says where an invariant broke and aborts; the condition compiles at every level, so it cannot rot. */
HIDDEN COLD NORETURN void check_failed(const char *condition, const char *file, int line);
#define INVARIANT(level, condition)                                    \
  do {                                                                 \
    if (TSLAB_CHECK_LEVEL >= (level) && UNLIKELY(!(condition)))        \
      check_failed(#condition, __FILE__, __LINE__);                    \
  } while (0)

#endif
