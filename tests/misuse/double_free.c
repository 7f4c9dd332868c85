/* A block freed twice is named, wherever it went after the first free. */
#include "misuse.h"

enum { MANY = 20000 };
static void *many[MANY];

static void *block_of(size_t size) {
  void *block = tslab_malloc(size);
  CHECK(block != NULL);
  memset(block, 0x22, size);
  return culprit(block);
}

static void in_own_list(void) {
  void *block = block_of(96);
  tslab_free(block);
  tslab_free(block);
}

static void smallest(void) {
  void *block = block_of(16);
  tslab_free(block);
  tslab_free(block);
}

static void deeper_in_own_list(void) {
  void *block = block_of(96), *other = tslab_malloc(96), *third = tslab_malloc(96);
  tslab_free(block);
  tslab_free(other);
  tslab_free(third);
  tslab_free(block);
}

static void here_then_elsewhere(void) {
  void *block = block_of(96);
  tslab_free(block);
  free_elsewhere(block);
}

static void elsewhere_then_here(void) {
  void *block = block_of(96);
  free_elsewhere(block);
  tslab_free(block);
}

static void elsewhere_twice(void) {
  void *block = block_of(96);
  free_elsewhere(block);
  free_elsewhere(block);
}

static void allocate_many(void) {
  for (int i = 0; i < MANY; i++) {
    many[i] = tslab_malloc(96);
    CHECK(many[i] != NULL);
  }
}

/* More than any thread's list holds, so most of it is back in its slabs; every tenth block keeps its slab alive. */
static void flushed_to_a_live_slab(void) {
  allocate_many();
  void *block = culprit(many[MANY / 2 + 1]);
  for (int i = 0; i < MANY; i++)
    if (i % 10 != 0) tslab_free(many[i]);
  tslab_free(block);
}

static void after_its_slab_retired(void) {
  allocate_many();
  void *block = culprit(many[MANY / 2]);
  for (int i = 0; i < MANY; i++) tslab_free(many[i]);
  tslab_purge();
  tslab_free(block);
}

static void large(void) {
  void *block = block_of((size_t)3 << 20);
  tslab_free(block);
  tslab_free(block);
}

static void large_elsewhere(void) {
  void *block = block_of((size_t)3 << 20);
  tslab_free(block);
  free_elsewhere(block);
}

static void sized(void) {
  void *block = block_of(96);
  tslab_free_sized(block, 96);
  tslab_free_sized(block, 96);
}

const struct misuse_case misuse_cases[] = {
    {"smallest", smallest, "tslab: double free of 0xADDR (16-byte class)\n", NULL, 0},
#define CASE(name) {#name, name, "tslab: double free of 0xADDR (96-byte class)\n", NULL, 0}
    CASE(in_own_list),
    CASE(deeper_in_own_list),
    CASE(here_then_elsewhere),
    CASE(elsewhere_then_here),
    CASE(elsewhere_twice),
    CASE(flushed_to_a_live_slab),
    CASE(after_its_slab_retired),
    {"sized", sized, "tslab: free_sized of freed block 0xADDR (96-byte class)\n", NULL, 0},
    {"large", large, "tslab: double free of 0xADDR (large block)\n", NULL, 0},
    {"large_elsewhere", large_elsewhere, "tslab: double free of 0xADDR (large block)\n", NULL, 0},
    {0},
};
