/* lone: see lone.h.                                                                                  floor: epoch */
#include "epoch/lone.h"

bool lone_ends_in_cache(struct epoch *e, struct chunk_live *given_up, bool is_close) {
  struct heap *heap = lone_heap(e);
  uint64_t handed_out = 0;
  if (!heap || !current_thread || inside_is_busy(heap)) return false;
  bool drained = lone_is_drained(heap, &handed_out);
  if ((is_close ? !drained : heap_has_slabs(heap)) || !epoch_cache_may_keep(current_thread, e)) return false;
  if (is_close && handed_out != heap->before) epoch_learn(e, true);
  lone_empty(e, heap, given_up);
  epoch_cache_keep(current_thread, e, handed_out);
  return true;
}
