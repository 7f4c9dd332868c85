/* sample: see sample.h.                                                                              floor: heap */
#include "heap/sample.h"

#include "base/options.h"
#include "heap/bump.h"
#include "heap/label.h"
#include "heap/lists.h"

struct path_totals path_totals[PATHS];
const char path_names[PATHS][16] = {
    [PATH_FAST] = "fast",         [PATH_DEPOT] = "depot",       [PATH_SLAB] = "slab",
    [PATH_REMOTE] = "remote",     [PATH_ADOPTED] = "adopted",   [PATH_FRESH] = "fresh",
    [PATH_RESERVE] = "reserve",   [PATH_RUN] = "run",           [PATH_MAP] = "map",
    [PATH_LARGE] = "large",       [PATH_DAMAGED] = "damaged",   [PATH_BIRTH] = "birth",
    [PATH_PURGE] = "purge",       [PATH_DIVERTED] = "diverted", [PATH_REFUSED] = "refused",
    [PATH_LOCK] = "lock",         [PATH_PUT_BY] = "free: put by", [PATH_FLUSH] = "free: remote",
    [PATH_LARGE_FREE] = "free: large",
};

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* xorshift64* (Vigna 2016), the high half. */
static uint32_t random_of(struct tally *tally) {
  uint64_t x = tally->random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  tally->random = x;
  return (uint32_t)(x * 2685821657736338717u >> 32);
}

/* Of a geometric distribution with that mean; always 1 for the mean 1. -log2 of a random number, taken as linear
 * between powers of two, has the mean 3/2. */
static uint32_t geometric(struct tally *tally, size_t mean) {
  uint32_t r = random_of(tally) | 1;
  unsigned log = log2_floor(r);
  uint64_t fraction = ((uint64_t)r << (32 - log)) & 0xffffffff;
  uint64_t minus_log = ((uint64_t)(32 - log) << 32) - fraction;
  uint64_t more = minus_log * (mean - 1) / 3 * 2 + ((uint64_t)1 << 31); /* rounded; below 2^58 for a mean of 1M */
  return (uint32_t)min_size(1 + (more >> 32), INT32_MAX);
}

uint32_t sample_below(uint32_t bound) { return (uint32_t)((uint64_t)random_of(tally_here()) * bound >> 32); }

int32_t sample_draw(void) {
  return options.sample ? (int32_t)geometric(tally_here(), options.sample) : INT32_MAX;
}

static bool draws_cpu(struct tally *tally) {
  if (!options.sample_cpu) return false;
  if (tally->cpu_countdown > 1 && tally->cpu_countdown <= INT32_MAX) {
    tally->cpu_countdown--;
    return false;
  }
  tally->cpu_countdown = geometric(tally, options.sample_cpu);
  return true;
}

void sample_draw_slow(struct timing *timing, struct tally *tally) {
  tally->slow_countdown = options.sample ? geometric(tally, options.sample) : UINT32_MAX;
  if (!options.sample) return;
  timing->sampled = true;
  timing->takes_cpu = draws_cpu(tally);
  if (timing->takes_cpu) timing->cpu = os_thread_ns();
}

/* ---- what the clocks cost, which is not the call's --------------------------------------------------------------- */

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
  if (ns <= 8) return 0;
  unsigned octave = log2_floor(ns) - 3, bucket = 2 * octave;
  bucket += (ns > (uint64_t)8 << octave) + (ns > (uint64_t)11585 << octave >> 10); /* past which bounds of its own */
  return (unsigned)min_size(bucket, BUCKETS - 1);
}

static void count_path(enum path path, uint64_t ns, uint64_t lock_wait) {
  struct path_totals *of = &path_totals[path];
  shared_add(&of->buckets[bucket_of(ns)], 1);
  shared_add(&of->wall_sum, ns);
  shared_max(&of->wall_max, ns);
  if (lock_wait) shared_add(&of->lock_wait_sum, lock_wait);
}

static void count_times(struct times *of, const struct sample *s) {
  tally_add(&of->count, 1);
  tally_add(&of->wall_sum, s->wall_ns);
  tally_max(&of->wall_max, s->wall_ns);
  if (s->cpu_ns == SAMPLE_NO_CPU) return;
  tally_add(&of->cpu_count, 1);
  tally_add(&of->cpu_sum, s->cpu_ns);
  tally_max(&of->cpu_max, s->cpu_ns);
  tally_add(&of->wait_sum, s->wall_ns - s->cpu_ns);
  tally_max(&of->wait_max, s->wall_ns - s->cpu_ns);
}

static struct {
  _Atomic uint64_t taken;
  struct sample kept[SAMPLES_KEPT];
} ring;

_Static_assert(sizeof(struct sample) % sizeof(uint64_t) == 0, "copied word by word");
#define SAMPLE_WORDS (sizeof(struct sample) / sizeof(uint64_t))

/* The number comes last, and away first: a reader that finds the same before and after has the whole. */
static void keep(struct sample *s) {
  s->number = atomic_fetch_add_explicit(&ring.taken, 1, memory_order_relaxed) + 1;
  uint64_t *to = (uint64_t *)&ring.kept[s->number % SAMPLES_KEPT];
  const uint64_t *from = (const uint64_t *)s;
  __atomic_store_n(&to[0], 0, __ATOMIC_RELAXED);
  FENCE_STORES();
  for (size_t i = 1; i < SAMPLE_WORDS; i++) __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
  __atomic_store_n(&to[0], s->number, __ATOMIC_RELEASE);
}

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

static void count_label(const struct part *part, struct sample *s) {
  s->label = SAMPLE_NO_LABEL;
  if (!part->lifetime) return;
  s->label = part->lifetime->label;
  struct label *of = &labels[s->label];
  shared_add(&of->samples, 1);
  shared_add(&of->wall_sum, s->wall_ns);
  shared_max(&of->wall_max, s->wall_ns);
  if (s->cpu_ns == SAMPLE_NO_CPU) return;
  shared_add(&of->cpu_samples, 1);
  shared_add(&of->cpu_sum, s->cpu_ns);
  shared_add(&of->wait_sum, s->wall_ns - s->cpu_ns);
}

static void count_sampled(const struct sample *s) {
  struct path_totals *of = &path_totals[s->path];
  shared_add(&of->samples, 1);
  shared_add(&of->sampled_wall_sum, s->wall_ns);
  if (s->cpu_ns == SAMPLE_NO_CPU) return;
  shared_add(&of->cpu_samples, 1);
  shared_add(&of->cpu_wall_sum, s->wall_ns);
  shared_add(&of->cpu_sum, s->cpu_ns);
  shared_add(&of->wait_sum, s->wall_ns - s->cpu_ns);
}

static void record(const struct part *part, uint64_t start, struct sample *s) {
  struct tally *tally = part->tally;
  s->at_ns = ticks_at_ns(start);
  s->thread_id = tally->doings.thread_id;
  count_times(&tally->doings.samples, s);
  count_label(part, s);
  if (s->usable != 0 && s->usable <= SMALL_MAX && !part->lifetime) {
    struct class_tally *class = &tally->classes[class_of(s->usable)];
    tally_add(&class->samples, 1);
    tally_add(&class->requested, s->requested);
    tally_add(&class->requested_squares, (uint64_t)s->requested * s->requested);
  }
  keep(s);
}

/* ---- slow calls -------------------------------------------------------------------------------------------------- */

/* In less than this no thread is taken off its processor and put back: what two clocks differ by below it is theirs. */
#define SWITCH_NS 1000

static uint64_t cpu_of(const struct timing *timing, uint64_t wall_ns) {
  if (!timing->takes_cpu) return SAMPLE_NO_CPU;
  if (wall_ns < SWITCH_NS) return wall_ns;
  uint64_t ran_ns = less(os_thread_ns() - timing->cpu, cost_of_cpu());
  return ran_ns + SWITCH_NS > wall_ns ? wall_ns : ran_ns;
}

static enum path path_of(const struct tally *tally, uint64_t ticks) {
  if (tally->waited > ticks / 2) return PATH_LOCK;
  return tally->stages ? (enum path)log2_floor(tally->stages) : PATH_SLAB;
}

#define REPAIRS (1u << PATH_REMOTE | 1u << PATH_ADOPTED | 1u << PATH_PURGE | 1u << PATH_DAMAGED)

static void count_repair(struct tally *tally, const struct sample *s) {
  count_times(&tally->doings.repairs, s);
  tally_add(&tally->doings.repair_remote, tally->stages >> PATH_REMOTE & 1);
  tally_add(&tally->doings.repair_adopt, tally->stages >> PATH_ADOPTED & 1);
  tally_add(&tally->doings.repair_purge, tally->stages >> PATH_PURGE & 1);
  tally_add(&tally->doings.repair_other, tally->stages >> PATH_DAMAGED & 1);
}

void sample_end(const struct timing *timing, size_t requested, size_t usable) {
  struct tally *tally = tally_here();
  uint64_t now = ticks_now(), ticks = now - timing->start;
  if (tally->stages & 1u << PATH_FAST) return; /* it was brought here to be timed, and was */
  ticks_calibrate(now);
  if (!usable) tally_stage(tally, PATH_REFUSED);
  struct sample s = {.requested = requested, .usable = usable, .wall_ns = ticks_to_ns(ticks),
                     .lock_wait_ns = ticks_to_ns(tally->waited), .path = path_of(tally, ticks)};
  s.cpu_ns = cpu_of(timing, s.wall_ns);
  count_path((enum path)s.path, s.wall_ns, s.lock_wait_ns);
  tally_add(&tally->doings.slow_allocations, 1);
  tally_add(&tally->doings.slow_ns, s.wall_ns);
  if (current_part->lifetime) shared_add(&labels[current_part->lifetime->label].slow, 1);
  if (tally->stages & REPAIRS) count_repair(tally, &s);
  if (!timing->sampled) return;
  count_sampled(&s);
  record(current_part, timing->start, &s);
}

void sample_end_path(const struct timing *timing, enum path path) {
  struct tally *tally = tally_here();
  uint64_t now = ticks_now(), ticks = now - timing->start;
  ticks_calibrate(now);
  uint64_t ns = ticks_to_ns(ticks);
  count_path(path, ns, 0);
  if (path < PATHS_OF_MALLOC) return; /* the malloc inside counts itself */
  tally_add(&tally->doings.slow_frees, 1);
  tally_add(&tally->doings.slow_ns, ns);
}

static COLD void count_puts(struct sampling *sampling, struct tally *tally) {
  for (unsigned i = 0; i < sampling->puts; i++) {
    uint64_t ns = ticks_to_ns(sampling->put[i]);
    count_path(PATH_PUT_BY, ns, 0);
    tally_add(&tally->doings.slow_ns, ns);
  }
  tally_add(&tally->doings.slow_frees, sampling->puts);
  sampling->puts = 0;
}

void sample_end_put(struct part *part, const struct timing *timing) {
  struct sampling *sampling = &part->sampling;
  uint64_t now = ticks_now();
  sampling->put[sampling->puts++] = (uint32_t)min_size(now - timing->start, UINT32_MAX);
  if (sampling->puts < PUTS) return;
  ticks_calibrate(now);
  count_puts(sampling, tally_here());
}

/* ---- fast calls -------------------------------------------------------------------------------------------------- */

/* A clock of the thread's time costs a hundred times what it would measure here. But a short call has not waited. */
static void count_fast(const struct part *part, uint64_t start, uint64_t ticks, struct sample *s) {
  struct fast_times *of = &part->tally->fast;
  s->path = PATH_FAST;
  s->wall_ns = ticks_to_ns(less(ticks, cost_of_exact()));
  s->cpu_ns = s->wall_ns < SWITCH_NS ? s->wall_ns : SAMPLE_NO_CPU;
  tally_add(&of->buckets[bucket_of(s->wall_ns)], 1);
  tally_add(&of->wall_sum, s->wall_ns);
  tally_max(&of->wall_max, s->wall_ns);
  if (UNLIKELY(s->cpu_ns == SAMPLE_NO_CPU)) count_sampled(s);
  record(part, start, s);
}

void sample_count(struct part *part) {
  struct sampling *sampling = &part->sampling;
  unsigned count = sampling->timings;
  sampling->timings = 0;
  ticks_calibrate(ticks_now());
  for (unsigned i = 0; i < count; i++) {
    const struct timed *t = &sampling->timed[i];
    struct sample s = {.requested = t->requested, .usable = class_size(t->class)};
    count_fast(part, t->start, t->ticks, &s);
  }
}

void sample_flush(struct part *part) {
  if (part->sampling.puts) count_puts(&part->sampling, part->tally);
  if (part->sampling.timings) sample_count(part);
}

struct fast_times sample_fast_times(void) {
  struct fast_times sum = {0};
  for (const struct tally *t = atomic_load_explicit(&all_tallies, memory_order_acquire); t; t = t->next) {
    for (unsigned i = 0; i < BUCKETS; i++) sum.buckets[i] += __atomic_load_n(&t->fast.buckets[i], __ATOMIC_RELAXED);
    sum.wall_sum += __atomic_load_n(&t->fast.wall_sum, __ATOMIC_RELAXED);
    tally_max(&sum.wall_max, __atomic_load_n(&t->fast.wall_max, __ATOMIC_RELAXED));
  }
  return sum;
}

/* An epoch's part may be another's before its next visit. */
void *sample_aside(struct part *part, unsigned class, size_t requested) {
  struct sampling *sampling = &part->sampling;
  part->list[class] = list_take_back(part);
  if (UNLIKELY(sampling->timings == TIMED)) sample_count(part); /* no visit came between it and the last one */
  uint64_t start = ticks_begin();
  void *block = fast_pop(part, class, (uintptr_t)pages.base);
  uint64_t ticks = ticks_end() - start;
  if (UNLIKELY(!block)) return NULL;
  sampling->timed[sampling->timings++] = (struct timed){start, ticks, (uint16_t)requested, (uint8_t)class};
  if (--part->bins[class].due) list_set_aside(part, class);
  if (part->lifetime) sample_count(part);
  return block;
}

void *sample_bump(struct part *part, size_t size) {
  uint64_t start = ticks_begin();
  void *block = bump_take(part, size);
  uint64_t end = ticks_end();
  if (!block) return NULL;
  struct sample s = {.requested = size, .usable = round_up(size, CHUNK_UNIT)};
  tally_stage(part->tally, PATH_FAST);
  ticks_calibrate(end);
  count_fast(part, start, end - start, &s);
  return block;
}
