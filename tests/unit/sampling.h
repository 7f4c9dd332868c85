/* sampling.h: shared code of the tests of heap/draw.h, heap/timing.h and heap/sample.h. */
#ifndef TSLAB_TESTS_SAMPLING_H
#define TSLAB_TESTS_SAMPLING_H

#include "unit.h"

#include "base/options.h"
#include "heap/draw.h"
#include "heap/timing.h"

enum { SEED = 20251, DRAWS = 2000000, SIGMAS = 5 };

struct drawn {
  double mean, variance; /* the latter in squares of the mean */
};

static inline struct drawn measure(size_t mean) {
  uint64_t state = SEED;
  double sum = 0, squares = 0;
  for (int i = 0; i < DRAWS; i++) {
    const double drawn = draw_geometric(&state, mean);
    CHECK(drawn >= 1);
    sum += drawn;
    squares += drawn * drawn;
  }
  const double average = sum / DRAWS;
  return (struct drawn){average, squares / DRAWS / average / average - 1};
}

static inline struct heap *own_heap(void) { return current_heap; }

/* In a process of its own: the heap as after the first call. */
static inline void begin(size_t sample, size_t sample_cpu) {
  options.sample = sample;
  options.sample_cpu = sample_cpu;
  options.scavenger = 0;
  tslab_free(tslab_malloc(1 << 20));
  struct counters *const counters = counters_here();
  counters->random = SEED;
  counters->slow_countdown = sample ? (uint32_t)draw_mallocs(own_heap()) : UINT32_MAX;
  counters->bump_countdown = draw_mallocs(own_heap());
}

/* Includes calls of this thread that are not counted yet. */
static inline uint64_t samples_of_paths(void) {
  uint64_t samples = 0;
  timing_flush(own_heap());
  tslab_path_stats row;
  for (enum path path = 0; path < PATHS; path++) {
    CHECK(tslab_stats_path(path, &row, sizeof row) == 0);
    samples += row.samples;
  }
  return samples;
}

#endif
