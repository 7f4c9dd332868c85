/* draw: see draw.h.                                                                                 floor: heap */
#include "heap/draw.h"

#include "base/options.h"

/* xorshift64* (Vigna 2016), the high half. */
static uint32_t random_of(uint64_t *state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return (uint32_t)(x * 2685821657736338717u >> 32);
}

/* Draws from a geometric distribution with that mean; always 1 for the mean 1. It takes -log2 of a random number as
 * linear between powers of two, which has the mean 3/2. */
uint32_t draw_geometric(uint64_t *state, size_t mean) {
  uint32_t r = random_of(state) | 1;
  unsigned log = log2_floor(r);
  uint64_t fraction = ((uint64_t)r << (32 - log)) & 0xffffffff;
  uint64_t minus_log = ((uint64_t)(32 - log) << 32) - fraction;
  uint64_t more = minus_log * (mean - 1) / 3 * 2 + ((uint64_t)1 << 31); /* rounded; below 2^58 for a mean of 1M */
  return (uint32_t)min_size(1 + (more >> 32), INT32_MAX);
}

uint32_t draw_below(uint32_t bound) {
  return (uint32_t)((uint64_t)random_of(&counters_here()->random) * bound >> 32);
}

/* The heap has its own random state, on a line that a visit reads anyway. */
int32_t draw_mallocs(struct heap *heap) {
  uint64_t *state = &heap->sampling.random;
  if (UNLIKELY(*state == 0)) *state = (uint64_t)random_of(&counters_here()->random) << 32 | 1;
  return options.sample ? (int32_t)draw_geometric(state, options.sample) : INT32_MAX;
}
