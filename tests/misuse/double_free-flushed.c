/* Every tenth block keeps its slab alive; without magazines a full list goes to the slabs. */
#include "misuse.h"

enum { MANY = 2000 };
static void *many[MANY];

static void run(void) {
  for (int i = 0; i < MANY; i++) CHECK((many[i] = tslab_malloc(SMALL)) != NULL);
  void *block = culprit(many[MANY / 2 + 1]);
  for (int i = 0; i < MANY; i++)
    if (i % 10 != 0) tslab_free(many[i]);
  tslab_free(block);
}

MISUSE("a block freed again when its slab, which lives, has it back", NAMED, CHANGED(SMALL_TEXT, "*"),
       .environment = "TSLAB_CACHE=0",
       .hardened = {NAMED, TWICE(SMALL_TEXT)});
