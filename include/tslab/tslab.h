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

/* ---- malloc's family --------------------------------------------------------------------------------------------
 * As in malloc(3), posix_memalign(3), malloc_usable_size(3), malloc_trim(3), mallinfo(3), malloc_info(3),
 * malloc_stats(3) and mallopt(3). Sizes and alignments are in bytes; blocks are aligned to 16 bytes, or to what was
 * asked. A failing call returns NULL with errno ENOMEM and changes nothing. For an alignment that is no power of two,
 * the rules are those of glibc 2.38 and later, whatever glibc the process has: aligned_alloc refuses it with EINVAL
 * (older ones round it up), posix_memalign returns EINVAL, also for one below sizeof(void *), and memalign rounds it
 * up to the next power of two, or refuses it with EINVAL above SIZE_MAX / 2 + 1. */
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
 * threads keep their hot lists. 1 when something was given back, else 0. `pad` is ignored: nothing stays for it. */
TSLAB_API int tslab_malloc_trim(size_t pad);

/* Field for field the struct that glibc's mallinfo2 fills (<malloc.h> names it mallinfo2). */
struct tslab_mallinfo {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
TSLAB_API struct tslab_mallinfo tslab_mallinfo2(void);
TSLAB_API int tslab_malloc_info(int options, FILE *stream);                 /* XML; EINVAL when options is not 0 */
TSLAB_API void tslab_malloc_stats(void);                                    /* a table on standard error */

/* 1 for every parameter that glibc has, with any value, and 0 for others. No parameter has an effect here: TSLAB_
 * settings are what can be set (docs/settings.md). */
TSLAB_API int tslab_mallopt(int parameter, int value);

/* ---- asking about a pointer or the process ----------------------------------------------------------------------- */

/* Whether p points into memory that this allocator handed out or could hand out. Any value may be asked about.
 * Async-signal-safe. */
TSLAB_API bool tslab_owns(const void *p);

/* What holds a block: memory that goes back to the operating system only as a whole. A slab has blocks of one size, a
 * chunk those of an epoch one after the other, a large block is alone. */
enum tslab_use_kind { TSLAB_USE_NONE = 0, TSLAB_USE_SLAB = 1, TSLAB_USE_CHUNK = 2, TSLAB_USE_LARGE = 3 };

typedef struct tslab_slab_use {
  uint64_t kind;           /* enum tslab_use_kind; none for a pointer that leads to no block, and all is 0 */
  uint64_t start;          /* its address: blocks with the same start share it */
  uint64_t epoch;
  uint64_t slab_bytes;     /* what it takes, and what goes back after its last free */
  uint64_t capacity_bytes; /* of that, for blocks */
  uint64_t used_blocks;    /* in use, or free on a thread's list; after a close of the epoch there are no such lists */
  uint64_t used_bytes;
  uint64_t is_current;     /* 1: next blocks come from here, so moving one away is for nothing */
  uint64_t reserved[8];
} tslab_slab_use;

/* How full is what holds each of `count` blocks: what a defragmenter asks before it moves one (tslab_epoch_move, or
 * malloc, copy, free). Takes no lock and reads no block, so any value may be asked about. A pointer that was freed has
 * the figures of what lies there now. Blocks of one chunk that follow each other in the list are looked up once; a look
 * at a chunk takes a few microseconds, any other some nanoseconds. EINVAL when a pointer to an array is NULL. */
TSLAB_API int tslab_occupancy(void *const *blocks, size_t count, tslab_slab_use *out);

/* malloc_trim(0) that says how much: bytes given back to the operating system by this call. */
TSLAB_API size_t tslab_purge(void);

/* Sets how much memory the library may hold, in bytes: see docs/limits.md for what counts. At `hard` everything that is
 * free goes back first, then malloc fails with ENOMEM. Beyond `soft` free memory goes back at once, and nothing fails.
 * Each is 0 for no limit, TSLAB_LIMIT_AUTO for what the control group allows (version 2: memory.max; memory.high, or a
 * sixteenth below the hard limit), TSLAB_LIMIT_KEEP to leave it as it is, or at least 1 MiB. A limit may lie below what
 * is held: then what is free goes back now, and nothing more is taken. Returns 0, or EINVAL, which changes nothing, or
 * ENOMEM without address space. tslab_stats says what holds: limit_hard, limit_soft, limit_held, limit_refusals. */
#define TSLAB_LIMIT_AUTO UINT64_MAX
#define TSLAB_LIMIT_KEEP (UINT64_MAX - 1)
TSLAB_API int tslab_memory_limit(uint64_t hard, uint64_t soft);

/* "temporal-slab 0.1.0 (release, gcc 12.2.0)"; static storage. Async-signal-safe. */
TSLAB_API const char *tslab_version(void);

/* ---- epochs -----------------------------------------------------------------------------------------------------
 * An epoch is a named lifetime: a request, a frame, a batch, a session store. Inside its scope this thread's whole
 * malloc family, operators new and every library it calls allocate in it, and what is allocated in it shares slabs with
 * nothing else. Closing it recycles or returns all memory that holds no live block, at once; a block that outlives the
 * close stays valid, and its last neighbour's free gives the memory back. docs/epochs.md says when to close, destroy or
 * reset, and which calls of libc libtslab.so makes in epoch 0 whatever the scope.
 *
 * Up to 16 million may exist at a time, and any number of threads be inside one. Ids are never reused. Functions that
 * take an id fail with ESTALE when it names no epoch, or one that has ended; with ESHUTDOWN when it is closing. Errors
 * of functions that return int are returned; the others set errno. */
typedef uint64_t tslab_epoch;

/* Plain malloc's epoch: always open, may be entered, cannot be closed, destroyed or reset (EPERM). */
#define TSLAB_EPOCH_DEFAULT ((tslab_epoch)0)

/* Closes when the last thread inside leaves its scope or switches away. Allocations by id (tslab_epoch_malloc) open no
 * scope and close nothing. */
#define TSLAB_EPOCH_AUTO_CLOSE  ((uint32_t)1)
#define TSLAB_EPOCH_DESTROYABLE ((uint32_t)2) /* destroy and reset are allowed */

#define TSLAB_EPOCH_LABEL 64 /* bytes of a label with its terminating 0; longer ones are cut */
#define TSLAB_SCOPES      64 /* scopes that a thread may be inside of at a time */

typedef struct tslab_epoch_options {
  size_t struct_size;      /* sizeof(tslab_epoch_options) */
  const char *label;       /* copied; NULL for none */
  uint64_t budget_bytes;   /* 0 for none, else at least 64 KiB: bytes of slabs past which malloc in this epoch fails
                              with ENOMEM; what its children hold counts too */
  uint64_t prefault_bytes; /* made resident at open, so that the first small blocks fault no page */
  uint32_t flags;          /* TSLAB_EPOCH_... */
  tslab_epoch parent;      /* 0 for none; closed, destroyed or reset with its parent, before it. A parent that is closed
                              stays closing until its children have ended */
} tslab_epoch_options;

/* What close, destroy and reset did to this epoch; what its children held is not in it. Sizes in bytes, times in
 * nanoseconds. */
typedef struct tslab_epoch_report {
  uint64_t epoch;
  uint64_t threads_inside; /* others and this one; while not 0 the live statistics are of the moment, and the last
                              thread to leave completes the close */
  uint64_t live_blocks;    /* after close: those that survive; after destroy and reset: those that were given up */
  uint64_t live_bytes;
  uint64_t slabs_pinned;   /* chunks, slabs and large blocks that hold a live block, or held what was given up */
  uint64_t bytes_recycled; /* kept ready for the next epoch */
  uint64_t bytes_returned; /* given to the operating system */
  uint64_t rss_before;     /* 0 unless TSLAB_REPORT_RSS=1 */
  uint64_t rss_after;
  uint64_t elapsed_ns;
  uint64_t reserved[6];
} tslab_epoch_report;

enum tslab_epoch_state { TSLAB_EPOCH_OPEN = 1, TSLAB_EPOCH_CLOSING = 2 };

/* An epoch at one moment, taken without stopping anybody. */
typedef struct tslab_epoch_status {
  uint64_t epoch;
  uint64_t era;             /* resets so far */
  uint64_t state;           /* enum tslab_epoch_state; closing until its last block is freed */
  uint64_t flags;
  uint64_t age_ns;          /* since open, at the resolution of the coarse clock */
  uint64_t threads_inside;
  uint64_t live_blocks;     /* exact when no thread allocates or frees in it meanwhile */
  uint64_t live_bytes;
  uint64_t slabs;           /* chunks, slabs and large blocks held */
  uint64_t slabs_pinned;    /* those of them that hold a live block, or one on a thread's list; up to live_blocks */
  uint64_t committed_bytes; /* of these */
  uint64_t budget_bytes;    /* 0: none */
  uint64_t charged_bytes;   /* committed_bytes and its children's */
  uint64_t refused;         /* allocations that failed for its budget or a parent's */
  uint64_t diverted;        /* mallocs inside its scope that went to epoch 0 because it was closing */
  uint64_t parent;
  uint64_t allocations;     /* in it since it was opened */
  uint64_t reserved[7];
  char label[TSLAB_EPOCH_LABEL];
} tslab_epoch_status;

/* A new epoch. 0 with errno ENOMEM on failure: entering 0 is plain malloc, so a caller need not stop. */
TSLAB_API tslab_epoch tslab_epoch_open(const char *label);

/* As above; errno EINVAL for a struct_size or flag that this version does not know and for a budget below 64 KiB,
 * ESTALE or ESHUTDOWN for the parent, EOVERFLOW for one with 64 above it. ENOMEM also when the budget or the parent's
 * does not hold prefault_bytes. */
TSLAB_API tslab_epoch tslab_epoch_open_with(const tslab_epoch_options *options);

/* From now on, until the matching leave, this thread allocates in `epoch`, which may be 0. Scopes nest. Writes nothing
 * that other threads write, but for a thread's first time in this epoch. ESHUTDOWN, ESTALE, EOVERFLOW past
 * TSLAB_SCOPES, ENOMEM. */
TSLAB_API int tslab_epoch_enter(tslab_epoch epoch);

/* Ends the innermost scope, whose epoch `epoch` must be, as enter or the last switch set it: else EINVAL, and nothing
 * happens. */
TSLAB_API int tslab_epoch_leave(tslab_epoch epoch);

/* Sets the epoch of the innermost scope (or of the thread, outside all scopes) and returns the one before, which the
 * thread leaves: for fibers and coroutines, whose scheduler restores it. On failure errno is set, nothing changes and
 * the current epoch is returned; on success errno is kept. */
TSLAB_API tslab_epoch tslab_epoch_switch(tslab_epoch epoch);

/* For longjmp and exceptions: how many scopes this thread is in, and leaving those above `depth`. */
TSLAB_API int tslab_scope_depth(void);
TSLAB_API void tslab_scope_unwind(int depth);

/* Where this thread's next malloc goes. Async-signal-safe. */
TSLAB_API tslab_epoch tslab_epoch_current(void);

/* The epoch in which the block at p was allocated; 0 also for what is not ours. Async-signal-safe. */
TSLAB_API tslab_epoch tslab_epoch_of(const void *p);

/* malloc's family in a given epoch, from any thread, whatever scope it is in. NULL with errno ENOMEM (memory or
 * budget), ESHUTDOWN, ESTALE, or EINVAL for an alignment that is no power of two. */
TSLAB_API TSLAB_ALLOC void *tslab_epoch_malloc(tslab_epoch epoch, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_epoch_calloc(tslab_epoch epoch, size_t count, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_epoch_aligned_alloc(tslab_epoch epoch, size_t alignment, size_t size);

/* Promotes a block that turns out to outlive its epoch: returns a copy of it in `to`, which may be 0, and frees the
 * block. The copy has the block's usable size, bytes and alignment (up to 2 MiB). A block that is in `to` already is
 * returned as it is, also while `to` is closing. NULL with errno as tslab_epoch_aligned_alloc, EINVAL for NULL; then
 * the block is as it was. A pointer to no block in use is misuse, as for realloc. Not for a handle's block. */
TSLAB_API void *tslab_epoch_move(void *block, tslab_epoch to);

/* Stops new allocations (those of threads inside go to epoch 0 from their next slow path on), recycles or returns every
 * slab without a live block before it returns, leaves live blocks valid. Children are closed first. The epoch is
 * closing until its last block is freed, its last child has ended and the last thread has left. `out` may be NULL; then
 * no clock is read. ESHUTDOWN when it is closing already, and `out` says what is left. EPERM, ESTALE. */
TSLAB_API int tslab_epoch_close(tslab_epoch epoch, tslab_epoch_report *out);

/* The same in steps of about `max_ns`: EAGAIN until done. Children are closed whole, in the first step. ESHUTDOWN when
 * it was closed, or its last step came. */
TSLAB_API int tslab_epoch_close_step(tslab_epoch epoch, uint64_t max_ns, tslab_epoch_report *out);

/* Ends the epoch with all blocks in it, freed or not: the caller vouches that nobody uses them. Its open children are
 * destroyed first; a child that is closing already keeps it closing too. Needs TSLAB_EPOCH_DESTROYABLE, of its children
 * too (else EPERM). EBUSY and nothing done when a thread is inside. ESHUTDOWN, ESTALE. */
TSLAB_API int tslab_epoch_destroy(tslab_epoch epoch, tslab_epoch_report *out);

/* The same, and the epoch stays open, empty, one era older; its open children are reset first, and stay open too. The
 * caller may be inside it and them; other threads not (EBUSY). */
TSLAB_API int tslab_epoch_reset(tslab_epoch epoch, tslab_epoch_report *out);

/* Leaves and closes the epoch that this thread entered by its last advance, if any, opens the next and enters it. That
 * scope must be the innermost again: else its epoch closes with this thread inside. `closed` reports the close and may
 * be NULL. 0 with errno on failure: then the last one is closed and nothing entered. */
TSLAB_API tslab_epoch tslab_epoch_advance(const char *label, tslab_epoch_report *closed);

/* ESTALE, or EINVAL when out is NULL. */
TSLAB_API int tslab_epoch_info(tslab_epoch epoch, tslab_epoch_status *out);

/* Visits every epoch that is open or closing, oldest slot first, epoch 0 not; stops when `visit` returns other than 0
 * and returns that. `visit` may call anything. */
TSLAB_API int tslab_epoch_each(int (*visit)(const tslab_epoch_status *status, void *arg), void *arg);

/* ---- handles ----------------------------------------------------------------------------------------------------
 * A handle stands for a block and is checked at every use: it frees exactly once whatever other threads do, and a
 * stale, foreign or never issued one touches nothing. 0 is never valid. The block must be freed through its handle. */
typedef uint64_t tslab_handle;

/* 0 with errno as tslab_epoch_malloc; *block is the block (NULL then). `block` may not be NULL. */
TSLAB_API tslab_handle tslab_handle_alloc(tslab_epoch epoch, size_t size, void **block);

/* The block, or NULL when it was freed, or its epoch destroyed or reset. */
TSLAB_API void *tslab_handle_get(tslab_handle handle);
/* Returns true if this call freed the block: exactly one call does, in whatever thread. */
TSLAB_API bool tslab_handle_free(tslab_handle handle);

/* ---- statistics -------------------------------------------------------------------------------------------------
 * Derived when read from what the slow paths know; nothing is counted on the fast path. Each figure is exact when no
 * other thread is inside the allocator; otherwise it lacks at most the calls that other threads make while it is
 * read. docs/observability.md says what each means, and how a process is read from outside. */

/* The process as a whole, all epochs included. Sizes in bytes. allocations - frees = live_blocks over all classes, the
 * chunks of epochs, and large blocks; committed_bytes = in_use_bytes + free_dirty_bytes + free_clean_bytes. */
typedef struct tslab_stats_global {
  uint64_t allocations;        /* blocks handed out since the start, realloc moves included */
  uint64_t frees;              /* blocks taken back */
  uint64_t live_blocks;
  uint64_t live_bytes;         /* usable bytes of live blocks */
  uint64_t large_live_blocks;  /* blocks above the largest class, counted in the statistics above too */
  uint64_t large_live_bytes;
  uint64_t cached_blocks;      /* free blocks in threads' lists */
  uint64_t cached_bytes;
  uint64_t reserved_bytes;     /* address space, not memory */
  uint64_t committed_bytes;    /* made writable since the start */
  uint64_t in_use_bytes;       /* runs of granules that hold slabs, chunks, large blocks, tables or the reserve */
  uint64_t free_dirty_bytes;   /* free runs not yet given back */
  uint64_t returned_bytes;     /* given to the operating system since the start */
  uint64_t purge_calls;
  uint64_t purge_failures;
  uint64_t slabs_born;
  uint64_t slabs_retired;
  uint64_t threads;            /* threads that have allocated, and live */
  uint64_t heaps;              /* heaps ever made, one for each thread and epoch; they serve the next when these end */
  uint64_t misuses;            /* reported and survived, TSLAB_ON_MISUSE=report */
  uint64_t leaked_at_fork;     /* heaps of threads that a fork child does not have, whose lists it gave up */
  uint64_t free_clean_bytes;   /* free runs that the operating system has back, or never gave */
  uint64_t reserve_bytes;      /* kept ready for the next epochs; in use, by the statistics above */
  uint64_t resident_bytes;     /* of the whole process; 0 where /proc does not say */
  uint64_t slow_allocations;   /* calls that the fast path did not serve */
  uint64_t slow_frees;         /* visits of a slow path by free that did more than put the block by */
  uint64_t samples;            /* allocations timed end to end, one in about TSLAB_SAMPLE */
  uint64_t requested_bytes;    /* of live blocks of classes, as asked for: an estimate from the samples */
  uint64_t requested_error;    /* its standard error */
  uint64_t epochs_open;        /* epoch 0 not counted */
  uint64_t epochs_closing;
  uint64_t epochs_opened;      /* since the start */
  uint64_t epochs_ended;
  uint64_t bytes_recycled;     /* by ends of epochs: kept ready for the next */
  uint64_t bytes_returned;     /* by ends of epochs: given to the operating system */
  uint64_t clock_ns;           /* CLOCK_MONOTONIC when this was collected */
  uint64_t clock_raw_ns;       /* CLOCK_MONOTONIC_RAW then: what the two gained on each other was adjusted */
  uint64_t leaked_blocks;      /* of classes, which a fork child lost with the lists of its parent's threads */
  uint64_t leaked_bytes;
  uint64_t frozen_bytes;       /* of memory that a child which no fork handler saw left as it was: docs/design.md */
  uint64_t large_cached_bytes; /* that threads keep for their next large blocks; in use, by the statistics above */
  uint64_t scope_misuses;      /* calls on scopes and epochs that failed with ESTALE, ESHUTDOWN, EOVERFLOW or EINVAL,
                                  and threads that ended inside a scope: TSLAB_ON_SCOPE=report names them */
  uint64_t limit_hard;         /* bytes that the library may hold, 0 for no limit */
  uint64_t limit_soft;         /* bytes beyond which it gives free memory back at once, 0 for no limit */
  uint64_t limit_held;         /* bytes that it holds, as the limits count: docs/limits.md */
  uint64_t limit_refusals;     /* allocations that failed for the hard limit */
  uint64_t limit_purged_bytes; /* given back by threads that asked for memory at a limit */
  uint64_t reserved[1];
} tslab_stats_global;

/* One size class, in all epochs. Blocks in chunks, where an epoch's small blocks lie at first, are of none.
 * What served it: allocations = from_list + from_magazine + from_slab + from_remote + from_fresh + from_adopted +
 * from_reserve + from_run + from_map. Names after seed statistics say what they count here. */
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
  uint64_t remote_frees;       /* frees of a block whose slab belongs to another heap */
  uint64_t from_list;          /* allocations served by the thread's list: the fast path */
  uint64_t from_magazine;         /* by the thread's put-by lists */
  uint64_t from_slab;          /* by blocks that came back to one of the thread's slabs */
  uint64_t from_remote;        /* the same, among them blocks that other threads freed */
  uint64_t from_fresh;         /* by pages of a slab that were not in use before, or were given back */
  uint64_t from_adopted;       /* by a slab that a dead thread left */
  uint64_t from_reserve;       /* by a new slab out of the reserve */
  uint64_t from_run;           /* by a new slab in memory that was free */
  uint64_t from_map;           /* by a new slab for which address space had to be made writable */
  uint64_t slabs_recycled;     /* of those retired: kept ready for the next epoch */
  uint64_t lock_fast_acquire;  /* locks of heaps taken for this class at the first try */
  uint64_t lock_contended;     /* and not at the first try */
  uint64_t slab_take_attempts;       /* takings of a slab's free blocks by malloc's slow path: one CAS each */
  uint64_t slab_take_cas_retries;    /* CAS that failed there */
  uint64_t slab_push_attempts;        /* pushes of freed blocks to slabs of other heaps: one CAS each */
  uint64_t slab_push_cas_retries;
  uint64_t slab_adopt_attempts; /* tries to take over a partial slab that a dead thread left */
  uint64_t slab_adopt_failures;
  uint64_t samples;                     /* allocations of this class timed end to end */
  uint64_t sampled_requested_bytes;     /* what they asked for, in all */
  uint64_t sampled_requested_squares;   /* and squared, for its error */
  uint64_t reserved[15];
} tslab_class_stats;

#define TSLAB_BUCKETS 48

/* Where calls spent their time: one row for each way that a call can take; those that the fast path served appear as
 * the samples of them. Histograms: bucket i counts times up to tslab_bucket_ns(i). */
typedef struct tslab_path_stats {
  char name[32];
  uint64_t entries;            /* calls; for the fast path: samples */
  uint64_t wall_ns_sum;
  uint64_t wall_ns_max;
  uint64_t samples;            /* those of them that were sampled, one in about TSLAB_SAMPLE */
  uint64_t sampled_wall_ns_sum;
  uint64_t cpu_samples;        /* those of them whose thread time was taken too, one in TSLAB_SAMPLE_CPU */
  uint64_t cpu_wall_ns_sum;    /* wall time of these */
  uint64_t cpu_ns_sum;
  uint64_t wait_ns_sum;        /* wall - cpu */
  uint64_t lock_wait_ns_sum;   /* of all entries: waiting for locks */
  uint64_t reserved[2];
  uint64_t buckets[TSLAB_BUCKETS];
} tslab_path_stats;

/* The upper bound of a histogram's bucket in nanoseconds, UINT64_MAX for the last. */
TSLAB_API uint64_t tslab_bucket_ns(unsigned bucket);

/* One thread. `repair` stands for what malloc's slow path mends before it can serve: collecting what other threads
 * freed, adopting what a dead thread left, purging and trying again. */
typedef struct tslab_thread_stats {
  uint64_t thread_id;          /* as gettid; 0 for those that are gone, together */
  uint64_t alive;
  uint64_t allocations;        /* in epoch 0 */
  uint64_t frees;
  uint64_t cached_bytes;
  uint64_t slow_allocations;
  uint64_t slow_frees;
  uint64_t slow_wall_ns_sum;
  uint64_t alloc_samples;      /* allocations timed end to end */
  uint64_t alloc_wall_ns_sum;
  uint64_t alloc_wall_ns_max;
  uint64_t alloc_cpu_samples;  /* those of them whose thread time was taken; the sums below are theirs */
  uint64_t alloc_cpu_ns_sum;
  uint64_t alloc_cpu_ns_max;
  uint64_t alloc_wait_ns_sum;  /* wall - cpu */
  uint64_t alloc_wait_ns_max;
  uint64_t repair_count;
  uint64_t repair_wall_ns_sum;
  uint64_t repair_wall_ns_max;
  uint64_t repair_cpu_samples;
  uint64_t repair_cpu_ns_sum;
  uint64_t repair_cpu_ns_max;
  uint64_t repair_wait_ns_sum;
  uint64_t repair_wait_ns_max;
  uint64_t repair_reason_remote;   /* blocks of other threads' frees were collected */
  uint64_t repair_reason_adopt;    /* a dead thread's slab was adopted */
  uint64_t repair_reason_purge;    /* memory was refused, given back, and asked for again */
  uint64_t repair_reason_other;    /* a damaged list was given up */
  uint64_t reserved[4];
} tslab_thread_stats;

/* All epochs of one label, those that ended included. */
typedef struct tslab_label_stats {
  char label[TSLAB_EPOCH_LABEL];
  uint64_t opened;
  uint64_t ended;
  uint64_t open;               /* now, the closing ones too */
  uint64_t allocations;
  uint64_t live_blocks;        /* allocations - live_blocks were freed, or given up */
  uint64_t live_bytes;
  uint64_t committed_bytes;
  uint64_t bytes_recycled;     /* by its epochs that ended */
  uint64_t bytes_returned;
  uint64_t refused;            /* allocations that failed for a budget */
  uint64_t diverted;           /* mallocs that went to epoch 0 because the epoch was closing */
  uint64_t samples;            /* allocations inside its scopes timed end to end */
  uint64_t sampled_wall_ns_sum;
  uint64_t sampled_wall_ns_max;
  uint64_t cpu_samples;
  uint64_t cpu_ns_sum;
  uint64_t wait_ns_sum;
  uint64_t slow_allocations;
  uint64_t lock_fast_acquire;
  uint64_t lock_contended;
  uint64_t slab_take_cas_retries;
  uint64_t slab_push_cas_retries;
  uint64_t reserved[2];
} tslab_label_stats;

/* One kind of lock, all its instances together. */
typedef struct tslab_lock_stats {
  char name[32];
  uint64_t fast;               /* taken at the first try */
  uint64_t contended;
  uint64_t wait_ns;            /* waited by those that were */
  uint64_t hold_ns;            /* held, while TSLAB_LOCK_TIMES=1 */
  uint64_t reserved[8];
} tslab_lock_stats;

/* `struct_size` is sizeof the caller's struct: older callers get the fields they know. 0, or EINVAL when `out` is NULL
 * or struct_size is not a positive multiple of 128. */
TSLAB_API int tslab_stats(tslab_stats_global *out, size_t struct_size);

/* Row `index` counts from 0. ERANGE past the last one: loop until then. EINVAL as above. */
TSLAB_API int tslab_stats_class(unsigned index, tslab_class_stats *out, size_t struct_size);
TSLAB_API int tslab_stats_path(unsigned index, tslab_path_stats *out, size_t struct_size);
TSLAB_API int tslab_stats_label(unsigned index, tslab_label_stats *out, size_t struct_size);
TSLAB_API int tslab_stats_lock(unsigned index, tslab_lock_stats *out, size_t struct_size);

/* The calling thread's. EINVAL as above. */
TSLAB_API int tslab_stats_thread(tslab_thread_stats *out, size_t struct_size);

/* tslab_epoch_info's, for an open or closing epoch. ESTALE, EINVAL. */
TSLAB_API int tslab_stats_epoch(tslab_epoch epoch, tslab_epoch_status *out, size_t struct_size);

/* All of it as one JSON object (docs/observability.md has the schema), handed to `write` in pieces; stops when that
 * returns other than 0, and returns that. `write` may allocate. */
TSLAB_API int tslab_stats_json(int (*write)(const char *piece, size_t length, void *arg), void *arg);

/* ---- the heap profile -------------------------------------------------------------------------------------------
 * Which call sites hold memory, from samples: docs/profile.md. TSLAB_PROFILE=BYTES starts it with the process, or
 * tslab_profile_interval later. None of these calls allocates from the heap. */

#define TSLAB_STACK 24

/* One call site: all samples with the same stack. Blocks and bytes are estimates, in bytes as asked for. */
typedef struct tslab_profile_site {
  uint64_t allocated_samples;  /* blocks sampled since the profile started */
  uint64_t allocated_blocks;   /* an estimate of the blocks allocated since then */
  uint64_t allocated_bytes;
  uint64_t live_samples;       /* sampled blocks in use: exact */
  uint64_t live_blocks;        /* an estimate of the blocks in use */
  uint64_t live_bytes;
  uint64_t error_bytes;        /* the standard error of live_bytes */
  uint64_t depth;              /* of the stack; 0: not known, or the table of stacks was full */
  uint64_t stack[TSLAB_STACK]; /* return addresses, the innermost first; 0 beyond `depth` */
  uint64_t reserved[16];
} tslab_profile_site;

/* Samples one block for about `bytes` that the process allocates, from now on; 0 samples none from now on. Samples that
 * were taken keep their weights and are followed until they are freed. Less than 4096 counts as 4096. A chunk that an
 * epoch has begun is sampled by the interval before. `before` receives the interval until now, and may be NULL.
 * Where there is no profile this starts one: blocks allocated before that are no samples.
 * ERANGE above 2^30, ENOMEM, ENOTSUP in a library without telemetry; then nothing changes. */
TSLAB_API int tslab_profile_interval(size_t bytes, size_t *before);

/* Visits every call site that was ever sampled, in no order; stops when `visit` returns other than 0 and returns that.
 * All figures are of the call's beginning. `visit` may call anything, and `site` is valid until it returns.
 * EINVAL when `visit` is NULL, ENODATA where there is no profile, ENOMEM. */
TSLAB_API int tslab_profile_each(int (*visit)(const tslab_profile_site *site, void *arg), void *arg);

/* Who keeps memory, and where, as one JSON object: the arrays profiles, sites, holders and epochs of tslab_stats_json
 * (docs/observability.md has the schema). A holder is what one call site holds in plain malloc, in the open epochs of a
 * label, or in one closing epoch. Pieces, results and EINVAL as there, ENODATA where there is no profile. */
TSLAB_API int tslab_holders_json(int (*write)(const char *piece, size_t length, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
