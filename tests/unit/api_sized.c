/* free_sized and free_aligned_sized with every size that C23 allows for the block. */
#include "../check.h"

int main(void) {
  errno = 1234;
  tslab_free_sized(NULL, 0);
  tslab_free_sized(NULL, 100);
  tslab_free_aligned_sized(NULL, 64, 100);
  for (size_t size = 0; size < ((size_t)6 << 20); size += 1 + size / 9) {
    for (int i = 0; i < 3; i++) {
      void *blocks[] = {tslab_malloc(size), tslab_calloc(1, size), tslab_realloc(NULL, size)};
      for (int j = 0; j < 3; j++) {
        CHECK(blocks[j] != NULL);
        tslab_free_sized(blocks[j], size);
      }
    }
    for (size_t alignment = 1; alignment <= ((size_t)2 << 20); alignment *= 8) {
      void *block = tslab_aligned_alloc(alignment, size);
      CHECK(block != NULL);
      tslab_free_aligned_sized(block, alignment, size);
    }
  }
  CHECK(errno == 1234);
  return 0;
}
