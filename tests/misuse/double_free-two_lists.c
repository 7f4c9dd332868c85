#include "misuse.h"

enum { MANY = 2000 };
static void *many[MANY];

static void run(void) {
  for (int i = 0; i < MANY; i++) CHECK((many[i] = memset(tslab_malloc(SMALL), 0x22, SMALL)) != NULL);
  char *live = many[MANY / 2];
  void *block = culprit(many[MANY / 2 + 1]);
  tslab_free(block);
  for (int i = 0; i < MANY / 4; i++) tslab_free(many[i]);
  tslab_free(block);
  for (int i = MANY / 4; i < MANY; i++)
    if (many[i] != block && many[i] != live) tslab_free(many[i]);
  tslab_purge();
  harm(live[SMALL / 2] != 0x22);
}

MISUSE("a block freed again after a full list took it along: its slab retires too early, with a live block", MISSED,
       NULL,
       .hardened = {NAMED, TWICE(SMALL_TEXT)},
       .environment = "TSLAB_CACHE=0");
