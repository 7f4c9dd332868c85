#include "misuse.h"

static void run(void) {
  char *block = culprit_of(SMALL), *moved = tslab_realloc(block, MEDIUM);
  CHECK(moved != NULL && moved != block && moved[SMALL - 1] == 0x22);
  tslab_free(block);
  tslab_free(moved);
}

MISUSE("a block freed that realloc has moved", NAMED, CHANGED(SMALL_TEXT, "*"),
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
