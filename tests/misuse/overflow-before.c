#include "misuse.h"

static void run(void) {
  char *block = tslab_malloc(SMALL), *next = culprit_of(SMALL);
  while (next != block + SMALL) {
    block = next;
    next = culprit_of(SMALL);
  }
  memset(block, 0x22, SMALL);
  next[-1] = 0x33;
  harm(block[SMALL - 1] == 0x33);
}

MISUSE("a write before a small block", MISSED, NULL);
