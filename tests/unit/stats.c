/* tslab_stats and tslab_stats_class are exact at quiescence: several threads do a known number of calls in every class,
 * free some themselves and leave some to another thread, and the test compares the differences while the threads live
 * (idle, with blocks in their lists), after they ended, and after everything was freed. */
#include "../check.h"

#include <pthread.h>

enum { THREADS = 4, CLASSES = 256, LARGE = 3, MOST = 48 };

struct counts { uint64_t allocations, frees, remote_frees; };

static unsigned class_count;
static size_t class_size[CLASSES];
static void *left_over[THREADS][CLASSES + LARGE][MOST];
static struct counts expected[CLASSES + LARGE]; /* main alone writes them: each thread's calls are known beforehand */
static pthread_barrier_t barrier;

static unsigned blocks_of(unsigned thread, unsigned kind) { return 5 + (thread * 11 + kind * 3) % (MOST - 5); }
static unsigned freed_by_owner(unsigned thread, unsigned kind) { return blocks_of(thread, kind) / 2; }
static unsigned freed_by_next(unsigned thread, unsigned kind) { return blocks_of(thread, kind) / 4; }

static size_t size_of(unsigned kind) {
  return kind < class_count ? class_size[kind] : ((size_t)1 << 20) * (kind - class_count + 2) + 1;
}

static unsigned kinds(void) { return class_count + LARGE; }

static void *work(void *argument) {
  const unsigned self = *(const unsigned *)argument, previous = (self + THREADS - 1) % THREADS;
  for (unsigned kind = 0; kind < kinds(); kind++) {
    void **const blocks = left_over[self][kind];
    for (unsigned i = 0; i < blocks_of(self, kind); i++) {
      blocks[i] = tslab_malloc(size_of(kind));
      CHECK(blocks[i] != NULL);
      if (kind < class_count) CHECK_COUNT(tslab_malloc_usable_size(blocks[i]), ==, class_size[kind]);
    }
    for (unsigned i = 0; i < freed_by_owner(self, kind); i++) tslab_free(blocks[i]);
  }
  pthread_barrier_wait(&barrier);
  for (unsigned kind = 0; kind < kinds(); kind++) {
    const unsigned first = freed_by_owner(previous, kind);
    for (unsigned i = 0; i < freed_by_next(previous, kind); i++) tslab_free(left_over[previous][kind][first + i]);
  }
  pthread_barrier_wait(&barrier); /* main looks */
  pthread_barrier_wait(&barrier);
  return NULL;
}

struct reading {
  tslab_stats_global global;
  tslab_class_stats class[CLASSES];
};

static void read_all(struct reading *now) {
  CHECK(tslab_stats(&now->global, sizeof now->global) == 0);
  uint64_t allocations = 0, live = now->global.large_live_blocks, bytes = now->global.large_live_bytes, cached = 0;
  for (unsigned i = 0; i < class_count; i++) {
    tslab_class_stats *const c = &now->class[i];
    CHECK(tslab_stats_class(i, c, sizeof *c) == 0);
    CHECK_COUNT(c->allocations - c->frees, ==, c->live_blocks);
    CHECK_COUNT(c->live_blocks * c->object_size, ==, c->live_bytes);
    CHECK_COUNT(c->slabs_born - c->slabs_retired, ==, c->slabs);
    allocations += c->allocations;
    live += c->live_blocks;
    bytes += c->live_bytes;
    cached += c->cached_blocks;
  }
  CHECK_COUNT(now->global.allocations - now->global.frees, ==, now->global.live_blocks);
  CHECK_COUNT(now->global.allocations, >=, allocations);
  CHECK_COUNT(now->global.live_blocks, ==, live);
  CHECK_COUNT(now->global.live_bytes, ==, bytes);
  tslab_stats_global after; /* meanwhile the scavenger may have emptied lists of threads at rest */
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(cached, <=, now->global.cached_blocks);
  CHECK_COUNT(cached, >=, after.cached_blocks);
  CHECK_COUNT(now->global.misuses, ==, 0);
}

static void compare_remote_frees(const struct reading *before) {
  static struct reading now;
  read_all(&now);
  for (unsigned kind = 0; kind < class_count; kind++)
    CHECK_COUNT(now.class[kind].remote_frees - before->class[kind].remote_frees, ==, expected[kind].remote_frees);
}

static void compare(const struct reading *before) {
  static struct reading now;
  read_all(&now);
  struct counts total = {0};
  for (unsigned kind = 0; kind < kinds(); kind++) {
    total.allocations += expected[kind].allocations;
    total.frees += expected[kind].frees;
    if (kind >= class_count) continue;
    CHECK_COUNT(now.class[kind].allocations - before->class[kind].allocations, ==, expected[kind].allocations);
    CHECK_COUNT(now.class[kind].frees - before->class[kind].frees, ==, expected[kind].frees);
  }
  CHECK_COUNT(now.global.allocations - before->global.allocations, ==, total.allocations);
  CHECK_COUNT(now.global.frees - before->global.frees, ==, total.frees);
}

static void known_numbers_from_several_threads(void) {
  static struct reading before;
  read_all(&before);
  pthread_t threads[THREADS];
  unsigned names[THREADS];
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  for (unsigned t = 0; t < THREADS; t++) {
    names[t] = t;
    CHECK(pthread_create(&threads[t], NULL, work, &names[t]) == 0);
    for (unsigned kind = 0; kind < kinds(); kind++) {
      expected[kind].allocations += blocks_of(t, kind);
      expected[kind].frees += freed_by_owner(t, kind) + freed_by_next(t, kind);
      expected[kind].remote_frees += freed_by_next(t, kind);
    }
  }
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  compare(&before);
  compare_remote_frees(&before);
  pthread_barrier_wait(&barrier);
  for (unsigned t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  compare(&before);

  for (unsigned t = 0; t < THREADS; t++)
    for (unsigned kind = 0; kind < kinds(); kind++)
      for (unsigned i = freed_by_owner(t, kind) + freed_by_next(t, kind); i < blocks_of(t, kind); i++) {
        tslab_free(left_over[t][kind][i]);
        expected[kind].frees++;
      }
  compare(&before);
  tslab_purge();
  compare(&before);
}

/* A realloc that moves is an allocation and a free; one that stays is neither. */
static void realloc_counts_its_moves(size_t from, size_t to) {
  static tslab_stats_global before, after;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  uint64_t moves = 0;
  void *neighbours[64], *block = tslab_malloc(from);
  unsigned count = 0;
  for (size_t size = from; size < to && count < 64; size += 1 + size / 10) {
    neighbours[count++] = tslab_malloc(size); /* so that some growths find no room where the block lies */
    const uintptr_t old = (uintptr_t)block;
    block = tslab_realloc(block, size);
    CHECK(block != NULL);
    moves += (uintptr_t)block != old;
  }
  CHECK_COUNT(moves, >, 0);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.allocations - before.allocations, ==, 1 + count + moves);
  CHECK_COUNT(after.frees - before.frees, ==, moves);
  tslab_free(block);
  while (count > 0) tslab_free(neighbours[--count]);
}

static void every_call_of_the_family_counts(void) {
  static tslab_stats_global before, after;
  void *blocks[8] = {0};
  CHECK(tslab_stats(&before, sizeof before) == 0);
  blocks[0] = tslab_malloc(0);
  blocks[1] = tslab_calloc(3, 100);
  blocks[2] = tslab_realloc(NULL, 100);
  blocks[3] = tslab_reallocarray(NULL, 10, 10);
  blocks[4] = tslab_aligned_alloc(256, 100);
  blocks[5] = tslab_memalign(4096, 3000000);
  blocks[6] = tslab_valloc(1);
  CHECK(tslab_posix_memalign(&blocks[7], 64, 1) == 0);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.allocations - before.allocations, ==, 8);
  CHECK_COUNT(after.frees, ==, before.frees);
  tslab_free(NULL);
  tslab_free(blocks[0]);
  tslab_free_sized(blocks[1], 300);
  tslab_free_aligned_sized(blocks[4], 256, 100);
  CHECK(tslab_realloc(blocks[2], 0) == NULL);
  for (int i = 3; i < 8; i++)
    if (i != 4) tslab_free(blocks[i]);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.frees - before.frees, ==, 8);
}

static void callers_of_other_ages(void) {
  static union { tslab_stats_global known; unsigned char bytes[4096]; } out;
  memset(&out, 0xFF, sizeof out);
  CHECK(tslab_stats(&out.known, 128) == 0); /* an older caller: the call writes nothing past its struct */
  for (size_t i = 128; i < sizeof out; i++) CHECK_COUNT(out.bytes[i], ==, 0xFF);
  CHECK(tslab_stats(&out.known, 1024) == 0); /* a newer caller: fields that the library does not know read as zero */
  for (size_t i = sizeof out.known; i < 1024; i++) CHECK_COUNT(out.bytes[i], ==, 0);
  CHECK_COUNT(out.bytes[1024], ==, 0xFF);
  for (size_t i = 0; i < sizeof out.known.reserved / 8; i++) CHECK_COUNT(out.known.reserved[i], ==, 0);

  tslab_class_stats class;
  CHECK(tslab_stats(NULL, 256) == EINVAL);
  CHECK(tslab_stats(&out.known, 0) == EINVAL);
  CHECK(tslab_stats(&out.known, 100) == EINVAL);
  CHECK(tslab_stats(&out.known, 129) == EINVAL);
  CHECK(tslab_stats_class(0, NULL, 128) == EINVAL);
  CHECK(tslab_stats_class(0, &class, 0) == EINVAL);
  CHECK(tslab_stats_class(0, &class, 127) == EINVAL);
  CHECK(tslab_stats_class(UINT_MAX, &class, 128) == ERANGE);
}

int main(void) {
  tslab_class_stats class;
  int error;
  while ((error = tslab_stats_class(class_count, &class, sizeof class)) == 0) {
    CHECK_COUNT(class_count, <, CLASSES);
    CHECK_COUNT(class.object_size, >, class_count == 0 ? 0 : class_size[class_count - 1]);
    class_size[class_count++] = class.object_size;
  }
  CHECK(error == ERANGE);
  CHECK_COUNT(class_count, >=, 20);
  known_numbers_from_several_threads();
  realloc_counts_its_moves(1, 30000);
  realloc_counts_its_moves(100000, (size_t)8 << 20);
  every_call_of_the_family_counts();
  callers_of_other_ages();
  return 0;
}
