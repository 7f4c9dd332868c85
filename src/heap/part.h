/* part: what one thread holds of one epoch.                                                          floor: heap
 *
 *   hot, read or written by every malloc and free             cold, under `lock`
 *   [ list[52] | count[52] | inverse[52] | bump ]               [ bins[52]: slabs, depot, counters | batches ]: store
 *
 * For each class a part keeps a LIFO of free blocks, `list`, so that malloc hands back what was freed last. When it is
 * full it goes to the depot as one batch, in O(1); when it is empty a batch comes back. What does not fit in the depot
 * goes to the slabs. A free looks up homes[granule], which is the address of the part whose slab it is, with the class
 * in its low bits: xored with the thread's part it is the class, or no class at all. That one compare decides owner and
 * epoch.
 *
 * `now` holds the list's exact length in its low half and in its high half how many more frees may come before one must
 * visit the slow path; `then` is what the last visit left. Between two visits
 *     frees = room(then) - room(now),   mallocs = length(then) + frees - length(now),
 * so the visits count every call, and a reader can at any time, without one instruction on the fast path.
 *
 * Invariant: length(now) blocks on list; every block of list and depot is used as its slab counts.       part_check()
 * Threads:   the hot arrays, caps, counters and visits belong to the thread whose current part this is; inverse never
 *            changes; slabs and depot are under `lock`, which others take to settle a slab, to trim and to read.
 * A dead thread's part of epoch 0 waits in the pool, slabs and all, for the next thread; one of another epoch waits
 * with that epoch, and becomes blank with it.
 *
 * The scavenger settles a part that waits in the pool: it returns the lists to their slabs, moves the slabs that have
 * something to give to `common_part`, where every thread finds them, and adds the part's counters to those of
 * `common_part`. A settled part holds nothing but slabs in which every block is in use. No walk meets it any more:
 *
 *   live -> (its thread ends) pooled -> (the scavenger's next look) settled -> (a thread is born) live
 *
 * `settled` changes under parts_lock, the part's lock and common_part.lock. While it is set, common_part.lock guards
 * the part in place of the part's own lock, so that fork takes one lock for all settled parts. */
#ifndef TSLAB_HEAP_PART_H
#define TSLAB_HEAP_PART_H

#include "heap/lifetime.h"
#include "heap/tally.h"
#include "os/lock.h"
#include "slab/chunk.h"
#include "slab/slab.h"

/* How many blocks a list may hold grows by doubling while its thread both allocates and frees in the class, or wants
 * back what the list was too short for, from FIRST to FULL, as long as all caps of the part together stay within
 * GRANTED_MOST: that is what an idle thread can hide. While a thread only frees, it is halved down to DRAIN, because
 * each block then left behind pins a page; a refill ends that. What is more is the depot's, until more goes on coming:
 * docs/decisions/0018, 0020. */
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

/* By its own thread. Half by half, which atomic loads keep compilers from joining: a processor does not hand a store of
 * one half on to a load of both, which then waits until all stores before it are done, those to cold blocks too. */
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
struct batch {
  void *head;
  uint16_t count, newer, older;
  uint16_t class;
};
#define BATCHES 256

struct bin {
  uint64_t allocations, frees; /* up to the last visit */
  uint64_t remote_frees;       /* by this thread, of blocks whose home is elsewhere */
  uint64_t refills, overflows;
  uint64_t last_visit; /* part->visits then */
  uint32_t first, last; /* slabs with something to give; those with only unlinked units last */
  uint32_t listed, slabs, born, retired;
  uint32_t depot_blocks, depot_least; /* the latter since the scavenger's last look */
  uint32_t drained; /* blocks that the depot let pass since a refill, or a full list that was not only freed to */
  uint16_t newest, oldest; /* batches */
  uint16_t cap;            /* blocks that the list should not exceed; 0 until the class is used */
  uint8_t halvings;        /* of that cap, for now */
  uint8_t due;             /* samples to be taken, as soon as may be; without the one that the list is aside for */
  int32_t countdown;       /* mallocs that the list serves until one more is */
};

/* Blocks of the class in `bytes`, at least one and at most `most`. */
INLINE unsigned blocks_in(unsigned class, size_t bytes, unsigned most) {
  return (unsigned)min_size(max_size(bytes / class_size(class), 1), most);
}

INLINE unsigned list_drained_cap(unsigned class) { return blocks_in(class, LIST_DRAIN_BYTES, LIST_DRAIN); }

/* How many blocks the list should not exceed now. */
INLINE unsigned list_cap(const struct bin *bin, unsigned class) {
  if (LIKELY(bin->halvings == 0)) return bin->cap;
  return (unsigned)min_size(bin->cap, max_size((size_t)bin->cap >> bin->halvings, list_drained_cap(class)));
}

#define TIMED 16

/* A malloc that was timed, in ticks. */
struct timed {
  uint64_t start;
  uint32_t ticks;
  uint16_t requested, usable;
};

/* What a change is about to overwrite: of a class's list, of the chunks (UNDO_CHUNKS), or nothing that could be torn.
 * In a fork child whoever was changing it may not be there; then this is put back. */
struct undo {
  uint64_t was[4];
  struct count count;
  uint32_t class;
};
#define UNDO_CHUNKS  CLASSES
#define UNDO_NOTHING (CLASSES + 1)

/* One class's list may be kept aside for a moment, so that the next malloc finds none and comes to be timed
 * (heap/sample.h). What was timed waits here for a visit of a slow path to be counted, TIMED at a time: the caller of
 * this malloc is not to wait for that, and counting one alone would be to fetch all that it takes for one. */
struct sampling {
  void *aside; /* NULL: none */
  uint8_t class;
  bool urgent;          /* more of its class is due, or it is an epoch's: the one who is timed looks after that */
  uint8_t timings;      /* of `timed` */
  uint8_t held;         /* frees in a row that came to visit because the list is held */
  uint16_t denied;      /* times that other classes wanted its turn since */
  uint32_t gone;        /* with it from the class's counts */
  uint32_t sequence;    /* heap/lists.h */
  uint64_t random;      /* heap/sample.c; 0: not begun */
};

/* What large blocks lay in that the thread freed: heap/large_cache.h. */
#define LARGE_CACHE_BYTES  (1 * MiB)
#define LARGE_CACHE_RUNS   (LARGE_CACHE_BYTES / GRANULE)
#define LARGE_CACHES_BYTES (16 * MiB) /* about: of all parts, the most that each kept since the scavenger's last look */
struct large_cache {
  uint32_t granules;               /* of all; read without the lock, too */
  uint32_t most;                   /* granules, and */
  uint16_t count, least;           /* runs, and how few there were, since the scavenger's last look */
  uint32_t runs[LARGE_CACHE_RUNS]; /* the newest last */
};

/* What a thread keeps between two epochs: heap/chunk_cache.h. */
struct chunk_cache {
  uint32_t newest, oldest; /* chunks, by granule, through next and previous */
  uint32_t count, least;   /* chunks, and how few there were since the scavenger's last look */
  uint32_t claimed;        /* granules of the reserve that are claimed for them */
  uint32_t spare;          /* granules that are claimed for the thread's spare epoch, */
  uint32_t spare_of;       /* and which epoch that is, by index; 0: none */
  uint64_t spare_seen;     /* that epoch's id at the scavenger's last look, if it was open */
};

/* Blocks of other parts that this part's thread freed and that wait in `remote_blocks` to go to their slabs together.
 * Their lines are in another processor's cache, so nothing looks at a block until the batch is complete. Its thread's
 * alone. */
struct remote {
  int32_t room; /* bytes that blocks may still cost; 0 and no blocks in an epoch's part, whose end must not wait */
  uint32_t count;
};
_Static_assert(REMOTE_MOST * REMOTE_LEAST >= REMOTE_BYTES, "a complete batch has room");

/* Leads the scavenger to a part. Its memory stays, whatever becomes of the part's. */
struct notice {
  struct part *_Atomic part; /* of an epoch's store: whose it is; NULL: nobody's */
  struct notice *next;
  atomic_bool is_given;
};

/* A part has one of these as soon as its first list is filled: heap/store.h. A part that only fills chunks, as that of
 * most requests, never does. */
struct part_store {
  struct stored *stored; /* of an epoch's part: where it is listed */
  struct notice *notice;
  uint32_t restless_slabs;  /* listed slabs that the scavenger must look at again; the scavenger's */
  uint32_t unlisted_slabs;  /* taken off their list by a thread that gives back some of their pages; under the lock */
  struct bin bins[CLASSES];
  struct large_cache large;
  struct chunk_cache chunks;
  struct timed timed[TIMED]; /* sampling.timings of them */
  uint64_t first_use_bytes;  /* of blocks that left a slab for the first time since their pages were untouched */
  struct remote remote;
  struct batch batches[BATCHES];    /* behind the rest: few of them are used, so most of this is not resident */
  void *remote_blocks[REMOTE_MOST]; /* and most threads touch none of these */
} ALIGNED(CACHE_LINE);
HIDDEN extern const struct bin no_bin; /* the bins of a part without one */

/* The block comes first: a child that is born in a signal handler in the middle of this looks at all blocks. */
INLINE void store_add_remote(struct part_store *store, void *block) {
  store->remote_blocks[store->remote.count] = block;
  __atomic_store_n(&store->remote.count, store->remote.count + 1, __ATOMIC_RELEASE);
}

#define PART_ALIGNMENT CACHE_LINE

/* An open epoch costs one of these for each thread that was inside, so its size counts. */
struct part {
  void *list[CLASSES]; /* first: an element's address then needs no addition of its own */
  struct count count[CLASSES];
  uint64_t inverse[CLASSES];
  struct sampling sampling;

  struct bump { /* heap/bump.h; of an epoch's part; its thread's alone, but for `end` */
    char *at, *end, *start;  /* the next block, and the current chunk */
    uintptr_t starts, freed; /* the current chunk's bits: heap/bump.h */
    struct run *chunk;
    uint32_t count, gone;        /* blocks handed out from the current chunk, and freed by this thread */
    uint64_t allocations;        /* in chunks that were emptied, ever */
    bool off;                    /* turned to slabs */
    bool armed;                  /* `end` is where the next block would start, for that one to be sampled */
    uint64_t sealed;             /* blocks handed out in chunks that this part filled or left */
  } bump ALIGNED(CACHE_LINE);
  _Atomic uint32_t entered;   /* how often the thread is inside the epoch: epoch/scope.h */
  uint32_t index;
  struct thread *thread;      /* whose it is while live; NULL for nobody's */
  struct lifetime *lifetime;  /* NULL: epoch 0. Changes only while no thread has the part and no slab is its own */
  struct tally *tally; /* of its thread; of a part that serves nobody, of the last one */
  struct part *next_of_epoch; /* parts of an epoch; the epoch's lock */

  struct lock lock ALIGNED(CACHE_LINE);
  union {
    struct { /* of an epoch: */
      uint64_t before; /* list_handed_out() when it began to serve the epoch */
      uint64_t lost;   /* what its lists handed out and others freed, before it began to */
    };
    struct {
      struct part *next_active, *previous_active; /* of a thread: active_parts; under parts_lock */
    };
  };
  _Atomic uint32_t slab_granules; /* of all its slabs */
  struct part *plain; /* its thread's part for epoch 0, which has the thread's chunk cache; as `tally` */
  bool of_epochs; /* one after the other; else of threads, for epoch 0. Never changes */
  bool live;              /* a thread has it */
  bool closing;           /* its epoch is: no slab stays once it is empty */
  unsigned victim;        /* class whose cap shrinks next in favour of another */
  uint16_t free_batch;    /* chain of unused batches through `older` */
  uint16_t unused_batch;  /* batches from here on were never used */
  bool pooled;            /* it waits for another thread; under parts_lock */
  bool settled;           /* see above */
  uint32_t generation;    /* of processes, when it was settled: a fork child does not take the locks of settled parts */
  size_t depot_bytes;
  size_t granted_bytes;   /* all caps */
  uint64_t visits, seen_visits; /* slow path entries now and at the scavenger's last look */
  uint64_t served, freed;       /* mallocs and frees of all classes up to their last visits */
  uint64_t opened;              /* classes that have a cap, one bit each */
  struct undo undo;
  struct part *next_part; /* every part ever made; never changes once set */
  struct part *next_dead; /* the pool, or the blank ones of a granule; under parts_lock */
  struct part_store *store; /* NULL: none yet */
  struct bin *bins;       /* the store's */
  struct batch *batches;
  struct quarantine *quarantine; /* heap/quarantine.h; its thread's alone */
} ALIGNED(PART_ALIGNMENT);
_Static_assert(sizeof(struct part) <= 1664, "one block's data page, its part and its chunk's tables: 2 KiB and a page");
_Static_assert(CLASSES <= 64, "a bit for each");
_Static_assert(CLASSES <= PART_ALIGNMENT, "a class fits into a part's low address bits");

/* Gives a store to a part that has none. False without memory. By the part's own thread. */
HIDDEN COLD bool part_make_store(struct part *part);
INLINE bool part_has_store(const struct part *part) {
  return __atomic_load_n(&part->store, __ATOMIC_ACQUIRE) != NULL; /* pairs with part_make_store */
}

/* From any thread, without the part's lock. */
INLINE const struct bin *part_bin(const struct part *part, unsigned class) {
  const struct part_store *store = __atomic_load_n(&part->store, __ATOMIC_ACQUIRE);
  return store ? &store->bins[class] : &no_bin;
}

/* What a thread has that has none: its lists are empty and its address is no home's, so every call takes the slow
 * path. */
HIDDEN extern struct part empty_part;

/* The part of slabs that belong to no thread. No thread allocates from it directly. Its lock is taken after any other
 * part's. */
HIDDEN extern struct part common_part;
HIDDEN extern bool common_begun; /* common_part is in the list of active parts; under parts_lock */
HIDDEN void part_begin_common(void); /* before its first use; again: nothing */
HIDDEN extern uint32_t settled_slabs[CLASSES]; /* the full slabs of settled parts; under common_part.lock */

/* All parts of threads but common_part, newest first. The list only grows. */
HIDDEN extern struct part *_Atomic all_parts;
HIDDEN extern _Atomic uint32_t parts_here; /* of threads, ever; and of epochs, whose memory is there */

/* All parts of epochs whose memory is there. Caller holds walk_lock, or parts_lock: under both of them memory of parts
 * goes back to the system. */
HIDDEN struct part *parts_first_of_epochs(void);
HIDDEN struct part *parts_next_of_epochs(struct part *part);

/* What parts of epochs had handed out in chunks, and how often their locks were taken, before their memory went back.
 * Under walk_lock. */
HIDDEN extern uint64_t parts_folded_bumped;
HIDDEN extern struct lock_totals parts_folded_locks;
HIDDEN extern struct lock parts_lock;

/* common_part and every part of a thread that is not settled. Whoever walks the list holds walk_lock or parts_lock: a
 * part leaves it under both. walk_lock is taken before parts_lock. No malloc, free or end of an epoch waits for it. */
HIDDEN extern struct part *_Atomic active_parts;
HIDDEN extern struct lock walk_lock;

/* The list of notices of parts that the scavenger looks at in its next round. Any thread adds to it, the scavenger
 * takes it whole. */
HIDDEN extern struct notice *_Atomic notices;
HIDDEN void part_notice_first(struct notice *notice);
/* The part has, or did, something that the scavenger should look at. What it has was put there under the lock that the
 * caller holds: then the scavenger, which clears `is_given` before it takes that lock, cannot miss it. */
INLINE void part_notice(struct part *part) {
  struct notice *notice = part->store->notice;
  if (UNLIKELY(!atomic_load_explicit(&notice->is_given, memory_order_relaxed))) part_notice_first(notice);
}

HIDDEN extern _Atomic unsigned unsettled_parts; /* of dead threads, in the pool and not settled */
HIDDEN extern struct part *_Atomic last_dead_part; /* a hint: the last that came to the pool, until it is settled */
HIDDEN extern _Atomic unsigned live_parts; /* that a thread has */
HIDDEN extern unsigned parts_given_up;     /* whose lists were lost, in a fork child */

/* In a fork child, of a thread that may not be there: the chunk that it filled. NULL when it was just leaving it, for
 * then the granule may be anything by now. */
INLINE struct run *part_chunk(const struct part *part) {
  struct run *chunk = part->bump.chunk;
  bool has = chunk && chunk->kind == RUN_CHUNK && atomic_load_explicit(&chunk->part, memory_order_relaxed) == part;
  return has ? chunk : NULL;
}

/* Around a change of several numbers that a reader must see as one: a class's totals, its count and part->served, or
 * those of the chunks. What changes in between is stored with release and loaded with acquire: who sees a change sees
 * the odd sequence before it, and who sees that sees what there is to undo. The fast path changes some of these numbers
 * alone, by plain stores: the fence at the end lets nobody see one of those, or the next undo, before the change. By
 * the part's own thread. */
INLINE void part_begin_change(struct part *part, struct undo undo) {
  part->undo = undo;
  __atomic_store_n(&part->sampling.sequence, part->sampling.sequence + 1, __ATOMIC_RELEASE);
}
INLINE void part_begin_list_change(struct part *part, unsigned class) {
  const struct bin *bin = &part->bins[class];
  struct undo undo = {.count = count_look(&part->count[class]), .class = class};
  undo.was[0] = __atomic_load_n(&bin->allocations, __ATOMIC_RELAXED); /* alone, as there */
  undo.was[1] = __atomic_load_n(&bin->frees, __ATOMIC_RELAXED);
  undo.was[2] = part->served;
  undo.was[3] = part->freed;
  part_begin_change(part, undo);
}
INLINE void part_begin_one_store(struct part *part) { /* and what only readers put together with it */
  part->undo.class = UNDO_NOTHING;
  __atomic_store_n(&part->sampling.sequence, part->sampling.sequence + 1, __ATOMIC_RELEASE);
}
INLINE void part_begin_chunk_change(struct part *part) {
  const struct bump *bump = &part->bump;
  part_begin_change(part, (struct undo){{bump->allocations, bump->sealed, bump->count, 0}, {0, 0}, UNDO_CHUNKS});
}
INLINE void part_end_change(struct part *part) {
  __atomic_store_n(&part->sampling.sequence, part->sampling.sequence + 1, __ATOMIC_RELEASE); /* and even after all */
  FENCE_STORES();
}
INLINE uint32_t part_begin_look(const struct part *part) {
  return __atomic_load_n(&part->sampling.sequence, __ATOMIC_ACQUIRE);
}
/* Whether nothing changed since, so that what was loaded, with acquire, is whole. */
INLINE bool part_end_look(const struct part *part, uint32_t begun) {
  return begun % 2 == 0 && __atomic_load_n(&part->sampling.sequence, __ATOMIC_RELAXED) == begun;
}
/* After a look that failed. The thread that makes the change may not be there in a child; elsewhere it may have a lower
 * priority than this one and wait for its processor, so the readers that look again and again rest. */
HIDDEN COLD void part_look_again(unsigned *looks);

/* Blocks that it handed out in chunks; from any thread. */
INLINE uint64_t part_bumped(const struct part *part) {
  for (unsigned looks = 0;; part_look_again(&looks)) {
    uint32_t begun = part_begin_look(part);
    uint64_t bumped = __atomic_load_n(&part->bump.allocations, __ATOMIC_ACQUIRE) +
                      __atomic_load_n(&part->bump.sealed, __ATOMIC_ACQUIRE) +
                      __atomic_load_n(&part->bump.count, __ATOMIC_ACQUIRE);
    if (part_end_look(part, begun)) return bumped;
  }
}

INLINE bool part_has_slabs(const struct part *part) {
  return atomic_load_explicit(&part->slab_granules, memory_order_relaxed) != 0;
}

/* The lock that guards the part now. */
INLINE struct lock *part_guard(struct part *part) {
  return UNLIKELY(LOAD_RACING(part->settled)) ? &common_part.lock : &part->lock;
}
/* Takes the part's guard. Returns it. */
HIDDEN struct lock *part_lock(struct part *part);

/* Settles a part that waits in the pool and holds nothing any more. False when it does not or holds something. */
HIDDEN bool part_settle(struct part *part);

/* A dead thread's part, or a new one. NULL without memory. */
HIDDEN struct part *part_acquire(void);

/* The part goes to the pool, lists and all. By its own thread, at its end. */
HIDDEN void part_release(struct part *part);

/* The same for an epoch: a part without a slab or block. part_give_back needs it so again. These lie PART_SPAN to a
 * granule. SPANS_KEPT of the granules without one in use are kept; the memory of others goes back to the system. */
#define PART_SPAN  (GRANULE / sizeof(struct part))
#define SPANS_KEPT 3
HIDDEN struct part *part_take_blank(struct lifetime *lifetime);
HIDDEN void part_give_back(struct part *part);

/* Gives back the memory of granules that are kept, as far as they were not needed since this was last called, or of all
 * of them. Returns bytes. */
HIDDEN size_t parts_trim(bool all);

/* The running thread as the epochs know it (epoch/scope.h); NULL before its birth. Here because fork asks whose parts
 * are whose. */
extern HIDDEN __thread struct thread *current_thread __attribute__((tls_model("initial-exec")));

/* What front/thread.c knows of it besides; here because what is thread-local must lie close together, to be small. The
 * second is how many blocks of others it freed before it had a heap. */
enum {
  HEAP_IS_KEPT, /* until the key's destructor; or there is none yet */
  HEAP_ENDED,   /* the destructor ran: a call that needs a heap has one for its time */
  HEAP_REVIVED, /* a call of epochs came later: the heap is kept until the thread is in no scope */
};
extern HIDDEN __thread uint8_t thread_heap_state __attribute__((tls_model("initial-exec")));
extern HIDDEN __thread uint8_t thread_frees_unborn __attribute__((tls_model("initial-exec")));

/* In a fork child, by its one thread, every lock free: the parts of threads that it does not have give up their lists,
 * and serve the next. Or, in a child that may have copied a part half written, they serve nobody, and no part leads to
 * a slab any more; when the thread may be another than the one that forked, `knows_its_thread` is false, and the lists
 * of all stay. */
HIDDEN void parts_bury_others(void);
HIDDEN void parts_freeze(bool knows_its_thread);

INLINE home part_home(const struct part *part, unsigned class) { return (uintptr_t)part | class; }

/* The class of which the home is this part's; CLASSES or more when it is another's or none. */
INLINE uintptr_t part_class_of(const struct part *part, home h) { return h ^ (uintptr_t)part; }

#endif
