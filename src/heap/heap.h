/* heap: what one thread holds of one epoch.                                                         floor: heap
 *
 *   hot, read or written by every malloc and free             cold, under `lock`
 *   [ list[52] | count[52] | bump ]                           [ bins[52]: slabs, magazines, counters ]: store
 *
 * For each class a heap keeps a LIFO of free blocks, `list`, so that malloc hands back what was freed last. When it is
 * full it becomes a magazine, in O(1); when it is empty a magazine comes back. What does not fit in the
 * magazines goes to the slabs. A free looks up pagemap[granule], which is the address of the heap whose slab it is,
 * with the class in its low bits: xored with the thread's heap it is the class, or no class at all. That one compare
 * decides owner and epoch.
 *
 * `now` holds the list's exact length in its low half and in its high half how many more frees may come before one must
 * visit the slow path; `then` is what the last visit left. Between two visits
 *     frees = room(then) - room(now),   mallocs = length(then) + frees - length(now),
 * so the visits count every call, and a reader can at any time, without one instruction on the fast path.
 *
 * Invariant: length(now) blocks on list; every block of list and magazines is used as its slab counts. heap_check()
 * Threads:   the hot arrays, caps, counters and visits belong to the thread whose current heap this is; slabs and
 *            magazines are under `lock`, which others take to relist a slab, to trim and to read.
 * A dead thread's heap of epoch 0 waits in the pool, slabs and all, for the next thread; one of another epoch waits
 * with that epoch, and becomes blank with it.
 *
 * The scavenger folds a heap that waits in the pool: it returns the lists to their slabs, moves the slabs that have
 * something to give to `common_heap`, where every thread finds them, and adds the heap's counters to those of
 * `common_heap`. A folded heap holds nothing but slabs in which every block is in use. No walk meets it any more:
 *
 *   live -> (its thread ends) pooled -> (the scavenger's next look) folded -> (a thread is born) live
 *
 * `folded` changes under heaps_lock, the heap's lock and common_heap.lock. While it is set, common_heap.lock guards
 * the heap in place of the heap's own lock, so that fork takes one lock for all folded heaps. */
#ifndef TSLAB_HEAP_HEAP_H
#define TSLAB_HEAP_HEAP_H

#include "heap/arena.h"
#include "heap/counters.h"
#include "os/lock.h"
#include "slab/chunk.h"
#include "slab/slab.h"

/* The cap of a list is how many blocks it may hold. The cap doubles, from FIRST to FULL, while its thread both
 * allocates and frees in the class, or wants blocks back for which the list was too short. All caps of the heap
 * together stay within GRANTED_MOST: that is what an idle thread can hide. While a thread only frees, the cap is halved
 * down to DRAIN, because each block then left behind pins a page; a refill ends that. What is more goes to the
 * magazines, until more goes on coming: docs/decisions/0018, 0020. */
#define LIST_FIRST_BYTES (4 * KiB)
#define LIST_FIRST       32
#define LIST_FULL_BYTES (192 * KiB)
#define LIST_FULL_LEAST  16   /* at least, so that a handful of buffers is a list */
#define LIST_MOST        1500 /* so that fewer than one free in a thousand visits, and p99.9 is the fast path's */
#define LIST_DRAIN_BYTES (16 * KiB)
#define LIST_DRAIN       12
#define GRANTED_MOST     (2 * MiB)
#define IDLE_VISITS      1024 /* a class that did not visit while others did so often may be asked to give some back */

/* Remote frees are batched so that one compare-and-swap returns several blocks. A batch is complete when its blocks
 * cost REMOTE_BYTES; a block costs its size, or REMOTE_LEAST if that is more: docs/decisions/0026. */
#define REMOTE_BYTES (16 * KiB)
#define REMOTE_LEAST 64
#define REMOTE_MOST  256 /* so there are never more blocks */

#define LENGTH_BITS 16
#define ROOM_ONE    ((uint32_t)1 << LENGTH_BITS)

struct count {
  uint32_t now, then;
} ALIGNED(sizeof(uint64_t));

/* Reads the heap's own count, by its thread. Two atomic loads keep compilers from joining the halves: a processor does
 * not forward a store of one half to a load of both, which then waits for all stores before it, those to cold blocks
 * too. */
INLINE struct count count_look(const struct count *count) {
  return (struct count){.now = __atomic_load_n(&count->now, __ATOMIC_RELAXED),
                        .then = __atomic_load_n(&count->then, __ATOMIC_RELAXED)};
}

INLINE uint32_t count_of(unsigned room, unsigned length) { return room << LENGTH_BITS | length; }
INLINE unsigned count_length(uint32_t count) { return count & (ROOM_ONE - 1); }
INLINE unsigned count_room(uint32_t count) { return count >> LENGTH_BITS; }

/* The calls between two of these, from what they differ by: so each may have lost or gained the same as the other. */
struct passed {
  unsigned mallocs, frees;
};
INLINE struct passed count_passed(uint32_t then, uint32_t now) {
  int32_t shorter = (int16_t)(then - now); /* a list is far shorter than 2^15 */
  unsigned frees = (then - now - (uint32_t)shorter) >> LENGTH_BITS;
  return (struct passed){frees + (unsigned)shorter, frees};
}

/* Blocks of one class that left a list together. Named by index, 0 = none. */
struct magazine {
  void *head;
  uint16_t count, newer, older;
  uint16_t class;
};
#define MAGAZINES 256

struct bin {
  uint64_t allocations, frees; /* up to the last visit */
  uint64_t remote_frees;       /* by this thread, of blocks whose owner is elsewhere */
  uint64_t refills, overflows;
  uint64_t last_visit; /* heap->visits then */
  uint32_t first, last; /* slabs with something to give; those with only unlinked units last */
  uint32_t listed, slabs, born, retired;
  uint32_t magazine_blocks, magazine_least; /* the latter since the scavenger's last look */
  uint32_t drained; /* blocks that the magazines let pass since a refill, or a full list that was not only freed to */
  uint16_t newest, oldest; /* magazines */
  uint16_t cap;            /* blocks that the list should not exceed; 0 until the class is used */
  uint8_t halvings;        /* of that cap, for now */
  uint8_t due;             /* samples to be taken, as soon as may be; without the one that the list is detached for */
  int32_t countdown;       /* mallocs that the list serves until one more is */
};

/* Blocks of the class in `bytes`, at least one and at most `most`. */
INLINE unsigned blocks_in(unsigned class, size_t bytes, unsigned most) {
  return (unsigned)min_size(max_size(bytes / class_size(class), 1), most);
}

INLINE unsigned tcache_drained_cap(unsigned class) { return blocks_in(class, LIST_DRAIN_BYTES, LIST_DRAIN); }

/* Returns how many blocks the list should hold at most now. */
INLINE unsigned tcache_cap(const struct bin *bin, unsigned class) {
  if (LIKELY(bin->halvings == 0)) return bin->cap;
  return (unsigned)min_size(bin->cap, max_size((size_t)bin->cap >> bin->halvings, tcache_drained_cap(class)));
}

#define TIMED 16

/* A malloc that was timed, in ticks. */
struct timed {
  uint64_t start;
  uint32_t ticks;
  uint16_t requested, usable;
};

/* The numbers that a change is about to overwrite: of a class's list, of the chunks (UNDO_CHUNKS), or nothing that
 * could be torn. In a fork child the thread that was changing them may not be there; then these are put back. */
struct undo {
  uint64_t was[4];
  struct count count;
  uint32_t class;
};
#define UNDO_CHUNKS  CLASSES
#define UNDO_NOTHING (CLASSES + 1)

/* One class's list may be kept detached for a moment, so that the next malloc finds none and comes to be timed
 * (heap/sample.h). What was timed waits here for a visit of a slow path to be counted, TIMED at a time: the caller of
 * this malloc is not to wait for that, and counting one alone would be to fetch all that it takes for one. */
struct sampling {
  void *detached; /* NULL: none */
  uint8_t class;
  bool urgent;          /* more of its class is due, or it is an epoch's: the one who is timed looks after that */
  uint8_t timings;      /* of `timed` */
  uint8_t held;         /* frees in a row that came to visit because the list is held */
  uint16_t denied;      /* times that other classes wanted its turn since */
  uint32_t gone;        /* with it from the class's counts */
  uint32_t sequence;    /* heap/tcache.h */
  uint64_t random;      /* heap/sample.c; 0: not begun */
};

/* Runs of large blocks that the thread freed: heap/large_cache.h. */
#define LARGE_CACHE_BYTES  (1 * MiB)
#define LARGE_CACHE_RUNS   (LARGE_CACHE_BYTES / GRANULE)
#define LARGE_CACHES_BYTES (16 * MiB) /* about: of all heaps, the most that each kept since the scavenger's last look */
struct large_cache {
  uint32_t granules;               /* of all; read without the lock, too */
  uint32_t most;                   /* granules, and */
  uint16_t count, least;           /* runs, and how few there were, since the scavenger's last look */
  uint32_t runs[LARGE_CACHE_RUNS]; /* the newest last */
};

/* Chunks that a thread keeps between two epochs: heap/chunk_cache.h. */
struct chunk_list {
  uint32_t newest, oldest; /* chunks, by run, through next and previous */
  uint32_t count, least;   /* chunks, and how few there were since the scavenger's last look */
};
struct chunk_cache {
  struct chunk_list whole, quarters;
  _Atomic uint32_t attached; /* heaps of epochs that serve the thread now: heap/bump.h */
  uint32_t claimed;        /* granules of the reserve that are claimed for the chunks */
  uint32_t epoch_granules;          /* granules that are claimed for the thread's cached epoch, */
  uint32_t cached_epoch;       /* and which epoch that is, by index; 0: none */
  uint64_t cached_seen;     /* that epoch's id at the scavenger's last look, if it was open */
};

/* Blocks of other heaps that this heap's thread freed and that wait in `remote_blocks` to go to their slabs together.
 * Their lines are in another processor's cache, so nothing looks at a block until the batch is complete. Its thread's
 * alone. */
struct remote {
  int32_t room; /* bytes that blocks may still cost; 0 and no blocks in an epoch's heap, whose end must not wait */
  uint32_t count;
};
_Static_assert(REMOTE_MOST * REMOTE_LEAST >= REMOTE_BYTES, "a complete batch has room");

/* The sample that a class has drawn for the heap profile, and how its list is cut for that: heap/cut.h. */
struct draw {
  void *marked;      /* the block at which a malloc comes to visit; NULL: none */
  uint32_t below;    /* blocks of the list from there on */
  uint32_t withheld; /* frees that come to visit, though there is room for them */
  int32_t left;      /* mallocs from the last visit that counted until the sample */
  uint32_t interval; /* of the profile when this was drawn; 0: nothing is drawn */
};

/* Leads the scavenger to a heap. Its memory stays, whatever becomes of the heap's. */
struct notice {
  struct heap *_Atomic heap; /* of an epoch's store: whose it is; NULL: nobody's */
  struct notice *next;
  atomic_bool is_given;
};

/* A heap has one of these as soon as its first list is filled: heap/store.h. A heap that only fills chunks, as that of
 * most requests, never does. */
struct heap_store {
  struct stored *stored; /* of an epoch's heap: where it is listed */
  struct notice *notice;
  uint32_t restless_slabs;  /* listed slabs that the scavenger must look at again; the scavenger's */
  uint32_t unlisted_slabs;  /* taken off their list by a thread that gives back some of their pages; under the lock */
  struct bin bins[CLASSES];
  struct large_cache large;
  struct chunk_cache chunks;
  struct timed timed[TIMED]; /* sampling.timings of them */
  uint64_t first_use_bytes;  /* of blocks that left a slab for the first time since their pages were untouched */
  struct remote remote;
  struct magazine magazines[MAGAZINES];    /* behind the rest: few of them are used, so most of this is not resident */
  void *remote_blocks[REMOTE_MOST]; /* and most threads touch none of these */
  struct draw draws[CLASSES];       /* nor, without a heap profile, of these */
} ALIGNED(CACHE_LINE);
HIDDEN extern const struct bin no_bin; /* the bins of a heap without one */

/* The block comes first: a child that is born in a signal handler in the middle of this looks at all blocks. */
INLINE void store_add_remote(struct heap_store *store, void *block) {
  store->remote_blocks[store->remote.count] = block;
  __atomic_store_n(&store->remote.count, store->remote.count + 1, __ATOMIC_RELEASE);
}

#define HEAP_ALIGNMENT CACHE_LINE

HIDDEN extern struct lock heaps_lock;

/* An open epoch costs one of these for each thread that was inside, so its size counts. */
struct heap {
  void *list[CLASSES]; /* first: an element's address then needs no addition of its own */
  struct count count[CLASSES];
  struct sampling sampling;
  struct heap *next_of_epoch; /* heaps of an epoch; the epoch's lock */
  struct counters *counters;  /* of its thread; of a heap that serves nobody, of the last one */

  struct bump { /* heap/bump.h; of an epoch's heap; its thread's alone, but for `end` */
    char *at, *end, *start;  /* the next block, and the current chunk */
    uintptr_t starts, freed; /* the current chunk's bits: heap/bump.h */
    uintptr_t last;          /* the block that ends at `at`, or 1 more than where the last one was taken back */
    uint32_t count;          /* mallocs that the chunk served and that are not in `allocations` yet */
    uint32_t gone;           /* its blocks that this thread freed and that are still there */
    uint32_t turns;          /* blocks that it takes back until it counts them; at least 1 */
    uint32_t unwound;        /* `gone` when the block before one that was taken back was still in use */
    struct run *chunk;
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
  } bump ALIGNED(CACHE_LINE);
  _Atomic uint32_t entered;   /* how often the thread is inside the epoch: epoch/scope.h */
  uint32_t index;
  struct thread *thread;      /* whose it is while live; NULL for nobody's */
  struct arena *arena;  /* NULL: epoch 0. Changes only while no thread has the heap and no slab is its own */

  struct lock lock ALIGNED(CACHE_LINE);
  union {
    struct { /* of an epoch: */
      uint64_t before; /* tcache_handed_out() when it began to serve the epoch */
      uint64_t lost;   /* what its lists handed out and others freed, before it began to */
    };
    struct {
      struct heap *next_active, *previous_active; /* of a thread: active_heaps; under heaps_lock */
    };
  };
  _Atomic uint32_t slab_granules; /* of all its slabs */
  struct heap *plain; /* its thread's heap for epoch 0, which has the thread's chunk cache; as `counters` */
  bool of_epochs; /* one after the other; else of threads, for epoch 0. Never changes */
  bool live;              /* a thread has it */
  bool closing;           /* its epoch is: no slab stays once it is empty */
  unsigned victim;        /* class whose cap shrinks next in favour of another */
  uint16_t free_magazine;    /* chain of unused magazines through `older` */
  uint16_t unused_magazine;  /* magazines from here on were never used */
  bool pooled;            /* it waits for another thread; under heaps_lock */
  bool folded;           /* see above */
  uint32_t generation;    /* of processes, when it was folded: a fork child does not take the locks of folded heaps */
  size_t magazine_bytes;
  size_t granted_bytes;   /* all caps */
  uint64_t visits, seen_visits; /* slow path entries now and at the scavenger's last look */
  uint64_t served, freed;       /* mallocs and frees of all classes up to their last visits */
  uint64_t opened;              /* classes that have a cap, one bit each */
  struct undo undo;
  struct heap *next_heap; /* every heap ever made; never changes once set */
  struct heap *next_dead; /* the pool, or the blank ones of a granule; under heaps_lock */
  struct heap_store *store; /* NULL: none yet */
  struct bin *bins;       /* the store's */
  struct magazine *magazines;
  struct quarantine *quarantine; /* heap/quarantine.h; its thread's alone */
} ALIGNED(HEAP_ALIGNMENT);
_Static_assert(sizeof(struct heap) <= 1280, "one block's data page, its heap and its chunk's tables: 2 KiB and a page");
_Static_assert(CLASSES <= 64, "a bit for each");
_Static_assert(CLASSES <= HEAP_ALIGNMENT, "a class fits into a part's low address bits");

INLINE bool heap_has_store(const struct heap *heap) {
  return __atomic_load_n(&heap->store, __ATOMIC_ACQUIRE) != NULL; /* pairs with store_give_to */
}

/* From any thread, without the heap's lock. */
INLINE const struct bin *heap_bin(const struct heap *heap, unsigned class) {
  const struct heap_store *store = __atomic_load_n(&heap->store, __ATOMIC_ACQUIRE);
  return store ? &store->bins[class] : &no_bin;
}

/* The heap of slabs that belong to no thread. No thread allocates from it directly. Its lock is taken after any other
 * heap's. */
HIDDEN extern struct heap common_heap;
HIDDEN extern bool common_begun; /* common_heap is in the list of active heaps; under heaps_lock */
HIDDEN extern uint32_t folded_slabs[CLASSES]; /* the full slabs of folded heaps; under common_heap.lock */

/* The heap of slabs that serve samples of the heap profile alone (heap/profile.h). They are owner to no heap, so that
 * the free of each block takes a slow path. No thread allocates from it directly, and none adopts its slabs. */
HIDDEN extern struct heap sampled_heap;

/* Placeholder for a thread without a heap: every list is empty and its address owns nothing, so every call takes the
 * slow path. */
HIDDEN extern struct heap empty_heap;

/* Neither a thread has it nor does it wait for one. */
INLINE bool heap_is_nobodys(const struct heap *heap) { return heap == &common_heap || heap == &sampled_heap; }

/* All heaps of threads but common_heap, newest first. The list only grows. */
HIDDEN extern struct heap *_Atomic all_heaps;
HIDDEN extern _Atomic uint32_t heaps_here; /* of threads, ever; and of epochs, whose memory is there */

/* common_heap, sampled_heap and every heap of a thread that is not folded. Whoever walks the list holds walk_lock or
 * heaps_lock: a heap leaves it under both. walk_lock is taken before heaps_lock. No malloc, free or end of an epoch
 * waits for it. */
HIDDEN extern struct heap *_Atomic active_heaps;
HIDDEN extern struct lock walk_lock;

/* The list of notices of heaps that the scavenger looks at in its next round. Any thread adds to it, the scavenger
 * takes it whole. */
HIDDEN extern struct notice *_Atomic notices;
HIDDEN void heap_notice_first(struct notice *notice);
/* The heap has, or did, something that the scavenger should look at. What it has was put there under the lock that the
 * caller holds: then the scavenger, which clears `is_given` before it takes that lock, cannot miss it. */
INLINE void heap_notice(struct heap *heap) {
  struct notice *notice = heap->store->notice;
  if (UNLIKELY(!atomic_load_explicit(&notice->is_given, memory_order_relaxed))) heap_notice_first(notice);
}

HIDDEN extern _Atomic unsigned unfolded_heaps; /* of dead threads, in the pool and not folded */
HIDDEN extern struct heap *_Atomic last_dead_heap; /* a hint: the last that came to the pool, until it is folded */
HIDDEN extern _Atomic unsigned live_heaps; /* that a thread has */
HIDDEN extern unsigned heaps_given_up;     /* whose lists were lost, in a fork child */

/* In a fork child, of a thread that may not be there: the chunk that it filled. NULL when it was just leaving it, for
 * then the granule may be anything by now. */
INLINE struct run *heap_chunk(const struct heap *heap) {
  struct run *chunk = heap->bump.chunk;
  bool has = chunk && chunk->kind == RUN_CHUNK && atomic_load_explicit(&chunk->heap, memory_order_relaxed) == heap;
  return has ? chunk : NULL;
}

/* A change of several numbers that a reader must see as one lies between begin and end: a class's totals, its count and
 * heap->served, or those of the chunks. The numbers are stored with release and loaded with acquire. So a reader that
 * sees a new number sees the odd sequence before it, and with that the numbers to undo. The fast path changes some of
 * these numbers alone, by plain stores: the fence at the end lets no reader see one of those, or the next undo, before
 * the change. By the heap's own thread. */
INLINE void heap_begin_change(struct heap *heap, struct undo undo) {
  heap->undo = undo;
  __atomic_store_n(&heap->sampling.sequence, heap->sampling.sequence + 1, __ATOMIC_RELEASE);
}
INLINE void heap_begin_list_change(struct heap *heap, unsigned class) {
  const struct bin *bin = &heap->bins[class];
  struct undo undo = {.count = count_look(&heap->count[class]), .class = class};
  undo.was[0] = __atomic_load_n(&bin->allocations, __ATOMIC_RELAXED); /* alone, as there */
  undo.was[1] = __atomic_load_n(&bin->frees, __ATOMIC_RELAXED);
  undo.was[2] = heap->served;
  undo.was[3] = heap->freed;
  heap_begin_change(heap, undo);
}
INLINE void heap_begin_one_store(struct heap *heap) { /* and what only readers put together with it */
  heap->undo.class = UNDO_NOTHING;
  __atomic_store_n(&heap->sampling.sequence, heap->sampling.sequence + 1, __ATOMIC_RELEASE);
}
INLINE void heap_begin_chunk_change(struct heap *heap) {
  const struct bump *bump = &heap->bump;
  heap_begin_change(heap, (struct undo){{bump->allocations, bump->count, bump->given, 0}, {0, 0}, UNDO_CHUNKS});
}
INLINE void heap_end_change(struct heap *heap) {
  __atomic_store_n(&heap->sampling.sequence, heap->sampling.sequence + 1, __ATOMIC_RELEASE); /* and even after all */
  FENCE_STORES();
}
INLINE uint32_t heap_begin_look(const struct heap *heap) {
  return __atomic_load_n(&heap->sampling.sequence, __ATOMIC_ACQUIRE);
}
/* Returns true if nothing changed since, so that the numbers that were loaded, with acquire, fit together. */
INLINE bool heap_end_look(const struct heap *heap, uint32_t begun) {
  return begun % 2 == 0 && __atomic_load_n(&heap->sampling.sequence, __ATOMIC_RELAXED) == begun;
}
/* After a look that failed. The thread that makes the change may not be there in a child; elsewhere it may have a lower
 * priority than this one and wait for its processor, so the readers that look again and again rest. */
HIDDEN COLD void heap_look_again(unsigned *looks);

/* Blocks that it handed out in chunks; from any thread. */
INLINE uint64_t heap_bumped(const struct heap *heap) {
  for (unsigned looks = 0;; heap_look_again(&looks)) {
    uint32_t begun = heap_begin_look(heap);
    uint64_t bumped = __atomic_load_n(&heap->bump.allocations, __ATOMIC_ACQUIRE) +
                      __atomic_load_n(&heap->bump.count, __ATOMIC_ACQUIRE);
    if (heap_end_look(heap, begun)) return bumped;
  }
}

INLINE bool heap_has_slabs(const struct heap *heap) {
  return atomic_load_explicit(&heap->slab_granules, memory_order_relaxed) != 0;
}

/* The lock that guards the heap now. */
INLINE struct lock *heap_guard(struct heap *heap) {
  return UNLIKELY(LOAD_RACING(heap->folded)) ? &common_heap.lock : &heap->lock;
}
/* Takes the heap's guard. Returns it. */
HIDDEN struct lock *heap_lock(struct heap *heap);

/* The heap that the running thread allocates from. The pointer alone: 8 bytes of static TLS, so that dlopen finds room
 * for it. */
extern HIDDEN __thread struct heap *current_heap __attribute__((tls_model("initial-exec")));

/* The running thread's. */
INLINE struct counters *counters_here(void) { return current_heap->counters; }

/* The running thread as the epochs know it (epoch/scope.h); NULL before its birth. Here because fork asks whose heaps
 * are whose. */
extern HIDDEN __thread struct thread *current_thread __attribute__((tls_model("initial-exec")));

/* For who makes one: lists that are empty; and the rest of a heap whose memory is zero. Under heaps_lock. */
HIDDEN void heap_begin_lists(struct heap *heap);
HIDDEN void heap_init(struct heap *heap, bool of_epochs);

INLINE pagemap_entry heap_entry(const struct heap *heap, unsigned class) { return (uintptr_t)heap | class; }

/* The class of which the owner is this heap's; CLASSES or more when it is another's or none. */
INLINE uintptr_t heap_class_of(const struct heap *heap, pagemap_entry h) { return h ^ (uintptr_t)heap; }

#endif
