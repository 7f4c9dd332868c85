#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL), *other = tslab_malloc(SMALL), *third = tslab_malloc(SMALL);
  tslab_free(block);
  tslab_free(other);
  tslab_free(third);
  tslab_free(block);
}

MISUSE("a small block freed again after two others", NAMED, CHANGED(SMALL_TEXT, "*"),
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
