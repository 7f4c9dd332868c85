/* lock: see lock.h.                                                                                  floor: os */
#include "os/lock.h"

#include "os/os.h"

/* What a lock protects here takes well under a microsecond, so a short spin mostly saves the two system calls. */
#define SPINS 64

void lock_take_slow(struct lock *lock) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 && lock_try(lock)) return;
    SPIN_HINT();
  }
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) os_wait(&lock->word, 2, 0);
}

void lock_release_slow(struct lock *lock) { os_wake(&lock->word, 1); }
