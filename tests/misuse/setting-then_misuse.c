#include "misuse.h"

static void run(void) {
  void *block = culprit_of(SMALL);
  tslab_free(block);
  tslab_free(block);
}

MISUSE("a wrong word for what follows a misuse, and a misuse", NAMED,
       "TSLAB_ON_MISUSE=bogus: expected abort or report; using abort\n"
       CHANGED(SMALL_TEXT, "*"),
       .environment = "TSLAB_ON_MISUSE=bogus",
       .hardened = {NAMED, "TSLAB_ON_MISUSE=bogus: expected abort or report; using abort\n" TWICE(SMALL_TEXT)});
