/* tslab.h: the public interface of temporal-slab, a memory allocator that knows when memory was taken.
 *
 * Linking libtslab (or preloading libtslab.so) replaces the C library's malloc family and C++'s operators new and
 * delete. Every libc name also exists with the prefix tslab_; libtslab_prefixed.a holds only those and replaces
 * nothing.
 *
 * Threads:  every function may be called from any thread at any time, unless its comment says otherwise.
 * Signals:  only the functions marked async-signal-safe may be called from a signal handler.
 * Errors:   functions that return int return 0 or an errno value; the malloc family behaves as its manual page says.
 * Growth:   structs only ever gain fields, taken from `reserved`, which reads as zero until then. */
#ifndef TSLAB_H
#define TSLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TSLAB_VERSION_MAJOR 0
#define TSLAB_VERSION_MINOR 1
#define TSLAB_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

#define TSLAB_API   __attribute__((visibility("default")))
#define TSLAB_ALLOC __attribute__((malloc, warn_unused_result))

/* ---- malloc's family ------------------------------------------------------------------------------------------ As in
 * malloc(3), posix_memalign(3), malloc_usable_size(3), malloc_trim(3), mallinfo(3), malloc_info(3), malloc_stats(3) and
 * mallopt(3). Sizes and alignments are in bytes; blocks are aligned to 16 bytes, or to what was asked. A failing call
 * returns NULL with errno ENOMEM (EINVAL for a bad alignment) and changes nothing. */
TSLAB_API TSLAB_ALLOC void *tslab_malloc(size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_calloc(size_t count, size_t size);
TSLAB_API void *tslab_realloc(void *block, size_t size);                    /* size 0 frees and returns NULL */
TSLAB_API void *tslab_reallocarray(void *block, size_t count, size_t size);
TSLAB_API void tslab_free(void *block);                                     /* NULL is allowed; errno is kept */
TSLAB_API void tslab_free_sized(void *block, size_t size);                  /* C23 */
TSLAB_API void tslab_free_aligned_sized(void *block, size_t alignment, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_aligned_alloc(size_t alignment, size_t size);
TSLAB_API int tslab_posix_memalign(void **out, size_t alignment, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_memalign(size_t alignment, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_valloc(size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_pvalloc(size_t size);
TSLAB_API size_t tslab_malloc_usable_size(const void *block);               /* 0 for NULL; misuse when not ours */

/* Gives every byte of unused memory back to the operating system now, the callers' own caches included; other running
 * threads keep their hot lists. 1 when something was given back, else 0. `pad` is the number of bytes that may stay. */
TSLAB_API int tslab_malloc_trim(size_t pad);

/* Field for field the struct that glibc's mallinfo2 fills (<malloc.h> names it mallinfo2). */
struct tslab_mallinfo {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
TSLAB_API struct tslab_mallinfo tslab_mallinfo2(void);
TSLAB_API int tslab_malloc_info(int options, FILE *stream);                 /* XML; EINVAL when options is not 0 */
TSLAB_API void tslab_malloc_stats(void);                                    /* a table on standard error */
TSLAB_API int tslab_mallopt(int parameter, int value);                      /* 1 when it has an effect here, else 0 */

/* ---- asking about a pointer or the process ------------------------------------------------------------------- */

/* Whether p points into memory that this allocator handed out or could hand out. Any value may be asked about.
 * Async-signal-safe. */
TSLAB_API bool tslab_owns(const void *p);

/* malloc_trim(0) that says how much: bytes given back to the operating system by this call. */
TSLAB_API size_t tslab_purge(void);

/* "temporal-slab 0.1.0 (release, gcc 12.2.0)"; static storage. Async-signal-safe. */
TSLAB_API const char *tslab_version(void);

/* ---- statistics -------------------------------------------------------------------------------------------------
 * Derived when read from what the slow paths know; nothing is counted on the fast path. Each figure is exact when no
 * other thread is inside the allocator; otherwise it lacks at most the calls that other threads make while it is
 * read. */

/* The process as a whole. Sizes in bytes. allocations - frees = live_blocks over all classes and large blocks. */
typedef struct tslab_stats_global {
  uint64_t allocations;        /* blocks handed out since the start, realloc moves included */
  uint64_t frees;              /* blocks taken back */
  uint64_t live_blocks;
  uint64_t live_bytes;         /* usable bytes of live blocks */
  uint64_t large_live_blocks;  /* blocks above the largest class, counted in the figures above too */
  uint64_t large_live_bytes;
  uint64_t cached_blocks;      /* free blocks in threads' lists */
  uint64_t cached_bytes;
  uint64_t reserved_bytes;     /* address space, not memory */
  uint64_t committed_bytes;    /* made writable since the start */
  uint64_t in_use_bytes;       /* runs of granules that hold slabs, large blocks or tables */
  uint64_t free_dirty_bytes;   /* free runs not yet given back */
  uint64_t returned_bytes;     /* given to the operating system since the start */
  uint64_t purge_calls;
  uint64_t purge_failures;
  uint64_t slabs_born;
  uint64_t slabs_retired;
  uint64_t threads;            /* threads that hold a part now */
  uint64_t parts;              /* parts ever made; a dead thread's part serves the next thread */
  uint64_t misuses;            /* reported and survived, TSLAB_ON_MISUSE=report */
  uint64_t leaked_at_fork;     /* threads that a fork child does not have, whose lists it gave up */
  uint64_t reserved[11];
} tslab_stats_global;

/* One size class. */
typedef struct tslab_class_stats {
  uint64_t object_size;        /* bytes; malloc_usable_size of its blocks */
  uint64_t allocations;
  uint64_t frees;
  uint64_t live_blocks;
  uint64_t live_bytes;
  uint64_t cached_blocks;
  uint64_t slabs;              /* held now */
  uint64_t slabs_born;
  uint64_t slabs_retired;
  uint64_t refills;            /* visits of malloc's slow path */
  uint64_t overflows;          /* visits of free's slow path */
  uint64_t remote_frees;       /* frees of a block whose slab belongs to another part */
  uint64_t reserved[4];
} tslab_class_stats;

/* `struct_size` is sizeof the caller's struct: older callers get the fields they know. 0, or EINVAL when `out` is NULL
 * or struct_size is not a positive multiple of 128. */
TSLAB_API int tslab_stats(tslab_stats_global *out, size_t struct_size);

/* Class `index` counts from 0. ERANGE past the last one: loop until then. EINVAL as above. */
TSLAB_API int tslab_stats_class(unsigned index, tslab_class_stats *out, size_t struct_size);

#ifdef __cplusplus
}
#endif
#endif
