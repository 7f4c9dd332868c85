/* Kinds that count threads.
 *
 *   threads  `count` threads, each with one block: birth until all are at rest, then the end of all, and resident bytes
 *   rest     `count` threads at rest that used and freed blocks of 200 sizes: resident bytes, processor time at rest
 *   dead     `count` threads lived at once and are gone: malloc of 8,000 bytes, fork, processor time at rest
 *
 * Resident bytes of a thread include those of its stack and of libc, which are the same under every allocator. Threads
 * at rest wait for a condition, so all processor time at rest is the allocator's. */
#include "kinds.h"

enum { SIZES = 200, STEP = 16, TIMES = 5, SMALL = 100, LARGE = 8000 };

static char **held;

static void take_one(long index) { held[index] = take(SMALL); }
static void give_one(long index) { free(held[index]); }

void run_threads(void) {
  held = lab_map((size_t)count * sizeof *held);
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  crew_start(count, take_one, give_one);
  cliffs_figure("birth_ns", ns_each(start, count));
  cliffs_figure("thread_rss_bytes", bytes_each(before, count));
  start = cliffs_clock();
  crew_end();
  cliffs_figure("end_ns", ns_each(start, count));
}

static void use_many_sizes(long index) {
  char *blocks[SIZES];
  (void)index;
  for (unsigned t = 0; t < TIMES; t++) {
    for (unsigned i = 0; i < SIZES; i++)
      blocks[i] = take(STEP * (i + 1));
    for (unsigned i = 0; i < SIZES; i++)
      free(blocks[i]);
  }
}

void run_rest(void) {
  uint64_t before = lab_rss_now();
  crew_start(count, use_many_sizes, NULL);
  cliffs_sleep(idle_ms);
  cliffs_figure("thread_rss_bytes", bytes_each(before, count));
  cliffs_figure("rest_cpu_pct", cliffs_rest_cpu());
  crew_end();
}

/* ---- threads that are gone ---- */

static void figures_of_malloc(void) {
  long n = operations / 500;
  char **blocks = lab_map((size_t)n * sizeof *blocks);
  uint64_t longest = 0, start = cliffs_clock(), cost = lab_timer_cost();
  for (long i = 0; i < n; i++) {
    uint64_t begin = lab_ticks_begin();
    blocks[i] = take(LARGE);
    uint64_t ticks = lab_ticks_between(begin, lab_ticks_end(), cost);
    longest = ticks > longest ? ticks : longest;
  }
  cliffs_figure("malloc_ns", ns_each(start, n));
  cliffs_figure("malloc_longest_ns", (double)longest * lab_tick_ns());
  for (long i = 0; i < n; i++)
    free(blocks[i]);
}

void run_dead(void) {
  held = lab_map((size_t)count * sizeof *held);
  uint64_t before = lab_rss_now();
  crew_start(count, take_one, give_one);
  crew_end();
  cliffs_sleep(idle_ms);
  cliffs_figure("dead_rss_bytes", bytes_each(before, count));
  cliffs_figure("rest_cpu_pct", cliffs_rest_cpu());
  cliffs_fork();
  figures_of_malloc();
}
