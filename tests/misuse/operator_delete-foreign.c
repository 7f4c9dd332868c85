#include "misuse.h"

void operator_delete(void *block) __asm__("_ZdlPv");
static char data[4096];

static void run(void) {
  operator_delete(culprit(data + 64));
}

MISUSE("operator delete of a static array", NAMED, FOREIGN("free"));
