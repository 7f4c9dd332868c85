/* Mistakes in the environment are named once and survived. */
#include "misuse.h"

#include <signal.h>

static void nothing(void) { tslab_free(tslab_malloc(10)); }

static void double_free(void) {
  void *block = tslab_malloc(96);
  culprit(block);
  tslab_free(block);
  tslab_free(block);
}

#define BOGUS "tslab: TSLAB_ON_MISUSE=bogus: expected abort or report; using abort\n"
#define DOUBLE_FREE "tslab: double free of 0xADDR (96-byte class)\n"

const struct misuse_case misuse_cases[] = {
    {"known", nothing, "", "TSLAB_ON_MISUSE=abort", 0},
    {"unknown", nothing, "tslab: unknown setting TSLAB_FOO (see docs/settings.md)\n", "TSLAB_FOO=1", 0},
    {"other prefix", nothing, "", "TSLABS_FOO=1", 0},
    {"bad value", nothing, BOGUS, "TSLAB_ON_MISUSE=bogus", 0},
    {"bad value, then misuse", double_free, BOGUS DOUBLE_FREE, "TSLAB_ON_MISUSE=bogus", SIGABRT},
    {"abort", double_free, DOUBLE_FREE, "TSLAB_ON_MISUSE=abort", SIGABRT},
    {0},
};
