/* bump: how an epoch's heap allocates until its epoch reuses memory.                                floor: heap
 *
 * A heap of an epoch puts blocks of up to BUMP_MOST bytes one after the other into chunks (slab/chunk.h), so that a
 * request touches few pages and its end is O(1) for each chunk. Its lists stay empty meanwhile. malloc and free run the
 * same instructions as ever: malloc finds an empty list, free finds no owner, and both come here. When a chunk is full
 * and over a quarter of the epoch's blocks are free, the heap turns to slabs. It also does so if no epoch of the label
 * is known to have ended, because this one may live for good (docs/decisions/0021). But a small epoch of a thread in
 * many fills the holes of its chunks instead (docs/decisions/0081).
 *
 * The free of the block that was handed out last takes it back: the next malloc gets its place, with the lines that are
 * hot, and the chunk of an epoch that frees what it takes does not fill (docs/decisions/0051). bump.last is that block.
 * Once it was taken back, bump.last is its address plus 1, and a free looks which block is the last now. A hardened
 * library takes none back: a pointer to a freed block leads to no other.
 *
 * A thread that is in many epochs may leave a nearly empty chunk in each. So its heaps take quarters of granules
 * (slab/quarter.h) until they have filled four of them; only the fourth counts as a full chunk.
 *
 * Threads: only the heap's thread uses its bump; any thread frees blocks of a sealed chunk. */
#ifndef TSLAB_HEAP_BUMP_H
#define TSLAB_HEAP_BUMP_H

#include "heap/arena.h"
#include "heap/heap.h"
#include "slab/chunk.h"

#define BUMP_MOST (16 * KiB)
#define BUMP_QUARTER_MOST (4 * KiB) /* in quarters; larger blocks would leave too much of them unused */
#define BUMP_WHOLE_CHUNKS (TSLAB_CHECK_LEVEL >= 2 ? 2 : 8) /* a thread in more epochs takes quarters */

/* Return the place of an address's bits in the current chunk. bump.starts and bump.freed are where the bits of address
 * 0 would be if the chunk began there. */
INLINE struct chunk_starts *bump_starts(uintptr_t starts, uintptr_t p) {
  return (struct chunk_starts *)(starts + p / (64 * CHUNK_UNIT) * sizeof(struct chunk_starts));
}
INLINE struct chunk_freed *bump_freed(uintptr_t freed, uintptr_t p) {
  return (struct chunk_freed *)(freed + p / (64 * CHUNK_UNIT) * sizeof(struct chunk_freed));
}

/* Returns a block of `size` bytes, at least one and at most BUMP_MOST, or NULL if the chunk is full or the heap has
 * none. FORGET() stops the compiler from recomputing these values, which saves four instructions. */
INLINE void *bump_take(struct heap *heap, size_t size) {
  uintptr_t at = (uintptr_t)heap->bump.at;
  KEEP_FOR_RETURN(at);
  uintptr_t next = at + size + (CHUNK_UNIT - 1);
  FORGET(next);
  next = round_down(next + (size == 0), CHUNK_UNIT);
  if (UNLIKELY(next > (uintptr_t)LOAD_RACING(heap->bump.end))) return NULL; /* a heap without a chunk ends here, too */
  if (at == 0) __builtin_unreachable(); /* tells the caller that this is not NULL */
  heap->bump.at = (char *)next;
  STORE_RACING(heap->bump.last, at);
  STORE_RACING(heap->bump.count, heap->bump.count + 1);
  uintptr_t starts = heap->bump.starts;
  const struct chunk_starts *from = bump_starts(starts, next);
  uint64_t word = __atomic_load_n(&from->word, __ATOMIC_RELAXED);
  FORGET(starts);
  FORGET(word);
  struct chunk_starts *to = bump_starts(starts, next);
  __atomic_store_n(&to->word, word | chunk_bit(next), __ATOMIC_RELAXED);
  return (void *)at;
}

/* Blocks of the current chunk that were taken back and are not yet counted. */
INLINE uint32_t bump_taken_back(const struct bump *bump) { return LOAD_RACING(bump->given) - LOAD_RACING(bump->turns); }
/* Blocks in the current chunk, with those that were freed. */
INLINE uint32_t bump_held(const struct bump *bump) { return LOAD_RACING(bump->count) - bump_taken_back(bump); }

/* The next block will start at p, where the last one starts. */
INLINE void bump_take_back(struct bump *bump, uintptr_t p) {
  uintptr_t end = (uintptr_t)bump->at;
  chunk_unset(&bump_starts(bump->starts, end)->word, chunk_bit(end));
  bump->at = (char *)p;
  STORE_RACING(bump->last, p + 1);
}

/* Frees a block of the heap's current chunk that others follow. Returns false if it is none, or not live. */
INLINE bool bump_free_within(struct bump *bump, const void *p) {
  uintptr_t at = (uintptr_t)p;
  struct chunk_freed *freed = bump_freed(bump->freed, at);
  uint64_t here = freed->local, gone = here | __atomic_load_n(&freed->remote, __ATOMIC_RELAXED);
  uint64_t live = bump_starts(bump->starts, at)->word & ~gone;
  uint64_t bit = chunk_bit(at);
  if (UNLIKELY(!(live & bit))) return false;
  __atomic_store_n(&freed->local, here | bit, __ATOMIC_RELAXED);
  bump->gone++;
  return true;
}

/* Returns true if p, which lies in the chunk, starts the block that ends at bump.at; false for some that do, too: those
 * that are far from it. */
INLINE bool bump_ends_at_next(const struct bump *bump, uintptr_t p) {
  uintptr_t end = (uintptr_t)bump->at;
  uintptr_t words = end / (64 * CHUNK_UNIT) - p / (64 * CHUNK_UNIT);
  uint64_t before = bump_starts(bump->starts, end)->word & (chunk_bit(end) - 1);
  if (words == 1 && before == 0) before = bump_starts(bump->starts, p)->word;
  else if (words != 0) return false;
  return before >> chunk_shift(p) == 1;
}

enum bump_free { BUMP_FREED, BUMP_UNSURE, BUMP_ELSEWHERE };

/* Frees a block of the heap's current chunk in a few instructions. BUMP_UNSURE: it needs bump_free_current; and
 * BUMP_ELSEWHERE: it lies elsewhere. Then nothing happened. Where others freed nothing, the last block is live. */
INLINE enum bump_free bump_free_at_once(struct heap *heap, const void *p) {
  struct bump *bump = &heap->bump;
  uintptr_t at = (uintptr_t)p, last = bump->last;
  if (TSLAB_HARDENED || at != last) {
    bool is_here = at < (uintptr_t)bump->at && at >= (uintptr_t)bump->start && at % CHUNK_UNIT == 0;
    if (UNLIKELY(!is_here)) return BUMP_ELSEWHERE;
    if (TSLAB_HARDENED || LIKELY(last % CHUNK_UNIT == 0)) return bump_free_within(bump, p) ? BUMP_FREED : BUMP_UNSURE;
    if (!bump_ends_at_next(bump, at) || bump->chunk->class) return BUMP_UNSURE; /* a gap looks like a block here */
  }
  uint32_t turns = bump->turns - 1;
  if (UNLIKELY(turns == 0 || bump->gone != bump->unwound)) return BUMP_UNSURE;
  if (UNLIKELY(atomic_load_explicit(&bump->chunk->word, memory_order_relaxed) != 0)) return BUMP_UNSURE;
  STORE_RACING(bump->turns, turns);
  bump_take_back(bump, at);
  return BUMP_FREED;
}

/* Frees a live block of the heap's current chunk. Returns false if p is something else, and nothing happened. It takes
 * no lock. */
HIDDEN bool bump_free_current(struct heap *heap, const void *p);

/* Gives a live block that was handed out last another size, where it is. False: it is another one, or has no room. */
HIDDEN bool bump_resize(struct heap *heap, const void *p, size_t size);

/* Return a block after bump_take failed, if necessary of a new chunk. NULL if the heap does not bump, the size is above
 * BUMP_MOST, or there is no memory or budget. */
HIDDEN void *bump_refill(struct heap *heap, size_t size);
HIDDEN void *bump_aligned(struct heap *heap, size_t alignment, size_t size);

/* Frees a block of any chunk. Returns false, and changes nothing, if p is no live block. Thread: any. */
HIDDEN bool bump_free(struct run *chunk, void *p);

/* Starts over: the heap has a new epoch, or none of its chunks any more. */
HIDDEN void bump_start(struct heap *heap);

/* Lets the heap's thread find its chunk full at the next malloc. Thread: any that holds the epoch's lock. */
HIDDEN void bump_halt(struct heap *heap);

/* For a fork child: seals the chunks of heaps whose threads do not exist there. Such a thread may have been in the
 * middle of a call. A chunk without a live block is released, so its epoch may end. */
HIDDEN void bump_seal_orphans(struct arena *arena);
HIDDEN void bump_orphan(struct heap *heap); /* after that: such a heap has no chunk any more */

/* Takes the heap's chunks from it; they stay with the epoch, and any thread frees their blocks. If `to_continue`,
 * another heap may continue the current one. Thread: the heap's, or another one while that cannot use the heap. */
HIDDEN void bump_leave(struct heap *heap, bool to_continue);

/* Returns true if the epoch holds only the heap's current chunk and slabs. It reads the epoch's bytes first: a slab
 * that another thread retires leaves the heap before it leaves the epoch, and must not stand for another run. */
INLINE bool bump_is_all(const struct heap *heap) {
  size_t own = atomic_load_explicit(&heap->arena->own, memory_order_acquire); /* pairs with discharge */
  size_t slabs = (size_t)atomic_load_explicit(&heap->slab_granules, memory_order_relaxed) << GRANULE_SHIFT;
  return own == slabs + heap->bump.bytes;
}

HIDDEN bool bump_has_live(const struct heap *heap); /* a block of the current chunk is live */

/* Makes the current chunk as new. Its blocks are all free or given up. This takes time in proportion to its used part.
 * Thread: the heap's. */
HIDDEN void bump_empty(struct heap *heap);

/* Retires a sealed chunk whose blocks are all free or given up, and leaves its run to the caller. */
HIDDEN void bump_retire(struct run *chunk);

/* Gives pages without live blocks of at most `most` full chunks back to the kernel. Returns the bytes. */
HIDDEN size_t bump_purge_dead(struct arena *arena, unsigned most);

/* Returns the number of blocks handed out since the chunk was empty. Caller holds the epoch's arena_lock. */
HIDDEN unsigned bump_blocks(const struct run *chunk);

/* bump_live returns a chunk's live blocks; bump_allocations returns all blocks ever handed out in chunks. */
HIDDEN struct chunk_live bump_live(const struct run *chunk); /* thread: any that holds its arena's lock */
HIDDEN uint64_t bump_allocations(void);

#endif
