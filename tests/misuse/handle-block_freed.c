#include "misuse.h"

static void run(void) {
  void *block;
  const tslab_handle handle = tslab_handle_alloc(0, SMALL, &block);
  tslab_free(culprit(block));
  CHECK(tslab_handle_free(handle));
}

MISUSE("the block of a handle freed by free, then by its handle", NAMED, CHANGED(SMALL_TEXT, "*"),
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
