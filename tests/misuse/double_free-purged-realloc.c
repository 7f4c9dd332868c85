#include "misuse.h"

enum { MANY = 2000 };
static void *many[MANY];

static void run(void) {
  for (int i = 0; i < MANY; i++) CHECK((many[i] = tslab_malloc(SMALL)) != NULL);
  char *block = culprit(many[MANY / 2 + 50]);
  for (int i = 1; i < MANY; i++)
    if (i % 300 != 0) tslab_free(many[i]);
  tslab_purge();
  CHECK(tslab_realloc(block, 5000) == NULL);
}

MISUSE("realloc of a freed block whose page, but not its slab, is with the kernel", NAMED,
       UNUSED("realloc", SMALL_TEXT), .in_one_page = {NAMED, FREED("realloc", SMALL_TEXT)});
