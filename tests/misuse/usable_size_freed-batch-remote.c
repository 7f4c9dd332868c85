#include "misuse.h"

static void *ask(void *block) {
  tslab_free(tslab_malloc(2 * SMALL)); /* the thread has a heap, so what it frees for others waits */
  tslab_free(block);
  tslab_malloc_usable_size(block);
  return NULL;
}

static void run(void) { elsewhere(ask, culprit_of(SMALL)); }

MISUSE("malloc_usable_size of a small block that another thread freed, while that free waits for its batch", MISSED,
       NULL, .hardened = {NAMED, FREED("malloc_usable_size", SMALL_TEXT)});
