/* churn: threads are born and gone by the thousand; each leaves blocks that later threads free. Memory stays flat, and
 * nobody who is gone is still counted.                                                       churn [long] */
#include "memory.h"

#include <pthread.h>
#include <stdatomic.h>

enum { WAVE = 8, LEFT = 1024 };

static _Atomic(unsigned char *) left[LEFT];
static _Atomic uint64_t allocations, frees; /* relaxed: an ordering of ours would hide one that the allocator lacks */

static void count(_Atomic uint64_t *counter) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

static unsigned char mark(const void *block) { return (unsigned char)((uintptr_t)block >> 4); }

static void free_block(unsigned char *block) {
  if (!block) return;
  const size_t usable = tslab_malloc_usable_size(block);
  CHECK_COUNT(block[0], ==, mark(block));
  CHECK_COUNT(block[usable - 1], ==, mark(block));
  tslab_free(block);
  count(&frees);
}

static unsigned char *allocate(size_t size) {
  unsigned char *block = tslab_malloc(size);
  CHECK(block != NULL);
  memset(block, mark(block), tslab_malloc_usable_size(block));
  count(&allocations);
  return block;
}

static void *live_and_die(void *argument) {
  uint64_t random = (uintptr_t)argument * 77 + 1;
  unsigned char *own[24];
  for (int i = 0; i < 24; i++) own[i] = allocate(check_random(&random) % (i == 1 ? 100000 : 700));
  for (int i = 0; i < 24; i++) {
    unsigned char *block = own[i];
    if (i % 3 == 0) block = atomic_exchange_explicit(&left[check_random(&random) % LEFT], block, memory_order_acq_rel);
    free_block(block);
  }
  return NULL;
}

static void births(size_t number) {
  static uintptr_t serial;
  for (size_t done = 0; done < number; done += WAVE) {
    pthread_t threads[WAVE];
    for (int i = 0; i < WAVE; i++) CHECK(pthread_create(&threads[i], NULL, live_and_die, (void *)++serial) == 0);
    for (int i = 0; i < WAVE; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  }
}

/* Returns the bytes that the process holds after all unused memory has gone back. */
static size_t folded(tslab_stats_global *stats) {
  tslab_purge();
  CHECK(tslab_stats(stats, sizeof *stats) == 0);
  return resident_bytes();
}

int main(int argc, char **argv) {
  const size_t total = argc > 1 && strcmp(argv[1], "long") == 0 ? 100000 : 100000 / TEST_SCALE;
  tslab_stats_global before, warm, after;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  births(total / 5);
  const size_t warm_resident = folded(&warm);
  births(total - total / 5);
  const size_t resident = folded(&after);
  printf("%zu threads: resident %zu, then %zu KiB; in use %llu, then %llu; committed %llu, then %llu; heaps %llu\n",
         total, warm_resident >> 10, resident >> 10, (unsigned long long)warm.in_use_bytes >> 10,
         (unsigned long long)after.in_use_bytes >> 10, (unsigned long long)warm.committed_bytes >> 10,
         (unsigned long long)after.committed_bytes >> 10, (unsigned long long)after.heaps);
  /* 100 bytes lost with each thread would show. A sanitizer keeps more than that itself. */
  if (TEST_SCALE == 1) CHECK_COUNT(resident, <=, warm_resident + (4 << 20));
  CHECK_COUNT(after.in_use_bytes, <=, warm.in_use_bytes + (4 << 20));
  /* A maximum: it depends on how many dead threads' heaps wait at one moment for a scavenger that gets no processor. */
  CHECK_COUNT(after.committed_bytes, <=, warm.committed_bytes + (32 << 20));
  CHECK_COUNT(after.heaps, <=, WAVE + 1);
  CHECK_COUNT(after.threads, <=, 1);
  for (size_t i = 0; i < LEFT; i++) free_block(left[i]);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.allocations - before.allocations, ==, allocations);
  CHECK_COUNT(after.frees - before.frees, ==, frees);
  CHECK_COUNT(after.live_blocks, ==, before.live_blocks);
  return 0;
}
