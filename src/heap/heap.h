/* heap: the part of an epoch that one thread holds.                                                 floor: heap
 *
 *   hot, read or written by every malloc and free             cold, under `lock`
 *   [ list[52] | count[52] | bump ]                           [ bins[52]: slabs, magazines, counters ]: store
 *
 * For each class a heap keeps a LIFO of free blocks, `list`, so that malloc returns the block that was freed last. A
 * full list becomes a magazine, in O(1); an empty list takes a magazine back. Blocks that do not fit into the magazines
 * go to the slabs. A free reads pagemap[granule]: the address of the heap that owns the slab, with the class in its low
 * bits. Xored with the address of the thread's heap it is the class, or a number larger than any class. So one compare
 * decides owner and epoch.
 *
 * `now` holds the list's exact length in its low half. Its high half is the room: how many more frees may come before
 * one must visit the slow path. `then` is the value that the last visit left. Between two visits
 *     frees = room(then) - room(now),   mallocs = length(then) + frees - length(now),
 * so the visits, and a reader at any time, count every call without an instruction on the fast path.
 *
 * Invariant: length(now) blocks on list; every block of list and magazines is used as its slab counts. heap_check()
 * Threads:   the hot arrays, caps, counters and visits belong to the thread whose current heap this is; slabs and
 *            magazines are under `lock`, which others take to relist a slab, to trim and to read.
 * A dead thread's heap of epoch 0 waits in the pool, with its slabs, for the next thread. A heap of another epoch waits
 * with that epoch, and becomes blank at its end.
 *
 * The scavenger folds a heap that waits in the pool: it returns the lists to their slabs, moves the slabs with free
 * blocks or unlinked units to `common_heap`, where every thread finds them, and adds the heap's counters to those of
 * `common_heap`. A folded heap holds only slabs in which every block is in use. No walk meets it any more:
 *
 *   live -> (its thread ends) pooled -> (the scavenger's next look) folded -> (a thread is born) live
 *
 * `folded` changes under heaps_lock, the heap's lock and common_heap.lock. While it is set, common_heap.lock protects
 * the heap in place of the heap's own lock, so that fork takes one lock for all folded heaps. */
#ifndef TSLAB_HEAP_HEAP_H
#define TSLAB_HEAP_HEAP_H

#include "heap/counters.h"
#include "os/lock.h"
#include "slab/chunk.h"
#include "slab/slab.h"

/* The cap of a list is how many blocks it may hold. The cap doubles, from FIRST to FULL, while its thread both
 * allocates and frees in the class, or wants blocks back for which the list was too short. All caps of the heap
 * together stay within options.list_bytes, the most that an idle thread can hide. While a thread only frees, each visit
 * halves the cap down to DRAIN, or to DRAIN_MOST while many blocks are in use, because each block that stays on the
 * list pins a page; a refill ends that. Blocks beyond the cap go to the magazines, or to the slabs if the thread goes
 * on freeing: docs/decisions/0018, 0020, 0074. */
#define LIST_FIRST_BYTES (4 * KiB)
#define LIST_FIRST       32
#define LIST_FULL_BYTES (192 * KiB)
#define LIST_FULL_LEAST  16   /* at least: a handful of buffers */
#define LIST_MOST        1500 /* then fewer than one free in a thousand visits, so p99.9 is the fast path's */
#define LIST_EARNED      16   /* a cap never grows beyond this part of the mallocs that its class served */
#define LIST_DRAIN_BYTES (16 * KiB)
#define LIST_DRAIN       12
#define LIST_DRAIN_MOST  36  /* one for each LIST_DRAIN_EACH blocks in use, */
#define LIST_DRAIN_EACH  256
#define LIST_DRAIN_SHARE 4  /* of the blocks in use, a quarter and one are the most that such a list holds */
#define IDLE_VISITS      1024 /* a class that did not visit during so many visits of others may have to give up a part
                               * of its cap */

/* Remote frees are batched so that one compare-and-swap returns several blocks. A batch is complete when its blocks
 * cost REMOTE_BYTES; a block costs its size, or a cache line if that is more: docs/decisions/0026. */
#define REMOTE_BYTES (16 * KiB)
#define REMOTE_CLASS 3 /* the first class whose blocks are at least a cache line */
#define REMOTE_MOST  256 /* a batch never has more blocks */

#define LENGTH_BITS 16
#define ROOM_ONE    ((uint32_t)1 << LENGTH_BITS)

struct count {
  uint32_t now, then;
} ALIGNED(sizeof(uint64_t));

/* Reads a count by the heap's own thread. Two atomic loads keep compilers from joining the halves. A processor does not
 * forward a store of one half to a load of both halves: such a load waits for all stores before it, even those to cold
 * blocks. */
INLINE struct count count_look(const struct count *count) {
  return (struct count){.now = __atomic_load_n(&count->now, __ATOMIC_RELAXED),
                        .then = __atomic_load_n(&count->then, __ATOMIC_RELAXED)};
}

INLINE uint32_t count_of(unsigned room, unsigned length) { return room << LENGTH_BITS | length; }
INLINE unsigned count_length(uint32_t count) { return count & (ROOM_ONE - 1); }
INLINE unsigned count_room(uint32_t count) { return count >> LENGTH_BITS; }

/* Returns the calls between two values of a count. It uses only their difference, so both may have changed by the same
 * amount. */
struct passed {
  unsigned mallocs, frees;
};
INLINE struct passed count_passed(uint32_t then, uint32_t now) {
  int32_t shorter = (int16_t)(then - now); /* a list is far shorter than 2^15 */
  unsigned frees = (then - now - (uint32_t)shorter) >> LENGTH_BITS;
  return (struct passed){frees + (unsigned)shorter, frees};
}

/* Returns true if mallocs passed until the list had no room left: count_passed for such a list, in half the
 * instructions. */
INLINE bool count_has_mallocs(struct count full) {
  return full.now != count_room(full.then) + count_length(full.then);
}

/* Blocks of one class that left a list together. An index names a magazine; 0 = none. */
struct magazine {
  void *head;
  uint16_t count, newer, older;
  uint16_t class;
};
#define MAGAZINES 252 /* as many as leave a thread's heap eight pages: heap/registry.c */

struct bin {
  uint64_t allocations, frees; /* until the last visit */
  uint64_t remote_frees;       /* by this thread, of blocks that another heap owns, without those that it kept */
  uint64_t kept_frees;         /* by this thread, of such blocks that went onto its own list; `frees` has these, too */
  uint64_t refills, overflows;
  uint64_t last_visit; /* heap->visits then */
  uint32_t first, last; /* slabs with free blocks or unlinked units; those with only unlinked units last */
  uint32_t listed, slabs, born, retired;
  uint32_t magazine_blocks;
  uint32_t drained; /* blocks that passed the magazines since a refill, or since a full list from which mallocs took */
  uint16_t newest, oldest; /* magazines */
  uint16_t cap;            /* the most blocks that the list should have; 0 until the class is used */
  uint8_t halvings;        /* how often the cap is halved now */
  uint8_t due;             /* samples to take soon, without the one for which the list is detached */
  int32_t countdown;       /* mallocs that the list serves until one more sample is due */
};

/* Returns how many blocks of the class `bytes` hold, at least one and at most `most`. */
INLINE unsigned blocks_in(unsigned class, size_t bytes, unsigned most) {
  return (unsigned)min_size(max_size(bytes / class_size(class), 1), most);
}

#define TIMED 16

/* A malloc that was timed, in ticks. */
struct timed {
  uint64_t start;
  uint32_t ticks;
  uint16_t requested, usable;
};

/* The numbers that a change overwrites: of a class's list, of the chunks (UNDO_CHUNKS), or none that a fork could tear
 * (UNDO_NOTHING). In a fork child the thread that was changing them may not exist; the child then restores them. */
struct undo {
  uint64_t was[4];
  struct count count;
  uint32_t class;
};
#define UNDO_CHUNKS  CLASSES
#define UNDO_NOTHING (CLASSES + 1)

/* A class's list may be detached for a moment, so that the next malloc finds an empty list and a slow path times it
 * (heap/sample.h). The timings wait here until a visit counts them, TIMED at a time: the timed call should not wait for
 * that, and to count one alone would fetch all the cache lines for one. */
struct sampling {
  void *detached; /* NULL: none */
  uint8_t class;
  bool urgent;          /* more samples of the class are due, or the heap is an epoch's: the timed call sees to it */
  uint8_t timings;      /* entries in `timed` */
  uint8_t held;         /* frees in a row that visited because the list is held */
  uint16_t denied;      /* how often other classes wanted their turn since */
  uint32_t gone;        /* the part of the class's count that left with the list */
  uint32_t sequence;    /* heap/tcache.h */
  uint64_t random;      /* heap/sample.c; 0: not seeded yet */
};

/* Runs of large blocks that the thread freed: heap/large_cache.h. */
#define LARGE_CACHE_BYTES  (1 * MiB)
#define LARGE_CACHE_RUNS   (LARGE_CACHE_BYTES / GRANULE)
#define LARGE_CACHES_BYTES (16 * MiB) /* about: the sum over all heaps of the most that each kept lately */
struct large_cache {
  uint32_t granules;               /* of all runs; also read without the lock */
  uint32_t most;                   /* the most granules, and */
  uint16_t count, least;           /* runs, and the fewest runs, since the scavenger's last look */
  uint32_t runs[LARGE_CACHE_RUNS]; /* the newest last */
};

/* Chunks that a thread keeps between two epochs: heap/chunk_cache.h. */
struct chunk_list {
  uint32_t newest, oldest; /* runs, linked through next and previous */
  uint32_t count, least;   /* chunks, and the fewest since the scavenger's last look */
};
struct chunk_cache {
  struct chunk_list whole, quarters;
  _Atomic uint32_t attached; /* heaps of epochs that serve the thread now: heap/bump.h */
  uint32_t claimed;        /* granules of the reserve that the chunks claim */
  uint32_t epoch_granules;          /* granules that the thread's cached epoch claims, */
  uint32_t cached_epoch;       /* and that epoch's index; 0: none */
  uint64_t cached_seen;     /* that epoch's id at the scavenger's last look, if it was open */
};

/* Counts the blocks in `remote_blocks`: blocks of other heaps that this heap's thread freed, and that wait to go to
 * their slabs together. Their lines are in another processor's cache, so no code reads a block until the batch is
 * complete. Only the heap's thread uses this. */
struct remote {
  int32_t room; /* bytes that blocks may still cost; 0 in an epoch's heap, whose end must not wait */
  uint32_t count;
};
_Static_assert(REMOTE_MOST * CACHE_LINE >= REMOTE_BYTES, "a complete batch has room");

/* Freed blocks that wait before they serve again, in the hardened build: heap/quarantine.h. */
#define QUARANTINE_MOST 1024
struct quarantine {
  uint32_t first, count; /* of blocks */
  size_t bytes;
  uint16_t own[CLASSES];
  uintptr_t blocks[QUARANTINE_MOST]; /* addresses; 1 more for one that goes to another heap's slab */
} ALIGNED(CACHE_LINE);
HIDDEN extern const struct quarantine no_quarantine; /* of a heap without a store */

/* The sample that a class has drawn for the heap profile, and the cut of its list: heap/cut.h. */
struct draw {
  void *marked;      /* the block at which a malloc visits the slow path; NULL: none */
  uint32_t below;    /* blocks of the list from the marked one on */
  uint32_t withheld; /* room that the list has and the count withholds */
  uint32_t due;      /* the sample is the malloc after so many: the low half of what bin.allocations counts */
  uint32_t interval; /* the profile's interval when this was drawn; 0: nothing is drawn */
};

/* Leads the scavenger to a heap. A notice keeps its memory even if the heap loses its own. */
struct notice {
  struct heap *_Atomic heap; /* of an epoch's store: the heap that has it, or NULL */
  struct notice *next;
  atomic_bool is_given;
};

/* A heap gets a store when its first list is filled (heap/store.h). A heap that only fills chunks, like that of most
 * requests, never gets one. */
struct heap_store {
  struct stored *stored; /* of an epoch's heap: the store's entry in the list */
  struct notice *notice;
  uint32_t restless_slabs;  /* listed slabs that the scavenger must look at again; only the scavenger uses it */
  uint32_t unlisted_slabs;  /* slabs that a thread took off their list to give pages back; the lock protects it */
  uint32_t flushed_round;   /* pages_round() when its thread last emptied its lists at the hard limit */
  uint64_t inherited;       /* a bit for each class with a list of the parent's thread: heap/inherited.h */
  struct bin bins[CLASSES];
  struct large_cache large;
  struct chunk_cache chunks;
  struct timed timed[TIMED]; /* the first sampling.timings are used */
  uint64_t first_use_bytes;  /* bytes of blocks that left a slab for the first time since their pages were untouched */
  struct remote remote;
  struct magazine magazines[MAGAZINES];    /* behind the rest: most are unused and not resident */
  void *remote_blocks[REMOTE_MOST]; /* most threads touch none of these */
  struct draw draws[CLASSES];       /* no thread touches these without a heap profile */
} ALIGNED(CACHE_LINE);
HIDDEN extern const struct bin no_bin; /* the bins of a heap without a store */

/* Stores the block before the count, because a signal handler may fork in the middle of this, and its child reads all
 * counted blocks. */
INLINE void store_add_remote(struct heap_store *store, void *block) {
  store->remote_blocks[store->remote.count] = block;
  __atomic_store_n(&store->remote.count, store->remote.count + 1, __ATOMIC_RELEASE);
}

#define HEAP_ALIGNMENT CACHE_LINE

HIDDEN extern struct lock heaps_lock;

/* An open epoch has one of these for each thread that was inside, so its size matters. */
struct heap {
  void *list[CLASSES]; /* the first field: an element's address then needs no addition */
  struct count count[CLASSES];
  struct sampling sampling;
  struct heap *next_of_epoch; /* heaps of an epoch; the epoch's lock */
  struct counters *counters;  /* of its thread; of a heap that serves nobody, of the last one */

  /* One line holds all that a thread touches of the heap that enters the epoch, allocates a block, frees it and leaves:
   * a thread may go round thousands of epochs. */
  struct arena *arena ALIGNED(CACHE_LINE); /* NULL: epoch 0. Changes only while no thread has the heap and it owns no
                                            * slab */
  struct bump { /* heap/bump.h; of an epoch's heap; its thread's alone, but for `end` and `entered` */
    char *at, *end;          /* the next block, and where blocks end */
    uintptr_t starts;        /* the current chunk's start bits: heap/bump.h */
    uintptr_t last;          /* the block that ends at `at`, or 1 more than where the last one was taken back */
    struct run *chunk;       /* the current chunk */
    uint32_t count;          /* mallocs that the chunk served and that are not in `allocations` yet */
    uint32_t turns;          /* blocks that it takes back until it counts them; at least 1 */
    uint16_t gone;           /* its blocks that this thread freed and that are still there */
    uint16_t unwound;        /* `gone` when the block before one that was taken back was still in use */
    _Atomic uint32_t entered; /* how often the thread is inside the epoch: epoch/scope.h */

    char *start;             /* of the current chunk */
    uintptr_t freed;         /* the current chunk's freed bits: heap/bump.h */
    uint64_t allocations;    /* blocks handed out, ever, but for `count` */
    uint32_t given;          /* `turns` at first; the difference is what was taken back since */
    uint32_t bytes;          /* of the current chunk; 0: none */
    uint32_t interval;       /* of the profile when the point was drawn */
    uint16_t drawn;          /* the unit that a point of the heap profile lies in, plus 1; 0: none in the chunk */
    uint16_t kept;           /* units from the chunk's start whose blocks are not taken back: samples are among them */
    uint16_t reused;         /* how many blocks of this chunk it took back in scopes, up to BUMP_BUSY */
    uint8_t quarters;        /* chunks of a quarter that it filled, while it has not reused its memory */
    bool off : 1;            /* turned to slabs */
    bool armed : 1;          /* `end` is where the next block would start, for that one to be sampled */
  } bump;
  uint32_t index;
  struct thread *thread;      /* the thread that has it, or NULL */

  struct lock lock ALIGNED(CACHE_LINE);
  union {
    struct { /* of an epoch: */
      uint64_t before; /* tcache_handed_out() when it began to serve the epoch */
      uint64_t lost;   /* blocks that its lists had handed out before and other threads freed */
    };
    struct {
      struct heap *next_active, *previous_active; /* of a thread: in active_heaps; heaps_lock protects them */
    };
  };
  _Atomic uint32_t slab_granules; /* of all its slabs */
  struct heap *plain; /* its thread's heap of epoch 0, which has the thread's chunk cache; as `counters` */
  bool of_epochs; /* serves epochs, one after the other; otherwise threads, for epoch 0. Never changes */
  bool live;              /* a thread has it */
  bool closing;           /* its epoch is closing: it keeps no empty slab */
  uint8_t victim;         /* class whose cap shrinks next for another one */
  uint16_t free_magazine;    /* chain of unused magazines through `older` */
  uint16_t unused_magazine;  /* magazines from this index on were never used */
  bool pooled;            /* it waits for another thread; heaps_lock protects this */
  bool folded;           /* see the head of this file */
  uint32_t generation;    /* of the process when it was folded: fork does not take the locks of folded heaps */
  size_t magazine_bytes;
  size_t granted_bytes;   /* all caps */
  uint64_t visits, seen_visits; /* slow path calls until now and at the scavenger's last look */
  uint64_t served, freed;       /* mallocs and frees of all classes until their last visits */
  uint64_t opened;              /* classes that have a cap, one bit each */
  struct undo undo;
  struct heap *next_heap; /* every heap ever made; never changes once set */
  struct heap *next_dead; /* in the pool, or among a granule's blank heaps; heaps_lock protects it */
  struct heap_store *store; /* NULL: none yet */
  struct bin *bins;       /* the store's */
  struct magazine *magazines;
  struct quarantine *quarantine; /* heap/quarantine.h; only its thread uses it */
} ALIGNED(HEAP_ALIGNMENT);
_Static_assert(offsetof(struct heap, bump.start) == offsetof(struct heap, arena) + CACHE_LINE, "one line");
_Static_assert(sizeof(struct heap) <= 1280, "one block's data page, its heap and its chunk's tables: 2 KiB and a page");
_Static_assert(CLASSES <= 64, "a bit for each");
_Static_assert(CLASSES <= HEAP_ALIGNMENT, "a class fits into a part's low address bits");

/* Returns how many blocks of the class a list should hold that its thread only frees into: more while many are in use.
 * `used` is below 0 if the thread freed other threads' blocks. */
INLINE unsigned tcache_drained_cap(unsigned class, int64_t used) {
  int64_t most = used / LIST_DRAIN_EACH;
  most = most < LIST_DRAIN ? LIST_DRAIN : most > LIST_DRAIN_MOST ? LIST_DRAIN_MOST : most;
  return blocks_in(class, LIST_DRAIN_BYTES, (unsigned)most);
}

/* Returns how many blocks the list should hold at most now. A thread that frees the last blocks of a class keeps fewer
 * and fewer of them. */
INLINE unsigned tcache_cap(const struct heap *heap, unsigned class) {
  const struct bin *bin = &heap->bins[class];
  if (LIKELY(bin->halvings == 0)) return bin->cap;
  uint64_t used = bin->allocations - bin->frees; /* huge if the thread freed other threads' blocks */
  unsigned drained = tcache_drained_cap(class, (int64_t)used), halved = (unsigned)bin->cap >> bin->halvings;
  if (halved > drained) return halved;
  return (unsigned)min_size(min_size(bin->cap, drained), used / LIST_DRAIN_SHARE + 1);
}

INLINE bool heap_has_store(const struct heap *heap) {
  return __atomic_load_n(&heap->store, __ATOMIC_ACQUIRE) != NULL; /* pairs with store_give_to */
}

/* Thread: any, without the heap's lock. */
INLINE const struct bin *heap_bin(const struct heap *heap, unsigned class) {
  const struct heap_store *store = __atomic_load_n(&heap->store, __ATOMIC_ACQUIRE);
  return store ? &store->bins[class] : &no_bin;
}

/* The heap of slabs that belong to no thread. No thread allocates from it directly. A thread may take its lock while it
 * holds another heap's. */
HIDDEN extern struct heap common_heap;
HIDDEN extern bool common_begun; /* common_heap is in the list of active heaps; heaps_lock protects this */
HIDDEN extern uint32_t folded_slabs[CLASSES]; /* the full slabs of folded heaps; common_heap.lock protects it */

/* The heap of slabs that hold only samples of the heap profile (heap/profile.h). The pagemap names no owner for these
 * slabs, so that the free of each block takes a slow path. No thread allocates from this heap directly, and none adopts
 * its slabs. */
HIDDEN extern struct heap sampled_heap;

/* Placeholder for a thread without a heap: every list is empty and its address owns nothing, so every call takes the
 * slow path. */
HIDDEN extern struct heap empty_heap;

/* Returns true for a heap that never belongs to a thread. */
INLINE bool heap_is_nobodys(const struct heap *heap) { return heap == &common_heap || heap == &sampled_heap; }

/* All heaps of threads except common_heap, the newest first. The list only grows. */
HIDDEN extern struct heap *_Atomic all_heaps;
HIDDEN extern _Atomic uint32_t heaps_here; /* heaps of threads, ever, and heaps of epochs that have memory */

/* common_heap, sampled_heap and every heap of a thread that is not folded. A thread that walks the list holds walk_lock
 * or heaps_lock, because a heap leaves it under both. A thread takes walk_lock before heaps_lock. No malloc, free or
 * end of an epoch waits for walk_lock. */
HIDDEN extern struct heap *_Atomic active_heaps;
HIDDEN extern struct lock walk_lock;

/* Walk over those of active_heaps that serve threads, under the same locks. */
INLINE struct heap *heaps_of_threads_from(struct heap *heap) {
  while (heap && heap_is_nobodys(heap)) heap = heap->next_active;
  return heap;
}
INLINE struct heap *heaps_first_of_threads(void) {
  return heaps_of_threads_from(atomic_load_explicit(&active_heaps, memory_order_acquire));
}
INLINE struct heap *heaps_next_of_threads(const struct heap *heap) { return heaps_of_threads_from(heap->next_active); }

/* The list of notices of heaps that the scavenger looks at in its next round. Any thread adds to it. The scavenger
 * takes the list as a whole. */
HIDDEN extern struct notice *_Atomic notices;
HIDDEN void heap_notice_first(struct notice *notice);
/* Asks the scavenger to look at the heap. The caller made its change under the heap's lock and still holds that. The
 * scavenger clears `is_given` before it takes the lock, so it cannot miss the change. */
INLINE void heap_notice(struct heap *heap) {
  struct notice *notice = heap->store->notice;
  if (UNLIKELY(!atomic_load_explicit(&notice->is_given, memory_order_relaxed))) heap_notice_first(notice);
}

HIDDEN extern _Atomic unsigned unfolded_heaps; /* heaps of dead threads, in the pool and not folded */
HIDDEN extern struct heap *_Atomic last_dead_heap; /* a hint: the last heap that went to the pool, until it is folded */
HIDDEN extern _Atomic unsigned live_heaps; /* heaps that a thread has */
HIDDEN extern unsigned heaps_given_up;     /* heaps whose lists a fork child lost */

/* For a fork child: returns the current chunk of a heap whose thread may not exist there. Returns NULL if the thread
 * was just leaving the chunk, because the granule may serve something else by now. */
INLINE struct run *heap_chunk(const struct heap *heap) {
  struct run *chunk = heap->bump.chunk;
  bool has = chunk && chunk->kind == RUN_CHUNK && atomic_load_explicit(&chunk->heap, memory_order_relaxed) == heap;
  return has ? chunk : NULL;
}

/* The heap's own thread encloses a change of several numbers, which a reader must see as one, between begin and end: a
 * class's totals, its count and heap->served, or the numbers of the chunks. Stores of these numbers release, and loads
 * acquire. So a reader that sees a new number sees the odd sequence before it, and with that the numbers to undo. The
 * fast path changes some of these numbers by single plain stores. The fence at the end lets no reader see one of those,
 * or the next undo, before the change. */
INLINE void heap_begin_change(struct heap *heap, struct undo undo) {
  heap->undo = undo;
  __atomic_store_n(&heap->sampling.sequence, heap->sampling.sequence + 1, __ATOMIC_RELEASE);
}
INLINE void heap_begin_list_change(struct heap *heap, unsigned class) {
  const struct bin *bin = &heap->bins[class];
  struct undo undo = {.count = count_look(&heap->count[class]), .class = class};
  undo.was[0] = __atomic_load_n(&bin->allocations, __ATOMIC_RELAXED); /* one load each, as in count_look */
  undo.was[1] = __atomic_load_n(&bin->frees, __ATOMIC_RELAXED);
  undo.was[2] = heap->served;
  undo.was[3] = heap->freed;
  heap_begin_change(heap, undo);
}
INLINE void heap_begin_one_store(struct heap *heap) { /* for one store, whose partners only readers combine with it */
  heap->undo.class = UNDO_NOTHING;
  __atomic_store_n(&heap->sampling.sequence, heap->sampling.sequence + 1, __ATOMIC_RELEASE);
}
INLINE void heap_begin_chunk_change(struct heap *heap) {
  const struct bump *bump = &heap->bump;
  heap_begin_change(heap, (struct undo){{bump->allocations, bump->count, bump->given, 0}, {0, 0}, UNDO_CHUNKS});
}
/* In the child of a signal handler that forked, the sequence may be even already. */
INLINE void heap_end_change(struct heap *heap) {
  __atomic_store_n(&heap->sampling.sequence, (heap->sampling.sequence | 1) + 1, __ATOMIC_RELEASE); /* even at the end */
  FENCE_STORES();
}
INLINE uint32_t heap_begin_look(const struct heap *heap) {
  return __atomic_load_n(&heap->sampling.sequence, __ATOMIC_ACQUIRE);
}
/* Returns true if nothing changed since heap_begin_look, so that the numbers that the caller loaded, with acquire, fit
 * together. */
INLINE bool heap_end_look(const struct heap *heap, uint32_t begun) {
  return begun % 2 == 0 && __atomic_load_n(&heap->sampling.sequence, __ATOMIC_RELAXED) == begun;
}
/* A reader calls this after a look that failed. In a fork child the thread that makes the change may not exist.
 * Otherwise it may have a lower priority than the reader and wait for its processor, so a reader rests after many
 * looks. */
HIDDEN COLD void heap_look_again(unsigned *looks);

/* Returns how many blocks the heap handed out in chunks. Thread: any. */
INLINE uint64_t heap_bumped(const struct heap *heap) {
  for (unsigned looks = 0;; heap_look_again(&looks)) {
    uint32_t begun = heap_begin_look(heap);
    uint64_t bumped = __atomic_load_n(&heap->bump.allocations, __ATOMIC_ACQUIRE) +
                      __atomic_load_n(&heap->bump.count, __ATOMIC_ACQUIRE);
    if (heap_end_look(heap, begun)) return bumped;
  }
}

/* Returns how many blocks of the class's list wait in quarantine. */
INLINE unsigned quarantine_of(const struct heap *heap, unsigned class) {
  return TSLAB_HARDENED ? heap->quarantine->own[class] : 0;
}

/* Returns how many blocks are on the class's list: its count without those in quarantine. */
INLINE unsigned tcache_length(const struct heap *heap, unsigned class) {
  return count_length(heap->count[class].now) - quarantine_of(heap, class);
}

INLINE bool heap_has_slabs(const struct heap *heap) {
  return atomic_load_explicit(&heap->slab_granules, memory_order_relaxed) != 0;
}

/* Returns the lock that protects the heap now. */
INLINE struct lock *heap_guard(struct heap *heap) {
  return UNLIKELY(LOAD_RACING(heap->folded)) ? &common_heap.lock : &heap->lock;
}
/* Takes the lock that protects the heap, and returns it. */
HIDDEN struct lock *heap_lock(struct heap *heap);

/* The heap from which the running thread allocates. Only a pointer lies in static TLS, 8 bytes, so that dlopen finds
 * room for it. */
extern HIDDEN __thread struct heap *current_heap __attribute__((tls_model("initial-exec")));

/* Returns the running thread's counters. */
INLINE struct counters *counters_here(void) { return current_heap->counters; }

/* Notes the frame of the public function that runs: its caller is where stacks of the heap profile begin. A thread that
 * uses shared_counters has no place to note it. */
INLINE void counters_note_caller(const void *frame) {
  if (LIKELY(counters_here() != &shared_counters)) counters_here()->caller = frame;
}

/* The running thread's struct of epoch/scope.h; NULL before it has a heap. It lies on this floor because a fork child
 * compares it with the threads of heaps. */
extern HIDDEN __thread struct thread *current_thread __attribute__((tls_model("initial-exec")));

/* heap_begin_lists empties the lists of a new heap; heap_init sets the rest of a heap whose memory is zero. Caller
 * holds heaps_lock. */
HIDDEN void heap_begin_lists(struct heap *heap);
HIDDEN void heap_init(struct heap *heap, bool of_epochs);

/* How a free by a fast path ended: heap/fast.h and heap/remote.h say what each means there. */
enum fast_free { FREED, UNCLEAR, NOT_HERE, LIST_FULL, NOT_A_BLOCK };

INLINE pagemap_entry heap_entry(const struct heap *heap, unsigned class) { return (uintptr_t)heap | class; }
INLINE unsigned entry_class(pagemap_entry entry) { return entry % HEAP_ALIGNMENT; }
INLINE const struct heap *entry_heap(pagemap_entry entry) { return (const void *)(entry - entry_class(entry)); }

/* Returns the class if the heap owns the granule of this entry, otherwise CLASSES or more. */
INLINE uintptr_t heap_class_of(const struct heap *heap, pagemap_entry h) { return h ^ (uintptr_t)heap; }

#endif
