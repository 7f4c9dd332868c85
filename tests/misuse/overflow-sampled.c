#include "misuse.h"

/* Two samples that lie side by side. */
static void run(void) {
  char *block = sampled_in(0, SMALL), *next = sampled_in(0, SMALL);
  while (next != block + SMALL) {
    block = next;
    next = sampled_in(0, SMALL);
  }
  tslab_free(culprit(next));
  tslab_purge(); /* it goes to its slab */
  memset(block + SMALL, 0x33, 16);
  for (int i = 0; i < 4; i++) sampled_in(0, SMALL);
}

MISUSE("a write past a sampled block, over the two words of a free one", NAMED,
       CHANGED(SMALL_TEXT, NEIGHBOUR("in use")) "\n  the block before it: allocated by thread * at *+0x*" SAMPLED,
       SAMPLED_BY, .hardened = {NAMED, WRITTEN_OR_OVERRUN(NEIGHBOUR("in use"))
                                "\n  the block before it: allocated by thread * at *+0x*" SAMPLED});
