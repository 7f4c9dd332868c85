#include "misuse.h"

static void run(void) {
  tslab_free(tslab_malloc(10));
}

MISUSE("a variable that is not ours", RETURNED, NULL, .environment = "TSLABS_FOO=1");
