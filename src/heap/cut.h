/* cut: brings the malloc that a class drew for the heap profile to the slow path.                   floor: heap
 *
 *   list: [ block | block | block | marked | block | ... ]     a malloc that finds a marked block comes to visit
 *           <------ depth ------> <------ below ------>
 *
 * Each class of a thread's heap draws how many mallocs pass until one is a sample: `left`, of a geometric distribution.
 * The fast path counts nothing, so it cannot stop at that malloc. But two numbers bound how many mallocs pass until the
 * next visit: each malloc takes a block that is on the list now, or one that is freed meanwhile. So a visit cuts the
 * list to
 *
 *   depth + room <= left
 *
 * where depth counts the blocks above the marked one and room counts the frees that may pass. It cuts nothing if the
 * list is short enough. A cut changes only the mark and the room, and touches neither a lock nor a slab. The mark
 * replaces the key in the second word of a free block. tcache_fold removes the mark before any code but the fast path
 * reads the list.
 *
 * Invariant: the drawn malloc never passes, unless a quarantine gave out blocks meanwhile (hardened). Then the next
 * malloc that visits is the sample.
 * Threads:   the heap's own, or one that may fold its lists. Heaps of epochs are not cut. */
#ifndef TSLAB_HEAP_CUT_H
#define TSLAB_HEAP_CUT_H

#include "heap/profile.h"

#if TSLAB_TELEMETRY

/* Returns how many mallocs may pass until the sample. */
INLINE unsigned cut_left(const struct heap *heap, const struct draw *draw, unsigned class) {
  struct count seen = count_look(&heap->count[class]);
  int left = draw->left - (int)count_passed(seen.then, seen.now).mallocs;
  return left > 0 ? (unsigned)left : 0;
}

/* Cuts the class's list if necessary. A visit that folded the list calls this after it changed the list or its room.
 * Returns true if the list is cut. A list that is not cut may be detached, because it comes back no longer than it was.
 * Needs no lock. */
HIDDEN void cut_list_slow(struct heap *heap, unsigned class);
INLINE bool cut_list(struct heap *heap, unsigned class) {
  const struct draw *draw = &heap->store->draws[class];
  uint32_t now = heap->count[class].now, interval = profile_interval_now();
  if (UNLIKELY(heap->arena)) return false;
  if (LIKELY(draw->interval == interval && count_length(now) + count_room(now) <= cut_left(heap, draw, class)))
    return false;
  cut_list_slow(heap, class);
  return draw->withheld || draw->marked;
}

/* Undoes the cut: the list and its room are whole again. */
HIDDEN void cut_undo(struct heap *heap, unsigned class);
INLINE void cut_settle(struct heap *heap, unsigned class) {
  const struct draw *draw = &heap->store->draws[class];
  if (UNLIKELY(draw->marked || draw->withheld)) cut_undo(heap, class);
}

/* Counts `mallocs` that passed, at a visit after which the class's counts start anew. */
INLINE void cut_count(struct heap *heap, unsigned class, unsigned mallocs) {
  struct draw *draw = &heap->store->draws[class];
  if (draw->interval) draw->left -= (int32_t)mallocs;
}

/* For heap/sampled.h. cut_draw draws how many mallocs pass from now on. cut_unmark removes the mark. cut_again cuts the
 * list: one `share`th of the mallocs that may pass find a block above the mark, the rest is room for frees. If mallocs
 * and frees balance, the frees use up the room, so a sixteenth suffices. If mallocs use the list up, a half does. To
 * mark a block takes a step for each block above it. */
enum cut_share { CUT_FEW_BLOCKS = 16, CUT_HALF_BLOCKS = 2 };
HIDDEN void cut_draw(struct heap *heap, unsigned class);
HIDDEN void cut_unmark(struct draw *draw);
HIDDEN void cut_again(struct heap *heap, unsigned class, enum cut_share share);

/* Serves a free that found no room. Returns true if the cut was the reason; the block is then on the list. */
HIDDEN void cut_overflow_slow(struct heap *heap, unsigned class, void *block);
INLINE bool cut_overflow(struct heap *heap, unsigned class, void *block) {
  if (LIKELY(heap->store->draws[class].withheld == 0)) return false;
  cut_overflow_slow(heap, class, block);
  return true;
}

#else

INLINE bool cut_list(struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void cut_settle(struct heap *heap, unsigned class) { (void)heap, (void)class; }
INLINE void cut_count(struct heap *heap, unsigned class, unsigned mallocs) { (void)heap, (void)class, (void)mallocs; }
INLINE bool cut_overflow(struct heap *heap, unsigned class, void *block) {
  return (void)heap, (void)class, (void)block, false;
}

#endif

#endif
