/* A pointer into the middle of a block, from the thread that owns the slab and from another. */
#include "misuse.h"

#include <signal.h>

static void *into(size_t size, size_t offset) {
  char *block = tslab_malloc(size);
  CHECK(block != NULL);
  memset(block, 0x22, size);
  return culprit(block + offset);
}

static void by_32(void) { tslab_free(into(96, 32)); }
static void by_1(void) { tslab_free(into(96, 1)); }
static void by_8(void) { tslab_free(into(96, 8)); }
static void by_32_elsewhere(void) { free_elsewhere(into(96, 32)); }
static void by_1_elsewhere(void) { free_elsewhere(into(96, 1)); }
static void by_8_elsewhere(void) { free_elsewhere(into(96, 8)); }
static void large_by_100(void) { tslab_free(into((size_t)3 << 20, 100)); }
static void large_by_16(void) { tslab_free(into((size_t)3 << 20, 16)); }
static void large_by_a_granule(void) { tslab_free(into((size_t)3 << 20, 65536)); }
static void large_by_100_elsewhere(void) { free_elsewhere(into((size_t)3 << 20, 100)); }
static void resized(void) { CHECK(tslab_realloc(into(96, 32), 5000) == NULL); }
static void large_resized(void) { CHECK(tslab_realloc(into((size_t)3 << 20, 4096), 5000) == NULL); }
static void measured(void) { CHECK(tslab_malloc_usable_size(into(96, 32)) == 0); }

#define INTERIOR(call, bytes, what) "tslab: " call " interior pointer 0xADDR (" #bytes " bytes into a " what ")\n"
#define BLOCK(call, bytes) INTERIOR(call, bytes, "block of the 96-byte class")
#define LARGE(call, bytes) INTERIOR(call, bytes, "large block")

/* A free by the owner has already written into the block when its slow path sees that it is none. */
const struct misuse_case misuse_cases[] = {
    {"by_32", by_32, BLOCK("free of", 32), NULL, SIGABRT},
    {"by_1", by_1, BLOCK("free of", 1), NULL, SIGABRT},
    {"by_8", by_8, BLOCK("free of", 8), NULL, SIGABRT},
    {"by_32_elsewhere", by_32_elsewhere, BLOCK("free of", 32), NULL, 0},
    {"by_1_elsewhere", by_1_elsewhere, BLOCK("free of", 1), NULL, 0},
    {"by_8_elsewhere", by_8_elsewhere, BLOCK("free of", 8), NULL, 0},
    {"large_by_100", large_by_100, LARGE("free of", 100), NULL, 0},
    {"large_by_16", large_by_16, LARGE("free of", 16), NULL, 0},
    {"large_by_a_granule", large_by_a_granule, LARGE("free of", 65536), NULL, 0},
    {"large_by_100_elsewhere", large_by_100_elsewhere, LARGE("free of", 100), NULL, 0},
    {"resized", resized, BLOCK("realloc of", 32), NULL, 0},
    {"large_resized", large_resized, LARGE("realloc of", 4096), NULL, 0},
    {"measured", measured, BLOCK("malloc_usable_size of", 32), NULL, 0},
    {0},
};
