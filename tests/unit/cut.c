/* cut: the drawn malloc of a class, and no other, is a sample, after any pattern of mallocs and frees: balanced ones,
 * bursts, long drains, many classes, remote frees. A cut list is whole again before any code but the fast path reads
 * it. Timed calls come in between. */
#include "unit.h"

#include "base/options.h"
#include "heap/check.h"
#include "heap/cut.h"
#include "heap/fast.h"
#include "heap/profile.h"
#include "heap/sampled.h"
#include "heap/tcache.h"
#include <math.h>
#include <pthread.h>

enum { INTERVAL = 4096, SLOTS = 2000, TURNS = 200000 / TEST_SCALE };

static uint64_t seed = 20261125;
static unsigned samples, calls;
static double weights; /* of all samples, where the draw was known */

static bool is_sample(const void *block) { return pages_pagemap()[granule_of(block)] == 0; }

/* At most the remaining mallocs may pass. */
static void check_bound(const struct heap *heap, unsigned class) {
  const struct draw *const draw = &heap->store->draws[class];
  if (!draw->interval || (heap->sampling.detached && heap->sampling.class == class)) return;
  const unsigned length = tcache_length(heap, class), depth = draw->marked ? length - draw->below : length;
  CHECK_COUNT(depth + count_room(heap->count[class].now), <=, cut_left(heap, draw, class));
}

static void *take(size_t size) {
  const struct heap *const heap = current_heap;
  const unsigned class = class_of(size);
  const struct draw *const draw = &heap->store->draws[class];
  const bool known = draw->interval && !TSLAB_HARDENED; /* quarantine hands out blocks that the cut does not bound */
  const bool is_due = known && cut_left(heap, draw, class) == 0;
  if (is_due) weights += (double)profile_weight(class_size(class), draw->interval) / PROFILE_WEIGHT_ONE;
  void *const block = tslab_malloc(size);
  CHECK(block != NULL);
  if (known) CHECK(is_sample(block) == is_due);
  if (!TSLAB_HARDENED) check_bound(heap, class);
  calls++;
  samples += is_sample(block);
  return block;
}

static void give(void *block, size_t size) {
  tslab_free(block);
  if (!TSLAB_HARDENED) check_bound(current_heap, class_of(size));
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static void balanced(size_t least, size_t most) {
  static struct {
    void *block;
    size_t size;
  } slots[SLOTS];
  for (unsigned i = 0; i < TURNS; i++) {
    const unsigned at = (unsigned)(check_random(&seed) % SLOTS);
    if (slots[at].block) give(slots[at].block, slots[at].size);
    slots[at].block = NULL;
    if (i % 2 == 0) continue;
    slots[at].size = least + check_random(&seed) % (most - least + 1);
    slots[at].block = take(slots[at].size);
  }
  for (unsigned i = 0; i < SLOTS; i++) {
    if (slots[i].block) give(slots[i].block, slots[i].size);
    slots[i].block = NULL;
  }
}

static void bursts(size_t size, unsigned length) {
  static void *blocks[SLOTS];
  for (unsigned round = 0; round < TURNS / length / 4 + 1; round++) {
    for (unsigned i = 0; i < length; i++) blocks[i] = take(size);
    for (unsigned i = length; i-- > 0;) give(blocks[i], size);
  }
}

static void pairs(size_t size, unsigned turns) {
  for (unsigned i = 0; i < turns; i++) give(take(size), size);
}

static void *other_thread(void *unused) {
  tslab_free(tslab_malloc(1));
  balanced(16, 900);
  bursts(64, 500);
  return unused;
}

/* Samples stand for all calls while the interval changes often, and all calls are timed, which visit the slow path. */
static void changing(size_t size) {
  enum { TAKES = 400000 / TEST_SCALE };
  const size_t timed = options.sample;
  options.sample = 1;
  pairs(size, TURNS);
  weights = 0;
  for (unsigned i = 0; i < TAKES; i++) {
    if (check_random(&seed) % 30 == 0) CHECK(sampled_start(INTERVAL << check_random(&seed) % 3 * 2, true));
    give(take(size), size);
  }
  options.sample = timed;
  CHECK(sampled_start(INTERVAL, true));
  printf("size %zu, while the interval changes: samples stand for %.3f of the calls\n", size, weights / TAKES);
  /* The interval of a draw is 13 times INTERVAL at the most, in the mean of all bytes. */
  const double deviation = sqrt(13.0 * INTERVAL / ((double)TAKES * (double)size));
  if (!TSLAB_HARDENED) CHECK(fabs(weights / TAKES - 1) < 4.5 * deviation);
}

/* ---- readers of lists -------------------------------------------------------------------------------------------- */

static unsigned marked_lists(void) {
  unsigned count = 0;
  for (unsigned class = 0; class < CLASSES; class++) count += current_heap->store->draws[class].marked != NULL;
  return count;
}

static void wholeness(void) {
  static void *blocks[400];
  for (unsigned i = 0; i < 400; i++) blocks[i] = take(16 + i * 8);
  for (unsigned i = 0; i < 400; i++) give(blocks[i], 16 + i * 8);
  unsigned seen = 0;
  for (unsigned i = 0; i < 2000 && seen < 8; i++) {
    give(take(512), 512);
    if (!marked_lists()) continue;
    seen++;
    CHECK(heap_find_double(current_heap) == NULL); /* a mark is not damage */
    CHECK_COUNT(marked_lists(), ==, 0);
    for (unsigned class = 0; class < CLASSES; class++) { /* it is no thread's end: the heap goes on */
      tcache_fold(current_heap, class);
      cut_list(current_heap, class);
    }
  }
  CHECK(seen > 0);
  tslab_purge(); /* and the heap returns all lists */
  for (unsigned class = 0; class < CLASSES; class++) CHECK(tcache_is_folded(current_heap, class));
}

/* A pause ends no sooner because a class passes so many mallocs that its draw comes due: that would be a sample of
 * gibibytes. */
static void long_pause(size_t size) {
  static void *blocks[SLOTS];
  const struct heap *const heap = current_heap;
  const unsigned class = class_of(size);
  struct draw *const draw = &heap->store->draws[class];
  CHECK(sampled_start(PROFILE_PAUSED, true));
  for (unsigned i = 0; i < SLOTS || draw->interval != PROFILE_PAUSED; i++) {
    tslab_free(blocks[i % SLOTS]);
    CHECK(blocks[i % SLOTS] = tslab_malloc(size));
  }
  const struct profile_totals before = profile_totals();
  const struct count seen = count_look(&heap->count[class]);
  draw->due = (uint32_t)heap->bins[class].allocations + count_passed(seen.then, seen.now).mallocs;
  const uint32_t due = draw->due;
  for (unsigned i = 0; i < SLOTS; i++) CHECK(tslab_malloc(size) != NULL && draw->interval == PROFILE_PAUSED);
  CHECK(draw->due != due); /* a visit has met it */
  CHECK_COUNT(profile_totals().samples, ==, before.samples);
  CHECK(sampled_start(INTERVAL, true));
  for (unsigned i = 0; i < SLOTS; i++) tslab_free(blocks[i]); /* one may be the sample that the pause found drawn */
}

/* ---- threads that were there before the profile ------------------------------------------------------------------ */

enum { EARLY_THREADS = 16, EARLY_BYTES = 1000 };
static pthread_barrier_t is_detached, has_begun;
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* The profile begins while the class's list is detached, to time a malloc. */
static void *early_thread(void *unused) {
  void *blocks[200];
  for (unsigned turn = 0; turn < 4; turn++) { /* the list has room for 20 then */
    for (unsigned i = 0; i < 200; i++) CHECK(blocks[i] = tslab_malloc(EARLY_BYTES));
    for (unsigned i = 0; i < 200; i++) tslab_free(blocks[i]);
  }
  for (unsigned i = 0; i < 20; i++) CHECK(blocks[i] = tslab_malloc(EARLY_BYTES));
  for (unsigned i = 0; i < 20; i++) tslab_free(blocks[i]);
  CHECK(current_heap->sampling.detached && current_heap->sampling.class == class_of(EARLY_BYTES));
  CHECK(current_heap->store->draws[class_of(EARLY_BYTES)].interval == 0);
  pthread_barrier_wait(&is_detached);
  pthread_barrier_wait(&has_begun);
  CHECK(pthread_mutex_lock(&one_at_a_time) == 0);
  pairs(EARLY_BYTES, 1000);
  CHECK(pthread_mutex_unlock(&one_at_a_time) == 0);
  return unused;
}

static void begin_late(void) {
  const size_t timed = options.sample;
  pthread_t threads[EARLY_THREADS];
  options.sample = 1;
  CHECK(pthread_barrier_init(&is_detached, NULL, EARLY_THREADS + 1) == 0);
  CHECK(pthread_barrier_init(&has_begun, NULL, EARLY_THREADS + 1) == 0);
  for (int i = 0; i < EARLY_THREADS; i++) CHECK(pthread_create(&threads[i], NULL, early_thread, NULL) == 0);
  pthread_barrier_wait(&is_detached);
  options.sample = timed;
  CHECK(sampled_start(INTERVAL, true));
  pthread_barrier_wait(&has_begun);
  for (int i = 0; i < EARLY_THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void) {
  tslab_free(tslab_malloc(1));
  if (!TSLAB_HARDENED) begin_late(); /* there quarantine decides which mallocs are timed */
  balanced(16, 1200);
  balanced(100, 100);
  balanced(4000, 30000);
  for (unsigned length = 1; length < SLOTS; length = length * 3 + 1) bursts(48, length);
  bursts(2000, 300);
  pairs(32, TURNS);
  pairs(8000, TURNS);
  changing(128);
  changing(1000);
  wholeness();
  long_pause(72);
  pthread_t threads[3];
  const struct heap *const heap = current_heap; /* each thread in turn has its `seed` and counts */
  for (int i = 0; i < 3; i++)
    CHECK(pthread_create(&threads[i], NULL, other_thread, NULL) == 0 && pthread_join(threads[i], NULL) == 0);
  CHECK(heap == current_heap);
  printf("%u samples of %u calls\n", samples, calls);
  CHECK(samples > calls / 100);
  const struct profile_totals totals = profile_totals();
  CHECK_COUNT(totals.live, ==, 0);
  CHECK_COUNT(totals.frees, ==, totals.samples);
  return 0;
}
