#include "misuse.h"

void *operator_new(size_t size) __asm__("_Znwm");
void operator_delete(void *block) __asm__("_ZdlPv");

static void run(void) {
  void *block = culprit(operator_new(SMALL));
  operator_delete(block);
  free(block);
}

MISUSE("operator delete, then free", NAMED, CHANGED(SMALL_TEXT, "*"), .hardened = {NAMED, TWICE(SMALL_TEXT)});
