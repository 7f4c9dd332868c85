#include "misuse.h"

static void run(void) { free_elsewhere(culprit(never_handed_out(tslab_malloc(SMALL)))); }

MISUSE("a block freed that no malloc has returned yet, by another thread", NAMED,
       UNUSED("free", SMALL_TEXT), .in_one_page = {NAMED, TWICE(SMALL_TEXT)});
