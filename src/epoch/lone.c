/* lone: see lone.h.                                                                                  floor: epoch */
#include "epoch/lone.h"

bool lone_ends_in_cache(struct epoch *e, struct chunk_live *given_up, bool is_close) {
  struct heap *heap = lone_heap(e);
  uint64_t handed_out = 0;
  if (!heap || !current_thread || !lone_may_stay(e, heap, is_close, &handed_out)) return false;
  if (is_close && handed_out != heap->before) epoch_learn(e, true);
  lone_empty(e, heap, given_up);
  epoch_cache_keep(current_thread, e, handed_out);
  return true;
}
