/* lab: shared by every workload - options, clocks, histograms, memory figures, proof of the allocator, result rows.
 *
 * A workload is one C file with its options in a table and one operation that its head comment states:
 *
 *   lab_start(argc, argv, &about);        options, seed, expected allocator; exits on --help and on mistakes
 *   lab_litter(min, max);                 fragments this thread's heap when --litter asks for it
 *   ...                                   warm-up, then measurement
 *   lab_proof_live(bytes);                at the workload's fullest moment, outside what is timed
 *   lab_row(); lab_metric(name, value);   one row; a metric's name ends in its unit (_ns, _bytes, _per_s, _pct, _count)
 *   return lab_finish();                  prints nothing and returns 4 when another allocator served the run
 *
 * Nothing here calls malloc between lab_start and lab_row: tables come from lab_map, the histogram is an array.      */
#ifndef LAB_H
#define LAB_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* ---- options ---- */

typedef struct lab_option {
  const char *name;           /* --name=value */
  const char *help;
  long *number;               /* exactly one of number, text and real is set; its initial value is the default */
  const char **text;
  double *real;
  const char *choices;        /* for text: "a|b|c"; NULL takes anything */
  long least;                 /* for numbers */
} lab_option;

typedef struct lab_about {
  const char *name;           /* the workload's name in rows */
  const char *operation;      /* one sentence: the operation that is timed */
  const lab_option *options;  /* ends with a NULL name; each is part of the row's variant */
} lab_about;

extern uint64_t lab_seed;

void lab_start(int argc, char **argv, const lab_about *about);
_Noreturn void lab_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- functions that only some allocators have ---- */

typedef struct lab_binding { const char *name; void *pointer; } lab_binding;   /* of the function pointer to be set */

/* Finds all functions of the list, which ends with a NULL name, in the object that serves malloc. When one is not
 * there, exit 2: `what`, an option as its user writes it, cannot be had under this allocator. */
void lab_bind(const char *what, const lab_binding *list);
bool lab_find(const lab_binding *binding);          /* false when it is not there */

/* ---- memory that the measured allocator never sees ---- */

void *lab_map(size_t bytes);                        /* zeroed, resident; for the life of the process */

typedef struct lab_memory {
  uint64_t rss, peak_rss, committed, huge;          /* bytes: exact by page tables, VmHWM, VmData, in huge pages */
} lab_memory;
lab_memory lab_memory_now(void);
uint64_t lab_rss_now(void);                         /* exact */

/* ---- random numbers: deterministic per seed, the same for every allocator ---- */

static inline uint32_t lab_xorshift32(uint32_t *state) {
  uint32_t x = *state;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return *state = x;
}

/* splitmix64: spreads any seed, and is the generator where 32 bits are too few. */
static inline uint64_t lab_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Uniform in [0, bound): the high half of a product, whose bias is below 2^-32 for our bounds. */
static inline uint32_t lab_below(uint64_t *state, uint32_t bound) {
  return (uint32_t)(((lab_random(state) >> 32) * bound) >> 32);
}

uint32_t lab_seed32(uint64_t salt);                 /* never 0: xorshift stays at 0 for ever */

/* ---- clocks ---- */

static inline uint64_t lab_now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The fences keep the timed call between the two readings: without them the processor starts it before the first and
 * ends it after the second. */
static inline uint64_t lab_ticks_begin(void) {
#if defined(__x86_64__)
  _mm_lfence();
  uint64_t t = __rdtsc();
  _mm_lfence();
  return t;
#elif defined(__aarch64__)
  uint64_t t;
  __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(t)::"memory");
  return t;
#else
  return lab_now_ns(CLOCK_MONOTONIC);
#endif
}

static inline uint64_t lab_ticks_end(void) {
#if defined(__x86_64__)
  unsigned core;
  uint64_t t = __rdtscp(&core);
  _mm_lfence();
  return t;
#else
  return lab_ticks_begin();
#endif
}

double lab_tick_ns(void);                           /* calibrated at start against CLOCK_MONOTONIC_RAW */
uint64_t lab_timer_cost(void);                      /* ticks of an empty begin/end pair (median), to be subtracted */

static inline uint64_t lab_ticks_between(uint64_t begin, uint64_t end, uint64_t cost) {
  uint64_t t = end - begin;
  return t > cost ? t - cost : 0;
}

/* ---- histogram: exact below 2,048, then 1,024 steps a doubling (error under 0.1 %, as HDR with 3 digits) ---- */

#define LAB_HISTOGRAM_SUB 1024u
#define LAB_HISTOGRAM_SLOTS (LAB_HISTOGRAM_SUB * 32u)   /* to 2^41 ticks: a quarter of an hour */

typedef struct lab_histogram {
  uint64_t total, max;
  double sum;
  uint64_t counts[LAB_HISTOGRAM_SLOTS];
} lab_histogram;

static inline uint32_t lab_histogram_slot(uint64_t v) {
  if (v < 2 * LAB_HISTOGRAM_SUB)
    return (uint32_t)v;
  unsigned shift = 53u - (unsigned)__builtin_clzll(v);    /* brings v into [1024, 2048) */
  uint64_t slot = (uint64_t)shift * LAB_HISTOGRAM_SUB + (v >> shift);
  return slot < LAB_HISTOGRAM_SLOTS ? (uint32_t)slot : LAB_HISTOGRAM_SLOTS - 1;
}

static inline void lab_record(lab_histogram *h, uint64_t v) {
  h->counts[lab_histogram_slot(v)]++;
  h->total++;
  h->sum += (double)v;
  if (v > h->max)
    h->max = v;
}

uint64_t lab_percentile(const lab_histogram *h, double percent);
typedef struct lab_part { double count, sum; } lab_part;
lab_part lab_from(const lab_histogram *h, uint64_t least);      /* all values from there on */
void lab_merge(lab_histogram *into, const lab_histogram *from);

/* ---- threads: all start at one barrier; the clock runs until the last has finished ---- */

typedef struct lab_team_result {
  double wall_ns;                                   /* barrier to the last thread's end */
  double cpu_ns;                                    /* of all threads together */
  double slowest_ns, fastest_ns;                    /* one thread's own time */
} lab_team_result;

/* `work(index)` runs once per thread. It does its set-up and warm-up, calls lab_team_begin, the measured work, then
 * lab_team_end, then what cleans up. With one thread it runs on the calling thread. */
lab_team_result lab_team(unsigned threads, void (*work)(unsigned index));
void lab_team_begin(void);
void lab_team_end(void);
uint64_t lab_team_own_ns(unsigned index);
void lab_pin(unsigned core);                        /* the calling thread, to core modulo the cores allowed */
unsigned lab_cores(void);

/* ---- resident memory while others work: a thread looks every `period_ms`, cheaply and so to within 256 KiB ---- */

void lab_observe(unsigned period_ms);
size_t lab_observe_end(const double **rss_bytes);   /* the looks, for a series; kept until the next lab_observe */

/* ---- sampled calls: wall and CPU time of one call in 1,024, the clocks' own cost subtracted ---- */

typedef struct lab_sampler {
  uint64_t calls, samples;
  double wall_sum, cpu_sum, wait_sum, wall_max, cpu_max, wait_max;
} lab_sampler;

void *lab_sampled_malloc(lab_sampler *s, size_t size);
void lab_sampler_merge(lab_sampler *into, const lab_sampler *from);

/* ---- a straight line through y[0..n), x = 0, step, 2 step ...: its slope and the half of its 95 % interval ---- */

typedef struct lab_line { double slope, half_width; } lab_line;
lab_line lab_fit(const double *y, size_t n, double step);
double lab_median(double *values, size_t n);        /* sorts them */

/* ---- heap state and proof ---- */

void lab_litter(size_t least, size_t most);         /* allocates --litter blocks and frees nine of ten, at random */

/* Compares what glibc's own malloc holds with `bytes`, which the caller holds now: an allocator that quietly passes
 * calls on to glibc is caught here. The worst share of all calls is what the row says. */
void lab_proof_live(uint64_t bytes);
extern uint64_t lab_calls;                          /* malloc calls measured, for the row; kept by the workload */

/* ---- rows ---- */

void lab_row(const char *extra);                    /* a new row; `extra` ("phase=malloc") is added to its variant */
void lab_metric(const char *name, double value);
void lab_metric_sampler(const lab_sampler *s);
void lab_metric_latency(const char *prefix, const lab_histogram *ticks);   /* PREFIX_p50_ns ... PREFIX_max_ns, mean */
void lab_series(const char *name, const double *values, size_t count);     /* both must outlive lab_finish */
int lab_finish(void);

#endif
