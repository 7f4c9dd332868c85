/* replay: one operation is a call of malloc, calloc, realloc, an aligned one, or free, as a real program made it.
 *
 * --trace names a file that `tslab record` wrote; a name without a slash is a recording that bench/traces.py made. The
 * replay has the recorded threads: each lane of the trace plays its calls in order, as fast as it can, and starts a
 * new thread where the program had one end. A thread that frees a block of another waits until that one has allocated
 * it. No thread goes ahead of the slowest by more than `window` allocations of the program, so phases follow each
 * other as they did. Within the window the order of calls of different threads is left to the machine.
 *
 * The replay writes one byte in each 64 of a new block, and of what a block gains by realloc. Of blocks of 128 KiB or
 * more the recorder saw how many pages the program touched, and so many are written from the front. Nothing is read.
 * Live bytes are those that are written so.
 *
 * Reading the trace and making its tables come before the measurement. The resident figures are what is resident beyond
 * them: at the peak, right after the last call, and after `idle_ms` of rest. The blocks that live then stay, as they
 * did in the program. */
#include "lab.h"
#include "trace/read.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 64, LANES_MOST = 256, WINDOW_LEAST = 64, SPINS = 200, LITTLE = 1 << 20 };

static const char *trace = "", *partial = "no";
static long window = 10000, idle_ms = 0;

static const lab_option options[] = {
  { .name = "trace", .help = "a file of tslab record, or the name of a recording", .text = &trace },
  { .name = "window", .help = "allocations that a thread may be ahead of the slowest", .number = &window,
    .least = WINDOW_LEAST },
  { .name = "idle_ms", .help = "milliseconds at rest before the last look at resident memory", .number = &idle_ms },
  { .name = "partial", .help = "play an unfinished trace as far as it is good", .text = &partial, .choices = "no|yes" },
  { .name = NULL },
};
static const lab_about workload = { "replay", "makes the calls that a real program made", options };

static script played;
static _Atomic(char *) *shared;
static struct { _Alignas(128) _Atomic uint64_t clock; } positions[LANES_MOST];

/* ---- waiting for others ---- */

static void wait_a_little(unsigned *turns) {
  if (++*turns > SPINS)
    sched_yield();
}

static char *taken_by_another(uint32_t slot) {
  char *block;
  for (unsigned turns = 0; !(block = atomic_load_explicit(&shared[slot], memory_order_acquire));)
    wait_a_little(&turns);
  return block;
}

static uint64_t slowest(void) {
  uint64_t least = UINT64_MAX;
  for (unsigned i = 0; i < played.lane_count; i++) {
    uint64_t clock = atomic_load_explicit(&positions[i].clock, memory_order_relaxed);
    least = clock < least ? clock : least;
  }
  return least;
}

/* The slowest lane never waits, for its own position is the least, and what it frees was born before. */
static void meet(const lane *l, uint64_t clock) {
  atomic_store_explicit(&positions[l - played.lanes].clock, clock, memory_order_relaxed);
  for (unsigned turns = 0; clock > slowest() + (uint64_t)window;)
    wait_a_little(&turns);
}

/* ---- playing ---- */

static inline uint64_t number_at(const uint32_t **at) {
  uint64_t number = **at & ~(1u << 31);
  for (unsigned shift = 31; *(*at)++ >> 31; shift += 31)
    number |= (uint64_t)(**at & ~(1u << 31)) << shift;
  return number;
}

static inline void put_block(const lane *l, uint32_t word, char *block) {
  if (word & IN_SHARED)
    atomic_store_explicit(&shared[word >> SLOT_SHIFT], block, memory_order_release);
  else
    l->blocks[word >> SLOT_SHIFT] = block;
}

static inline char *block_of(const lane *l, uint32_t word) {
  return word & IN_SHARED ? taken_by_another(word >> SLOT_SHIFT) : l->blocks[word >> SLOT_SHIFT];
}

static inline void touch(char *block, uint64_t from, uint64_t to) {
  for (uint64_t at = from; at < to; at += LINE)
    block[at] = 1;
}

static char *take_aligned(uint64_t size, uint64_t logarithm) {
  void *block;
  size_t alignment = (size_t)1 << logarithm;
  return posix_memalign(&block, alignment < sizeof(void *) ? sizeof(void *) : alignment, size) == 0 ? block : NULL;
}

/* Plays the birth whose word is given, and returns where the next operation is. */
static inline const uint32_t *bear(const lane *l, uint32_t word, const uint32_t *at) {
  unsigned kind = word & WORD_KIND;
  char *block = kind == RESIZE ? block_of(l, *at++) : NULL;
  uint64_t size = number_at(&at), to = word & PARTLY ? number_at(&at) : size, from = 0;
  if (kind == TAKE) {
    block = malloc(size);
  } else if (kind == TAKE_ZEROED) {
    block = calloc(1, size);
  } else if (kind == TAKE_ALIGNED) {
    block = take_aligned(size, number_at(&at));
  } else {
    from = number_at(&at);
    block = realloc(block, size);
  }
  if (!block)
    lab_fail("out of memory: a block of %llu bytes", (unsigned long long)size);
  touch(block, from, to);
  put_block(l, word, block);
  return at;
}

/* Plays the calls of one thread. */
static __attribute__((noinline)) void play(lane *l) {
  const uint32_t *at = l->at;
  uint64_t operations = 0;
  for (;;) {
    uint32_t word = *at++;
    unsigned kind = word & WORD_KIND;
    if (kind <= RESIZE) {
      at = bear(l, word, at);
      operations++;
    } else if (kind == DROP) {
      free(block_of(l, word));
      operations++;
    } else if (kind == MEET) {
      meet(l, number_at(&at));
    } else if (kind == FULLEST) {
      lab_proof_live(played.live_peak);
    } else {
      break;
    }
  }
  l->at = at;
  l->operations += operations;
}

static void *play_thread(void *given) {
  lane *l = given;
  uint64_t begin = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
  play(l);
  l->cpu_ns += lab_now_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
  return NULL;
}

static void work(unsigned index) {
  lane *l = &played.lanes[index];
  lab_team_begin();
  if (l->threads <= 1)
    play_thread(l);
  for (unsigned i = 0; i < l->threads && l->threads > 1; i++) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, play_thread, l);
    if (error)
      lab_fail("a thread of the program cannot be started: %s", strerror(error));
    pthread_join(thread, NULL);
  }
  atomic_store_explicit(&positions[index].clock, UINT64_MAX, memory_order_relaxed);
  lab_team_end();
}

/* ---- start and figures ---- */

/* Returns the path of the trace: a name stands for a file beside this program. */
static const char *trace_path(void) {
  static char path[4096];
  if (*trace == 0)
    lab_fail("--trace=FILE is needed: tslab record makes one");
  if (strchr(trace, '/'))
    return trace;
  ssize_t length = readlink("/proc/self/exe", path, sizeof path / 2);
  while (length > 0 && path[length - 1] != '/')
    length--;
  snprintf(path + (length > 0 ? length : 0), sizeof path / 2, "traces/%s.trace", trace);
  if (access(path, R_OK) != 0) {
    printf("{\"missing\":\"there is no recording '%s': bench/traces.py makes those that it can\"}\n", trace);
    lab_fail("there is no recording '%s': bench/traces.py makes those that it can", trace);
  }
  return path;
}

/* The kernel counts the peak anew from here; where it does not, the peak includes the reading of the trace. */
static void forget_peak(void) {
  int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (file < 0)
    return;
  ssize_t done = write(file, "5", 1);
  (void)done;
  close(file);
}

static void report(lab_team_result r, uint64_t base, uint64_t after, uint64_t rested) {
  double operations = 0, cpu_ns = 0, threads = 0, peak = (double)lab_memory_now().peak_rss - (double)base;
  for (unsigned i = 0; i < played.lane_count; i++) {
    operations += (double)played.lanes[i].operations;
    cpu_ns += (double)played.lanes[i].cpu_ns;
    threads += played.lanes[i].threads;
  }
  double live_peak = (double)played.live_peak, live_end = (double)played.live_end, end = (double)after - (double)base;
  lab_calls = played.births;
  lab_row(NULL);
  lab_metric("op_ns", r.wall_ns / operations);
  lab_metric("cpu_per_op_ns", cpu_ns / operations);
  lab_metric("heap_peak_bytes", peak);
  lab_metric("heap_end_bytes", end);
  if (idle_ms)
    lab_metric("heap_rest_bytes", (double)rested - (double)base);
  lab_metric("peak_over_live_ratio", peak / live_peak);
  lab_metric("end_over_live_ratio", live_end >= LITTLE ? end / live_end : NAN); /* a quotient by little says little */
  lab_metric("live_peak_bytes", live_peak);
  lab_metric("live_end_bytes", live_end);
  lab_metric("operations_count", operations);
  lab_metric("threads_count", threads);
  lab_metric("left_out_count", (double)played.unknown);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  trace_read(trace_path(), strcmp(partial, "yes") == 0, &played);
  trace = strrchr(trace, '/') ? strrchr(trace, '/') + 1 : trace; /* rows of any folder can be compared */
  if (played.lane_count > LANES_MOST)
    lab_fail("the trace has %u threads at a time, and at most %d can be replayed", played.lane_count, LANES_MOST);
  shared = lab_map(played.shared_slots * sizeof *shared);
  lab_litter(16, 1024);
  uint64_t base = lab_rss_now();
  forget_peak();
  lab_team_result r = lab_team(played.lane_count, work);
  uint64_t after = lab_rss_now();
  nanosleep(&(struct timespec){ idle_ms / 1000, idle_ms % 1000 * 1000000 }, NULL);
  report(r, base, after, lab_rss_now());
  return lab_finish();
}
