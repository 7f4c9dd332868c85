#include "misuse.h"

static void run(void) {
  void *block;
  const tslab_handle handle = tslab_handle_alloc(0, SMALL, &block);
  void *moved = tslab_realloc(culprit(block), MEDIUM);
  CHECK(moved != NULL);
  CHECK(tslab_handle_free(handle));
  tslab_free(moved);
}

MISUSE("the block of a handle moved by realloc, then freed by its handle", NAMED, CHANGED(SMALL_TEXT, "*"),
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
