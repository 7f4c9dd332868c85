#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_ANY);
  tslab_free(block + 128);
}

MISUSE("a pointer behind a guarded block freed", NAMED,
       "free of foreign pointer 0x* (between guarded blocks)",
       GUARDED_BY);
