#include "misuse.h"

enum { MANY = 2000 };
static void *many[MANY];

static void run(void) {
  for (int i = 0; i < MANY; i++) CHECK((many[i] = tslab_malloc(SMALL)) != NULL);
  char *block = culprit(many[MANY / 2 + 50]);
  for (int i = 1; i < MANY; i++)
    if (i % 300 != 0) tslab_free(many[i]);
  tslab_purge();
  free_elsewhere(block);
}

MISUSE("a block freed again by another thread when its page, but not its slab, is with the kernel", NAMED,
       UNUSED("free", SMALL_TEXT), .in_one_page = {NAMED, TWICE(SMALL_TEXT)});
