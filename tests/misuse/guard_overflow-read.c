#include "misuse.h"

static void run(void) {
  const volatile char *block = guarded_in(0, AT_END);
  CHECK(block[ODD_END + 5] == 0);
}

MISUSE("a guarded block read past its pages", FAULTS,
       ACCESS("overflow", READ, 8) "past the end of 0xADDR (" ODD_BLOCK ")" ALLOCATED,
       GUARDED_BY);
