#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  free_elsewhere(block);
  tslab_free(block);
}

/* No slab is listed for one block alone, so where there are no more pages of it the list does not come by it again. */
MISUSE("a small block freed by another thread, then here", NAMED, CHANGED(SMALL_TEXT, "*"),
       .hardened = {NAMED, TWICE(SMALL_TEXT)}, .in_one_page = {MISSED, NULL});
