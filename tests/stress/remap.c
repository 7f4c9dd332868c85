/* remap: a program moves the pages of a large live block away and back, while the library's thread moves such pages to
 * huge pages. Each move succeeds. */
#include "../check.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
enum { REST_US = 1000, MORE = 100000 };
#define MIB ((size_t)1 << 20)
#define SIZE (512 * MIB)

int main(void) {
  const time_t seconds = 6;
  char *const block = aligned_alloc(4096, SIZE);
  CHECK(block != NULL);
  memset(block, 1, SIZE);
  for (const time_t end = time(NULL) + seconds; time(NULL) < end; usleep(REST_US)) {
    void *const more = malloc(MORE);
    CHECK(more != NULL);
    memset(more, 1, MORE); /* so that the library's thread stays awake */
    free(more);
    char *const away = mremap(block, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    CHECK(away != MAP_FAILED);
    CHECK(mremap(away, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, block) == block);
  }
  for (size_t at = 0; at < SIZE; at += 4096) CHECK(block[at] == 1);
  free(block);
  return 0;
}
