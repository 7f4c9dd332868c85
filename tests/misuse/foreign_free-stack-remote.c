#include "misuse.h"

static void *frees_its_own(void *unused) {
  char local[64];
  tslab_free(culprit(local + 16));
  return unused;
}

static void run(void) {
  elsewhere(frees_its_own, NULL);
}

MISUSE("a thread's local variable freed", NAMED, STACK("free"));
