#include "misuse.h"

#include <signal.h>

static void *block;

static void again(int unused) {
  (void)unused;
  tslab_free(block);
}

static void run(void) {
  block = culprit_of(SMALL);
  tslab_free(block);
  CHECK(signal(SIGUSR1, again) != SIG_ERR);
  CHECK(raise(SIGUSR1) == 0);
}

MISUSE("a block freed again by a signal handler", NAMED,
       CHANGED(SMALL_TEXT, "*"), .hardened = {NAMED, TWICE(SMALL_TEXT)});
