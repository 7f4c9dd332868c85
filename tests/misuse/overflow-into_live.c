#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL), *next = culprit_of(SMALL);
  while (next != block + SMALL) {
    block = next;
    next = culprit_of(SMALL);
  }
  memset(block + SMALL, 0x33, 16);
  harm(next[0] == 0x33);
}

MISUSE("a write past a small block, into one in use", MISSED, NULL);
