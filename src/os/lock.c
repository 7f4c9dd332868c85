/* lock: see lock.h.                                                                                 floor: os */
#include "os/lock.h"

#include "base/log.h"
#include "os/os.h"
#include <limits.h>
#include <stdlib.h>

/* The library holds a lock for well under a microsecond, so a short spin saves the two system calls most times. */
#define SPINS 64

bool lock_times;
_Atomic unsigned lock_steps_most;
__thread unsigned locks_held;

static void nothing(void) {}
static _Atomic uint32_t unwatched = 1;
_Atomic uint32_t *lock_witness = &unwatched;
void (*lock_on_copy)(void) = nothing;
void (*lock_on_stall)(void) = nothing;

static uint64_t ns_after(unsigned ms) { return os_now_coarse_ns() + ms * UINT64_C(1000000); }

/* Returns false at `end`, which is `ms` milliseconds from now or less. It looks at the clock as well, because signals
 * may end each wait early, again and again. */
static bool wait_until(struct lock *lock, uint32_t seen, uint64_t end, unsigned ms) {
  return os_wait(&lock->word, seen, ms) && os_now_coarse_ns() < end;
}

/* Takes the lock for a thread that may not be the only one that slept, and returns 0. If the lock is held, says in its
 * word that this thread sleeps, and returns the word. */
static uint32_t take_or_tell(struct lock *lock) {
  uint32_t seen = atomic_load_explicit(&lock->word, memory_order_relaxed);
  while (seen % 2 == 0) {
    uint32_t wanted = seen ? seen | 1 : lock_mark() | 1;
    if (!atomic_compare_exchange_weak_explicit(&lock->word, &seen, wanted, memory_order_acquire, memory_order_relaxed))
      continue;
    return seen ? wanted : 0;
  }
  return seen;
}

/* Returns true in a signal handler that interrupted this thread while it holds the lock. */
static bool take_again(struct lock *lock) {
  if ((atomic_load_explicit(&lock->word, memory_order_relaxed) & ~1u) != lock_mark()) return false;
  lock->again++;
  return true;
}

static void wait_for(struct lock *lock) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 && lock_word_try(lock)) return;
    SPIN_HINT();
  }
  if (locks_held > 1) lock_on_stall(); /* this thread may hold it itself, in a fork */
  if (take_again(lock)) return;
  uint64_t end = ns_after(LOCK_PATIENCE_MS);
  for (uint32_t seen; (seen = take_or_tell(lock)) != 0;) {
    if (wait_until(lock, seen, end, LOCK_PATIENCE_MS)) continue;
    lock_on_stall();
    end = ns_after(LOCK_PATIENCE_MS);
  }
}

static bool holds_one(void) { return (locks_held & ~LOCKS_THEN_ABORT) != 0; }

void lock_abort(void) {
  if (holds_one()) {
    locks_held |= LOCKS_THEN_ABORT;
    return;
  }
  locks_held = 0; /* a handler may leave by longjmp */
  abort();
}

bool lock_tells_later(void) {
  if (!holds_one()) return false;
  locks_held |= LOCKS_THEN_TELL;
  return true;
}

/* A signal handler may fork while it interrupts a call that holds a lock. In the child no lock is held. So when the
 * handler returns there, the interrupted call ends a hold that the count no longer has. */
void lock_hold_ends_specially(void) {
  unsigned then = locks_held;
  if (then != UINT_MAX && holds_one()) return;
  locks_held = 0;
  if (then == UINT_MAX) return;
  log_tell();
  if (then == LOCKS_THEN_ABORT) abort();
}

uint64_t lock_take_slow(struct lock *lock) {
  uint64_t before = ticks_now();
  wait_for(lock);
  uint64_t waited = ticks_now() - before + 1; /* 0 would mean that the lock was free */
  lock_count(&lock->contended, 1);
  lock_count(&lock->waited, ticks_to_ns(waited));
  return waited;
}

static bool wait_within(struct lock *lock, unsigned ms) {
  uint64_t end = ns_after(ms);
  for (uint32_t seen; (seen = take_or_tell(lock)) != 0;)
    if (!wait_until(lock, seen, end, ms)) {
      os_wake(&lock->word, 1); /* it may have been woken, and gives up: another one waits */
      return false;
    }
  return true;
}

bool lock_take_within(struct lock *lock, unsigned ms) {
  lock_look();
  lock_hold_begins();
  bool done = lock_word_try(lock) || wait_within(lock, ms);
  if (done) lock_is_taken(lock);
  else lock_hold_ends();
  return done;
}

void lock_take_over(struct lock *lock) {
  uint32_t seen = atomic_load_explicit(&lock->word, memory_order_relaxed);
  lock_hold_begins();
  /* Threads may say meanwhile that they sleep. */
  while (!atomic_compare_exchange_weak_explicit(&lock->word, &seen, lock_mark() | (seen & 1), memory_order_acquire,
                                                memory_order_relaxed)) {}
}

void lock_release_slow(struct lock *lock) { os_wake(&lock->word, 1); }

void lock_count_hold(struct lock *lock) { lock_count(&lock->held, ticks_to_ns(ticks_now() - lock->since)); }

void lock_totals_add(struct lock_totals *to, const struct lock *lock) {
  to->taken += __atomic_load_n(&lock->taken, __ATOMIC_RELAXED);
  to->contended += __atomic_load_n(&lock->contended, __ATOMIC_RELAXED);
  to->waited += __atomic_load_n(&lock->waited, __ATOMIC_RELAXED);
  to->held += __atomic_load_n(&lock->held, __ATOMIC_RELAXED);
}
