/* realloc and malloc_usable_size of a freed block; free_sized with a size that the block cannot have. */
#include "misuse.h"

static void *block_of(size_t size) {
  void *block = tslab_malloc(size);
  CHECK(block != NULL);
  return culprit(block);
}

static void *freed(size_t size) {
  void *block = block_of(size);
  tslab_free(block);
  return block;
}

static void resized(void) { CHECK(tslab_realloc(freed(96), 5000) == NULL); }
static void resized_a_little(void) { CHECK(tslab_realloc(freed(96), 95) == NULL); }
static void resized_to_nothing(void) { CHECK(tslab_realloc(freed(96), 0) == NULL); }
static void resized_elsewhere(void) { realloc_elsewhere(freed(96)); }
static void large_resized(void) { CHECK(tslab_realloc(freed((size_t)3 << 20), 100) == NULL); }
static void measured(void) { CHECK(tslab_malloc_usable_size(freed(96)) == 0); }
static void large_measured(void) { CHECK(tslab_malloc_usable_size(freed((size_t)3 << 20)) == 0); }
static void wrong_size(void) { tslab_free_sized(block_of(96), 5000); }
static void large_wrong_size(void) { tslab_free_sized(block_of((size_t)3 << 20), (size_t)64 << 20); }

const struct misuse_case misuse_cases[] = {
    {"resized", resized, "tslab: realloc of freed block 0xADDR (96-byte class)\n", NULL, 0},
    {"resized_a_little", resized_a_little, "tslab: realloc of freed block 0xADDR (96-byte class)\n", NULL, 0},
    {"resized_to_nothing", resized_to_nothing, "tslab: realloc of freed block 0xADDR (96-byte class)\n", NULL, 0},
    {"resized_elsewhere", resized_elsewhere, "tslab: realloc of freed block 0xADDR (96-byte class)\n", NULL, 0},
    {"large_resized", large_resized, "tslab: realloc of freed block 0xADDR (large block)\n", NULL, 0},
    {"measured", measured, "tslab: malloc_usable_size of freed block 0xADDR (96-byte class)\n", NULL, 0},
    {"large_measured", large_measured, "tslab: malloc_usable_size of freed block 0xADDR (large block)\n", NULL, 0},
    {"wrong_size", wrong_size, "tslab: free_sized of 0xADDR with size 5000 (96-byte class)\n", NULL, 0},
    {"large_wrong_size", large_wrong_size, "tslab: free_sized of 0xADDR with size 67108864 (large block)\n", NULL, 0},
    {0},
};
