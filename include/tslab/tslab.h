/* tslab.h: the public interface of temporal-slab, a memory allocator that ties memory to lifetimes.
 *
 * Linking libtslab (or preloading libtslab.so) replaces the C library's malloc family and C++'s operators new and
 * delete. Every libc name also exists with the prefix tslab_. libtslab_prefixed.a has only those and replaces nothing.
 *
 * Threads:  any thread may call any function at any time, unless the function's comment says otherwise.
 * Signals:  a signal handler may call only the functions marked async-signal-safe.
 * Errors:   functions that return int return 0 or an errno value; the malloc family behaves as its manual page says.
 * Growth:   new fields of a struct take the place of `reserved`, which reads as zero until then. */
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
TSLAB_API size_t tslab_malloc_usable_size(const void *block);               /* 0 for NULL; misuse for no block */

/* Gives all unused memory back to the operating system now, with the calling thread's own caches. Other running threads
 * keep their lists of recently freed blocks. Returns 1 if this gave memory back, otherwise 0. Ignores `pad`. */
TSLAB_API int tslab_malloc_trim(size_t pad);

/* Has the fields of the struct that glibc's mallinfo2 fills (<malloc.h> names it mallinfo2). */
struct tslab_mallinfo {
  size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
TSLAB_API struct tslab_mallinfo tslab_mallinfo2(void);
TSLAB_API int tslab_malloc_info(int options, FILE *stream);                 /* XML; EINVAL if options is not 0 */
TSLAB_API void tslab_malloc_stats(void);                                    /* a table on standard error */

/* Returns 1 for every parameter that glibc has, with any value, and 0 for others. No parameter has an effect; use the
 * TSLAB_ settings (docs/settings.md). */
TSLAB_API int tslab_mallopt(int parameter, int value);

/* ---- asking about a pointer or the process ----------------------------------------------------------------------- */

/* Returns true if p points into memory that this allocator handed out or could hand out. p may be any value.
 * Async-signal-safe. */
TSLAB_API bool tslab_owns(const void *p);

/* The memory that holds a block, and that goes back to the operating system only as a whole. A slab has blocks of one
 * size. A chunk has an epoch's blocks, one after the other. A large block has memory of its own. */
enum tslab_use_kind { TSLAB_USE_NONE = 0, TSLAB_USE_SLAB = 1, TSLAB_USE_CHUNK = 2, TSLAB_USE_LARGE = 3 };

typedef struct tslab_slab_use {
  uint64_t kind;           /* enum tslab_use_kind; for a pointer to no block TSLAB_USE_NONE, and all is 0 */
  uint64_t start;          /* its address, the same for all blocks in it */
  uint64_t epoch;
  uint64_t slab_bytes;     /* its size, which goes back after its last free */
  uint64_t capacity_bytes; /* bytes of it for blocks */
  uint64_t used_blocks;    /* in use, or free on a thread's list; after a close of the epoch no list has any */
  uint64_t used_bytes;
  uint64_t is_current;     /* 1: new blocks come from here, so do not move one away */
  uint64_t reserved[8];
} tslab_slab_use;

/* Says for each of `count` blocks how full the memory is that holds it. A defragmenter asks this before it moves a
 * block (tslab_epoch_move, or malloc, copy, free). It takes no lock and reads no block, so a block may be any value.
 * For a freed pointer it describes the memory that lies there now. A look at a chunk takes a few microseconds, and one
 * look serves neighbours in the list that lie in one chunk; other looks take some nanoseconds. Returns EINVAL if a
 * pointer to an array is NULL. */
TSLAB_API int tslab_occupancy(void *const *blocks, size_t count, tslab_slab_use *out);

/* As malloc_trim(0), but returns the bytes that this call gave back to the operating system. */
TSLAB_API size_t tslab_purge(void);

/* Sets how much memory the library may hold, in bytes; docs/limits.md says what counts. At `hard` the library first
 * gives all free memory back, then malloc fails with ENOMEM. Beyond `soft` free memory goes back at once, and no call
 * fails. Each is at least 1 MiB, or 0 for no limit, TSLAB_LIMIT_AUTO for the limit of the control group (version 2:
 * memory.max; memory.high, or a sixteenth below the hard limit), or TSLAB_LIMIT_KEEP for no change. If the library
 * holds more than a limit, it gives free memory back now and takes no more. Returns 0, or EINVAL without a change, or
 * ENOMEM without address space. tslab_stats has the limits and their effect: limit_hard, limit_soft, limit_held,
 * limit_refusals. */
#define TSLAB_LIMIT_AUTO UINT64_MAX
#define TSLAB_LIMIT_KEEP (UINT64_MAX - 1)
TSLAB_API int tslab_memory_limit(uint64_t hard, uint64_t soft);

/* "temporal-slab 0.1.0 (release, gcc 12.2.0)"; static storage. Async-signal-safe. */
TSLAB_API const char *tslab_version(void);

/* ---- epochs -----------------------------------------------------------------------------------------------------
 * An epoch is a named lifetime: a request, a frame, a batch, a session store. Inside its scope this thread's whole
 * malloc family, operators new and every library that it calls allocate in the epoch. The epoch shares its slabs with
 * no other. A close recycles or returns all memory that holds no live block, at once. A block that outlives the close
 * stays valid, and the free of the last such block in its slab gives that memory back. docs/epochs.md says when to
 * close, destroy or reset, and which calls of libc allocate in epoch 0 in any scope.
 *
 * Up to 16 million epochs may exist at a time, and any number of threads may be inside one. Ids are never reused.
 * Functions that take an id fail with ESTALE if it names no epoch or an ended one, and with ESHUTDOWN if the epoch is
 * closing. Functions that return int return their error; the others set errno. */
typedef uint64_t tslab_epoch;

/* Plain malloc's epoch. It is always open. A thread may enter it, but not close, destroy or reset it (EPERM). */
#define TSLAB_EPOCH_DEFAULT ((tslab_epoch)0)

/* The epoch closes when the last thread inside leaves its scope or switches to another epoch. Allocations by id
 * (tslab_epoch_malloc) open no scope and close nothing. */
#define TSLAB_EPOCH_AUTO_CLOSE  ((uint32_t)1)
#define TSLAB_EPOCH_DESTROYABLE ((uint32_t)2) /* destroy and reset are allowed */

#define TSLAB_EPOCH_LABEL 64 /* bytes of a label with its final 0; longer labels are cut */
#define TSLAB_SCOPES      64 /* the most scopes that a thread may be in at a time */

typedef struct tslab_epoch_options {
  size_t struct_size;      /* sizeof(tslab_epoch_options) */
  const char *label;       /* copied; NULL for none */
  uint64_t budget_bytes;   /* 0 for none, else at least 64 KiB: the epoch and its children hold at most so many bytes of
                              slabs; then malloc in it fails with ENOMEM */
  uint64_t prefault_bytes; /* open makes so much resident, so that the first small blocks fault no page */
  uint32_t flags;          /* TSLAB_EPOCH_... */
  tslab_epoch parent;      /* 0 for none. A parent's close, destroy or reset does the same to its children first. A
                              closed parent stays closing until its children have ended */
} tslab_epoch_options;

/* The effect of close, destroy or reset on this epoch, without its children. Sizes in bytes, times in nanoseconds. */
typedef struct tslab_epoch_report {
  uint64_t epoch;
  uint64_t threads_inside; /* with the calling one; if not 0, live_... may still change, and the last thread that leaves
                              completes the close */
  uint64_t live_blocks;    /* after close: those still live; after destroy and reset: those given up */
  uint64_t live_bytes;
  uint64_t slabs_pinned;   /* chunks, slabs and large blocks that hold such a block, or held one */
  uint64_t bytes_recycled; /* kept ready for the next epoch */
  uint64_t bytes_returned; /* given to the operating system */
  uint64_t rss_before;     /* 0 unless TSLAB_REPORT_RSS=1 */
  uint64_t rss_after;
  uint64_t elapsed_ns;
  uint64_t reserved[6];
} tslab_epoch_report;

enum tslab_epoch_state { TSLAB_EPOCH_OPEN = 1, TSLAB_EPOCH_CLOSING = 2 };

/* An epoch at one moment. Reading it stops no thread. */
typedef struct tslab_epoch_status {
  uint64_t epoch;
  uint64_t era;             /* resets so far */
  uint64_t state;           /* enum tslab_epoch_state; closing until its last block is freed */
  uint64_t flags;
  uint64_t age_ns;          /* since open, by the kernel's coarse clock */
  uint64_t threads_inside;
  uint64_t live_blocks;     /* exact if no thread allocates or frees in the epoch meanwhile */
  uint64_t live_bytes;
  uint64_t slabs;           /* chunks, slabs and large blocks held */
  uint64_t slabs_pinned;    /* those that hold a live block, or one on a thread's list; up to live_blocks */
  uint64_t committed_bytes; /* of these */
  uint64_t budget_bytes;    /* 0: none */
  uint64_t charged_bytes;   /* committed_bytes, with the children's */
  uint64_t refused;         /* allocations that its budget or a parent's refused */
  uint64_t diverted;        /* mallocs inside its scope that went to epoch 0 because it was closing */
  uint64_t parent;
  uint64_t allocations;     /* in this epoch since it was opened */
  uint64_t closed_ns;       /* since its close was done, to a sixtieth of a second; 0: not yet */
  uint64_t reserved[6];
  char label[TSLAB_EPOCH_LABEL];
} tslab_epoch_status;

/* Opens an epoch. Returns its id, or 0 with errno ENOMEM. 0 is plain malloc's epoch, so a caller may go on and enter
 * it. */
TSLAB_API tslab_epoch tslab_epoch_open(const char *label);

/* As above. errno EINVAL for a struct_size or flag that this version does not know and for a budget below 64 KiB;
 * ESTALE or ESHUTDOWN for the parent; EOVERFLOW for a parent with 64 epochs above it. ENOMEM also if the budget, or a
 * parent's, is too small for prefault_bytes. */
TSLAB_API tslab_epoch tslab_epoch_open_with(const tslab_epoch_options *options);

/* Until the matching leave this thread allocates in `epoch`, which may be 0. Scopes nest. After a thread's first time
 * in the epoch, enter writes no memory that other threads write. ESHUTDOWN, ESTALE, EOVERFLOW past TSLAB_SCOPES,
 * ENOMEM. */
TSLAB_API int tslab_epoch_enter(tslab_epoch epoch);

/* Ends the innermost scope. `epoch` must be the scope's epoch, as enter or the last switch set it; otherwise this
 * returns EINVAL and changes nothing. */
TSLAB_API int tslab_epoch_leave(tslab_epoch epoch);

/* Sets the epoch of the innermost scope (or of the thread, outside all scopes) and returns the one before, which the
 * thread leaves. For fibers and coroutines, whose scheduler restores it. On failure this sets errno, changes nothing
 * and returns the current epoch; on success it keeps errno. */
TSLAB_API tslab_epoch tslab_epoch_switch(tslab_epoch epoch);

/* For longjmp and exceptions: returns how many scopes this thread is in; leaves all scopes above `depth`. */
TSLAB_API int tslab_scope_depth(void);
TSLAB_API void tslab_scope_unwind(int depth);

/* Returns the epoch of this thread's next malloc. Async-signal-safe. */
TSLAB_API tslab_epoch tslab_epoch_current(void);

/* Returns the epoch in which the block at p was allocated; 0 also for a p that is not ours. Async-signal-safe. */
TSLAB_API tslab_epoch tslab_epoch_of(const void *p);

/* malloc's family in a given epoch, from any thread in any scope. NULL with errno ENOMEM (memory or budget), ESHUTDOWN,
 * ESTALE, or EINVAL for an alignment that is no power of two. */
TSLAB_API TSLAB_ALLOC void *tslab_epoch_malloc(tslab_epoch epoch, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_epoch_calloc(tslab_epoch epoch, size_t count, size_t size);
TSLAB_API TSLAB_ALLOC void *tslab_epoch_aligned_alloc(tslab_epoch epoch, size_t alignment, size_t size);

/* Moves a block that must outlive its epoch: returns a copy of it in `to`, which may be 0, and frees the block. The
 * copy has the block's usable size, bytes and alignment (up to 2 MiB). If the block is in `to` already, this returns
 * the block itself, even while `to` is closing. NULL with errno as tslab_epoch_aligned_alloc, EINVAL for NULL; the
 * block then stays as it was. A pointer to no block in use is misuse, as for realloc. Never pass a handle's block. */
TSLAB_API void *tslab_epoch_move(void *block, tslab_epoch to);

/* Closes the epoch, its children first. It stops new allocations: those of threads inside go to epoch 0 from their next
 * slow path on. Before it returns, every slab without a live block is recycled or returned. Live blocks stay valid. The
 * epoch is closing until its last block is freed, its last child has ended and the last thread has left. `out` may be
 * NULL; the call then reads no clock. ESHUTDOWN if the epoch is closing already; `out` then reports what is left.
 * EPERM, ESTALE. */
TSLAB_API int tslab_epoch_close(tslab_epoch epoch, tslab_epoch_report *out);

/* Closes in steps of about `max_ns`: EAGAIN until done. The first step closes the children as a whole. ESHUTDOWN if
 * tslab_epoch_close has begun, or the last step is done. */
TSLAB_API int tslab_epoch_close_step(tslab_epoch epoch, uint64_t max_ns, tslab_epoch_report *out);

/* Ends the epoch with all its blocks, freed or not: the caller guarantees that no thread uses them. It destroys the
 * epoch's open children first; a child that is closing already keeps the epoch closing, too. The epoch and its children
 * must be TSLAB_EPOCH_DESTROYABLE (else EPERM). EBUSY, without a change, if a thread is inside. ESHUTDOWN, ESTALE. */
TSLAB_API int tslab_epoch_destroy(tslab_epoch epoch, tslab_epoch_report *out);

/* Ends all blocks in the same way, but the epoch stays open, empty, one era older. Resets its open children first, and
 * these stay open, too. The caller may be inside it and them; other threads may not (EBUSY). */
TSLAB_API int tslab_epoch_reset(tslab_epoch epoch, tslab_epoch_report *out);

/* Leaves and closes the epoch that this thread entered by its last advance, if any, opens the next and enters it. That
 * scope must be the innermost again; otherwise its epoch closes with this thread inside. `closed` receives the report
 * of the close and may be NULL. Returns 0 with errno on failure; the last epoch is then closed and no new one
 * entered. */
TSLAB_API tslab_epoch tslab_epoch_advance(const char *label, tslab_epoch_report *closed);

/* Returns 0, ESTALE, or EINVAL if out is NULL. */
TSLAB_API int tslab_epoch_info(tslab_epoch epoch, tslab_epoch_status *out);

/* Visits every open or closing epoch except epoch 0, the oldest slot first. Stops as soon as `visit` returns another
 * value than 0, and returns that value. `visit` may call any function. */
TSLAB_API int tslab_epoch_each(int (*visit)(const tslab_epoch_status *status, void *arg), void *arg);

/* ---- handles ----------------------------------------------------------------------------------------------------
 * A handle stands for a block, and the library checks it at every use. Exactly one free by a handle succeeds, whatever
 * other threads do. A call with a stale, foreign or invented handle touches no memory. 0 is never valid. Free such a
 * block only through its handle. */
typedef uint64_t tslab_handle;

/* Returns a handle and sets *block to its block, or returns 0 with errno as tslab_epoch_malloc and sets *block to NULL.
 * `block` may not be NULL. */
TSLAB_API tslab_handle tslab_handle_alloc(tslab_epoch epoch, size_t size, void **block);

/* Returns the block, or NULL if it was freed, or its epoch destroyed or reset. */
TSLAB_API void *tslab_handle_get(tslab_handle handle);
/* Returns true if this call freed the block. Of all calls by all threads exactly one does. */
TSLAB_API bool tslab_handle_free(tslab_handle handle);

/* ---- statistics -------------------------------------------------------------------------------------------------
 * A reader computes them from the counts of the slow paths; the fast path counts nothing. Each figure is exact if no
 * other thread is inside the allocator. Otherwise it lacks at most the calls that other threads make while it is read.
 * docs/observability.md says what each means, and how to read a process from outside. */

/* The whole process with all epochs. Sizes in bytes. allocations - frees = live_blocks over all classes, the chunks of
 * epochs, and large blocks; committed_bytes = in_use_bytes + free_dirty_bytes + free_clean_bytes. */
typedef struct tslab_stats_global {
  uint64_t allocations;        /* blocks handed out since the start, with realloc's moves */
  uint64_t frees;              /* blocks taken back */
  uint64_t live_blocks;
  uint64_t live_bytes;         /* usable bytes of live blocks */
  uint64_t large_live_blocks;  /* blocks above the largest class, which the statistics above count, too */
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
  uint64_t heaps;              /* heaps ever made, one for each thread and epoch; later ones reuse them */
  uint64_t misuses;            /* reported without an abort, TSLAB_ON_MISUSE=report */
  uint64_t leaked_at_fork;     /* heaps of the parent's other threads, whose lists this fork child gave up */
  uint64_t free_clean_bytes;   /* free runs without memory */
  uint64_t reserve_bytes;      /* kept ready for the next epochs; part of in_use_bytes */
  uint64_t resident_bytes;     /* of the whole process; 0 if /proc does not say */
  uint64_t slow_allocations;   /* calls that the fast path did not serve */
  uint64_t slow_frees;         /* slow frees that did more than keep the block for later */
  uint64_t samples;            /* allocations timed end to end, one in about TSLAB_SAMPLE */
  uint64_t requested_bytes;    /* that callers asked for, in live blocks of classes: estimated by samples */
  uint64_t requested_error;    /* its standard error */
  uint64_t epochs_open;        /* without epoch 0 */
  uint64_t epochs_closing;
  uint64_t epochs_opened;      /* since the start */
  uint64_t epochs_ended;
  uint64_t bytes_recycled;     /* by ends of epochs: kept ready for the next ones */
  uint64_t bytes_returned;     /* by ends of epochs: given to the operating system */
  uint64_t clock_ns;           /* CLOCK_MONOTONIC at this reading */
  uint64_t clock_raw_ns;       /* CLOCK_MONOTONIC_RAW at this reading, which no clock daemon adjusts */
  uint64_t leaked_blocks;      /* of classes: blocks that this fork child lost with the lists of its parent's threads */
  uint64_t leaked_bytes;
  uint64_t frozen_bytes;       /* that a child of a fork without handlers does not touch: docs/invariants.md */
  uint64_t large_cached_bytes; /* threads keep these for their next large blocks; part of in_use_bytes */
  uint64_t scope_misuses;      /* calls on scopes and epochs that failed with ESTALE, ESHUTDOWN, EOVERFLOW or EINVAL,
                                  and threads that ended inside a scope: TSLAB_ON_SCOPE=report names them */
  uint64_t limit_hard;         /* bytes that the library may hold, 0 for no limit */
  uint64_t limit_soft;         /* bytes beyond which it gives free memory back at once, 0 for no limit */
  uint64_t limit_held;         /* bytes that it holds, as the limits count them: docs/limits.md */
  uint64_t limit_refusals;     /* allocations that the hard limit refused */
  uint64_t limit_purged_bytes; /* bytes that threads gave back because they took memory at a limit */
  uint64_t huge_moved_bytes;   /* bytes of dense memory that the library moved to huge pages (TSLAB_HUGE) */
  uint64_t reserved[16];
} tslab_stats_global;

/* One size class, in all epochs. Blocks in chunks, where an epoch's small blocks lie at first, have no class.
 * allocations = from_list + from_magazine + from_slab + from_remote + from_fresh + from_adopted + from_reserve +
 * from_run + from_map. */
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
  uint64_t from_list;          /* allocations from the thread's list: the fast path */
  uint64_t from_magazine;         /* from the thread's magazines */
  uint64_t from_slab;          /* from blocks that came back to one of the thread's slabs */
  uint64_t from_remote;        /* the same, with blocks that other threads freed */
  uint64_t from_fresh;         /* from pages of a slab that were never used, or were given back */
  uint64_t from_adopted;       /* from a slab that a dead thread left */
  uint64_t from_reserve;       /* from a new slab out of the reserve */
  uint64_t from_run;           /* from a new slab in free memory */
  uint64_t from_map;           /* from a new slab in address space that the library first made writable */
  uint64_t slabs_recycled;     /* of the retired slabs: kept ready for the next epoch */
  uint64_t lock_fast_acquire;  /* locks of heaps taken for this class at the first try */
  uint64_t lock_contended;     /* and those not taken at the first try */
  uint64_t slab_take_attempts;       /* malloc's slow path took a slab's free blocks: one CAS each */
  uint64_t slab_take_cas_retries;    /* CAS that failed there */
  uint64_t slab_push_attempts;        /* free pushed blocks to slabs of other heaps: one CAS each */
  uint64_t slab_push_cas_retries;
  uint64_t slab_adopt_attempts; /* tries to take over a partial slab that a dead thread left */
  uint64_t slab_adopt_failures;
  uint64_t samples;                     /* allocations of this class timed end to end */
  uint64_t sampled_requested_bytes;     /* bytes that they asked for, in all */
  uint64_t sampled_requested_squares;   /* the sum of the squares, for the error */
  uint64_t reserved[15];
} tslab_class_stats;

#define TSLAB_BUCKETS 48

/* The times of calls, one row for each path that a call can take. Calls of the fast path appear only as their samples.
 * Histograms: bucket i counts times up to tslab_bucket_ns(i). */
typedef struct tslab_path_stats {
  char name[32];
  uint64_t entries;            /* calls; for the fast path: samples */
  uint64_t wall_ns_sum;
  uint64_t wall_ns_max;
  uint64_t samples;            /* sampled calls, one in about TSLAB_SAMPLE */
  uint64_t sampled_wall_ns_sum;
  uint64_t cpu_samples;        /* samples with the thread's time, one in TSLAB_SAMPLE_CPU */
  uint64_t cpu_wall_ns_sum;    /* wall time of these */
  uint64_t cpu_ns_sum;
  uint64_t wait_ns_sum;        /* wall - cpu */
  uint64_t lock_wait_ns_sum;   /* waits for locks, of all entries */
  uint64_t reserved[2];
  uint64_t buckets[TSLAB_BUCKETS];
} tslab_path_stats;

/* Returns the upper bound of a histogram's bucket in nanoseconds, UINT64_MAX for the last one. */
TSLAB_API uint64_t tslab_bucket_ns(unsigned bucket);

/* One thread. A `repair` is work of malloc's slow path before it can serve: it collects blocks that other threads
 * freed, adopts a dead thread's slab, or purges and tries again. */
typedef struct tslab_thread_stats {
  uint64_t thread_id;          /* as gettid; 0 for the row of all ended threads */
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
  uint64_t alloc_cpu_samples;  /* samples with the thread's time; the sums below are theirs */
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
  uint64_t repair_reason_remote;   /* collected blocks that other threads freed */
  uint64_t repair_reason_adopt;    /* adopted a dead thread's slab */
  uint64_t repair_reason_purge;    /* no memory: gave free memory back and tried again */
  uint64_t repair_reason_other;    /* gave up a damaged list */
  uint64_t reserved[4];
} tslab_thread_stats;

/* All epochs of one label, with the ended ones. */
typedef struct tslab_label_stats {
  char label[TSLAB_EPOCH_LABEL];
  uint64_t opened;
  uint64_t ended;
  uint64_t open;               /* now, with the closing ones */
  uint64_t allocations;
  uint64_t live_blocks;        /* allocations - live_blocks were freed, or given up */
  uint64_t live_bytes;
  uint64_t committed_bytes;
  uint64_t bytes_recycled;     /* by ended epochs */
  uint64_t bytes_returned;
  uint64_t refused;            /* allocations that a budget refused */
  uint64_t diverted;           /* mallocs that went to epoch 0 because their epoch was closing */
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
  uint64_t exempt_scopes;      /* scopes of epoch 0 inside its scopes */
  uint64_t exempt_bytes;       /* allocated in those, freed since or not */
} tslab_label_stats;

/* All locks of one kind. */
typedef struct tslab_lock_stats {
  char name[32];
  uint64_t fast;               /* taken at the first try */
  uint64_t contended;
  uint64_t wait_ns;            /* waits of contended tries */
  uint64_t hold_ns;            /* time held, under TSLAB_LOCK_TIMES=1 */
  uint64_t reserved[8];
} tslab_lock_stats;

/* `struct_size` is sizeof the caller's struct, so older callers get the fields that they know. Returns 0, or EINVAL if
 * `out` is NULL or struct_size is not a positive multiple of 128. */
TSLAB_API int tslab_stats(tslab_stats_global *out, size_t struct_size);

/* `index` counts rows from 0. Returns ERANGE past the last row, so loop until then. EINVAL as above. */
TSLAB_API int tslab_stats_class(unsigned index, tslab_class_stats *out, size_t struct_size);
TSLAB_API int tslab_stats_path(unsigned index, tslab_path_stats *out, size_t struct_size);
TSLAB_API int tslab_stats_label(unsigned index, tslab_label_stats *out, size_t struct_size);
TSLAB_API int tslab_stats_lock(unsigned index, tslab_lock_stats *out, size_t struct_size);

/* Statistics of the calling thread. EINVAL as above. */
TSLAB_API int tslab_stats_thread(tslab_thread_stats *out, size_t struct_size);

/* As tslab_epoch_info, for an open or closing epoch. ESTALE, EINVAL. */
TSLAB_API int tslab_stats_epoch(tslab_epoch epoch, tslab_epoch_status *out, size_t struct_size);

/* Passes all statistics to `write` as one JSON object, in pieces (docs/observability.md has the schema). Stops as soon
 * as `write` returns another value than 0, and returns that value. `write` may allocate. */
TSLAB_API int tslab_stats_json(int (*write)(const char *piece, size_t length, void *arg), void *arg);

/* ---- the heap profile -------------------------------------------------------------------------------------------
 * It tells from samples which call sites hold memory: docs/profile.md. It begins by itself once the heap holds 64 MiB.
 * TSLAB_PROFILE=BYTES starts it with the process, or tslab_profile_interval later. None of these calls allocates from
 * the heap. */

#define TSLAB_STACK 24
#define TSLAB_PROFILE_AUTO ((size_t)-1)

/* One call site: all samples with the same stack. Blocks and bytes are estimates of what callers asked for. The section
 * "How exact a figure is" of docs/profile.md says how to make an interval of an estimate and its standard error. */
typedef struct tslab_profile_site {
  uint64_t allocated_samples;     /* blocks sampled since the profile started */
  uint64_t allocated_blocks;      /* an estimate of the blocks allocated since then */
  uint64_t allocated_bytes;
  uint64_t live_samples;          /* sampled blocks in use: exact */
  uint64_t live_blocks;           /* an estimate of the blocks in use */
  uint64_t live_bytes;
  uint64_t error_bytes;           /* the standard error of live_bytes */
  uint64_t depth;                 /* of the stack; 0: unknown, or the table of stacks was full */
  uint64_t stack[TSLAB_STACK];    /* return addresses, the innermost first; 0 beyond `depth` */
  uint64_t allocated_error_bytes; /* the standard error of allocated_bytes */
  uint64_t reserved[15];
} tslab_profile_site;

/* From now on samples one block for about `bytes` that the process allocates; 0 samples none. Earlier samples keep
 * their weights, and the profile follows them until they are freed. Less than 4096 counts as 4096. In a chunk that an
 * epoch has begun the interval before still holds, and in each size class of a thread up to its next visit of a slow
 * path. `before` receives the interval until now, and may be NULL. Without a profile this starts one; blocks allocated
 * before that are no samples. TSLAB_PROFILE_AUTO lets the process choose from now on, as it does at its start: nothing
 * until the heap holds 64 MiB, then 8 MiB, or more while it takes over 512 samples a second, and no blocks in the
 * chunks of epochs. ERANGE above 2^30, ENOMEM, ENOTSUP in a library without telemetry; then nothing changes. */
TSLAB_API int tslab_profile_interval(size_t bytes, size_t *before);

/* Visits every call site that was ever sampled, in no order. Stops as soon as `visit` returns another value than 0, and
 * returns that value. All figures are those of the call's beginning. `visit` may call any function, and `site` is valid
 * until it returns. EINVAL if `visit` is NULL, ENODATA without a profile, ENOMEM. */
TSLAB_API int tslab_profile_each(int (*visit)(const tslab_profile_site *site, void *arg), void *arg);

/* Passes the holders of memory to `write` as one JSON object: the arrays profiles, sites, holders and epochs of
 * tslab_stats_json (docs/observability.md has the schema). A holder is the memory of one call site in plain malloc, in
 * the open epochs of a label, or in one closing epoch. Pieces, results and EINVAL as for tslab_stats_json; ENODATA
 * without a profile. */
TSLAB_API int tslab_holders_json(int (*write)(const char *piece, size_t length, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
