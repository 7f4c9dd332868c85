/* cut: how the malloc that a class drew for the heap profile comes to the slow path.                floor: heap
 *
 *   list: [ block | block | block | marked | block | ... ]     a malloc that finds a marked block comes to visit
 *           <------ depth ------> <------ below ------>
 *
 * Each class of a thread's heap draws how many mallocs pass until one is a sample: `left`, of a geometric distribution.
 * A fast path that counts nothing cannot stop at that one, but two numbers bound how many mallocs pass until the next
 * visit: each takes a block that is on the list now, or one that is freed meanwhile. So the list is cut to
 *
 *   depth + room <= left
 *
 * where depth counts the blocks above the marked one and room the frees that may pass. Nothing is cut while the list is
 * short enough as it is. A visit that only counts then changes the mark and the room, and touches neither lock nor
 * slab. The mark is a key that is none, in the second word of a free block; it is gone before anything but the fast
 * path looks at the list (tcache_fold).
 *
 * Invariant: no malloc passes that was drawn, unless a quarantine handed out blocks meanwhile (hardened): then the next
 * one to visit is the sample.
 * Threads:   the heap's own, or who may fold its lists. Heaps of epochs are not cut. */
#ifndef TSLAB_HEAP_CUT_H
#define TSLAB_HEAP_CUT_H

#include "heap/profile.h"

#if TSLAB_TELEMETRY

/* Mallocs that may pass until the sample. */
INLINE unsigned cut_left(const struct heap *heap, const struct draw *draw, unsigned class) {
  struct count seen = count_look(&heap->count[class]);
  int left = draw->left - (int)count_passed(seen.then, seen.now).mallocs;
  return left > 0 ? (unsigned)left : 0;
}

/* After a change of the class's list or room, by a visit that folded it: cuts it if need be. Returns true if it is
 * cut. A list that is not may be detached: it comes back no longer than it went. No lock is needed. */
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

/* The list is whole again, its room too. */
HIDDEN void cut_undo(struct heap *heap, unsigned class);
INLINE void cut_settle(struct heap *heap, unsigned class) {
  const struct draw *draw = &heap->store->draws[class];
  if (UNLIKELY(draw->marked || draw->withheld)) cut_undo(heap, class);
}

/* Counts `mallocs` that went by. The class's counts start anew. */
INLINE void cut_count(struct heap *heap, unsigned class, unsigned mallocs) {
  struct draw *draw = &heap->store->draws[class];
  if (draw->interval) draw->left -= (int32_t)mallocs;
}

/* For heap/sampled.h: draws how many mallocs pass from now on; takes the mark away; cuts the list, of whose blocks a
 * `share`th of the mallocs that may pass stays above the mark. Where mallocs and frees balance, the frees use up their
 * room, and each visit leaves a sixteenth. Where mallocs find the list used up, each visit leaves a half. To mark a
 * block takes a step for each one above it. */
enum cut_share { CUT_FEW_BLOCKS = 16, CUT_HALF_BLOCKS = 2 };
HIDDEN void cut_draw(struct heap *heap, unsigned class);
HIDDEN void cut_unmark(struct draw *draw);
HIDDEN void cut_again(struct heap *heap, unsigned class, enum cut_share share);

/* Returns true if the class's list has room for a free that found none: the cut withholds it. */
INLINE bool cut_withholds(const struct heap *heap, unsigned class) {
  return UNLIKELY(heap->store->draws[class].withheld != 0);
}

/* Let such a free pass, which the fast path has counted: the caller puts its block on the list between the two. */
HIDDEN void cut_begin_pass(struct heap *heap, unsigned class);
HIDDEN void cut_end_pass(struct heap *heap, unsigned class);

#else

INLINE bool cut_list(struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void cut_settle(struct heap *heap, unsigned class) { (void)heap, (void)class; }
INLINE void cut_count(struct heap *heap, unsigned class, unsigned mallocs) { (void)heap, (void)class, (void)mallocs; }
INLINE bool cut_withholds(const struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void cut_begin_pass(struct heap *heap, unsigned class) { (void)heap, (void)class; }
INLINE void cut_end_pass(struct heap *heap, unsigned class) { (void)heap, (void)class; }

#endif

#endif
