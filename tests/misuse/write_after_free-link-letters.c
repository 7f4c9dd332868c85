#include "misuse.h"

static void run(void) {
  char *block = culprit_of(SMALL);
  tslab_free(block);
  memset(block, 0x41, 8);
  for (int i = 0; i < 2; i++) CHECK(tslab_malloc(SMALL) != NULL);
  harm(false);
}

MISUSE("the first word written with text: the next malloc but one crashes", CRASHES, NULL,
       .hardened = {NAMED, WRITTEN_OR_OVERRUN("*")});
