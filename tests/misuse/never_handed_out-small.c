#include "misuse.h"

static void run(void) {
  char *never = never_handed_out(tslab_malloc(SMALL));
  tslab_free(culprit(never));
  harm(tslab_malloc(SMALL) == never);
}

MISUSE("a block freed that no malloc has returned yet, in a slab of the thread", MISSED, NULL,
       .hardened = {NAMED, UNUSED("free", SMALL_TEXT)}, .in_one_page = {NAMED, TWICE_LATE(SMALL_TEXT)});
