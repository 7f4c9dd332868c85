/* check.h: the assertion that every test uses, and the names under test.
 *
 * A test is a program: it returns 0, or stops at the first CHECK that does not hold.
 * Every test of malloc's family is written with tslab_ names and links libtslab_prefixed.a. Compiled with TEST_LIBC the
 * same text calls the libc names instead, and so tests what overrides them: libtslab.so, libtslab.a, or nothing:
 * glibc. */
#ifndef TSLAB_TESTS_CHECK_H
#define TSLAB_TESTS_CHECK_H

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tslab/tslab.h>

#ifdef TEST_LIBC
#ifdef __cplusplus
extern "C" {
#endif
void free_sized(void *block, size_t size); /* C23: not declared by every libc yet */
void free_aligned_sized(void *block, size_t alignment, size_t size);
#ifdef __cplusplus
}
#endif
#define tslab_malloc malloc
#define tslab_calloc calloc
#define tslab_realloc realloc
#define tslab_reallocarray reallocarray
#define tslab_free free
#define tslab_free_sized free_sized
#define tslab_free_aligned_sized free_aligned_sized
#define tslab_aligned_alloc aligned_alloc
#define tslab_posix_memalign posix_memalign
#define tslab_memalign memalign
#define tslab_valloc valloc
/* glibc's prototype takes a pointer to non-const. */
#define tslab_malloc_usable_size(block) malloc_usable_size((void *)(uintptr_t)(block))
#ifdef __GLIBC__ /* no other C library has these */
#define tslab_pvalloc pvalloc
#define tslab_malloc_trim malloc_trim
#define tslab_mallinfo2 mallinfo2
#define tslab_mallinfo mallinfo2
#define tslab_malloc_info malloc_info
#define tslab_malloc_stats malloc_stats
#define tslab_mallopt mallopt
#endif
#endif

/* Work is divided by TEST_SCALE where a sanitizer makes every step slow. */
#ifndef TEST_SCALE
#define TEST_SCALE 1
#endif

/* Prints without malloc and leaves without atexit: the allocator may be what is broken. */
#define CHECK(condition)                                                                              \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      dprintf(2, "%s:%d: does not hold: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);     \
      _exit(1);                                                                                       \
    }                                                                                                 \
  } while (0)

/* For counts and bytes: prints both. */
#define CHECK_COUNT(actual, relation, expected)                                                       \
  do {                                                                                                \
    const unsigned long long actual_ = (unsigned long long)(actual);                                  \
    const unsigned long long expected_ = (unsigned long long)(expected);                              \
    if (!(actual_ relation expected_)) {                                                              \
      dprintf(2, "%s:%d: does not hold: %s %s %s (%llu, %llu)\n", __FILE__, __LINE__, #actual,        \
              #relation, #expected, actual_, expected_);                                              \
      _exit(1);                                                                                       \
    }                                                                                                 \
  } while (0)

/* xorshift64*: a test that failed runs again with the same numbers. The state must not be 0. */
static inline uint64_t check_random(uint64_t *state) {
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return *state * UINT64_C(0x2545F4914F6CDD1D);
}

#endif
