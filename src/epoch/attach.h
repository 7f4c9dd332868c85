/* attach: which of a thread's heaps serves which epoch.                                              floor: epoch
 *
 *   [ slot, heap | slot, heap | 0 | slot, heap | ... ]      open addressing; at most three quarters are used
 *
 * A thread keeps its heap of an epoch until the epoch or the thread ends, however many others it enters. An epoch's
 * slot itself leads the first thread to its heap (`owner`); this table leads every other thread to its own, and a
 * dying thread to all that it has. An entry whose epoch ended stays, and is stale: its heap is no longer the thread's,
 * or serves another slot. Stale entries disappear when the table is full and is built anew, of the size that the others
 * need.
 *
 * Invariant: every heap that is attached to a thread has one entry in the thread's table, and no slot has two. An
 *            epoch's owner is the thread of the first of its heaps, or NULL.                            epoch_check()
 * Threads:   a table belongs to its thread. Memory of tables that threads gave up is under threads_lock. Everything in
 *            struct thread belongs to its thread, but: `looking` and a heap's `entered` are read by others, and the
 *            thread that holds an epoch's lock may drop a heap whose thread is not inside; cached_epoch is atomic. */
#ifndef TSLAB_EPOCH_ATTACH_H
#define TSLAB_EPOCH_ATTACH_H

#include "epoch/epoch.h"

struct attachment {
  struct heap *heap;
  uint32_t slot; /* the epoch's index; 0: unused */
};

#define ATTACH_FIRST_LOG 5 /* most threads know few epochs */
struct attachments {
  struct attachment *entries;
  uint32_t log, used; /* 2^log entries, and how many of them are used */
  struct attachment first[1 << ATTACH_FIRST_LOG];
};

struct scope {
  uint64_t id;
  struct heap *heap; /* NULL: epoch 0 */
};

/* An epoch that a call named, which no longer has to be looked up: the thread has this part of it as long as it is open
 * with that id. */
struct named {
  uint64_t id;
  struct epoch *epoch;
  struct heap *heap;
  uint32_t slot; /* the epoch's index */
};
#define NAMED 4 /* found by the id's low bits */
#define NAMED_NONE(place) ((struct named){(place) == 0, NULL, NULL, UINT32_MAX}) /* an id of another place */

struct thread {
  struct heap *plain; /* of epoch 0 */
  _Atomic uint64_t looking; /* the epoch that it may be inside of, whatever `entered` says; 0: none */
  unsigned depth;
  bool visiting;     /* current_heap is no scope's, but that of one call that names its epoch */
  uint64_t advanced; /* what tslab_epoch_advance opened last; 0: nothing */
  struct epoch *_Atomic cached_epoch;
  uint64_t cached_seen; /* its id when the scavenger looked last, and */
  uint8_t cached_age;   /* how many looks ago it was so first */
  struct thread *next_free;
  struct thread *next; /* every thread ever made */
  struct named named[NAMED];
  struct scope scopes[TSLAB_SCOPES + 1]; /* [0]: outside all scopes */
  struct attachments attached;
};

HIDDEN extern struct lock threads_lock;
HIDDEN extern struct thread *_Atomic all_threads;

HIDDEN void attach_start(struct attachments *table); /* without an entry */
HIDDEN void attach_end(struct attachments *table);   /* gives its memory up */

/* Makes sure that the next attach_put has room. `thread` is the table's. False without memory. */
HIDDEN bool attach_make_room(struct attachments *table, const struct thread *thread);
HIDDEN void attach_put(struct attachments *table, uint32_t slot, struct heap *heap); /* instead of the slot's last */

/* The heap that served the slot last, which may be stale. NULL when the slot has no entry. */
INLINE uint32_t attach_place(const struct attachments *table, uint32_t slot) {
  return slot * UINT32_C(2654435769) >> (32 - table->log); /* 2^32 by the golden ratio: neighbours spread */
}
INLINE struct heap *attach_find(const struct attachments *table, uint32_t slot) {
  uint32_t mask = ((uint32_t)1 << table->log) - 1;
  for (uint32_t i = attach_place(table, slot);; i = (i + 1) & mask) {
    const struct attachment *entry = &table->entries[i];
    if (LIKELY(entry->slot == slot)) return entry->heap;
    if (entry->slot == 0) return NULL;
  }
}

/* Returns true if the heap serves the epoch for the thread. By the thread, or under the epoch's lock. */
INLINE bool attach_is_valid(const struct heap *heap, const struct thread *thread, const struct epoch *e) {
  return LOAD_RACING(heap->thread) == thread && LOAD_RACING(heap->arena) == &e->arena;
}

INLINE bool attach_is_mine(const struct heap *heap) { return current_thread && heap->thread == current_thread; }

/* Under the epoch's lock: a new heap for the thread, or one that another left, attached to it. The thread's table has
 * room. NULL without memory. */
HIDDEN struct heap *attach_heap(struct thread *thread, struct epoch *e);

/* Under the epoch's lock: the heap, inside which nobody is, serves no thread any more; with slabs it stays with the
 * epoch. */
HIDDEN void attach_drop(struct epoch *e, struct heap *heap);

/* In a fork child that froze: memory that was given up stays as it is. */
HIDDEN void attach_freeze(void);

#endif
