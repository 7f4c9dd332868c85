#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a path on a full disk", TOLD,
       "TSLAB_STATS_AT_EXIT: figures cut short (No space left on device): /dev/full",
       .environment = "TSLAB_STATS_AT_EXIT=/dev/full");
