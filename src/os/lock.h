/* lock: a mutex of one word that sleeps in the kernel only when it must wait.                       floor: os
 *
 * The word: 0 free, otherwise the mark of the thread that holds it, which is even, plus 1 if a thread may sleep.
 * docs/invariants.md gives the order of locks. The holder of a lock writes its counts, and any thread reads them.
 *
 * A signal handler may interrupt a thread that holds a lock, and take that lock again. Most such handlers call exit,
 * which frees memory. They go on with what the thread left half changed, as they do in libc's malloc, which takes no
 * lock in a process of one thread. */
#ifndef TSLAB_OS_LOCK_H
#define TSLAB_OS_LOCK_H

#include "os/os.h"
#include "os/ticks.h"

struct lock {
  _Atomic uint32_t word;
  uint32_t again;            /* how often its holder took it again; only the holder uses this */
  uint64_t taken, contended; /* in all; and those not at the first try */
  uint64_t waited;           /* nanoseconds in all; not ticks, whose length becomes better known with time */
  uint64_t held, since;      /* counted if lock_times: nanoseconds in all; ticks at which the lock was taken */
};

/* One of many locks that several threads take at a time: each has a line of its own. */
struct lone_lock {
  struct lock lock ALIGNED(CACHE_LINE);
};

extern HIDDEN bool lock_times; /* locks count how long they are held; set before a second thread starts */

/* Counts the locks that this thread holds, tries to take or is releasing, and the changes that it is in. If a signal
 * handler finds 0, it interrupted none of these. */
extern HIDDEN __thread unsigned locks_held __attribute__((tls_model("initial-exec")));

/* Aborts as soon as this thread holds no lock, so that a handler of SIGABRT may allocate. Returns if the thread holds
 * one. */
HIDDEN COLD void lock_abort(void);

/* In locks_held: the last release writes messages; it aborts, too. Both have the highest bit, which it tests. */
#define LOCKS_THEN_TELL  ((unsigned)2 << 30)
#define LOCKS_THEN_ABORT ((unsigned)3 << 30)

/* For log_must_wait. */
HIDDEN COLD bool lock_tells_later(void);

/* The rest of lock_hold_ends if the count's highest bit is set. */
HIDDEN COLD void lock_hold_ends_specially(void);

INLINE void lock_hold_begins(void) {
  locks_held++;
  atomic_signal_fence(memory_order_seq_cst); /* the count rises before the lock is taken and falls after its release */
}
INLINE void lock_hold_ends(void) {
  atomic_signal_fence(memory_order_seq_cst);
  locks_held--;
  if (UNLIKELY(locks_held >= LOCKS_THEN_TELL)) lock_hold_ends_specially();
}

/* Enclose a change in several steps, between which this thread holds no lock. A fork child whose thread goes on with
 * such a change, because a signal handler interrupted it, forked and returned, must not repair it meanwhile. So the
 * child freezes, as if a lock had been held. */
INLINE void lock_change_begins(void) { lock_hold_begins(); }
INLINE void lock_change_ends(void) { lock_hold_ends(); }

/* A thread calls this each time that it has waited for LOCK_PATIENCE_MS. A thread that holds another lock also calls it
 * before it waits. */
#define LOCK_PATIENCE_MS 250
extern HIDDEN void (*lock_on_stall)(void);

/* In a child of which no fork handler knows, this word is not 1, because the kernel wiped it (os_fork_witness). In such
 * a child a thread that does not exist there may hold a lock. So the first thread that takes any lock calls
 * lock_on_copy, which repairs all of them. */
extern HIDDEN _Atomic uint32_t *lock_witness;
extern HIDDEN void (*lock_on_copy)(void);
INLINE void lock_look(void) {
  /* Acquire: pairs with the store of the thread that repaired the locks. */
  if (UNLIKELY(atomic_load_explicit(lock_witness, memory_order_acquire) != 1)) lock_on_copy();
}

HIDDEN COLD uint64_t lock_take_slow(struct lock *lock);
HIDDEN COLD void lock_release_slow(struct lock *lock);
HIDDEN COLD void lock_count_hold(struct lock *lock);

INLINE void lock_count(uint64_t *counter, uint64_t by) {
  __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + by, __ATOMIC_RELAXED);
}

/* Names this thread by its storage. That of another thread lies at least a page away, because a stack has more than
 * one. The highest bits are mixed in for stacks that a program has placed 4 TiB apart. */
#ifndef LOCK_THREAD
#define LOCK_THREAD ((uintptr_t)&locks_held)
#endif
INLINE uint32_t lock_mark(void) {
  uint64_t thread = LOCK_THREAD;
  return (((uint32_t)(thread >> 10) ^ (uint32_t)(thread >> 42) * 0x9e3779b1u) | 2) & ~1u;
}

static inline bool lock_word_try(struct lock *lock) {
  uint32_t free_word = 0;
  return atomic_compare_exchange_strong_explicit(&lock->word, &free_word, lock_mark(), memory_order_acquire,
                                                 memory_order_relaxed);
}

static inline void lock_is_taken(struct lock *lock) {
  lock_count(&lock->taken, 1);
  if (UNLIKELY(lock_times)) lock->since = ticks_now();
}

static inline bool lock_try(struct lock *lock) {
  lock_hold_begins();
  if (!lock_word_try(lock)) {
    lock_hold_ends();
    return false;
  }
  lock_is_taken(lock);
  return true;
}

/* Takes the lock. Returns the ticks that it waited, 0 if the lock was free. Its acquire pairs with the release in
 * lock_release. */
static inline uint64_t lock_take(struct lock *lock) {
  uint64_t waited = 0;
  lock_look();
  lock_hold_begins();
  if (UNLIKELY(!lock_word_try(lock))) waited = lock_take_slow(lock);
  lock_is_taken(lock);
  return waited;
}

/* For a caller that can do without the lock: returns false after `ms` milliseconds, on the coarse clock. */
HIDDEN COLD bool lock_take_within(struct lock *lock, unsigned ms);

static inline void lock_release(struct lock *lock) {
  if (UNLIKELY(lock_times)) lock_count_hold(lock);
  if (UNLIKELY(lock->again != 0)) lock->again--;
  else if (UNLIKELY(atomic_exchange_explicit(&lock->word, 0, memory_order_release) & 1)) lock_release_slow(lock);
  lock_hold_ends();
}

/* Makes this thread the holder of a lock that another thread holds. That thread stands still and does not release the
 * lock itself. */
HIDDEN COLD void lock_take_over(struct lock *lock);

/* For a fork child, in which the holder may not exist. */
INLINE void lock_reset(struct lock *lock) {
  lock->again = 0;
  atomic_store_explicit(&lock->word, 0, memory_order_relaxed);
}

/* Some walks grow with what the program holds, and other threads may want their lock. This is the most steps that any
 * of these walks took under one hold. Such a walk calls lock_count_steps before each release. Tests bound it. */
extern HIDDEN _Atomic unsigned lock_steps_most;
INLINE void lock_count_steps(unsigned steps) {
  if (UNLIKELY(steps > atomic_load_explicit(&lock_steps_most, memory_order_relaxed)))
    atomic_store_explicit(&lock_steps_most, steps, memory_order_relaxed);
}

/* Adds a lock's counts to a sum. Thread: any. */
struct lock_totals {
  uint64_t taken, contended, waited, held;
};
HIDDEN void lock_totals_add(struct lock_totals *to, const struct lock *lock);

#endif
