#include "misuse.h"

void *operator_new(size_t size) __asm__("_Znwm");
void operator_delete_array(void *block) __asm__("_ZdaPv");
void operator_delete_sized(void *block, size_t size) __asm__("_ZdlPvm");
void operator_delete_aligned(void *block, size_t alignment) __asm__("_ZdlPvSt11align_val_t");

static void run(void) {
  operator_delete_array(operator_new(SMALL));
  operator_delete_aligned(operator_new(SMALL), 256);
  free(operator_new(SMALL));
  operator_delete_sized(culprit_of(SMALL), 5000);
  harm(true);
}

MISUSE("what new made to delete[], to free, or to delete with a wrong size or alignment: nothing is lost", MISSED,
       NULL);
