#include "misuse.h"

static void run(void) {
  char *block = guarded_in(0, AT_END);
  block[-1000] = 1;
  tslab_free(block);
}

MISUSE("a guarded block at the end of its page written far before its start", NAMED,
       "underflow: a write 1000 bytes before 0xADDR (" ODD_BLOCK "), found at its free" ALLOCATED,
       GUARDED_BY);
