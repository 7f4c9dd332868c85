/* latency: each malloc and each free of one size, timed one by one with the cycle counter.
 *
 *   --mode=churn   `objects` live; a cycle replaces `turnover` percent of them, chosen at random: one by one, a free
 *                  and then the malloc that takes its place, so that an allocator can hand back the block still hot.
 *   --mode=batch   the same, but a cycle frees all its objects before it allocates their replacements.
 *   --mode=bulk    a cycle allocates `objects`, then frees them in the same order.
 *
 * Every block is written at both ends as soon as it is allocated, outside the timed call. A tenth of the cycles (at
 * least one) runs first, untimed. The cost of reading the counter is measured and subtracted, the counter's step
 * stated. "pair" is a malloc plus the free of that same block. Wall and CPU time of the cycles are reported apart: the
 * scheduler took their difference, and no allocator did.
 *
 * Where temporal-slab serves, the time of all calls above their p99.9 (malloc and free together) is told apart:
 *   slow_calls         what its own histograms of slow calls hold, in calls as long as these
 *   around_slow_calls  what their callers wait before the library first looks at its clock, and after it last did
 *   machine            interrupts and other guests' turns that hit a call outside that. Between the calls, as many
 *                      intervals are timed in which nothing is called: these are hit as often
 *   unexplained        the rest: fast calls that waited for memory or took a sample
 * slow_calls_of_rest is the first one's share of what is left without the machine's. The machine's is an estimate, from
 * some hundred hits or fewer: unexplained may be below 0, and what counts is the median of several runs. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>
#include <tslab/tslab.h>

static long objects = 100000, cycles = 100, size = 128;
static double turnover = 10;
static const char *mode = "churn";

static const lab_option options[] = {
  { .name = "mode", .help = "replace objects one by one, or in a batch; or fill and empty", .text = &mode,
    .choices = "churn|batch|bulk" },
  { .name = "objects", .help = "live blocks", .number = &objects, .least = 1 },
  { .name = "turnover", .help = "percent of the objects replaced in a cycle (churn, batch)", .real = &turnover },
  { .name = "cycles", .help = "timed cycles", .number = &cycles, .least = 1 },
  { .name = "size", .help = "bytes of a block", .number = &size, .least = 16 },
  { .name = NULL },
};
static const lab_about workload = { "latency", "times every single malloc and free", options };

typedef struct object {
  char *block;
  uint32_t malloc_ticks;      /* of the call that made it; 0 when that was not timed */
  bool timed;
} object;

static enum { CHURN, BATCH, BULK } kind;
static object *table;
static uint32_t *order;       /* a permutation of the objects, of which a cycle takes the first part */
static lab_histogram *mallocs, *frees, *pairs, *controls;
static uint64_t cost;
static double wall_ns, cpu_ns;  /* of the timed cycles, readings, histograms and intervals without a call included */

/* Intervals without a call, so many in a row that which call comes next does not matter to p99.9. They use no memory,
 * or the calls would have less of the caches. */
#define CONTROLS 4096
static void time_controls(void) {
  for (unsigned i = 0; i < CONTROLS; i++) {
    uint64_t begin = lab_ticks_begin();
    for (unsigned turn = 0; turn < 32; turn++)      /* about as long as a fast call */
      __asm__ volatile("");
    lab_record(controls, lab_ticks_between(begin, lab_ticks_end(), cost));
  }
}

static void record_call(lab_histogram *calls, uint64_t ticks) {
  static unsigned since;
  lab_record(calls, ticks);
  if (since++ % CONTROLS == 0)
    time_controls();
}

static void allocate(object *o, bool timed) {
  uint64_t begin = lab_ticks_begin();
  char *block = malloc((size_t)size);
  uint64_t ticks = lab_ticks_between(begin, lab_ticks_end(), cost);
  if (!block)
    lab_fail("out of memory");
  block[0] = 1;
  block[size - 1] = 1;
  o->block = block;
  o->timed = timed;
  o->malloc_ticks = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
  if (timed)
    record_call(mallocs, ticks);
}

static void release(object *o, bool timed) {
  char *block = o->block;                           /* our own cache miss must not be timed: the fence waits for it */
  uint64_t begin = lab_ticks_begin();
  free(block);
  uint64_t ticks = lab_ticks_between(begin, lab_ticks_end(), cost);
  o->block = NULL;
  if (!timed)
    return;
  record_call(frees, ticks);
  if (o->timed)
    lab_record(pairs, ticks + o->malloc_ticks);
}

/* Chooses `count` objects into the front of `order`: a partial shuffle, so that none comes twice. */
static void choose(uint64_t *state, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    uint32_t j = i + lab_below(state, (uint32_t)objects - i), t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
}

static void allocate_chosen(uint32_t count, bool timed) {
  for (uint32_t i = 0; i < count; i++)
    allocate(&table[order[i]], timed);
}

static void free_chosen(uint32_t count, bool timed) {
  for (uint32_t i = 0; i < count; i++)
    release(&table[order[i]], timed);
}

static void replace_chosen(uint32_t count, bool timed) {
  for (uint32_t i = 0; i < count; i++) {
    release(&table[order[i]], timed);
    allocate(&table[order[i]], timed);
  }
}

static void cycle(uint64_t *state, uint32_t count, bool timed) {
  if (kind != BULK)
    choose(state, count);
  uint64_t wall = lab_now_ns(CLOCK_MONOTONIC), cpu = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
  if (kind == CHURN) {
    replace_chosen(count, timed);
  } else if (kind == BATCH) {
    free_chosen(count, timed);
    allocate_chosen(count, timed);
  } else {
    allocate_chosen(count, timed);
    if (!timed)
      lab_proof_live((uint64_t)count * (uint64_t)size);
    free_chosen(count, timed);
  }
  if (timed) {
    cpu_ns += (double)(lab_now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu);
    wall_ns += (double)(lab_now_ns(CLOCK_MONOTONIC) - wall);
  }
}

/* ---- what the allocator says of its slow calls ---- */

typedef struct slow_calls {
  double sum_ns;
  double counts[TSLAB_BUCKETS];
} slow_calls;
static slow_calls before, after;
static __typeof__(&tslab_stats_path) stats_path;
static __typeof__(&tslab_bucket_ns) bucket_ns;

static void add_path(slow_calls *to, const tslab_path_stats *path) {
  if (strcmp(path->name, "fast") == 0 || strcmp(path->name, "diverted") == 0)
    return;                                         /* samples of others; calls that another row has too */
  to->sum_ns += (double)path->wall_ns_sum;
  for (unsigned i = 0; i < TSLAB_BUCKETS; i++)
    to->counts[i] += (double)path->buckets[i];
}

static void read_slow_calls(slow_calls *to) {
  tslab_path_stats path;
  for (unsigned i = 0; stats_path && stats_path(i, &path, sizeof path) == 0; i++)
    add_path(to, &path);
}

static bool find_slow_calls(void) {
  return lab_find(&(lab_binding){ "tslab_stats_path", &stats_path }) &&
         lab_find(&(lab_binding){ "tslab_bucket_ns", &bucket_ns });
}

static double around;   /* a slow call, in ns: how much longer it is to its caller than to the library */

/* Of large blocks, all of which are slow calls. Of the middle half, or it would be whole steps of the counter. */
static void measure_around(void) {
  enum { SAMPLES = 101, FROM = SAMPLES / 4, TO = SAMPLES - FROM };
  double samples[SAMPLES], sum = 0;
  for (unsigned i = 0; i < SAMPLES; i++) {
    slow_calls known_before = { 0 }, known_after = { 0 };
    read_slow_calls(&known_before);
    uint64_t begin = lab_ticks_begin();
    char *block = malloc(1 << 16);
    uint64_t ticks = lab_ticks_between(begin, lab_ticks_end(), cost);
    read_slow_calls(&known_after);
    free(block);
    samples[i] = (double)ticks * lab_tick_ns() - (known_after.sum_ns - known_before.sum_ns);
  }
  lab_median(samples, SAMPLES);
  for (unsigned i = FROM; i < TO; i++)
    sum += samples[i];
  around = sum > 0 ? sum / (TO - FROM) : 0;
}

static double bound_below(unsigned bucket) { return bucket ? (double)bucket_ns(bucket - 1) : 0; }

static lab_part above(const lab_histogram *h, double ns) {
  lab_part part = lab_from(h, (uint64_t)(ns / lab_tick_ns()) + 1);
  return (lab_part){ part.count, part.sum * lab_tick_ns() };
}

static lab_part without(lab_part all, lab_part some) {
  return (lab_part){ all.count - some.count, all.sum - some.sum };
}

/* As long as the slow calls in the library's buckets from one to another were to their callers; the last has no upper
 * bound. */
static lab_part within(const lab_histogram *h, unsigned from, unsigned to) {
  lab_part part = above(h, bound_below(from) + around);
  return to < TSLAB_BUCKETS ? without(part, above(h, bound_below(to) + around)) : part;
}

/* The library counts them; how long they were, within a bucket's bounds, is taken from the calls timed here. */
static lab_part slow_within(const lab_histogram *calls, unsigned from, unsigned to) {
  lab_part slow = { 0, 0 };
  for (unsigned i = from; i < to; i++) {
    double count = after.counts[i] - before.counts[i];
    lab_part like = within(calls, i, i + 1);
    slow.count += count;
    slow.sum += count * (like.count > 0 ? like.sum / like.count - around : bound_below(i));
  }
  return slow;
}

/* Returns the time of the calls that took so long without a slow path. It counts as many of them as there are such
 * intervals without a call. */
static double machine_within(const lab_histogram *calls, unsigned from, unsigned to) {
  lab_part others = without(within(calls, from, to), slow_within(calls, from, to));
  double mean = others.count > 0 ? others.sum / others.count : 0, most = (double)bucket_ns(to - 1);
  mean = mean < bound_below(from) ? bound_below(from) : mean > most ? most : mean;
  return others.count > 0 ? mean * within(controls, from, to).count : 0;
}

/* Their number is compared, not their time: one preemption may take as much as all else, and whether it hits a call or
 * an interval is chance. Those up to four times p99.9 are apart: fast calls have other reasons there, too. */
static double machine_ns(const lab_histogram *calls, unsigned first) {
  unsigned longer = first + 4 < TSLAB_BUCKETS ? first + 4 : TSLAB_BUCKETS;
  double sum = machine_within(calls, first, longer);
  return longer < TSLAB_BUCKETS ? sum + machine_within(calls, longer, TSLAB_BUCKETS) : sum;
}

/* Between the two readings, which take time, too. */
static double sum_between_ns(const lab_histogram *h) {
  return (h->sum + (double)h->total * (double)cost) * lab_tick_ns();
}

/* From the last bound of a bucket that is not above p99.9, so that both sides count the same calls. */
static void explain(lab_histogram *calls) {
  lab_merge(calls, mallocs);
  lab_merge(calls, frees);
  double least = (double)lab_percentile(calls, 99.9) * lab_tick_ns();
  unsigned first = 0;
  measure_around();
  while (first + 1 < TSLAB_BUCKETS && (double)bucket_ns(first) + around <= least)
    first++;
  double all = within(calls, first, TSLAB_BUCKETS).sum, slow = slow_within(calls, first, TSLAB_BUCKETS).sum;
  double edges = slow_within(calls, first, TSLAB_BUCKETS).count * around;
  double exposed = sum_between_ns(calls) - (after.sum_ns - before.sum_ns) - (all - slow);
  double controlled = sum_between_ns(controls) - within(controls, first, TSLAB_BUCKETS).sum;
  double machine = machine_ns(calls, first) * exposed / controlled, percent = all > 0 ? 100 / all : 0;
  lab_metric("above_p99.9_ns", all);
  lab_metric("above_p99.9_slow_calls_pct", percent * slow);
  lab_metric("above_p99.9_around_slow_calls_pct", percent * edges);
  lab_metric("above_p99.9_machine_pct", percent * machine);
  lab_metric("above_p99.9_unexplained_pct", percent * (all - slow - edges - machine));
  lab_metric("above_p99.9_slow_calls_of_rest_pct", all > machine ? 100 * slow / (all - machine) : 0);
  lab_metric("around_slow_call_ns", around);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  kind = strcmp(mode, "churn") == 0 ? CHURN : strcmp(mode, "batch") == 0 ? BATCH : BULK;
  uint32_t count = kind == BULK ? (uint32_t)objects : (uint32_t)((double)objects * turnover / 100);
  if (count == 0 || count > objects)
    lab_fail("--turnover=%g of --objects=%ld is not between one object and all", turnover, objects);
  table = lab_map((size_t)objects * sizeof *table);
  order = lab_map((size_t)objects * sizeof *order);
  mallocs = lab_map(sizeof *mallocs);
  frees = lab_map(sizeof *frees);
  pairs = lab_map(sizeof *pairs);
  controls = lab_map(sizeof *controls);
  lab_histogram *calls = lab_map(sizeof *calls);
  cost = lab_timer_cost();
  for (uint32_t i = 0; i < (uint32_t)objects; i++)
    order[i] = i;
  lab_litter((size_t)size, (size_t)size);
  uint64_t rss_before = lab_rss_now(), state = lab_seed;
  if (kind != BULK) {
    allocate_chosen((uint32_t)objects, false);
    lab_proof_live((uint64_t)objects * (uint64_t)size);
  }
  for (long c = 0; c < (cycles + 9) / 10; c++)
    cycle(&state, count, false);
  uint64_t rss_warm = lab_rss_now();
  bool has_slow_calls = find_slow_calls();
  read_slow_calls(&before);
  for (long c = 0; c < cycles; c++)
    cycle(&state, count, true);
  read_slow_calls(&after);

  uint64_t rss_after = lab_rss_now();
  lab_calls = mallocs->total;
  lab_row(NULL);
  lab_metric_latency("malloc", mallocs);
  lab_metric_latency("free", frees);
  lab_metric_latency("pair", pairs);
  if (has_slow_calls)
    explain(calls);
  lab_metric("tick_ns", lab_tick_ns());
  lab_metric("timer_cost_ns", (double)cost * lab_tick_ns());
  lab_metric("cycles_wall_ns", wall_ns);
  lab_metric("cycles_cpu_ns", cpu_ns);
  lab_metric("live_set_rss_bytes", (double)rss_warm - (double)rss_before);
  lab_metric("rss_growth_bytes", (double)rss_after - (double)rss_warm);
  return lab_finish();
}
