/* Misuse of blocks in epochs: freed twice, freed after their epoch, interior pointers; in the chunks in which an epoch
 * starts, in the slabs that it turns to when it reuses memory, and large. The words for the kind of block are free.
 *
 * A block of a destroyed epoch whose memory serves somebody else again cannot be told from that block. */
#include "misuse.h"

#include <signal.h>

enum { MANY = 4000, LARGE = 3 << 20 };

static tslab_epoch e;
static void *neighbour; /* keeps the chunk or slab */

static void *small(void) {
  e = tslab_epoch_open_with(&(tslab_epoch_options){
      .struct_size = sizeof(tslab_epoch_options), .label = "misused", .flags = TSLAB_EPOCH_DESTROYABLE});
  CHECK(e != 0);
  char *const block = tslab_epoch_malloc(e, 96);
  neighbour = tslab_epoch_malloc(e, 96);
  CHECK(block != NULL && neighbour != NULL);
  memset(block, 0x22, 96);
  return block;
}

/* In an epoch that has freed so much that it turned to slabs. */
static void *promoted(void) {
  static void *blocks[MANY];
  tslab_free(small());
  for (int i = 0; i < MANY; i++) CHECK((blocks[i] = tslab_epoch_malloc(e, 96)) != NULL);
  for (int i = 0; i < MANY; i++) tslab_free(blocks[i]);
  for (int i = 0; i < MANY; i++) CHECK((blocks[i] = tslab_epoch_malloc(e, 96)) != NULL);
  return blocks[MANY / 2];
}

static void *large(void) {
  tslab_free(small());
  char *const block = tslab_epoch_malloc(e, LARGE);
  CHECK(block != NULL);
  memset(block, 0x22, LARGE);
  return block;
}

static void twice(void *block) {
  culprit(block);
  tslab_free(block);
  tslab_free(block);
}
static void small_twice(void) { twice(small()); }
static void promoted_twice(void) { twice(promoted()); }
static void large_twice(void) { twice(large()); }

static void twice_inside(void) {
  void *block = small();
  CHECK(tslab_epoch_enter(e) == 0);
  twice(block);
  CHECK(tslab_epoch_leave(e) == 0);
}

static void here_then_elsewhere(void *block) {
  culprit(block);
  tslab_free(block);
  free_elsewhere(block);
}
static void small_elsewhere(void) { here_then_elsewhere(small()); }
static void promoted_elsewhere(void) { here_then_elsewhere(promoted()); }
static void large_elsewhere(void) { here_then_elsewhere(large()); }

static void elsewhere_then_here(void) {
  void *block = culprit(small());
  free_elsewhere(block);
  tslab_free(block);
}

static void elsewhere_twice(void) {
  void *block = culprit(small());
  free_elsewhere(block);
  free_elsewhere(block);
}

/* The neighbour keeps the memory. */
static void around_a_close(void *block) {
  culprit(block);
  tslab_free(block);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  tslab_free(block);
}
static void small_around_a_close(void) { around_a_close(small()); }
static void small_after_a_close(void) {
  void *block = small();
  CHECK(tslab_epoch_close(e, NULL) == 0);
  twice(block);
}

/* Nothing keeps it: the memory is in the reserve or with the kernel. */
static void drained(void) {
  void *block = culprit(small());
  tslab_free(neighbour);
  tslab_free(block);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  tslab_free(block);
}

static void destroyed(void *block) {
  culprit(block);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_free(block);
}
static void small_destroyed(void) { destroyed(small()); }
static void promoted_destroyed(void) { destroyed(promoted()); }
static void large_destroyed(void) { destroyed(large()); }

static void into(void *block, size_t offset) { tslab_free(culprit((char *)block + offset)); }
static void small_by_16(void) { into(small(), 16); }
static void small_by_1(void) { into(small(), 1); }
static void small_by_8(void) { into(small(), 8); }
static void promoted_by_32(void) { into(promoted(), 32); }
static void large_by_16(void) { into(large(), 16); }
static void large_by_a_granule(void) { into(large(), 65536); }
static void small_by_16_elsewhere(void) { free_elsewhere(culprit((char *)small() + 16)); }
/* Behind the last block of a chunk lies nothing yet. */
static void never_handed_out(void) { into(small(), 20000); }

static void *freed(void) {
  void *block = culprit(small());
  tslab_free(block);
  return block;
}
static void resized(void) { CHECK(tslab_realloc(freed(), 5000) == NULL); }
static void resized_a_little(void) { CHECK(tslab_realloc(freed(), 95) == NULL); }
static void resized_elsewhere(void) { realloc_elsewhere(freed()); }
static void resized_interior(void) { CHECK(tslab_realloc(culprit((char *)small() + 32), 5000) == NULL); }
static void measured(void) { CHECK(tslab_malloc_usable_size(freed()) == 0); }
static void wrong_size(void) { tslab_free_sized(culprit(small()), 5000); }

/* Errors that the calls return are no misuse. */
static void errors_are_returned(void) {
  tslab_free(small());
  CHECK(tslab_epoch_enter(e) == 0);
  CHECK(tslab_epoch_leave(0) == EINVAL);
  CHECK(tslab_epoch_leave(e + 1) == EINVAL);
  CHECK(tslab_epoch_destroy(e, NULL) == EBUSY);
  CHECK(tslab_epoch_leave(e) == 0);
  CHECK(tslab_epoch_leave(e) == EINVAL);
  CHECK(tslab_epoch_close(0, NULL) == EPERM);
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  CHECK(tslab_epoch_close(e, NULL) == ESTALE);
  CHECK(tslab_epoch_malloc(e, 10) == NULL);
}

#define TWICE "tslab: double free of 0xADDR (*)\n"
#define INTERIOR(call, bytes) "tslab: " call " of interior pointer 0xADDR (" #bytes " bytes into a *)\n"
/* Where the block was, another kind of memory may be by now: the line names the pointer. */
#define GONE "tslab: *free of *0xADDR*\n"

const struct misuse_case misuse_cases[] = {
    {"small_twice", small_twice, TWICE, NULL, 0},
    {"promoted_twice", promoted_twice, TWICE, NULL, 0},
    {"large_twice", large_twice, TWICE, NULL, 0},
    {"twice_inside", twice_inside, TWICE, NULL, 0},
    {"small_elsewhere", small_elsewhere, TWICE, NULL, 0},
    {"promoted_elsewhere", promoted_elsewhere, TWICE, NULL, 0},
    {"large_elsewhere", large_elsewhere, TWICE, NULL, 0},
    {"elsewhere_then_here", elsewhere_then_here, TWICE, NULL, 0},
    {"elsewhere_twice", elsewhere_twice, TWICE, NULL, 0},
    {"small_around_a_close", small_around_a_close, TWICE, NULL, 0},
    {"small_after_a_close", small_after_a_close, TWICE, NULL, 0},
    {"drained", drained, GONE, NULL, 0},
    {"small_destroyed", small_destroyed, GONE, NULL, 0},
    {"promoted_destroyed", promoted_destroyed, GONE, NULL, 0},
    {"large_destroyed", large_destroyed, GONE, NULL, 0},
    {"small_by_16", small_by_16, INTERIOR("free", 16), NULL, 0},
    {"small_by_1", small_by_1, INTERIOR("free", 1), NULL, 0},
    {"small_by_8", small_by_8, INTERIOR("free", 8), NULL, 0},
    /* The block is not its thread's own list's: it is another part's than the current one. */
    {"promoted_by_32", promoted_by_32, INTERIOR("free", 32), NULL, 0},
    {"large_by_16", large_by_16, INTERIOR("free", 16), NULL, 0},
    {"large_by_a_granule", large_by_a_granule, INTERIOR("free", 65536), NULL, 0},
    {"small_by_16_elsewhere", small_by_16_elsewhere, INTERIOR("free", 16), NULL, 0},
    {"never_handed_out", never_handed_out, GONE, NULL, 0},
    {"resized", resized, "tslab: realloc of freed block 0xADDR (*)\n", NULL, 0},
    {"resized_a_little", resized_a_little, "tslab: realloc of freed block 0xADDR (*)\n", NULL, 0},
    {"resized_elsewhere", resized_elsewhere, "tslab: realloc of freed block 0xADDR (*)\n", NULL, 0},
    {"resized_interior", resized_interior, INTERIOR("realloc", 32), NULL, 0},
    {"measured", measured, "tslab: malloc_usable_size of freed block 0xADDR (*)\n", NULL, 0},
    {"wrong_size", wrong_size, "tslab: free_sized of 0xADDR with size 5000 (*)\n", NULL, 0},
    {"errors_are_returned", errors_are_returned, "", "TSLAB_ON_MISUSE=abort", 0},
    {0},
};
