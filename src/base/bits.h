/* bits: arithmetic on powers of two and on bit sets.                                                floor: base */
#ifndef TSLAB_BASE_BITS_H
#define TSLAB_BASE_BITS_H

#include "base/attr.h"

#define KiB ((size_t)1 << 10)
#define MiB ((size_t)1 << 20)
#define GiB ((size_t)1 << 30)

INLINE bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

/* `unit` is a power of two. Rounding up wraps to a small number near SIZE_MAX: callers bound n first. */
INLINE size_t round_up(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }
INLINE size_t round_down(size_t n, size_t unit) { return n & ~(unit - 1); }
INLINE size_t divide_up(size_t n, size_t unit) { return n / unit + (n % unit != 0); }

INLINE unsigned log2_floor(size_t n) { return 63u - (unsigned)__builtin_clzll(n); }
INLINE size_t lowest_power(size_t n) { return n & -n; } /* the largest power of two that divides it; 0 for 0 */
INLINE unsigned lowest_bit(uint64_t set) { return (unsigned)__builtin_ctzll(set); }
INLINE size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
INLINE size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* `bytes`: at least 8; p is aligned to 8. */
INLINE bool is_zero(const void *p, size_t bytes) {
  const char *from = p;
  return *(const uint64_t *)p == 0 && __builtin_memcmp(from, from + sizeof(uint64_t), bytes - sizeof(uint64_t)) == 0;
}

#endif
