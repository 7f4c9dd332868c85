/* threads: one operation is a pair, a malloc and the free of the same block, in every thread at once.
 *
 *   --mode=fixed   blocks of `size` bytes: ten are allocated, then freed in the same order.
 *   --mode=mixed   each thread keeps 1,000 slots of 16 to 1,039 bytes and replaces a random one.
 *
 * Every round runs four times: this workload with one thread and with `threads`, and a loop of the same shape that
 * takes its blocks from an array of its own instead of an allocator, with one thread and with `threads`. A scaling is
 * the median over the rounds of (aggregate with `threads`) / (aggregate with one): aggregate is every thread's pairs
 * over the time until the last thread has ended. The loop's scaling says what this machine has to give. A pass of its
 * own times single calls, so that the clock does not slow the throughput. Each thread warms up with a tenth of its
 * pairs. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 10, SLOTS = 1000, LEAST = 16, SPREAD = 0x3FF, MOST_THREADS = 256 };

static long threads = 2, pairs = 100000, repeats = 10, rounds = 11, size = 128;
static const char *mode = "fixed";

static const lab_option options[] = {
  { .name = "mode", .help = "blocks of one size, or of many", .text = &mode, .choices = "fixed|mixed" },
  { .name = "threads", .help = "threads", .number = &threads, .least = 1 },
  { .name = "size", .help = "bytes of a block (fixed)", .number = &size, .least = 8 },
  { .name = "pairs", .help = "pairs per thread", .number = &pairs, .least = 100 },
  { .name = "repeats", .help = "times that a round does these pairs", .number = &repeats, .least = 1 },
  { .name = "rounds", .help = "rounds", .number = &rounds, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "threads", "allocates and frees in every thread at once", options };

/* The state of one thread. The lines are the loop's stand-in for an allocator: a stack of blocks. */
typedef struct bench {
  char *slots[SLOTS];
  char *spare[SLOTS + 1];
  uint32_t spares;
  lab_histogram *mallocs, *frees;
  char blocks[SLOTS + 1][128];
} bench;
static bench *benches[MOST_THREADS];
static enum { MALLOC, LOOP, TIMED } kind;

static inline __attribute__((always_inline)) char *take(bench *b, size_t bytes, int how) {
  if (how == LOOP)
    return b->spare[--b->spares];
  uint64_t begin = how == TIMED ? lab_ticks_begin() : 0;
  char *block = malloc(bytes);
  if (how == TIMED)
    lab_record(b->mallocs, lab_ticks_between(begin, lab_ticks_end(), lab_timer_cost()));
  if (!block)
    lab_fail("out of memory");
  return block;
}

static inline __attribute__((always_inline)) void give(bench *b, char *block, int how) {
  if (how == LOOP) {
    b->spare[b->spares++] = block;
    return;
  }
  uint64_t begin = how == TIMED ? lab_ticks_begin() : 0;
  free(block);
  if (how == TIMED)
    lab_record(b->frees, lab_ticks_between(begin, lab_ticks_end(), lab_timer_cost()));
}

static inline __attribute__((always_inline)) void do_pairs(bench *b, long n, bool fixed, uint32_t seed, int how) {
  if (fixed) {
    char *batch[BATCH];
    for (long done = 0; done < n; done += BATCH) {
      for (unsigned i = 0; i < BATCH; i++) {
        batch[i] = take(b, (size_t)size, how);
        *batch[i] = (char)i;
      }
      for (unsigned i = 0; i < BATCH; i++)
        give(b, batch[i], how);
    }
  } else {
    for (long done = 0; done < n; done++) {
      uint32_t r = lab_xorshift32(&seed);
      char **slot = &b->slots[(r >> 12) % SLOTS];
      give(b, *slot, how);
      *slot = take(b, LEAST + (r & SPREAD), how);
      **slot = (char)r;
    }
  }
}

/* One function for each way, so that the compiler leaves no test of it inside the loop. */
typedef void runner(bench *b, long n, bool fixed, uint32_t seed);
static void by_malloc(bench *b, long n, bool fixed, uint32_t seed) { do_pairs(b, n, fixed, seed, MALLOC); }
static void by_loop(bench *b, long n, bool fixed, uint32_t seed) { do_pairs(b, n, fixed, seed, LOOP); }
static void by_clock(bench *b, long n, bool fixed, uint32_t seed) { do_pairs(b, n, fixed, seed, TIMED); }

static bench *bench_of(unsigned index) {
  if (!benches[index]) {
    benches[index] = lab_map(sizeof **benches);
    benches[index]->mallocs = lab_map(sizeof(lab_histogram));
    benches[index]->frees = lab_map(sizeof(lab_histogram));
  }
  return benches[index];
}

static void work(unsigned index) {
  bench *b = bench_of(index);
  bool fixed = strcmp(mode, "fixed") == 0;
  uint32_t seed = lab_seed32(index);
  runner *run = kind == MALLOC ? by_malloc : kind == LOOP ? by_loop : by_clock;
  b->spares = 0;
  for (unsigned i = 0; i <= SLOTS; i++)
    b->spare[b->spares++] = b->blocks[i];
  if (kind != LOOP)
    lab_litter(LEAST, LEAST + SPREAD);
  if (!fixed)
    for (unsigned i = 0; i < SLOTS; i++)
      b->slots[i] = kind == LOOP ? b->spare[--b->spares] : malloc(LEAST + (lab_xorshift32(&seed) & SPREAD));
  (kind == LOOP ? by_loop : by_malloc)(b, pairs / 10, fixed, seed);
  lab_team_begin();
  for (long i = 0; i < (kind == TIMED ? 1 : repeats); i++)
    run(b, pairs, fixed, seed + (uint32_t)i);
  lab_team_end();
  if (index == 0 && kind == MALLOC && !fixed)
    lab_proof_live(SLOTS * (LEAST + SPREAD / 2));
  for (unsigned i = 0; !fixed && kind != LOOP && i < SLOTS; i++)
    free(b->slots[i]);
}

/* Pairs a second of all threads together. */
static double throughput(int how, unsigned n, lab_team_result *result) {
  kind = how;
  *result = lab_team(n, work);
  return (double)pairs * (double)repeats * n / result->wall_ns * 1e9;
}

/* In the mode with one size nothing is live between batches, so the proof holds blocks of its own. */
static void prove(void) {
  enum { HELD = 10000 };
  char **held = lab_map(HELD * sizeof *held);
  for (unsigned i = 0; i < HELD; i++)
    held[i] = malloc((size_t)size);
  lab_proof_live(HELD * (uint64_t)size);
  for (unsigned i = 0; i < HELD; i++)
    free(held[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (threads > MOST_THREADS)
    lab_fail("--threads=%ld: at most %d", threads, MOST_THREADS);
  size_t n = (size_t)rounds;
  double *one = lab_map(n * sizeof *one), *all = lab_map(n * sizeof *all), *scaling = lab_map(n * sizeof *scaling);
  double *loop_all = lab_map(n * sizeof *loop_all), *loop_scaling = lab_map(n * sizeof *loop_scaling);
  double slowest = 0, fastest = 0;
  for (size_t r = 0; r < n; r++) {
    lab_team_result result;
    double loop_one = throughput(LOOP, 1, &result);
    loop_all[r] = throughput(LOOP, (unsigned)threads, &result);
    loop_scaling[r] = loop_all[r] / loop_one;
    one[r] = throughput(MALLOC, 1, &result);
    all[r] = throughput(MALLOC, (unsigned)threads, &result);
    scaling[r] = all[r] / one[r];
    slowest += (double)(pairs * repeats) / result.slowest_ns * 1e9 / (double)n;
    fastest += (double)(pairs * repeats) / result.fastest_ns * 1e9 / (double)n;
  }
  kind = TIMED;
  lab_team((unsigned)threads, work);
  for (unsigned i = 1; i < (unsigned)threads; i++) {
    lab_merge(benches[0]->mallocs, benches[i]->mallocs);
    lab_merge(benches[0]->frees, benches[i]->frees);
  }
  lab_calls = (uint64_t)pairs * (uint64_t)repeats * (uint64_t)rounds * (uint64_t)(threads + 1);
  lab_row(NULL);
  prove(); /* after the memory figures of the row are taken */
  lab_metric("ops_per_s", lab_median(all, n));
  lab_metric("one_thread_ops_per_s", lab_median(one, n));
  lab_metric("scaling_ratio", lab_median(scaling, n));
  lab_metric("loop_ops_per_s", lab_median(loop_all, n));
  lab_metric("loop_scaling_ratio", lab_median(loop_scaling, n));
  lab_metric("slowest_thread_ops_per_s", slowest);
  lab_metric("fastest_thread_ops_per_s", fastest);
  lab_metric("cores_count", lab_cores());
  lab_metric_latency("malloc", benches[0]->mallocs);
  lab_metric_latency("free", benches[0]->frees);
  return lab_finish();
}
