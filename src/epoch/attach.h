/* attach: finds a thread's heap of an epoch.                                                         floor: epoch
 *
 *   [ slot, heap | slot, heap | 0 | slot, heap | ... ]      open addressing; at most three quarters are used
 *
 * A thread keeps its heap of an epoch until the epoch or the thread ends, however many other epochs it enters. An
 * epoch's slot itself leads the first thread to its heap (`owner`). This table leads every other thread to its own
 * heap, and a thread that ends to all its heaps. The entry of an ended epoch stays as a stale one: its heap no longer
 * belongs to the thread, or serves another slot. When the table is full, the thread builds it anew without the stale
 * entries, as long as the others need.
 *
 * Invariant: every heap that is attached to a thread has one entry in the thread's table, and no slot has two. An
 *            epoch's owner is the thread of its first heap, or NULL.                                    epoch_check()
 * Threads:   a table belongs to its thread. threads_lock protects the memory of tables that threads gave up. Only the
 *            thread itself uses its struct thread, with these exceptions: other threads read `looking` and a heap's
 *            `entered`; the holder of an epoch's lock may drop a heap whose thread is not inside; cached_epoch is
 *            atomic. */
#ifndef TSLAB_EPOCH_ATTACH_H
#define TSLAB_EPOCH_ATTACH_H

#include "epoch/epoch.h"
#include "heap/registry.h"

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

/* Saves a later call the search for an epoch that a call named: `heap` is the thread's heap of the epoch while the
 * epoch is open with that id. */
struct named {
  uint64_t id;
  struct epoch *epoch;
  struct heap *heap;
  uint32_t slot; /* the epoch's index */
};
#define NAMED 4 /* places, by the id's low bits */
#define NAMED_NONE(place) ((struct named){(place) == 0, NULL, NULL, UINT32_MAX}) /* no id of this place */

/* Lies in the body of the thread's heap of epoch 0, whose pages go back to the kernel after the thread has ended. */
struct thread {
  struct heap *plain; /* of epoch 0 */
  _Atomic uint64_t looking; /* the epoch that the thread may be inside, whatever `entered` says; 0: none */
  unsigned depth;
  bool visiting;        /* current_heap is not a scope's: a call that names its epoch set it */
  uint8_t cached_age;   /* how many looks of the scavenger ago the cached epoch had the id `cached_seen` first */
  _Atomic bool takes_cached, cached_is_claimed; /* the cached epoch, by the thread and by another one: epoch/cache.h */
  uint64_t advanced;    /* the epoch that tslab_epoch_advance opened last; 0: none */
  struct epoch *_Atomic cached_epoch;
  uint64_t cached_seen; /* the cached epoch's id at the scavenger's last look */
  struct label *exempt; /* the innermost scope is exempt and counts for this label (epoch/exempt.h); NULL: it is not */
  uint64_t exempt_from; /* the bytes that `plain` had handed out then */
  struct named named[NAMED];
  struct scope scopes[TSLAB_SCOPES + 1]; /* [0]: outside all scopes */
  struct attachments attached;
};
_Static_assert(sizeof(struct thread) <= THREAD_ROOM, "it has room in the body of a heap");

/* Returns the struct thread of all threads that this heap of epoch 0 serves, one after the other, or NULL for a folded
 * heap, which serves none. Thread: any. */
INLINE struct thread *thread_of_plain(struct heap *plain) {
  return LOAD_RACING(plain->folded) ? NULL : heap_room_for_thread(plain);
}

HIDDEN extern struct lock threads_lock;

HIDDEN void attach_start(struct attachments *table); /* makes an empty table */
HIDDEN void attach_end(struct attachments *table);   /* gives the table's memory up */

/* Makes room for the next attach_put. `thread` owns the table. Returns false without memory. */
HIDDEN bool attach_make_room(struct attachments *table, const struct thread *thread);
HIDDEN void attach_put(struct attachments *table, uint32_t slot, struct heap *heap); /* replaces the slot's last heap */

/* attach_find returns the heap that served the slot last, which may be stale, or NULL if the slot has no entry. */
INLINE uint32_t attach_place(const struct attachments *table, uint32_t slot) {
  return slot * UINT32_C(2654435769) >> (32 - table->log); /* 2^32 over the golden ratio: spreads neighbours */
}
INLINE struct heap *attach_find(const struct attachments *table, uint32_t slot) {
  uint32_t mask = ((uint32_t)1 << table->log) - 1;
  for (uint32_t i = attach_place(table, slot);; i = (i + 1) & mask) {
    const struct attachment *entry = &table->entries[i];
    if (LIKELY(entry->slot == slot)) return entry->heap;
    if (entry->slot == 0) return NULL;
  }
}

/* Returns true if the heap serves the epoch for the thread. The caller is the thread, or holds the epoch's lock. */
INLINE bool attach_is_valid(const struct heap *heap, const struct thread *thread, const struct epoch *e) {
  return LOAD_RACING(heap->thread) == thread && LOAD_RACING(heap->arena) == &e->arena;
}

INLINE bool attach_is_mine(const struct heap *heap) { return current_thread && heap->thread == current_thread; }

/* Attaches a heap to the thread, a new one or one that another thread left, and returns it, or NULL without memory.
 * Caller holds the epoch's lock. The thread's table has room. */
HIDDEN struct heap *attach_heap(struct thread *thread, struct epoch *e);

/* Detaches the heap, which no thread is inside. A heap with slabs stays with the epoch. Caller holds the epoch's
 * lock. */
HIDDEN void attach_drop(struct epoch *e, struct heap *heap);

/* For a fork child that froze: leaves the memory that threads gave up as it is. */
HIDDEN void attach_freeze(void);

#endif
