#include "misuse.h"

static void run(void) {
  enum { FEW = 8 };
  char *blocks[FEW], *next = NULL;
  for (int i = 0; i < FEW; i++) CHECK((blocks[i] = tslab_malloc(LARGE)) != NULL);
  for (int i = 0; i < FEW * FEW && !next; i++)
    if (blocks[i / FEW] + LARGE == blocks[i % FEW]) next = blocks[i % FEW];
  harm(next != NULL);
  *(char *)culprit(next ? next : blocks[0] + LARGE) = 0x33;
}

MISUSE("a write past a large block", MISSED, NULL, .hardened = {.end = CRASHES});
