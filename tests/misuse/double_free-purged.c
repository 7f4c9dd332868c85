#include "misuse.h"

enum { MANY = 2000 };
static void *many[MANY];

static void run(void) {
  for (int i = 0; i < MANY; i++) CHECK((many[i] = tslab_malloc(SMALL)) != NULL);
  char *block = culprit(many[MANY / 2 + 50]);
  for (int i = 1; i < MANY; i++)
    if (i % 300 != 0) tslab_free(many[i]);
  tslab_purge();
  tslab_free(block);
  void *first = tslab_malloc(SMALL);
  int owners = first == block;
  for (int i = 0; i < MANY; i++) owners += tslab_malloc(SMALL) == block;
  harm(owners == 2);
}

MISUSE("a block freed again by its own thread when its page, but not its slab, is with the kernel: two get it", MISSED,
       NULL,
       .hardened = {NAMED, UNUSED("free", SMALL_TEXT)}, .in_one_page = {NAMED, TWICE_LATE(SMALL_TEXT)});
