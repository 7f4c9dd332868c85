#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  tslab_free(block + 16);
}

MISUSE("a pointer into a guarded block freed", NAMED,
       "free of interior pointer 0x* (16 bytes into a " ODD_BLOCK ")" ALLOCATED,
       GUARDED_BY);
