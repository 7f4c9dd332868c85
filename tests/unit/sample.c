/* sample: every class, chunk and large block is sampled in its share of the calls, fast or slow, and none with sampling
 * off; all samples of a thread are counted when it reads statistics or ends. */
#include "sampling.h"

#include "heap/label.h"
#include "heap/tcache.h"
#include <math.h>
#include <pthread.h>

/* EVERY: each sample needs a call that finds its list detached, so balanced traffic gives at most one sample in a few
   dozen calls. */
enum { EVERY = 128, SLOTS = 64 };

/* ---- shares ------------------------------------------------------------------------------------------------------ */

static const size_t sizes[] = {16, 24, 64, 200, 1000, 2500, 5000, 30000};
static const unsigned weights[] = {32, 16, 8, 8, 4, 4, 2, 2}; /* of each size's calls */
enum { SIZES = sizeof sizes / sizeof *sizes, WEIGHTS = 76 };

static unsigned pick(uint64_t *random) {
  unsigned at = (unsigned)(check_random(random) % WEIGHTS), size = 0;
  while (at >= weights[size]) at -= weights[size++];
  return size;
}

struct calls {
  uint64_t number[SIZES], samples[SIZES]; /* the latter: at the start */
  int64_t due[SIZES];                     /* calls before the next sample, at the start */
};

static int64_t due_of(unsigned class) {
  tcache_fold(own_heap(), class);
  return own_heap()->bins[class].countdown;
}

static uint64_t samples_of(size_t size) {
  timing_flush(own_heap());
  tslab_class_stats row;
  CHECK(tslab_stats_class(class_of(size), &row, sizeof row) == 0);
  return row.samples;
}

static void start_calls(struct calls *c) {
  *c = (struct calls){{0}, {0}, {0}};
  for (unsigned i = 0; i < SIZES; i++) {
    tslab_free(tslab_malloc(sizes[i])); /* so that its first draw is made */
    c->samples[i] = samples_of(sizes[i]);
    c->due[i] = due_of(class_of(sizes[i]));
  }
}

static void *allocate(struct calls *c, unsigned size) {
  void *block = tslab_malloc(sizes[size]);
  CHECK(block != NULL);
  c->number[size]++;
  return block;
}

/* The calls between samples of a class are the draws: n samples are the sum of n draws, apart from a rest that is still
   due and not larger than the calls between two visits of a slow path. The sum of the squared errors of all classes,
   each in its own standard deviations, has the number of classes as its mean, and twice that as its variance. */
static void compare_calls(const struct calls *c, struct drawn drawn) {
  double squares = 0, expected_in_all = 0, samples_in_all = 0, calls = 0;
  for (unsigned i = 0; i < SIZES; i++) {
    const int64_t due = due_of(class_of(sizes[i]));
    const double samples = (double)(samples_of(sizes[i]) - c->samples[i]);
    const double waiting = own_heap()->bins[class_of(sizes[i])].due; /* drawn, and due with the next calls */
    const double expected = ((double)c->number[i] + (double)(due - c->due[i])) / drawn.mean - waiting;
    CHECK(due > -2 * LIST_MOST);
    squares += (samples - expected) * (samples - expected) / (expected * drawn.variance);
    expected_in_all += expected, samples_in_all += samples, calls += (double)c->number[i];
  }
  if (!(squares < SIZES + SIGMAS * sqrt(2.0 * SIZES)))
    for (unsigned i = 0; i < SIZES; i++)
      dprintf(2, "size %zu: %llu calls, %llu samples, due %lld before, %lld after\n", sizes[i],
              (unsigned long long)c->number[i], (unsigned long long)(samples_of(sizes[i]) - c->samples[i]),
              (long long)c->due[i], (long long)due_of(class_of(sizes[i])));
  CHECK(squares < SIZES + SIGMAS * sqrt(2.0 * SIZES));
  CHECK(fabs(samples_in_all - expected_in_all) < SIGMAS * sqrt(expected_in_all * drawn.variance));
  CHECK(fabs(samples_in_all - calls / drawn.mean) <
        SIGMAS * sqrt(calls / drawn.mean * drawn.variance) + 2 * LIST_MOST / drawn.mean);
}

static struct drawn drawn_here;

static void balanced(void) {
  static void *slots[SIZES][SLOTS];
  uint64_t random = SEED;
  struct calls c;
  begin(EVERY, 0);
  start_calls(&c);
  for (int i = 0; i < 2000000 / TEST_SCALE; i++) {
    const unsigned size = pick(&random), slot = (unsigned)(check_random(&random) % SLOTS);
    if (slots[size][slot]) tslab_free(slots[size][slot]), slots[size][slot] = NULL;
    else slots[size][slot] = allocate(&c, size);
  }
  compare_calls(&c, drawn_here);
}

/* Allocates without a free between, and then frees without a malloc between. */
static void one_sided(void) {
  enum { BLOCKS = 400000 / TEST_SCALE };
  static void *blocks[BLOCKS];
  uint64_t random = SEED;
  struct calls c;
  begin(EVERY, 0);
  start_calls(&c);
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = allocate(&c, pick(&random));
    const uint64_t before = samples_of_paths();
    for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
    CHECK_COUNT(samples_of_paths(), ==, before);
  }
  compare_calls(&c, drawn_here);
}

/* One block and then another, each freed before the next: the list is empty when its only block was timed. */
static void alternating(void) {
  uint64_t random = SEED;
  struct calls c;
  begin(EVERY, 0);
  start_calls(&c);
  for (int i = 0; i < 2000000 / TEST_SCALE; i++) tslab_free(allocate(&c, pick(&random)));
  compare_calls(&c, drawn_here);
}

/* Each malloc comes after two frees and takes the last freed block: none finds its list empty. */
static void shrinking(void) {
  enum { BLOCKS = 3000, MOST = BLOCKS * 32 };
  static void *blocks[SIZES][MOST];
  unsigned count[SIZES], left = 0;
  uint64_t random = SEED;
  struct calls c;
  begin(EVERY, 0);
  for (unsigned size = 0; size < SIZES; left += count[size++])
    for (count[size] = 0; count[size] < BLOCKS * weights[size]; count[size]++)
      CHECK((blocks[size][count[size]] = tslab_malloc(sizes[size])) != NULL);
  start_calls(&c);
  while (left > SIZES) {
    const unsigned size = pick(&random);
    if (count[size] < 2) continue;
    tslab_free(blocks[size][--count[size]]);
    tslab_free(blocks[size][--count[size]]);
    blocks[size][count[size]++] = allocate(&c, size);
    left--;
  }
  compare_calls(&c, drawn_here);
}

/* Blocks in the chunk of an epoch count for its label, and large ones for their path. */
static void chunks_and_large(void) {
  enum { BLOCKS = 600000 / TEST_SCALE, LARGE = 20000 };
  tslab_label_stats row = {.samples = 0};
  begin(EVERY, 0);
  const tslab_epoch e = tslab_epoch_open("chunks");
  const uint64_t before = samples_of_paths();
  CHECK(e != 0 && tslab_epoch_enter(e) == 0);
  for (int i = 0; i < BLOCKS; i++) CHECK(tslab_malloc(16 + (unsigned)i % 5 * 20) != NULL);
  const uint64_t in_chunks = samples_of_paths() - before;
  CHECK(tslab_epoch_leave(e) == 0);
  for (unsigned i = 0; strcmp(row.label, "chunks") != 0; i++) CHECK(tslab_stats_label(i, &row, sizeof row) == 0);
  CHECK_COUNT(row.allocations, ==, BLOCKS);
  CHECK_COUNT(row.samples, ==, in_chunks);
  double expected = BLOCKS / drawn_here.mean;
  const double a_chunk = CHUNK_CAPACITY / 16.0 / drawn_here.mean; /* a later sample makes up for one that is skipped */
  CHECK(fabs((double)in_chunks - expected) < SIGMAS * sqrt(expected * drawn_here.variance) + a_chunk);

  for (int i = 0; i < LARGE; i++) tslab_free(tslab_malloc(100000));
  expected = LARGE / drawn_here.mean;
  CHECK(fabs((double)timing_times(PATH_LARGE).samples - expected) < SIGMAS * sqrt(expected * drawn_here.variance));
  CHECK_COUNT(timing_times(PATH_LARGE_FREE).samples, ==, 0);
}

static void wait_for_sample(void) {
  for (int i = 0; own_heap()->sampling.timings == 0; i++) {
    CHECK(i < 1000 * EVERY);
    tslab_free(tslab_malloc(64));
  }
}

static void *sampled_thread(void *heap) {
  wait_for_sample();
  *(struct heap **)heap = own_heap();
  return NULL;
}

static void none_is_forgotten(void) {
  tslab_stats_global global;
  tslab_thread_stats thread;
  struct heap *heap = NULL;
  pthread_t other;
  begin(EVERY, 0);
  wait_for_sample();
  CHECK(tslab_stats(&global, sizeof global) == 0 && own_heap()->sampling.timings == 0);
  wait_for_sample();
  CHECK(tslab_stats_thread(&thread, sizeof thread) == 0 && own_heap()->sampling.timings == 0);
  CHECK(pthread_create(&other, NULL, sampled_thread, &heap) == 0 && pthread_join(other, NULL) == 0);
  CHECK(heap != NULL && heap != own_heap() && heap->sampling.timings == 0);
}

/* A list that is detached at each of its visits, because no malloc finds it empty, is full like any other. */
static void what_waits_to_be_timed_stays_short(void) {
  enum { BLOCKS = 100000 / TEST_SCALE, SIZE = 64 };
  static void *blocks[BLOCKS];
  const unsigned class = class_of(SIZE);
  unsigned longest = 0;
  begin(EVERY, 0);
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(SIZE)) != NULL);
  for (int i = 0; i < BLOCKS; i += 2) {
    tslab_free(blocks[i]);
    void *const block = tslab_malloc(SIZE);
    tslab_free(blocks[i + 1]);
    tslab_free(block);
    const unsigned detached = own_heap()->sampling.class == class ? count_length(own_heap()->sampling.gone) : 0;
    longest = (unsigned)max_size(longest, tcache_length(own_heap(), class) + detached);
  }
  CHECK_COUNT(longest, >, LIST_FIRST);
  CHECK_COUNT(longest, <=, LIST_MOST + LIST_MOST / 2);
}

/* Threads without a heap, which only free, count in one place at once. */
enum { FREEING = 4, FREED_BY_EACH = 400000 / TEST_SCALE };
static void *to_free[FREEING];
static pthread_barrier_t start;

static void *free_only(void *block) {
  struct timing timing;
  pthread_barrier_wait(&start);
  tslab_free(block);
  CHECK(own_heap() == &empty_heap);
  for (int i = 1; i < FREED_BY_EACH; i++) { /* as the free did, without the locks that keep such threads apart */
    timing_begin_path(&timing);
    timing_end_path(&timing, PATH_LARGE_FREE);
  }
  return NULL;
}

static uint64_t large_frees(void) {
  tslab_path_stats row;
  uint64_t calls = 0;
  CHECK(tslab_stats_path(PATH_LARGE_FREE, &row, sizeof row) == 0);
  for (unsigned i = 0; i < BUCKETS; i++) calls += row.buckets[i];
  return calls;
}

static void none_of_nobodys_is_lost(void) {
  pthread_t threads[FREEING];
  begin(EVERY, 0);
  for (int t = 0; t < FREEING; t++) CHECK((to_free[t] = tslab_malloc(70000)) != NULL);
  const uint64_t before = large_frees();
  CHECK(pthread_barrier_init(&start, NULL, FREEING) == 0);
  for (int t = 0; t < FREEING; t++) CHECK(pthread_create(&threads[t], NULL, free_only, to_free[t]) == 0);
  for (int t = 0; t < FREEING; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  CHECK_COUNT(large_frees() - before, ==, FREEING * FREED_BY_EACH);
}

static void off(void) {
  begin(0, 1);
  const uint64_t before = samples_of_paths();
  void *blocks[500];
  const tslab_epoch e = tslab_epoch_open("off");
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 500; i++) CHECK((blocks[i] = tslab_malloc((unsigned)i * 20)) != NULL);
    for (int i = 0; i < 500; i++) tslab_free(blocks[i]);
    CHECK(tslab_epoch_enter(e) == 0);
    for (int i = 0; i < 500; i++) tslab_free(tslab_malloc((unsigned)i));
    CHECK(tslab_epoch_leave(e) == 0);
  }
  CHECK_COUNT(samples_of_paths(), ==, before);
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.samples, ==, before);
  CHECK(stats.slow_allocations > 0); /* slow paths count all the same */
}

int main(void) {
  os_start();
  ticks_start();
  drawn_here = measure(EVERY);
  CHECK(in_child(balanced) == 0);
  CHECK(in_child(one_sided) == 0);
  CHECK(in_child(alternating) == 0);
  CHECK(in_child(shrinking) == 0);
  CHECK(in_child(chunks_and_large) == 0);
  CHECK(in_child(none_is_forgotten) == 0);
  CHECK(in_child(what_waits_to_be_timed_stays_short) == 0);
  CHECK(in_child(none_of_nobodys_is_lost) == 0);
  CHECK(in_child(off) == 0);
  return 0;
}
