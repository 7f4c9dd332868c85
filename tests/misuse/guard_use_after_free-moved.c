#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  memset(block, 0x44, ODD);
  const char *moved = tslab_realloc(block, 500);
  CHECK(moved != NULL && moved != block && moved[ODD - 1] == 0x44);
  block[0] = 1;
}

MISUSE("a guarded block written after realloc has moved it", FAULTS,
       ACCESS("use after free", WRITE, 0) "into 0xADDR (" ODD_BLOCK ")" FREED_TOO,
       GUARDED_BY);
