#include "misuse.h"

void *operator_new(size_t size) __asm__("_Znwm");

static void run(void) {
  CHECK(operator_new(SIZE_MAX) == NULL);
}

MISUSE("operator new of too much in a program without a C++ runtime", FATAL,
       "operator new: no memory for 18446744073709551615 bytes, and no C++ runtime to throw std::bad_alloc");
