/* lone: ends an epoch that only the calling thread was in, as most requests do.                      floor: epoch
 *
 * The epoch's only heap is attached to this thread and holds only its chunk, or slabs. Such an epoch does not close: it
 * becomes the thread's cached epoch (epoch/cache.h). A reset empties it in place.
 *
 * Threads: the caller holds the epoch's lock, or owns the epoch. */
#ifndef TSLAB_EPOCH_LONE_H
#define TSLAB_EPOCH_LONE_H

#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/handle.h"
#include "epoch/inside.h"
#include "heap/bump.h"
#include "heap/fast.h"

/* Returns true if the end may take the short way of a lone epoch. Takes no lock, so true is a guess. */
INLINE bool lone_is_possible(const struct epoch *e, const tslab_epoch_report *out) {
  return e && !out && !epoch_has_children(e) && options.on_destroy == DESTROY_DESTROYS;
}

/* Returns the epoch's only heap, or NULL if the epoch is not lone. */
INLINE struct heap *lone_heap(const struct epoch *e) {
  struct heap *heap = e->heaps;
  if (!heap || heap->next_of_epoch || !attach_is_mine(heap) || options.on_destroy == DESTROY_TRAPS) return NULL;
  return bump_is_all(heap) ? heap : NULL;
}

/* Returns true if each block of a lone heap was freed; blocks of slabs count only if the heap's thread freed them. */
INLINE bool lone_is_drained(const struct heap *heap, struct tcache_sums sums) {
  return !bump_has_live(heap) && (!heap_has_slabs(heap) || tcache_unfreed(sums) == heap->lost);
}

/* Returns true if the epoch of a lone heap can become the thread's cached epoch. `is_close`: by a close, which gives up
 * no block. *handed_out gets the number of its blocks. */
INLINE bool lone_may_stay(struct epoch *e, struct heap *heap, bool is_close, uint64_t *handed_out) {
  struct tcache_sums sums = {heap->served, heap->freed};
  if (UNLIKELY(heap->opened)) sums = tcache_sums(heap);
  *handed_out = heap->bump.allocations + heap->bump.count + sums.allocations;
  if (is_close ? !lone_is_drained(heap, sums) : heap_has_slabs(heap)) return false;
  return !inside_is_busy(heap) && epoch_cache_may_keep(current_thread, e);
}

INLINE void lone_empty(struct epoch *e, struct heap *heap, struct chunk_live *given_up) {
  if (heap->bump.chunk && heap->bump.count > 0) {
    if (given_up) *given_up = chunk_live(heap->bump.chunk);
    bump_empty(heap);
  }
  handle_forget_all(e);
}

/* Returns 0 if the caller may destroy and reset `id`, otherwise the error. */
INLINE int epoch_destroyable(const struct epoch *e, uint64_t id) {
  int error = epoch_error(e, id);
  if (error == 0 && !(LOAD_RACING(e->flags) & TSLAB_EPOCH_DESTROYABLE)) error = EPERM;
  return error;
}

/* Returns true if the end is not a short one: there are handles, or new slabs that the end must first count and
 * trim. */
INLINE bool lone_takes_long(const struct epoch *e, const struct heap *heap) {
  return atomic_load_explicit(&e->handles, memory_order_relaxed) != 0 ||
         (heap_has_slabs(heap) && e->kept_at != (uint32_t)heap->visits);
}

/* Returns the heap of a lone epoch that can end, or be reset, at once, or NULL. *handed_out gets the number of its
 * blocks. */
enum ending { CLOSE, DESTROY, RESET };
INLINE struct heap *lone_ready(struct epoch *e, uint64_t id, enum ending how, uint64_t *handed_out) {
  int error = how == CLOSE ? epoch_error(e, id) : epoch_destroyable(e, id);
  struct heap *heap = error == 0 ? lone_heap(e) : NULL;
  if (!heap || UNLIKELY(lone_takes_long(e, heap))) return NULL;
  if (how == RESET) return heap_has_slabs(heap) ? NULL : heap;
  return lone_may_stay(e, heap, how == CLOSE, handed_out) ? heap : NULL;
}

/* Ends an epoch if it is a lone one. Returns true if it is the thread's cached epoch now. `is_close`: a close, which
 * gives up no block. Caller owns the epoch. */
HIDDEN bool lone_ends_in_cache(struct epoch *e, struct chunk_live *given_up, bool is_close);

#endif
