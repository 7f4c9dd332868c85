#include "misuse.h"

static void run(void) {
  tslab_free(culprit((char *)tslab_malloc(LARGE - 100000) + LARGE - 100000 + 34464 - 4096));
}

MISUSE("the rest behind a large block freed", NAMED, FOREIGN("free"),
       .in_one_page = {NAMED, INTERIOR("free", 3076096, LARGE_TEXT)});
