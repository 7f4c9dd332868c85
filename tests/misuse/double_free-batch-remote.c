#include "misuse.h"

static void *free_twice(void *block) {
  tslab_free(tslab_malloc(2 * SMALL)); /* the thread has a heap, so what it frees for others waits */
  tslab_free(block);
  tslab_free(block);
  return NULL;
}

static void run(void) { elsewhere(free_twice, culprit_of(SMALL)); }

MISUSE("a small block freed twice by another thread, which ends; named when its batch goes to the slabs", NAMED,
       TWICE_LATE(SMALL_TEXT),
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
