/* wrapped: another preloaded library, behind this one, replaces setuid, as fakeroot does. The program reaches it. */
#include "memory.h"

int main(void) {
  free(malloc(100));
  CHECK(setuid(getuid()) == 4711);
  return 0;
}
