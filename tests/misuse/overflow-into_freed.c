/* Two that lie side by side. */
#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL), *next = tslab_malloc(SMALL);
  while (next != block + SMALL) {
    block = next;
    next = tslab_malloc(SMALL);
  }
  tslab_free(culprit(next));
  memset(block + SMALL, 0x33, 16);
}

MISUSE("a write past a small block, over the two words of a free one", NAMED, CHANGED(SMALL_TEXT, NEIGHBOUR("in use")),
       .hardened = {NAMED, WRITTEN_OR_OVERRUN(NEIGHBOUR("in use"))});
