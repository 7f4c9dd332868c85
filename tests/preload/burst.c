/* burst: allocates about 200 MiB in many sizes, frees all of it in random order, sleeps two seconds without a call, and
 * prints the resident bytes at the start, at the peak, and after the sleep. */
#define TEST_LIBC
#include "../stress/memory.h"

#include <sys/mman.h>

enum { MOST = 1 << 20, TOTAL = 200 << 20 };

int main(void) {
  /* The program's own table must not count: it is resident before the first reading. */
  unsigned char **blocks = mmap(NULL, MOST * sizeof *blocks, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(blocks != MAP_FAILED);
  uint64_t random = 42;
  free(malloc(100));
  const size_t start = resident_bytes();

  size_t count = 0, total = 0;
  while (total < TOTAL) {
    const uint64_t kind = check_random(&random) % 1000, r = check_random(&random);
    const size_t size = kind < 900 ? r % 1000 : kind < 990 ? r % 20000 : kind < 999 ? r % 300000 : r % (4 << 20);
    CHECK(count < MOST);
    blocks[count] = malloc(size);
    CHECK(blocks[count] != NULL);
    memset(blocks[count++], 0x55, size);
    total += size;
  }
  const size_t peak = resident_bytes();
  for (size_t left = count; left > 0; left--) {
    const size_t i = check_random(&random) % left;
    free(blocks[i]);
    blocks[i] = blocks[left - 1];
  }
  sleep(2);
  const size_t after = resident_bytes();
  printf("%zu %zu %zu\n", start, peak, after);
  return 0;
}
