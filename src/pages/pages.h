/* pages: address space in, runs of granules out; from a pointer to its descriptor.                  floor: pages
 *
 *                                                        base                             frontier         reserved
 *   [ runs ........ | quarters ...... | dirty bits .... | chunk bits ..... | page | owners ..... | run | free run ... ]
 *     64 B a granule  256 B a granule   1 bit a granule   1.5 KiB a granule         8 B a granule
 *
 * A granule is 64 KiB; granule g lies at base + (g << 16), the pagemap included. pagemap[g] says which heap's list
 * takes a freed block of granule g (see heap/heap.h); 0 when none does. runs[g] describes the run that starts at g. The
 * chunk bits belong to slab/chunk.h and become writable with the first chunk that needs them. A granule of kind
 * RUN_SPLIT is lent in quarters, and each quarter has a descriptor of its own (slab/quarter.h). These descriptors lie
 * right behind the runs, so that one 32-bit index leads to either.
 *
 * Invariant: kind != 0 only at the first granule of a run; a free run's last granule points back to its first; no two
 * free runs touch; a granule whose dirty bit is clear reads as zero or is in use.                 pages_check()
 * Threads: everything under pages_lock, but: owners (one store, relaxed; read by every free), pages.count (only grows,
 * release), and the descriptor of a run in use, which belongs to who took the run. Why one reservation:
 * docs/decisions/0002. */
#ifndef TSLAB_PAGES_PAGES_H
#define TSLAB_PAGES_PAGES_H

#include "base/bits.h"
#include "os/lock.h"

#define GRANULE_SHIFT 16
#define GRANULE ((size_t)1 << GRANULE_SHIFT)
#define PAGEMAP_OFFSET ((size_t)4096) /* the page at base is for what else malloc looks up: slab/classes.h */

#define QUARTERS 4 /* of a granule */
#define QUARTER  (GRANULE / QUARTERS)

struct heap;
typedef uintptr_t pagemap_entry; /* a heap's address and a size class: heap/heap.h */

enum run_kind {
  RUN_NONE, RUN_FREE, RUN_SLAB, RUN_LARGE, RUN_CHUNK, RUN_RESERVED, RUN_TRAP, RUN_META, RUN_SPLIT,
  RUN_GUARDED /* the pool of heap/guard.h */
};

/* 64 bytes, so that one run touches one line. */
struct run {
  _Atomic uint64_t word;       /* slab: its free list, see slab/slab.h; chunk: its live blocks, see slab/chunk.h */
  struct heap *_Atomic heap;   /* slab, chunk: whose owner it is; written under that heap's lock */
  union {
    uint64_t unlinked; /* slab: units whose blocks are on no list yet; under the heap's lock */
    uint64_t gone;     /* chunk: blocks freed by its heap's thread before it was sealed */
    struct {
      uint32_t younger, older; /* dirty free run: neighbours in the ring of its age */
    };
  };
  union {
    uint64_t seen; /* free run: the tick that it is dirty since; slab: see heap/bins.c */
    size_t size;   /* large block: usable bytes; chunk: bytes handed out when it was sealed; guard: see pages.c */
  };
  uint32_t next, previous; /* neighbours in the list that holds it, by granule; 0 = none; chunk: see heap/bump.c */
  uint32_t granules; /* 0: a quarter of one */
  union {
    uint32_t back;              /* last granule of a free run: distance to its first */
    uint32_t previous_of_epoch; /* run in use of an epoch: neighbour in heap/arena.h's list */
  };
  union {
    uint32_t dirty;         /* free run: how many of its granules are */
    uint32_t next_of_epoch; /* run in use of an epoch */
  };
  uint32_t epoch;     /* index of the arena it was born in, or SPLIT_EPOCH; never changes while the run is in use */
  uint16_t capacity;  /* slab, sealed chunk: blocks; large block: 1 if it is a sample of the heap profile */
  uint16_t threshold; /* slab: free blocks that make it worth listing; chunk: pages given back, one bit each; split:
                         quarters that are free, one bit each */
  uint8_t kind;       /* enum run_kind */
  uint8_t class;      /* slab: size class; chunk: CHUNK_HAS_GAPS or 0; RUN_META: enum guard; split: quarters that
                         may be resident, one bit each */
  uint8_t was;        /* what lay here last, for a better word about a late free: class + 1, or LARGE_WAS, CHUNK_WAS */
  uint8_t moved;      /* large block: has a mapping of its own since os_move; slab: what is unlinked holds no memory,
                       * see enum slab_memory; chunk: has samples of the heap profile */
};
_Static_assert(sizeof(struct run) == CACHE_LINE, "one run, one line");

#define LARGE_WAS UINT8_MAX
#define CHUNK_WAS (UINT8_MAX - 1)
#define SPLIT_EPOCH (UINT32_MAX - 1) /* no arena's: the quarters say which */

/* Read by every free; written only when the frontier moves: on a line of its own, which the type's size makes sure. */
struct pages {
  char *base;
  /* Granules below the frontier: a pointer whose granule is not below it is foreign. Written and read by __atomic
   * builtins but on the fast path, where a plain load folds into the compare. */
  size_t count;
  struct run *runs;
  size_t first_quarter; /* the index of granule 0's: those of granule g are QUARTERS * g behind it */
  char *chunk_starts, *chunk_freed; /* slab/chunk.h */
} ALIGNED(CACHE_LINE);
HIDDEN extern struct pages pages;
HIDDEN extern char pages_before_start[PAGEMAP_OFFSET]; /* zeros, at base until pages_start */
HIDDEN extern struct lock pages_lock;

struct pages_totals {
  size_t reserved, committed, free_dirty, free_clean, returned, purge_calls, purge_failures, moved_runs;
  size_t populated; /* bytes, ahead of need */
  size_t held, hard_limit, soft_limit; /* bytes; see pages_set_limits */
  size_t limit_purged; /* bytes, by threads that asked for memory at a limit */
  size_t looks; /* at free runs, to find one to cut or to purge; tests bound it */
};

/* Reserves; once, before anything else here. Under RLIMIT_AS only what is needed at once, and more as it is needed.
 * False without address space. */
HIDDEN bool pages_start(void);

/* Unmaps what is reserved and not writable yet, for RLIMIT_AS counts it; from now on address space is reserved as it is
 * needed, so that the limit holds for this heap, too, and the heap grows again when the limit is raised. Also done when
 * the kernel would map no page more. Returns how many bytes it was. */
HIDDEN size_t pages_trim_reservation(void);

/* How memory was had, for callers that ask why a call was slow. */
struct pages_how {
  bool ready;      /* it came out of the reserve */
  bool mapped;     /* the frontier moved */
  size_t moves_in; /* asked for: granules whose memory comes from another run by os_move, and counts there until then */
  uint64_t waited; /* ticks, for locks */
};

/* A run of `granules` whose first lies on a multiple of `alignment` (a power of two, at least GRANULE); contents are
 * arbitrary unless *zero. NULL when there is no memory. All fields but kind, granules, was and back are zero. Adds to
 * *how, which may be NULL. */
HIDDEN struct run *pages_alloc(size_t granules, size_t alignment, enum run_kind kind, bool *zero,
                               struct pages_how *how);

/* The same at the start of a window: `window` granules (a power of two, at least `granules`) on a multiple of their
 * bytes. The rest of the window is the run's room, free memory that pages_resize alone takes, until the run has not
 * grown for a while, or memory is short. NULL where no window is free below the frontier, and much lies free there
 * already or there is a limit. */
HIDDEN struct run *pages_alloc_in_window(size_t granules, size_t window, enum run_kind kind, bool *zero);

/* Zeroed memory of our own, never given back: granules for it alone, or a piece of those that `from` remembers, which
 * the caller locks. NULL without memory. */
struct cuttings {
  char *next, *end;
};
HIDDEN void *pages_keep(size_t bytes);
HIDDEN void *pages_cut(struct cuttings *from, size_t bytes); /* at most a granule */

/* A run in use becomes one of another kind, its fields as pages_alloc leaves them. By who holds it. */
HIDDEN void pages_reuse(struct run *run, enum run_kind kind);

/* Takes a run back. `clean`: every byte of it reads as zero. */
HIDDEN void pages_free(struct run *run, bool clean);

/* Grows or shrinks a run in use where it lies; false when the neighbour is not free. New granules are arbitrary. */
HIDDEN bool pages_resize(struct run *run, size_t granules);

/* Rooms into which no run grew since before `tick` become free runs. Gives dirty free runs that became free before
 * `tick` back to the kernel, about `most` bytes: the largest first where all may go, else the oldest. `tick` is one of
 * the last three, or later. Each step finds its run at once, and the lock is released around the system calls. Returns
 * bytes given back. */
HIDDEN size_t pages_purge(uint64_t tick, size_t most);

/* Memory ahead of need (docs/decisions/0041). A thread that fills one run after the other notes the granules of each.
 * pages_growth_is_foreseen returns true if the heap is large, has grown, and has little free memory that is resident.
 * It takes no lock and may err. pages_populate then makes clean memory next to the frontier resident, on huge pages
 * where the system has them, and returns how many bytes. These count as dirty: what nobody takes is purged. */
#define AHEAD_LEAST_HEAP (64 * MiB)
#define AHEAD_SHARE      32 /* of what is in use, one heap in so many should be free and resident, */
#define AHEAD_MOST       (8 * MiB)
#define AHEAD_PIECE      (2 * MiB) /* up to a multiple of a huge page */
HIDDEN void pages_note_growth(size_t granules);
HIDDEN bool pages_growth_is_foreseen(void);
HIDDEN size_t pages_populate(void);

/* Limits, in bytes; SIZE_MAX: none. What is limited, `held`: granules in use or free and dirty, without what is absent,
 * and their share of the tables. Clean granules are taken, by pages_alloc and pages_resize, only within the hard limit;
 * at either limit both purge what is free first, and at the hard one they fail when nothing is. RUN_META is exempt. The
 * check is made under pages_lock, so threads do not pass it together: docs/decisions/0050. */
HIDDEN void pages_set_limits(size_t hard, size_t soft);
HIDDEN bool pages_limit_refuses(size_t bytes); /* the hard limit is why pages_alloc fails */

/* Memory of runs in use that went back is absent, until it is touched again, for which the caller asks first. */
HIDDEN void pages_count_absent(size_t bytes);
HIDDEN void pages_count_present(size_t bytes);
HIDDEN bool pages_may_be_present(size_t bytes);

/* Memory was asked for beyond the soft limit, or pages_press was called, since the last pages_relieve. This purges free
 * memory until the heap is a little below the soft limit, or all of it after pages_press. Returns bytes. */
HIDDEN void pages_press(void);
HIDDEN extern _Atomic unsigned pages_pressure; /* 0: none */
INLINE bool pages_is_pressed(void) { return atomic_load_explicit(&pages_pressure, memory_order_relaxed) != 0; }
HIDDEN size_t pages_relieve(void);
HIDDEN bool pages_is_far_beyond(void); /* the soft limit: by a part of 64 */

/* The scavenger's clock; a run that becomes free is stamped with it. */
HIDDEN void pages_set_tick(uint64_t tick);
HIDDEN size_t pages_free_dirty(void); /* no lock: a hint */

/* Returns true if pages may be moved into `run`, which then counts as having a mapping of its own. At most
 * MOVED_RUNS_MOST runs have one, so that the process keeps fewer than 64 mappings of ours. */
#define MOVED_RUNS_MOST 16
HIDDEN bool pages_may_move(struct run *run);

/* The hardened build's: the last granule of a run in use becomes its guard and is no part of it any more. Nobody can
 * touch it, nor the run's own pages from `used` bytes on. Where the kernel guards pages without mappings for them
 * (Linux 6.13; not under mlockall) there may be any number of guards; else each takes two mappings, so only GUARDS_MOST
 * at a time cannot be touched, and the others only keep runs apart. */
#define GUARDS_MOST 256
HIDDEN void pages_guard(struct run *run, size_t used);
/* Returns true if a run should have one: not under RLIMIT_AS; not under RLIMIT_DATA, where the kernel may refuse to
 * make pages writable again that the run's next user needs; and for runs of which there are `many` not where it takes
 * mappings, as far as is known. */
HIDDEN bool pages_wants_guard(bool many);

/* The guard behind the run, which has one, is an ordinary granule of it again; or, if it has one, free. Where the
 * kernel refuses, it stays, for good: pages_unguard then says false. */
HIDDEN bool pages_has_guard(const struct run *run);
HIDDEN bool pages_unguard(struct run *run);
HIDDEN void pages_free_guard(struct run *run);

/* In a fork child whose parent's thread held pages_lock or another, so that these tables or what leads to them may be
 * half written: whatever lies below the frontier now stays as it is for ever. Its free runs serve nobody, and its runs
 * in use are never free. Returns how many bytes lie below. */
HIDDEN size_t pages_freeze(void);
HIDDEN bool pages_is_frozen(const struct run *run);

/* All runs that are not frozen, free or in use, in the order of their addresses; while no other thread runs. NULL after
 * the last. */
HIDDEN struct run *pages_first_run(void);
HIDDEN struct run *pages_next_run(struct run *run);

/* The longest run that could ever be had, in bytes. */
HIDDEN size_t pages_most(void);

/* Makes the run's chunk bits writable; they read as zero unless it was a chunk before that did not clear them. False
 * without memory. */
#define CHUNK_STARTS_BYTES 512
#define CHUNK_FREED_BYTES  1024
HIDDEN bool pages_reach_chunk_bits(const struct run *run);

/* The same for the descriptors of its quarters. */
HIDDEN bool pages_reach_quarters(const struct run *run);

/* Neighbouring runs in use, in the order of their addresses, become one, the first; `granules` in all. */
HIDDEN void pages_join(struct run *first, size_t granules);

HIDDEN struct pages_totals pages_totals(void);
HIDDEN void pages_count_purge(size_t bytes, bool done);
HIDDEN void pages_check(void);

INLINE pagemap_entry *pages_pagemap(void) { return (pagemap_entry *)(void *)(pages.base + PAGEMAP_OFFSET); }
INLINE size_t granule_of(const void *p) { return ((uintptr_t)p - (uintptr_t)pages.base) >> GRANULE_SHIFT; }
INLINE size_t run_index(const struct run *run) { return (size_t)(run - pages.runs); }
INLINE char *run_start(const struct run *run) { return pages.base + (run_index(run) << GRANULE_SHIFT); }
INLINE bool run_is_quarter(const struct run *run) { return run->granules == 0; }
INLINE size_t run_bytes(const struct run *run) {
  return LIKELY(run->granules != 0) ? (size_t)run->granules << GRANULE_SHIFT : QUARTER;
}

/* The granule of a quarter, and which of the four it is. */
INLINE size_t quarter_granule(const struct run *quarter) {
  return (run_index(quarter) - pages.first_quarter) / QUARTERS;
}
INLINE unsigned quarter_number(const struct run *quarter) {
  return (unsigned)((run_index(quarter) - pages.first_quarter) % QUARTERS);
}
INLINE struct run *quarter_at(size_t granule, unsigned number) {
  return pages.runs + pages.first_quarter + granule * QUARTERS + number;
}
/* The one that p lies in, which is a granule that is split. */
INLINE struct run *quarter_of(const void *p) {
  return quarter_at(granule_of(p), (unsigned)((uintptr_t)p / QUARTER % QUARTERS));
}

/* The run or quarter that p lies in, or NULL when p is not below the frontier. Walks back over the granules of a large
 * run: for slabs that is three steps at most. */
HIDDEN struct run *pages_run_of(const void *p);

/* The same where p lies in a run that is in use; but of a granule that is split, the run. */
INLINE struct run *pages_run_holding(const void *p) {
  struct run *run = pages.runs + granule_of(p);
  while (run->kind == RUN_NONE) run--;
  return run;
}

#endif
