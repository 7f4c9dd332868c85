/* epochs: the figure's name says what one operation does - opens and closes an epoch, enters and leaves it, and so on.
 *
 * A figure NAME_ns is the time of `turns` operations, less that of a loop that does all but the calls in question,
 * over `turns`: the median of `repeats` such pairs, whose sides take turns. Figures with 10 have ten blocks of 64
 * bytes in each operation, taken, written and freed, and the loop beside them takes and frees ten as well;
 * NAME_whole_ns leaves those in. `destroy_10` and `reset_10` free nothing, and their ten blocks count. `alternate` is
 * what a pair of malloc and free costs more when the pairs alternate between two epochs than when all are in one.
 *
 * Resident bytes are those of `idle` epochs that were opened, and then entered and left, and of `used` epochs with a
 * block of 64 bytes in each; all are open at the same time. `drained` closes an epoch of `mib` MiB whose blocks are
 * all freed, beside one madvise over as many bytes of touched pages (huge ones, if the epoch's mostly are); `step`
 * closes such epochs in steps of 100 microseconds; the memory left after either is the most that any of
 * them left since before the first. Two threads run `enter_leave_10` in one epoch, and in two, beside one thread alone,
 * in CPU time.
 *
 * `beside` threads meanwhile allocate in epoch 0. --run=NAME does `turns` operations of one figure and nothing else,
 * for a tool that counts instructions: callgrind's --toggle-collect=run_turns leaves the rest out. With --of=mi-heap
 * the figures that mimalloc's heaps have too are theirs: a heap is opened, closed and destroyed by mi_heap_new and
 * mi_heap_destroy. */
#include "epoch_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { TEN = 10, SMALL = 64, LEAST = 96, MOST = 1040, STEP_NS = 100000, STEP_RUNS = 20, CLOSE_RUNS = 15 };
enum { REPEATS_MOST = 4096, BESIDE_MOST = 8, BESIDE_BLOCKS = 256, TEAM_REPEATS = 11 };

static const char *of = "epoch", *only = "all";
static long turns = 200, repeats = 301, beside = 0, idle = 100000, used = 1000, mib = 64;
static bool with_heaps;

static const lab_option options[] = {
  { .name = "of", .help = "whose epochs", .text = &of, .choices = "epoch|mi-heap" },
  { .name = "beside", .help = "threads that allocate in epoch 0 meanwhile", .number = &beside, .least = 0 },
  { .name = "turns", .help = "operations of one timing", .number = &turns, .least = 1 },
  { .name = "repeats", .help = "timings of a figure", .number = &repeats, .least = 1 },
  { .name = "idle", .help = "idle epochs", .number = &idle, .least = 1 },
  { .name = "used", .help = "epochs with one block", .number = &used, .least = 1 },
  { .name = "mib", .help = "MiB of the epoch that is closed drained", .number = &mib, .least = 1 },
  { .name = "run", .help = "the one figure to run, untimed", .text = &only,
    .choices = "all|open_close|open_close_labelled|open_close_10|destroy_10|reset_10|enter_leave|enter_leave_10|"
               "malloc_pair|explicit_pair|alternate" },
  { .name = NULL },
};
static const lab_about workload = { "epochs", "opens, enters, leaves, fills and closes epochs", options };

/* ---- one name for an epoch and for a heap ---- */

static tslab_epoch open_one(void) {
  return opened(with_heaps ? (tslab_epoch)(uintptr_t)heaps.create() : epochs.open(NULL));
}

static tslab_epoch open_destroyable(void) {
  static const tslab_epoch_options destroyable = { .struct_size = sizeof destroyable,
                                                   .flags = TSLAB_EPOCH_DESTROYABLE };
  return opened(with_heaps ? (tslab_epoch)(uintptr_t)heaps.create() : epochs.open_with(&destroyable));
}

static void close_one(tslab_epoch e) {
  if (with_heaps)
    heaps.destroy((void *)(uintptr_t)e);
  else
    must(epochs.close(e, NULL), "close");
}

static void destroy_one(tslab_epoch e) {
  if (with_heaps)
    heaps.destroy((void *)(uintptr_t)e);
  else
    must(epochs.destroy(e, NULL), "destroy");
}

static char *written(char *block) {
  if (!block)
    lab_fail("out of memory");
  block[0] = 1;
  return block;
}

static char *take_in(tslab_epoch e, size_t size) {
  return written(with_heaps ? heaps.malloc((void *)(uintptr_t)e, size) : epochs.malloc(e, size));
}

static void enter(tslab_epoch e) { must(epochs.enter(e), "enter"); }
static void leave(tslab_epoch e) { must(epochs.leave(e), "leave"); }

/* As programs do it: inside an epoch by plain malloc. */
static void come_in(tslab_epoch e) {
  if (!with_heaps)
    enter(e);
}

static void go_out(tslab_epoch e) {
  if (!with_heaps)
    leave(e);
}

static char *take_inside(tslab_epoch e, size_t size) {
  return written(with_heaps ? heaps.malloc((void *)(uintptr_t)e, size) : malloc(size));
}

/* ---- the operations ---- */

static tslab_epoch first, second, resettable;       /* open throughout */
static tslab_epoch odd_pairs, even_pairs;           /* see nothing but explicit calls, and so are alike */

static void loop(long n) {
  for (long i = 0; i < n; i++)
    __asm__ volatile("" ::: "memory");
}

static inline void ten_pairs(void) {
  char *block[TEN];
  for (int i = 0; i < TEN; i++)
    block[i] = written(malloc(SMALL));
  for (int i = 0; i < TEN; i++)
    free(block[i]);
}

static void pairs_outside(long n) {
  for (long i = 0; i < n; i++)
    ten_pairs();
}

static void pairs_inside(long n) {
  enter(first);
  pairs_outside(n);
  leave(first);
}

static void open_close(long n) {
  for (long i = 0; i < n; i++)
    close_one(open_one());
}

static void open_close_labelled(long n) {
  for (long i = 0; i < n; i++)
    must(epochs.close(opened(epochs.open("request")), NULL), "close");
}

static void open_close_10(long n) {
  for (long i = 0; i < n; i++) {
    tslab_epoch e = open_one();
    enter(e);
    ten_pairs();
    leave(e);
    close_one(e);
  }
}

static void destroy_10(long n) {
  for (long i = 0; i < n; i++) {
    tslab_epoch e = open_destroyable();
    come_in(e);
    for (int k = 0; k < TEN; k++)
      take_inside(e, SMALL);
    go_out(e);
    destroy_one(e);
  }
}

static void reset_10(long n) {
  enter(resettable);
  for (long i = 0; i < n; i++) {
    for (int k = 0; k < TEN; k++)
      take_inside(resettable, SMALL);
    must(epochs.reset(resettable, NULL), "reset");
  }
  leave(resettable);
}

static void enter_leave_in(tslab_epoch e, long n) {
  for (long i = 0; i < n; i++) {
    enter(e);
    leave(e);
  }
}

static void enter_leave_10_in(tslab_epoch e, long n) {
  for (long i = 0; i < n; i++) {
    enter(e);
    ten_pairs();
    leave(e);
  }
}

static void enter_leave(long n) { enter_leave_in(first, n); }
static void enter_leave_10(long n) { enter_leave_10_in(first, n); }

static void malloc_pair(long n) {
  for (long i = 0; i < n; i++)
    free(written(malloc(SMALL)));
}

/* Not inlined: the compiler is not to know when both are one. */
__attribute__((noinline)) static void pairs_in_turn(tslab_epoch odd, tslab_epoch even, long n) {
  for (long i = 0; i < n; i++)
    free(take_in(i & 1 ? odd : even, SMALL));
}

static void explicit_pair(long n) { pairs_in_turn(even_pairs, even_pairs, n); }
static void alternate(long n) { pairs_in_turn(odd_pairs, even_pairs, n); }

static const struct figure {
  const char *name;
  void (*run)(long n), (*without)(long n);
  bool heaps_too;
} figures[] = {
  { "open_close", open_close, loop, true },
  { "open_close_labelled", open_close_labelled, loop, false },
  { "open_close_10", open_close_10, pairs_outside, false },
  { "destroy_10", destroy_10, loop, true },
  { "reset_10", reset_10, loop, false },
  { "enter_leave", enter_leave, loop, false },
  { "enter_leave_10", enter_leave_10, pairs_inside, false },
  { "malloc_pair", malloc_pair, loop, true },
  { "explicit_pair", explicit_pair, loop, true },
  { "alternate", alternate, explicit_pair, true },
};
enum { FIGURES = sizeof figures / sizeof *figures };

/* Something follows the call, for a jump would end what --toggle-collect counts. */
__attribute__((noinline)) static void run_turns(void (*run)(long n), long n) {
  run(n);
  __asm__ volatile("" ::: "memory");
}

static bool has(const struct figure *f) { return !with_heaps || f->heaps_too; }

/* ---- times ---- */

static double net[FIGURES][REPEATS_MOST], whole[FIGURES][REPEATS_MOST];

static double ticks_of(void (*work)(long n)) {
  uint64_t begin = lab_ticks_begin();
  work(turns);
  return (double)lab_ticks_between(begin, lab_ticks_end(), lab_timer_cost());
}

/* Figure by figure within a repeat, so that a change of the clock's rate falls on all of them. */
static void time_figures(void) {
  for (long r = 0; r < repeats; r++)
    for (unsigned i = 0; i < FIGURES; i++) {
      const struct figure *f = &figures[i];
      if (!has(f))
        continue;
      double one = ticks_of(r % 2 ? f->without : f->run), other = ticks_of(r % 2 ? f->run : f->without);
      whole[i][r] = (r % 2 ? other : one) * lab_tick_ns() / (double)turns;
      net[i][r] = whole[i][r] - (r % 2 ? one : other) * lab_tick_ns() / (double)turns;
    }
}

static void metrics_of_times(void) {
  char name[48];
  for (unsigned i = 0; i < FIGURES; i++) {
    if (!has(&figures[i]))
      continue;
    snprintf(name, sizeof name, "%s_ns", figures[i].name);
    lab_metric(name, lab_median(net[i], (size_t)repeats));
    if (figures[i].without != loop) {
      snprintf(name, sizeof name, "%s_whole_ns", figures[i].name);
      lab_metric(name, lab_median(whole[i], (size_t)repeats));
    }
  }
}

static tslab_epoch team_epochs[2];

static void team_work(unsigned index) {
  enter_leave_10_in(team_epochs[index], turns);
  lab_team_begin();
  enter_leave_10_in(team_epochs[index], 100 * turns);
  lab_team_end();
}

static double team_ns(unsigned threads, tslab_epoch a, tslab_epoch b) {
  team_epochs[0] = a;
  team_epochs[1] = b;
  return lab_team(threads, team_work).cpu_ns / (double)(threads * 100 * turns);
}

static void measure_teams(void) {
  double alone[TEAM_REPEATS], together[TEAM_REPEATS], apart[TEAM_REPEATS];
  for (unsigned r = 0; r < TEAM_REPEATS; r++) {
    double one = team_ns(1, first, first);
    alone[r] = one;
    together[r] = team_ns(2, first, first) / one;
    apart[r] = team_ns(2, first, second) / one;
  }
  lab_metric("one_thread_enter_leave_10_ns", lab_median(alone, TEAM_REPEATS));
  lab_metric("two_threads_one_epoch_ratio", lab_median(together, TEAM_REPEATS));
  lab_metric("two_threads_two_epochs_ratio", lab_median(apart, TEAM_REPEATS));
}

/* ---- resident bytes ---- */

static struct { double used, idle_total, entered; } resident;

static double rss_since(uint64_t before) { return (double)lab_rss_now() - (double)before; }

/* At the start, and all open together, so that the memory of none serves another. */
static void measure_resident(void) {
  tslab_epoch *open = lab_map((size_t)(used + idle) * sizeof *open), *unused = open + used;
  uint64_t before = lab_rss_now();
  for (long i = 0; i < used; i++) {
    open[i] = open_one();
    come_in(open[i]);
    take_inside(open[i], SMALL);
    go_out(open[i]);
  }
  resident.used = rss_since(before) / (double)used;
  before = lab_rss_now();
  for (long i = 0; i < idle; i++)
    unused[i] = open_one();
  resident.idle_total = rss_since(before);
  for (long i = 0; i < idle; i++) {
    come_in(unused[i]);
    go_out(unused[i]);
  }
  resident.entered = rss_since(before) / (double)idle;
  for (long i = 0; i < used + idle; i++)
    close_one(open[i]);
}

/* ---- closing what is large and drained ---- */

static struct { char **block; uint64_t huge; } large;

static uint64_t huge_now(void) { return lab_memory_now().huge; }

/* An epoch that held `mib` MiB of blocks, written to the last byte and freed again. */
static tslab_epoch drained(uint64_t *state) {
  tslab_epoch e = open_one();
  size_t bytes = (size_t)mib << 20, taken = 0, count = 0;
  uint64_t huge = huge_now();
  come_in(e);
  for (; taken < bytes; count++) {
    size_t size = LEAST + lab_below(state, MOST - LEAST + 1);
    large.block[count] = memset(take_inside(e, size), 1, size);
    taken += size;
  }
  lab_proof_live(taken);
  large.huge = huge_now() - huge;
  for (size_t i = 0; i < count; i++)
    free(large.block[i]);
  go_out(e);
  return e;
}

static double bare_madvise_ns(void) {
  size_t bytes = (size_t)mib << 20, alignment = 2u << 20;
  char *map = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    lab_fail("%zu bytes for the bare madvise: %s", bytes, strerror(errno));
  char *pages = map + (alignment - (uintptr_t)map % alignment) % alignment;
  madvise(pages, bytes, 2 * large.huge > bytes ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  memset(pages, 1, bytes);
  uint64_t begin = lab_ticks_begin();
  must(madvise(pages, bytes, MADV_DONTNEED) ? errno : 0, "madvise");
  double ns = (double)lab_ticks_between(begin, lab_ticks_end(), lab_timer_cost()) * lab_tick_ns();
  munmap(map, bytes + alignment);
  return ns;
}

static void measure_drained(uint64_t *state) {
  double close_ns[CLOSE_RUNS], bare_ns[CLOSE_RUNS], ratio[CLOSE_RUNS], held = 0, left = 0;
  uint64_t before = lab_rss_now();
  for (unsigned r = 0; r < CLOSE_RUNS; r++) {
    tslab_epoch e = drained(state);
    if (r % 2)
      bare_ns[r] = bare_madvise_ns();
    held += rss_since(before) / CLOSE_RUNS;
    uint64_t begin = lab_ticks_begin();
    close_one(e);
    close_ns[r] = (double)lab_ticks_between(begin, lab_ticks_end(), lab_timer_cost()) * lab_tick_ns();
    double now = rss_since(before);
    left = now > left ? now : left;
    if (r % 2 == 0)
      bare_ns[r] = bare_madvise_ns();
    ratio[r] = close_ns[r] / bare_ns[r];
  }
  lab_metric("drained_held_bytes", held);
  lab_metric("drained_left_bytes", left);
  lab_metric("drained_huge_bytes", (double)large.huge);
  lab_metric("drained_close_ns", lab_median(close_ns, CLOSE_RUNS));
  lab_metric("bare_madvise_ns", lab_median(bare_ns, CLOSE_RUNS));
  lab_metric("close_over_madvise_ratio", lab_median(ratio, CLOSE_RUNS));
}

static void measure_steps(uint64_t *state) {
  double longest[STEP_RUNS], steps[STEP_RUNS], left = 0;
  uint64_t before = lab_rss_now();
  for (unsigned r = 0; r < STEP_RUNS; r++) {
    tslab_epoch e = drained(state);
    int error = EAGAIN;
    for (longest[r] = steps[r] = 0; error == EAGAIN; steps[r]++) {
      uint64_t begin = lab_ticks_begin();
      error = epochs.close_step(e, STEP_NS, NULL);
      double ns = (double)lab_ticks_between(begin, lab_ticks_end(), lab_timer_cost()) * lab_tick_ns();
      longest[r] = ns > longest[r] ? ns : longest[r];
    }
    must(error, "close_step");
    double now = rss_since(before);
    left = now > left ? now : left;
  }
  lab_metric("step_longest_ns", lab_median(longest, STEP_RUNS));
  lab_metric("step_calls_count", lab_median(steps, STEP_RUNS));
  lab_metric("step_left_bytes", left);
}

/* ---- threads beside ---- */

static _Atomic bool stop;

static void *allocate_beside(void *index) {
  uint64_t state = lab_seed + 1000 + (uintptr_t)index;
  char *block[BESIDE_BLOCKS] = { NULL };
  while (!stop) {
    uint32_t i = lab_below(&state, BESIDE_BLOCKS);
    free(block[i]);
    block[i] = written(malloc(LEAST + lab_below(&state, MOST - LEAST + 1)));
  }
  for (unsigned i = 0; i < BESIDE_BLOCKS; i++)
    free(block[i]);
  return NULL;
}

static void start_beside(pthread_t *threads) {
  for (long i = 0; i < beside; i++)
    must(pthread_create(&threads[i], NULL, allocate_beside, (void *)(uintptr_t)i), "pthread_create");
}

static void end_beside(const pthread_t *threads) {
  stop = true;
  for (long i = 0; i < beside; i++)
    pthread_join(threads[i], NULL);
}

/* ---- */

static void run_only(void) {
  for (unsigned i = 0; i < FIGURES; i++)
    if (strcmp(figures[i].name, only) == 0 && has(&figures[i])) {
      figures[i].run(1);                            /* a first time is not counted */
      run_turns(figures[i].run, turns);
      lab_row(NULL);
      return;
    }
  lab_fail("--run=%s: --of=%s has no such figure", only, of);
}

static void measure_all(void) {
  uint64_t state = lab_seed;
  measure_resident();
  time_figures();
  lab_row(NULL);
  metrics_of_times();
  if (!with_heaps && beside == 0)                   /* more threads than that would wait for a core */
    measure_teams();
  lab_metric("used_epoch_rss_bytes", resident.used);
  lab_metric("idle_epoch_rss_bytes", resident.idle_total / (double)idle);
  if (!with_heaps)
    lab_metric("entered_epoch_rss_bytes", resident.entered);
  lab_metric("idle_epochs_rss_bytes", resident.idle_total);
  measure_drained(&state);
  if (!with_heaps)
    measure_steps(&state);
}

int main(int argc, char **argv) {
  pthread_t threads[BESIDE_MOST];
  lab_start(argc, argv, &workload);
  if (repeats > REPEATS_MOST || beside > BESIDE_MOST)
    lab_fail("at most %d repeats and %d threads beside", REPEATS_MOST, BESIDE_MOST);
  with_heaps = strcmp(of, "mi-heap") == 0;
  with_heaps ? bind_heaps("--of=mi-heap") : bind_epochs("--of=epoch");
  large.block = lab_map(((size_t)mib << 20) / LEAST * sizeof *large.block + sizeof *large.block);
  char *proof = written(malloc(MOST));
  lab_proof_live(MOST);
  free(proof);
  first = open_one();
  second = open_one();
  resettable = open_destroyable();
  odd_pairs = open_one();
  even_pairs = open_one();
  start_beside(threads);
  strcmp(only, "all") == 0 ? measure_all() : run_only();
  end_beside(threads);
  lab_calls = (uint64_t)(turns * repeats);
  return lab_finish();
}
