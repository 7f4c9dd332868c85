/* attach: which of a thread's heaps serves which epoch.                                             floor: epoch
 *
 *   [ slot, heap | slot, heap | 0 | slot, heap | ... ]      open addressing; at most three quarters are used
 *
 * A thread keeps its heap of an epoch until the epoch or the thread ends, however many others it enters. An epoch's
 * slot itself leads the first thread to its heap (epoch/scope.h); this table leads every other thread to its own, and a
 * dying thread to all that it has. An entry whose epoch ended stays, and is stale: its heap is no longer the thread's,
 * or serves another slot. Stale entries disappear when the table is full and is built anew, of the size that the others
 * need.
 *
 * Invariant: every heap that is attached to a thread has one entry in the thread's table, and no slot has two.
 * Threads:   a table belongs to its thread. Memory of tables that threads gave up is under threads_lock. */
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

HIDDEN extern struct lock threads_lock;

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

/* In a fork child that froze: memory that was given up stays as it is. */
HIDDEN void attach_freeze(void);

#endif
