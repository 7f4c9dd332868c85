/* limit_rises: a program limits its addresses for a moment. While the limit is low, free memory goes back at once;
 * afterwards it stays for a while, as if there had been no limit. So it does after a limit that the kernel refuses. */
#include "memory.h"

#include <sys/resource.h>

#define MIB  ((size_t)1 << 20)
#define MUCH (20 * MIB)
#define LOW  (100 * MIB)

/* Returns how much less is resident once the block is free. */
static size_t returned_at_once(void) {
  void *volatile block = malloc(MUCH);
  CHECK(block != NULL);
  memset(block, 1, MUCH);
  const size_t before = resident_bytes();
  free(block);
  const size_t after = resident_bytes();
  return before > after ? before - after : 0;
}

int main(void) {
  struct rlimit limit, low;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  if (limit.rlim_cur < 64 * LOW) return SKIPPED;
  CHECK_COUNT(returned_at_once(), <, MUCH / 2);
  low = (struct rlimit){LOW, limit.rlim_max};
  CHECK(setrlimit(RLIMIT_AS, &low) == 0);
  CHECK_COUNT(returned_at_once(), >, MUCH / 2);
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  CHECK_COUNT(returned_at_once(), <, MUCH / 2);
  low.rlim_max = 0;
  CHECK(setrlimit(RLIMIT_AS, &low) == -1 && errno == EINVAL);
  CHECK_COUNT(returned_at_once(), <, MUCH / 2);
  return 0;
}
