#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_END);
  block[ODD_END] = 1;
}

MISUSE("a guarded block written past its pages", FAULTS,
       ACCESS("overflow", WRITE, 3) "past the end of 0xADDR (" ODD_BLOCK ")" ALLOCATED,
       GUARDED_BY);
