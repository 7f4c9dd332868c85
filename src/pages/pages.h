/* pages: takes address space, hands out runs of granules, finds a pointer's run.                    floor: pages
 *
 *                                                        base                             frontier         reserved
 *   [ runs ........ | quarters ...... | chunk bits ..... | dirty bits ... | page | owners ..... | run | free run ... ]
 *     64 B a granule  256 B a granule   1.5 KiB a granule  1 bit a granule          8 B a granule
 *
 * A granule is 64 KiB; granule g lies at base + (g << 16), the pagemap included. pagemap[g] names the heap whose list
 * takes a freed block of granule g (see heap/heap.h); 0: no heap's. runs[g] describes the run that starts at g. The
 * chunk bits belong to slab/chunk.h. The first chunk that needs a page of them makes that page writable. A granule of
 * kind RUN_SPLIT is lent in quarters, and each quarter has a descriptor of its own (slab/quarter.h). These descriptors
 * lie right behind the runs, so that one 32-bit index leads to either.
 *
 * Invariant: kind != 0 only at the first granule of a run; the last granule of a free or unmapped run points back to
 * its first; no two free runs touch, nor two unmapped ones; a granule whose dirty bit is clear reads as zero, is in
 * use, or is unmapped.                                                                             pages_check()
 * Threads: pages_lock protects everything but the owners (one relaxed store; every free reads them), pages.count (it
 * only grows, by a release store), and the descriptor of a run in use, which belongs to the caller that took the run.
 * docs/decisions/0002 says why there is one reservation. */
#ifndef TSLAB_PAGES_PAGES_H
#define TSLAB_PAGES_PAGES_H

#include "base/bits.h"
#include "os/lock.h"

#define GRANULE_SHIFT 16
#define GRANULE ((size_t)1 << GRANULE_SHIFT)
#define PAGEMAP_OFFSET ((size_t)4096) /* the page at base holds the other tables that malloc reads: slab/classes.h */

#define QUARTERS 4 /* of a granule */
#define QUARTER  (GRANULE / QUARTERS)

struct heap;
typedef uintptr_t pagemap_entry; /* a heap's address and a size class: heap/heap.h */

enum run_kind {
  RUN_NONE, RUN_FREE, RUN_SLAB, RUN_LARGE, RUN_CHUNK, RUN_RESERVED, RUN_TRAP, RUN_META, RUN_SPLIT,
  RUN_GUARDED, /* the pool of heap/guard.h */
  RUN_UNMAPPED, /* free, but its addresses went back to the kernel: pages_unmap_free */
  RUN_BUSY      /* free, but in use for other threads: one purges it, or makes it resident, just now */
};

/* 64 bytes, so that one run touches one line. */
struct run {
  _Atomic uint64_t word;       /* slab: its free list, see slab/slab.h; chunk: its live blocks, see slab/chunk.h */
  struct heap *_Atomic heap;   /* slab, chunk: the heap that owns it; written under that heap's lock */
  union {
    uint64_t unlinked; /* slab: units whose blocks are on no list yet; the heap's lock protects it */
    uint64_t gone;     /* chunk: blocks freed by its heap's thread before it was sealed */
    size_t apart;      /* large block: how many granules at its start have a mapping of their own */
    struct {
      uint32_t younger, older; /* dirty free run: neighbours in the ring of its age */
    };
  };
  union {
    uint64_t seen; /* free run: the tick at which it became dirty; slab: see heap/bins.c */
    size_t size;   /* large block: usable bytes; chunk: bytes handed out until it was sealed; guard: see pages.c */
  };
  uint32_t next, previous; /* neighbours in the list that holds it, by granule; 0 = none; chunk: see heap/bump.c */
  uint32_t granules; /* 0: a quarter of one */
  union {
    uint32_t back;              /* last granule of a free run: distance to its first */
    uint32_t previous_of_epoch; /* run in use of an epoch: neighbour in heap/arena.h's list */
  };
  union {
    uint32_t dirty;         /* free run: how many of its granules are dirty */
    uint32_t next_of_epoch; /* run in use of an epoch */
  };
  uint32_t epoch;     /* index of its arena, or SPLIT_EPOCH; never changes while the run is in use */
  uint16_t capacity;  /* slab, sealed chunk: blocks; large block: 1 if it is a sample of the heap profile */
  uint16_t threshold; /* slab: free blocks that make it worth listing; chunk: pages given back, one bit each; split:
                         quarters that are free, one bit each */
  uint8_t kind;       /* enum run_kind */
  uint8_t class;      /* slab: size class; chunk: CHUNK_HAS_GAPS or 0; RUN_META: enum guard; split: quarters that
                         may be resident, one bit each */
  uint8_t was;        /* the last use, for the message about a late free: class + 1, or LARGE_WAS, CHUNK_WAS */
  uint8_t moved;      /* large block: `apart` counts; slab: enum slab_memory; chunk: has samples of the heap profile */
};
_Static_assert(sizeof(struct run) == CACHE_LINE, "one run, one line");

#define LARGE_WAS UINT8_MAX
#define CHUNK_WAS (UINT8_MAX - 1)
#define SPLIT_EPOCH (UINT32_MAX - 1) /* no arena's index: each quarter has its own */

/* The key of free blocks (slab/slab.h) is the address this far below base. No pointer, size or end of a mapping has
 * such a value. malloc and free reach the tables from there, so they need no instruction to compute the key. Counted
 * from there, an address on a multiple of 8 lies in the same granule as counted from base. */
#define KEY_BELOW_BASE 7

/* Every free reads this, and it changes only when the frontier moves. So it has a cache line of its own. */
struct pages {
  uintptr_t key;
  char *base;
  /* The number of granules below the frontier. A pointer to a granule beyond it is foreign. The fast path reads this by
   * a plain load, which folds into the compare; all other accesses use __atomic builtins. */
  size_t count;
  struct run *runs;
  size_t first_quarter; /* the index of granule 0's first quarter; that of granule g is QUARTERS * g higher */
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
  size_t looks; /* how many free runs were looked at to cut or to purge one; tests bound it */
};

/* Reserves address space; called once, before anything else here. Under RLIMIT_AS it reserves only what the start
 * needs, and the rest follows on demand. Returns false without address space. */
HIDDEN bool pages_start(void);

/* Unmaps the address space that is reserved and not writable yet, because RLIMIT_AS counts it. From then on the library
 * reserves on demand. So the limit holds for this heap, too, and the heap grows again after someone raises the limit.
 * The tables keep addresses for a heap of `limit` bytes, 72 for each granule. pages also does this by itself when the
 * kernel would map no further page, and keeps nothing then. Returns the number of bytes. */
HIDDEN size_t pages_trim_reservation(size_t limit);

/* Reserves these addresses of the tables again after a trim that kept less. */
HIDDEN void pages_reserve_tables(size_t limit);

/* Says where the memory came from, for callers that report why a call was slow. */
struct pages_how {
  bool ready;      /* the reserve had it ready */
  bool mapped;     /* the frontier moved */
  size_t moves_in; /* set by the caller: granules whose memory another run holds until os_move moves it here */
  bool wants_zero; /* set by the caller: the run is to read as zero */
  uint64_t waited; /* ticks, for locks */
};

/* Returns a run of `granules` that starts on a multiple of `alignment` (a power of two, at least GRANULE), or NULL
 * without memory. Its contents are arbitrary unless *zero, which how->wants_zero makes true. Then only memory that was
 * in use before is written, or purged if it is much. All its fields but kind, granules, was and back are zero.
 * Adds to *how, which may be NULL. */
HIDDEN struct run *pages_alloc(size_t granules, size_t alignment, enum run_kind kind, bool *zero,
                               struct pages_how *how);

/* Returns such a run at the start of a window: `window` granules (a power of two, at least `granules`) on a multiple of
 * their bytes. The rest of the window is the run's room. Only pages_resize takes memory from it, until the run has not
 * grown for a while or memory is short. Returns NULL if no window is free below the frontier and the frontier may not
 * move for one: much is free below it already, or address space is limited. */
HIDDEN struct run *pages_alloc_in_window(size_t granules, size_t window, enum run_kind kind, bool *zero);

/* Returns zeroed memory for the library's own use, which is never given back, or NULL without memory. pages_keep takes
 * granules of its own; pages_cut takes a piece of the granule that `from` remembers, which the caller protects by a
 * lock. */
struct cuttings {
  char *next, *end;
};
INLINE bool cuttings_fit(struct cuttings from, size_t bytes) {
  return from.next && from.end && (size_t)(from.end - from.next) >= bytes;
}
HIDDEN void *pages_keep(size_t bytes);
HIDDEN void *pages_cut(struct cuttings *from, size_t bytes); /* at most a granule */

/* Gives pages of the library's own memory back to the kernel. Returns false if it refuses; their contents then stay.
 * Otherwise they read as zero, and count as absent until the caller calls pages_count_present. */
HIDDEN bool pages_purge_own(void *at, size_t bytes);

/* Turns a run in use into one of another kind, with its fields as pages_alloc leaves them. The caller owns the run. */
HIDDEN void pages_reuse(struct run *run, enum run_kind kind);

/* Gives up a run in use for ever: its memory is not usable any more. */
HIDDEN void pages_lose(struct run *run);

/* Moves a run in use to a place where nothing is mapped, which becomes a run of `granules` with the same contents and
 * zeros behind them. So a limit of addresses or data needs to have room only for the difference. Returns NULL if it has
 * not, or if nothing is limited. */
HIDDEN struct run *pages_move_away(struct run *run, size_t granules);

/* Frees a run. `clean`: every byte of it reads as zero. */
HIDDEN void pages_free(struct run *run, bool clean);

/* Grows or shrinks a run in use in place. Returns false if the granules behind it are not free, or a limit refuses
 * them. The contents of new granules are arbitrary. */
HIDDEN bool pages_resize(struct run *run, size_t granules);

/* Gives dirty free runs that became free before `tick` back to the kernel, about `most` bytes: the oldest first, or the
 * largest first if `tick` lies in the future, so that all may go. Before that, it makes free runs of the rooms into
 * which no run grew since before `tick`. `tick` is one of the last three, or later. Each step finds its run without a
 * search, and no system call is made under the lock. Returns the bytes given back. */
HIDDEN size_t pages_purge(uint64_t tick, size_t most);

/* Purges all that is free, and unmaps the free runs of 1 MiB and more, because their addresses count in the kernel's
 * limits, and mlockall would make them resident. If no free run fits a request, a piece of an unmapped one is mapped
 * again. At each moment a run is either free or known as unmapped, so the call takes no memory from other threads. */
HIDDEN void pages_unmap_free(void);

/* Called when no free run fits `bytes`. If the kernel refuses more, it may do so by a limit, so this unmaps all free
 * runs. Returns false, and does nothing, if that cannot help. */
HIDDEN bool pages_make_room(size_t bytes);

/* Says that mapped memory counts, also if it is free: in a limit of `limit` bytes that stacks share, which may need the
 * room at once; or, if `limit` is SIZE_MAX, in a limit of data or in what the kernel promises to all processes
 * (vm.overcommit_memory 2). pages_count_locked says so of a limit on locked memory. pages_set_mapping_limit is for a
 * limit on addresses that rose, and calls pages_reserve_tables. pages_mapping_limit returns the least of them.
 * pages_unmap_clean unmaps what a purge left clean in runs of 1 MiB and more, unless mapped memory counts nowhere.
 * pages_newly_clean returns how many bytes became free and clean since the last unmapping, a hint. */
HIDDEN void pages_count_mapped(size_t limit);
HIDDEN void pages_count_locked(size_t limit);
HIDDEN size_t pages_newly_clean(void);
HIDDEN extern _Atomic bool pages_mapped_counts;
INLINE bool pages_counts_mapped(void) { return atomic_load_explicit(&pages_mapped_counts, memory_order_relaxed); }
HIDDEN size_t pages_mapping_limit(void);
HIDDEN void pages_set_mapping_limit(size_t limit);
HIDDEN void pages_unmap_clean(void);

/* Memory ahead of need (docs/decisions/0041, 0084). A thread that fills one run after the other notes the granules of
 * each, and less than 0 for each that it gives back. Each tick forgets half of what the heap has shrunk by.
 * pages_growth_is_foreseen returns true if the heap is large, has grown, and has little free memory that is resident.
 * It takes no lock and may err. If it still returns true, pages_populate makes clean memory next to the frontier
 * resident, on huge pages where the system has them, and returns the number of bytes. These count as dirty, so the
 * scavenger purges them if no thread takes them. A thread that gives all free memory back calls pages_forget_growth,
 * and lets no pages_populate run beside. */
#define AHEAD_LEAST_HEAP (64 * MiB)
#define AHEAD_SHARE      32 /* as a share of the memory in use, so much should be free and resident, */
#define AHEAD_MOST       (8 * MiB)
#define AHEAD_PIECE      (2 * MiB) /* pages_populate ends on a multiple of this, a huge page */
HIDDEN void pages_note_growth(ptrdiff_t granules);
HIDDEN bool pages_growth_is_foreseen(void);
HIDDEN void pages_forget_growth(void);
HIDDEN size_t pages_populate(void);

/* Limits, in bytes; SIZE_MAX: none. They bound `held`: the granules that are in use, or free and dirty, less what is
 * absent, and their share of the tables. At either limit, pages_alloc and pages_resize purge free memory before they
 * take clean granules. At the hard limit they fail if there is nothing to purge. RUN_META is exempt. The check holds
 * pages_lock, so two threads never pass it together: docs/decisions/0050. */
HIDDEN void pages_set_limits(size_t hard, size_t soft);
HIDDEN bool pages_limit_refuses(size_t bytes); /* true if the hard limit is why pages_alloc fails */

/* At the hard limit, a round over all heaps collects free memory before a call is refused, if enough came free since
 * the last round. At first that is nothing. A round that brings too little raises it to a granule, and each further one
 * doubles it, up to one part in LIMIT_REST of the limit. A round that brings enough halves it. So a program that lives
 * at its limit does not make a round for each call. From the first round on, slow paths count what they free.
 * pages_round() returns the number of rounds: a thread compares it to learn whether the last round saw its lists. */
#define LIMIT_REST 64
#define FREED_MUCH ((size_t)1 << 40) /* for a caller that does not know how much it freed */
HIDDEN extern _Atomic bool pages_counts_freed;
HIDDEN COLD void pages_count_freed(size_t bytes);
INLINE void pages_note_freed(size_t bytes) {
  if (UNLIKELY(atomic_load_explicit(&pages_counts_freed, memory_order_relaxed))) pages_count_freed(bytes);
}
HIDDEN bool pages_round_is_due(size_t bytes);
HIDDEN uint32_t pages_round(void);
HIDDEN void pages_begin_round(void);
HIDDEN void pages_end_round(size_t bytes);

/* Memory that runs in use gave back to the kernel is absent until someone touches it again. The caller asks by
 * pages_may_be_present, which purges free memory to make room, before it touches such memory. pages_would_exceed
 * returns true if so many bytes more would be beyond either limit. */
HIDDEN void pages_count_absent(size_t bytes);
HIDDEN void pages_count_present(size_t bytes);
HIDDEN bool pages_may_be_present(size_t bytes);
HIDDEN bool pages_would_exceed(size_t bytes);

/* pages_is_pressed returns true if a thread took memory beyond the soft limit, or called pages_press, since the last
 * pages_relieve. pages_relieve purges free memory until the heap is a little below the soft limit, or all of it after
 * pages_press, and returns the bytes. */
HIDDEN void pages_press(void);
HIDDEN extern _Atomic unsigned pages_pressure; /* 0: none */
INLINE bool pages_is_pressed(void) { return atomic_load_explicit(&pages_pressure, memory_order_relaxed) != 0; }
HIDDEN size_t pages_relieve(void);
HIDDEN bool pages_is_far_beyond(void); /* beyond the soft limit by a 64th of it */

/* Sets the scavenger's clock. A run that becomes free keeps the tick of that moment. */
HIDDEN void pages_set_tick(uint64_t tick);
HIDDEN size_t pages_free_dirty(void); /* takes no lock: a hint */

/* Returns true if pages may be moved into the first `bytes` of the run, which then count as having a mapping of their
 * own. At most MOVED_RUNS_MOST runs have one, each with two neighbours, of the 65,530 mappings that a process may
 * have. */
#define MOVED_RUNS_MOST 256
HIDDEN bool pages_may_move(struct run *run, size_t bytes);

/* For the hardened build: makes the last granule of a run in use its guard, which is no part of the run any more. A
 * touch of the guard faults, and so does one of the run's own pages from `used` bytes on. If the kernel guards pages
 * without mappings for them (Linux 6.13; not under mlockall), there may be any number of guards. Otherwise each guard
 * takes two mappings. Then at most GUARDS_MOST guards fault, and the others only keep runs apart. */
#define GUARDS_MOST 256
HIDDEN void pages_guard(struct run *run, size_t used);
/* Returns true if a run should have a guard. No run should under RLIMIT_AS, nor under RLIMIT_DATA, where the kernel may
 * refuse to make the pages writable again for the run's next user. Runs of which there are `many` should not if a guard
 * is known to take mappings. */
HIDDEN bool pages_wants_guard(bool many);

/* pages_unguard makes the guard behind a run an ordinary granule of the run again. pages_free_guard frees the guard, if
 * there is one. If the kernel refuses, the guard stays for good, and pages_unguard returns false. */
HIDDEN bool pages_has_guard(const struct run *run);
HIDDEN bool pages_unguard(struct run *run);
HIDDEN void pages_free_guard(struct run *run);

/* For a fork child whose parent held pages_lock or another lock at the fork, so that these tables, or data that leads
 * to them, may be half written. Everything below the frontier then stays as it is for ever: no free run there is taken,
 * and no run in use there is freed. Another thread may have been mapping addresses beyond it, so with `may_unmap` this
 * unmaps what is reserved and not writable. The caller passes false if this thread itself may be in the middle of a
 * change, because it goes on with what it mapped. Returns how many bytes lie below. */
HIDDEN size_t pages_freeze(bool may_unmap);
HIDDEN void pages_forget_purges(void); /* for every fork child: no other thread is purging */
HIDDEN bool pages_is_frozen(const struct run *run);

/* Walks over all runs that are not frozen, free or in use, by ascending address. No other thread may run meanwhile.
 * NULL after the last. */
HIDDEN struct run *pages_first_run(void);
HIDDEN struct run *pages_next_run(struct run *run);

/* Returns the machine's memory at the start of the process, and no more than pages_most. If a filter hid it, it counts
 * as large enough: pages_most. */
HIDDEN size_t pages_memory(void);

/* Returns the bytes of the longest run that pages_alloc could ever return. */
HIDDEN size_t pages_most(void);

/* Makes the run's chunk bits writable. They read as zero, unless an earlier chunk left them. Returns false without
 * memory. */
#define CHUNK_STARTS_BYTES 512
#define CHUNK_FREED_BYTES  1024
HIDDEN bool pages_reach_chunk_bits(const struct run *run);

/* Makes the descriptors of its quarters writable. Returns false without memory. */
HIDDEN bool pages_reach_quarters(const struct run *run);

/* Joins the neighbouring runs in use that fill `granules` from `first` on into that one run. */
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

/* Return the granule of a quarter, and which of the four it is. */
INLINE size_t quarter_granule(const struct run *quarter) {
  return (run_index(quarter) - pages.first_quarter) / QUARTERS;
}
INLINE unsigned quarter_number(const struct run *quarter) {
  return (unsigned)((run_index(quarter) - pages.first_quarter) % QUARTERS);
}
INLINE struct run *quarter_at(size_t granule, unsigned number) {
  return pages.runs + pages.first_quarter + granule * QUARTERS + number;
}
/* Returns the quarter that p lies in; p's granule is split. */
INLINE struct run *quarter_of(const void *p) {
  return quarter_at(granule_of(p), (unsigned)((uintptr_t)p / QUARTER % QUARTERS));
}

/* Returns the run or quarter that p lies in, or NULL if p is not below the frontier. It walks back over the granules of
 * a large run: for slabs at most three steps. */
HIDDEN struct run *pages_run_of(const void *p);

/* The same for a report. While another thread divides or joins free runs, pages_run_of may find a neighbour of theirs,
 * so this takes pages_lock, unless the caller holds a lock. has_no_block: p lies in free memory, or in memory that the
 * library took for itself since. `was` is then its last use, as in struct run; 0: none that is known. */
struct pages_found {
  struct run *run;
  bool has_no_block;
  uint8_t was;
};
HIDDEN struct pages_found pages_find_to_report(const void *p);

/* Returns the run in use that p lies in; of a split granule, the run and not the quarter. */
INLINE struct run *pages_run_holding(const void *p) {
  struct run *run = pages.runs + granule_of(p);
  while (run->kind == RUN_NONE) run--;
  return run;
}

#endif
