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
 * Threads:   the heap's own, or one that may fold its lists. */
#ifndef TSLAB_HEAP_CUT_H
#define TSLAB_HEAP_CUT_H

#include "heap/profile.h"

#if TSLAB_TELEMETRY

/* Returns how many mallocs may pass from the last visit that counted until the sample: below 0 if it is late
 * (hardened). */
INLINE int cut_left_then(const struct heap *heap, const struct draw *draw, unsigned class) {
  return (int)(draw->due - (uint32_t)heap->bins[class].allocations);
}

/* Returns how many mallocs may pass until the sample. */
INLINE unsigned cut_left(const struct heap *heap, const struct draw *draw, unsigned class) {
  struct count seen = count_look(&heap->count[class]);
  int left = cut_left_then(heap, draw, class) - (int)count_passed(seen.then, seen.now).mallocs;
  return left > 0 ? (unsigned)left : 0;
}

/* Cuts the class's list if necessary. A visit that folded the list calls this after it changed the list or its room,
 * and after its own malloc; no other malloc has passed. Returns true if the list is cut. A list that is not cut may be
 * detached, because it comes back no longer than it was. Needs no lock. */
HIDDEN void cut_list_slow(struct heap *heap, unsigned class);
INLINE bool cut_list(struct heap *heap, unsigned class) {
  const struct draw *draw = &heap->store->draws[class];
  uint32_t now = heap->count[class].now, interval = profile_interval_now();
  int longest = (int)(count_length(now) + count_room(now)) + 1;
  INVARIANT(1, count_passed(heap->count[class].then, now).mallocs <= 1);
  if (LIKELY(longest <= cut_left_then(heap, draw, class) && draw->interval == interval)) return false;
  cut_list_slow(heap, class);
  return draw->withheld || draw->marked;
}

/* Undoes the cut: the list and its room are whole again. */
HIDDEN void cut_undo(struct heap *heap, unsigned class);
INLINE void cut_settle(struct heap *heap, unsigned class) {
  const struct draw *draw = &heap->store->draws[class];
  if (UNLIKELY(draw->marked || draw->withheld)) cut_undo(heap, class);
}

/* For heap/sampled.h. cut_draw draws how many mallocs pass from now on. cut_unmark removes the mark. cut_again cuts the
 * list: one `share`th of the mallocs that may pass find a block above the mark, the rest is room for frees. If mallocs
 * and frees balance, the frees use up the room, so a sixteenth suffices. If mallocs use the list up, a half does. To
 * mark a block takes a step for each block above it. */
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
INLINE bool cut_withholds(const struct heap *heap, unsigned class) { return (void)heap, (void)class, false; }
INLINE void cut_begin_pass(struct heap *heap, unsigned class) { (void)heap, (void)class; }
INLINE void cut_end_pass(struct heap *heap, unsigned class) { (void)heap, (void)class; }

#endif

#endif
