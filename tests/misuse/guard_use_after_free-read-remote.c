#include "misuse.h"

static void run(void) {
  const volatile char *block = guarded_in(0, AT_ANY);
  free_elsewhere((void *)(uintptr_t)block);
  CHECK(block[92] == 0);
}

MISUSE("a guarded block read after another thread has freed it", FAULTS,
       ACCESS("use after free", READ, 92) "into 0xADDR (" ODD_BLOCK ")" FREED_TOO,
       GUARDED_BY);
