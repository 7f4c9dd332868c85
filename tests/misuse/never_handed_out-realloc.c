#include "misuse.h"

static void run(void) { CHECK(tslab_realloc(culprit(never_handed_out(tslab_malloc(SMALL))), 5000) == NULL); }

MISUSE("realloc of a block that no malloc has returned yet", NAMED, UNUSED("realloc", SMALL_TEXT),
       .in_one_page = {NAMED, FREED("realloc", SMALL_TEXT)});
