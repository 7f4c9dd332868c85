/* timing: see timing.h.                                                                             floor: heap */
#include "heap/timing.h"

#include "base/options.h"
#include "base/probe.h"
#include "heap/arena.h"
#include "heap/draw.h"
#include "heap/label.h"
#include "os/os.h"

const char path_names[PATHS][16] = {
    [PATH_FAST] = "fast",         [PATH_MAGAZINE] = "magazine",       [PATH_SLAB] = "slab",
    [PATH_REMOTE] = "remote",     [PATH_ADOPTED] = "adopted",   [PATH_FRESH] = "fresh",
    [PATH_RESERVE] = "reserve",   [PATH_RUN] = "run",           [PATH_MAP] = "map",
    [PATH_LARGE] = "large",       [PATH_DAMAGED] = "damaged",   [PATH_BIRTH] = "birth",
    [PATH_PURGE] = "purge",       [PATH_DIVERTED] = "diverted", [PATH_REFUSED] = "refused",
    [PATH_LOCK] = "lock",         [PATH_LIST_FULL] = "free: list full", [PATH_FLUSH] = "free: remote",
    [PATH_LARGE_FREE] = "free: large",
};

static bool draws_cpu(struct counters *counters) {
  if (!options.sample_cpu) return false;
  if (counters->cpu_countdown > 1 && counters->cpu_countdown <= INT32_MAX) {
    counters->cpu_countdown--;
    return false;
  }
  counters->cpu_countdown = draw_geometric(&counters->random, options.sample_cpu);
  return true;
}

void timing_draw(struct timing *timing, struct counters *counters) {
  counters->slow_countdown = options.sample ? draw_geometric(&counters->random, options.sample) : UINT32_MAX;
  if (!options.sample) return;
  timing->sampled = true;
  timing->takes_cpu = draws_cpu(counters);
  if (!timing->takes_cpu) return;
  timing->cpu = os_thread_ns();
  timing->start = ticks_now(); /* the read of that clock is no part of the call */
}

/* ---- the cost of the clocks, which is no part of a call ---------------------------------------------------------- */

static _Atomic uint64_t exact_ticks, cpu_ns; /* 0: not measured yet */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t less(uint64_t from, uint64_t what) { return from - least(from, what); }

static uint64_t cost_of_exact(void) {
  uint64_t cost = atomic_load_explicit(&exact_ticks, memory_order_relaxed);
  if (LIKELY(cost)) return cost;
  cost = UINT64_MAX;
  for (int i = 0; i < 16; i++) {
    uint64_t before = ticks_begin();
    cost = least(cost, ticks_end() - before);
  }
  atomic_store_explicit(&exact_ticks, cost | 1, memory_order_relaxed);
  return cost;
}

static uint64_t cost_of_cpu(void) {
  uint64_t cost = atomic_load_explicit(&cpu_ns, memory_order_relaxed);
  if (LIKELY(cost)) return cost;
  cost = UINT64_MAX;
  for (int i = 0; i < 8; i++) {
    uint64_t before = os_thread_ns();
    cost = least(cost, os_thread_ns() - before);
  }
  atomic_store_explicit(&cpu_ns, cost | 1, memory_order_relaxed);
  return cost;
}

/* ---- recording --------------------------------------------------------------------------------------------------- */

static unsigned bucket_of(uint64_t ns) {
  ns = max_size(ns, 8);
  unsigned octave = log2_floor(ns) - 3, bucket = 2 * octave;
  bucket += (ns > (uint64_t)8 << octave) + (ns > (uint64_t)11585 << octave >> 10); /* the bounds that it exceeds */
  return (unsigned)min_size(bucket, BUCKETS - 1);
}

static void count_path(struct counters *counters, enum path path, uint64_t ns, uint64_t lock_wait) {
  struct path_times *of = &counters->paths[path];
  counter_add(&of->buckets[bucket_of(ns)], 1);
  counter_add(&of->wall_sum, ns);
  counter_max(&of->wall_max, ns);
  if (UNLIKELY(lock_wait)) counter_add(&of->lock_wait_sum, lock_wait);
}

/* Adds to times that no other thread reads yet. */
INLINE void add_time(struct times *of, const struct sample *s) {
  of->count++;
  of->wall_sum += s->wall_ns;
  if (s->wall_ns > of->wall_max) of->wall_max = s->wall_ns;
  if (UNLIKELY(s->cpu_ns == SAMPLE_NO_CPU)) return;
  of->cpu_count++;
  of->cpu_sum += s->cpu_ns;
  if (s->cpu_ns > of->cpu_max) of->cpu_max = s->cpu_ns;
  of->wait_sum += s->wall_ns - s->cpu_ns;
  if (s->wall_ns - s->cpu_ns > of->wait_max) of->wait_max = s->wall_ns - s->cpu_ns;
}

static struct {
  _Atomic uint64_t taken;
  struct sample kept[SAMPLES_KEPT];
} ring;

static uint64_t numbers(unsigned count) { /* takes so many numbers; returns the first */
  return atomic_fetch_add_explicit(&ring.taken, count, memory_order_relaxed) + 1;
}

/* Copies word by word: a load of two words would wait for the stores of each. */
INLINE void put(uint64_t *to, uint64_t word) { __atomic_store_n(to, word, __ATOMIC_RELAXED); }

/* Clears the number first and sets it last. A reader that finds the same number before and after has copied a whole
 * sample. */
INLINE void keep(uint64_t number, const struct sample *s) {
  struct sample *to = &ring.kept[number % SAMPLES_KEPT];
  put(&to->number, 0);
  FENCE_STORES();
  put(&to->at_ns, s->at_ns);
  put(&to->thread_id, s->thread_id);
  put(&to->requested, s->requested);
  put(&to->usable, s->usable);
  put(&to->wall_ns, s->wall_ns);
  put(&to->cpu_ns, s->cpu_ns);
  put(&to->lock_wait_ns, s->lock_wait_ns);
  put(&to->path, s->path);
  put(&to->label, s->label);
  __atomic_store_n(&to->number, number, __ATOMIC_RELEASE);
}

_Static_assert(sizeof(struct sample) % sizeof(uint64_t) == 0, "copied word by word");
#define SAMPLE_WORDS (sizeof(struct sample) / sizeof(uint64_t))

size_t samples_copy(struct sample *out, size_t most) {
  uint64_t taken = atomic_load_explicit(&ring.taken, memory_order_acquire);
  uint64_t first = taken > min_size(most, SAMPLES_KEPT) ? taken - min_size(most, SAMPLES_KEPT) + 1 : 1;
  size_t copied = 0;
  for (uint64_t n = first; n <= taken; n++) {
    const uint64_t *from = (const uint64_t *)&ring.kept[n % SAMPLES_KEPT];
    uint64_t *to = (uint64_t *)&out[copied];
    if (__atomic_load_n(&from[0], __ATOMIC_ACQUIRE) != n) continue;
    to[0] = n;
    for (size_t i = 1; i < SAMPLE_WORDS; i++) to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    copied += __atomic_load_n(&from[0], __ATOMIC_RELAXED) == n;
  }
  return copied;
}

static uint64_t label_of(const struct heap *heap) {
  return UNLIKELY(heap->arena) ? heap->arena->label : SAMPLE_NO_LABEL;
}

static void count_label(uint64_t label, uint64_t wall, uint64_t ran) {
  struct label *of = &labels[label];
  shared_add(&of->samples, 1);
  shared_add(&of->wall_sum, wall);
  shared_max(&of->wall_max, wall);
  if (ran == SAMPLE_NO_CPU) return;
  shared_add(&of->cpu_samples, 1);
  shared_add(&of->cpu_sum, ran);
  shared_add(&of->wait_sum, wall - ran);
}

/* The wall time of samples with a cpu time is the sum of its parts. */
static void count_sampled(struct path_times *of, const struct times *sum) {
  counter_add(&of->samples, sum->count);
  counter_add(&of->sampled_wall_sum, sum->wall_sum);
  counter_add(&of->cpu_samples, sum->cpu_count);
  counter_add(&of->cpu_wall_sum, sum->cpu_sum + sum->wait_sum);
  counter_add(&of->cpu_sum, sum->cpu_sum);
  counter_add(&of->wait_sum, sum->wait_sum);
}

/* Records a sample for its label, or for a class of epoch 0, and among the newest. */
INLINE void record(struct counters *counters, uint64_t number, const struct sample *s) {
  if (UNLIKELY(s->label != SAMPLE_NO_LABEL)) {
    count_label(s->label, s->wall_ns, s->cpu_ns); /* passes values, so that a sample can stay in registers */
  } else if (s->usable != 0 && s->usable <= SMALL_MAX) {
    struct class_counters *class = &counters->classes[class_of(s->usable)];
    counter_add(&class->samples, 1);
    counter_add(&class->requested, s->requested);
    counter_add(&class->requested_squares, s->requested * s->requested);
  }
  keep(number, s);
}

/* ---- slow calls -------------------------------------------------------------------------------------------------- */

/* No thread loses its processor and gets it back in less than this. A smaller difference of two clocks is their
 * error. */
#define SWITCH_NS 1000

static uint64_t cpu_of(const struct timing *timing, uint64_t wall_ns) {
  if (!timing->takes_cpu) return SAMPLE_NO_CPU;
  if (wall_ns < SWITCH_NS) return wall_ns;
  uint64_t ran_ns = less(os_thread_ns() - timing->cpu, cost_of_cpu());
  return ran_ns + SWITCH_NS > wall_ns ? wall_ns : ran_ns;
}

static enum path path_of(const struct counters *counters, uint64_t ticks) {
  if (counters->waited > ticks / 2) return PATH_LOCK;
  return counters->stages ? (enum path)log2_floor(counters->stages) : PATH_SLAB;
}

#define REPAIRS (1u << PATH_REMOTE | 1u << PATH_ADOPTED | 1u << PATH_PURGE | 1u << PATH_DAMAGED)

static void count_repair(struct counters *counters, const struct times *one) {
  times_add(&counters->thread_totals.repairs, one);
  counter_add(&counters->thread_totals.repair_remote, counters->stages >> PATH_REMOTE & 1);
  counter_add(&counters->thread_totals.repair_adopt, counters->stages >> PATH_ADOPTED & 1);
  counter_add(&counters->thread_totals.repair_purge, counters->stages >> PATH_PURGE & 1);
  counter_add(&counters->thread_totals.repair_other, counters->stages >> PATH_DAMAGED & 1);
}

void timing_end(const struct timing *timing, size_t requested, size_t usable) {
  struct counters *counters = counters_here();
  if (counters->stages & 1u << PATH_FAST) return; /* it was timed already */
  if (!usable) counters_stage(counters, PATH_REFUSED);
  counter_add(&counters->thread_totals.slow_allocations, 1);
  if (current_heap->arena) shared_add(&labels[current_heap->arena->label].slow, 1);
  uint64_t now = ticks_end(), ticks = now - timing->start; /* waits until the block has arrived */
  ticks_calibrate(now);
  struct sample s = {.requested = requested, .usable = usable, .wall_ns = ticks_to_ns(ticks),
                     .lock_wait_ns = ticks_to_ns(counters->waited), .path = path_of(counters, ticks)};
  PROBE3("tslab", "slow_path", s.path, s.wall_ns, requested);
  s.cpu_ns = cpu_of(timing, s.wall_ns);
  count_path(counters, (enum path)s.path, s.wall_ns, s.lock_wait_ns);
  counter_add(&counters->thread_totals.slow_ns, s.wall_ns);
  if (LIKELY(!(counters->stages & REPAIRS) && !timing->sampled)) return;
  struct times one = {0};
  add_time(&one, &s);
  if (counters->stages & REPAIRS) count_repair(counters, &one);
  if (!timing->sampled) return;
  s.at_ns = ticks_at_ns(timing->start);
  s.thread_id = counters->thread_totals.thread_id;
  s.label = label_of(current_heap);
  count_sampled(&counters->paths[s.path], &one);
  times_add(&counters->thread_totals.samples, &one);
  record(counters, numbers(1), &s);
}

/* A free needs no heap, so several threads without one may be here together. */
static COLD void count_nobodys_free(enum path path, uint64_t ns) {
  struct path_times *of = &shared_counters.paths[path];
  __atomic_fetch_add(&of->buckets[bucket_of(ns)], 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&of->wall_sum, ns, __ATOMIC_RELAXED);
  counter_max(&of->wall_max, ns);
  __atomic_fetch_add(&shared_counters.thread_totals.slow_frees, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&shared_counters.thread_totals.slow_ns, ns, __ATOMIC_RELAXED);
}

void timing_end_path(const struct timing *timing, enum path path) {
  struct counters *counters = counters_here();
  uint64_t now = ticks_now(), ticks = now - timing->start;
  ticks_calibrate(now);
  uint64_t ns = ticks_to_ns(ticks);
  PROBE3("tslab", "slow_path", path, ns, 0);
  if (UNLIKELY(counters == &shared_counters)) {
    count_nobodys_free(path, ns);
    return;
  }
  count_path(counters, path, ns, 0);
  if (path < PATHS_OF_MALLOC) return; /* the malloc inside has counted itself */
  counter_add(&counters->thread_totals.slow_frees, 1);
  counter_add(&counters->thread_totals.slow_ns, ns);
}

/* ---- fast calls -------------------------------------------------------------------------------------------------- */

/* A read of the thread's time costs a hundred times as much as a call here. But a short call has not waited. */
void timing_count_fast(const struct heap *heap, const struct timed *timed, unsigned count) {
  struct counters *counters = heap->counters;
  struct path_times *of = &counters->paths[PATH_FAST];
  struct times sum = {.count = count}, unknown = {0}; /* unknown: calls without a thread time */
  uint64_t cost = cost_of_exact(), number = numbers(count);
  uint64_t thread_id = counters->thread_totals.thread_id, label = label_of(heap);
  ticks_calibrate(timed[count - 1].start);
  for (const struct timed *t = timed; t < timed + count; t++) {
    uint64_t ns = ticks_to_ns(less(t->ticks, cost));
    bool is_short = ns < SWITCH_NS;
    struct sample s = {.at_ns = ticks_at_ns(t->start), .thread_id = thread_id, .requested = t->requested,
                       .usable = t->usable, .wall_ns = ns, .cpu_ns = is_short ? ns : SAMPLE_NO_CPU,
                       .path = PATH_FAST, .label = label};
    sum.wall_sum += ns;
    sum.wall_max = max_size(sum.wall_max, ns);
    if (is_short) {
      sum.cpu_max = max_size(sum.cpu_max, ns);
    } else {
      unknown.count++;
      unknown.wall_sum += ns;
    }
    counter_add(&of->buckets[bucket_of(ns)], 1);
    record(counters, number++, &s);
  }
  sum.cpu_count = sum.count - unknown.count;
  sum.cpu_sum = sum.wall_sum - unknown.wall_sum;
  counter_add(&of->wall_sum, sum.wall_sum);
  counter_max(&of->wall_max, sum.wall_max);
  count_sampled(of, &sum);
  times_add(&counters->thread_totals.samples, &sum);
}

/* A signal handler that allocates may have counted them since the caller checked. */
void timing_count(struct heap *heap) {
  unsigned count = heap->sampling.timings;
  if (UNLIKELY(count == 0)) return;
  timing_count_fast(heap, heap->store->timed, count);
  heap->sampling.timings = 0;
}

static uint64_t of(const uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

struct path_times timing_times(enum path path) {
  struct path_times sum = {0};
  lock_take(&walk_lock);
  for (const struct counters *t = atomic_load_explicit(&all_counters, memory_order_acquire); t; t = t->next) {
    const struct path_times *from = &t->paths[path];
    for (unsigned i = 0; i < BUCKETS; i++) sum.buckets[i] += of(&from->buckets[i]);
    sum.wall_sum += of(&from->wall_sum);
    sum.wall_max = max_size(sum.wall_max, of(&from->wall_max));
    sum.lock_wait_sum += of(&from->lock_wait_sum);
    sum.samples += of(&from->samples);
    sum.sampled_wall_sum += of(&from->sampled_wall_sum);
    sum.cpu_samples += of(&from->cpu_samples);
    sum.cpu_wall_sum += of(&from->cpu_wall_sum);
    sum.cpu_sum += of(&from->cpu_sum);
    sum.wait_sum += of(&from->wait_sum);
  }
  lock_release(&walk_lock);
  return sum;
}
