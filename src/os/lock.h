/* lock: a mutex of one word that sleeps in the kernel only when it must wait.                        floor: os
 *
 * 0 free, 1 held, 2 held and somebody may sleep. Order, outermost first: registry, a part, pages. A thread takes a
 * second part's lock only by lock_try. */
#ifndef TSLAB_OS_LOCK_H
#define TSLAB_OS_LOCK_H

#include "base/attr.h"
#include <stdatomic.h>

struct lock {
  _Atomic uint32_t word;
};

/* One of many that several threads take at a time: on a line of its own. */
struct lone_lock {
  struct lock lock ALIGNED(CACHE_LINE);
};

HIDDEN COLD void lock_take_slow(struct lock *lock);
HIDDEN COLD void lock_release_slow(struct lock *lock);

INLINE bool lock_try(struct lock *lock) {
  uint32_t free_word = 0;
  return atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1, memory_order_acquire,
                                                 memory_order_relaxed);
}

/* Acquire here pairs with the release in lock_release. */
INLINE void lock_take(struct lock *lock) {
  if (UNLIKELY(!lock_try(lock))) lock_take_slow(lock);
}

INLINE void lock_release(struct lock *lock) {
  if (UNLIKELY(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)) lock_release_slow(lock);
}

/* In a fork child, where the holder may not exist any more. */
INLINE void lock_reset(struct lock *lock) { atomic_store_explicit(&lock->word, 0, memory_order_relaxed); }

#endif
