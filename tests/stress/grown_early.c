/* grown_early: the library also publishes a heap of more than a mebibyte that grew before its constructor and that the
 * program then leaves alone. */
#include "../segment.h"

#include <time.h>

enum { BLOCK = 4 << 20, PATIENCE_S = 60 };

static char *block;

/* glibc runs preinit_array before any constructor; other libcs do not know it. */
static void grow(void) {
  block = (char *)tslab_malloc(BLOCK);
  if (block) memset(block, 1, BLOCK);
}
__attribute__((section(".preinit_array"), used)) static void (*const before_constructors)(void) = grow;

int main(void) {
  if (!block) return 77;
  const time_t end = time(NULL) + PATIENCE_S;
  while (!is_published(getpid())) {
    CHECK(time(NULL) < end);
    usleep(10000);
  }
  return 0;
}
