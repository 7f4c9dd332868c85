/* lock: a mutex of one word that sleeps in the kernel only when it must wait.                       floor: os
 *
 * 0 free, 1 held, 2 held and somebody may sleep. Order, outermost first: a round over all heaps, registry, a heap,
 * pages. A thread takes a second heap's lock only by lock_try. What it counts about itself is written by who holds it,
 * and read by anyone. */
#ifndef TSLAB_OS_LOCK_H
#define TSLAB_OS_LOCK_H

#include "os/os.h"
#include "os/ticks.h"

struct lock {
  _Atomic uint32_t word;
  uint64_t taken, contended; /* in all; and of these, not at the first try */
  uint64_t waited;           /* nanoseconds, by those; added up as such, because a tick's length becomes better known */
  uint64_t held, since;      /* nanoseconds, while lock_times; and ticks */
};

/* One of many that several threads take at a time: on a line of its own. */
struct lone_lock {
  struct lock lock ALIGNED(CACHE_LINE);
};

extern HIDDEN bool lock_times; /* whether locks count how long they are held; set before there is a second thread */

/* Locks that this thread holds, tries to take or is releasing. A signal handler that finds 0 interrupted none. */
extern HIDDEN __thread unsigned locks_held __attribute__((tls_model("initial-exec")));

/* Aborts as soon as this thread holds no lock, so that a handler of SIGABRT may allocate. Returns when it holds one. */
#define LOCKS_THEN_ABORT ((unsigned)1 << 31) /* in locks_held: the last release aborts */
HIDDEN COLD void lock_abort(void);
HIDDEN COLD void lock_hold_ends_specially(void);

INLINE void lock_hold_begins(void) {
  locks_held++;
  atomic_signal_fence(memory_order_seq_cst); /* counted before it is held, and until after it is released */
}
INLINE void lock_hold_ends(void) {
  atomic_signal_fence(memory_order_seq_cst);
  locks_held--;
  if (UNLIKELY(locks_held >= LOCKS_THEN_ABORT)) lock_hold_ends_specially();
}

/* The lock's waiters call this each time that one of them has waited for LOCK_PATIENCE_MS, and one that holds another
 * lock before it waits. */
#define LOCK_PATIENCE_MS 250
extern HIDDEN void (*lock_on_stall)(void);

/* Is not 1 in a child that no fork handler has seen, for the kernel wiped it (os_fork_witness): there a lock may be
 * held by a thread that the child does not have, so the first to take any lock makes lock_on_copy look after all. */
extern HIDDEN _Atomic uint32_t *lock_witness;
extern HIDDEN void (*lock_on_copy)(void);
INLINE void lock_look(void) {
  /* Acquire: pairs with the store by who looked after them. */
  if (UNLIKELY(atomic_load_explicit(lock_witness, memory_order_acquire) != 1)) lock_on_copy();
}

HIDDEN COLD uint64_t lock_take_slow(struct lock *lock);
HIDDEN COLD void lock_release_slow(struct lock *lock);
HIDDEN COLD void lock_count_hold(struct lock *lock);

INLINE void lock_count(uint64_t *counter, uint64_t by) {
  __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + by, __ATOMIC_RELAXED);
}

static inline bool lock_word_try(struct lock *lock) {
  uint32_t free_word = 0;
  return atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1, memory_order_acquire,
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

/* Ticks that it had to wait; 0 when it was free. Acquire here pairs with the release in lock_release. */
static inline uint64_t lock_take(struct lock *lock) {
  uint64_t waited = 0;
  lock_look();
  lock_hold_begins();
  if (UNLIKELY(!lock_word_try(lock))) waited = lock_take_slow(lock);
  lock_is_taken(lock);
  return waited;
}

/* The same for a caller that can do without the lock: returns false after LOCK_PATIENCE_MS. */
HIDDEN COLD bool lock_take_patiently(struct lock *lock);

/* Releases a lock that another thread took. That thread stands still, and does not release it itself. */
static inline void lock_release_for(struct lock *lock) {
  if (UNLIKELY(lock_times)) lock_count_hold(lock);
  if (UNLIKELY(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)) lock_release_slow(lock);
}

static inline void lock_release(struct lock *lock) {
  lock_release_for(lock);
  lock_hold_ends();
}

/* Lets a waiter have the lock, which the caller holds, and takes it again. */
static inline void lock_yield(struct lock *lock) {
  lock_release(lock);
  lock_take(lock);
}

/* Releases the lock, which the caller holds, while it sleeps until *word is no longer `value` or `ms` milliseconds went
 * by, and takes it again. */
static inline void lock_sleep(struct lock *lock, _Atomic uint32_t *word, uint32_t value, unsigned ms) {
  lock_release(lock);
  os_wait(word, value, ms);
  lock_take(lock);
}

/* In a fork child, where the holder may not exist any more. */
INLINE void lock_reset(struct lock *lock) { atomic_store_explicit(&lock->word, 0, memory_order_relaxed); }

/* The most steps that a thread took under one hold of a lock that others may want, of the walks whose length grows with
 * what the program holds. Such walks call lock_count_steps before each release. Tests bound it. */
extern HIDDEN _Atomic unsigned lock_steps_most;
INLINE void lock_count_steps(unsigned steps) {
  if (UNLIKELY(steps > atomic_load_explicit(&lock_steps_most, memory_order_relaxed)))
    atomic_store_explicit(&lock_steps_most, steps, memory_order_relaxed);
}

/* Adds up what locks of one kind count. From any thread. */
struct lock_totals {
  uint64_t taken, contended, waited, held;
};
HIDDEN void lock_totals_add(struct lock_totals *to, const struct lock *lock);

#endif
