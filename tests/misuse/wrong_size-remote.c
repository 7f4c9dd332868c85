#include "misuse.h"

static void *free_with_wrong_size(void *block) {
  tslab_free_sized(block, 5000);
  return NULL;
}

static void run(void) {
  elsewhere(free_with_wrong_size, culprit_of(SMALL));
}

MISUSE("free_sized by another thread with more than a small block has", NAMED, WRONG_SIZE(5000, SMALL_TEXT));
