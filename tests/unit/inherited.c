/* inherited: the next thread to take a heap of the parent's has what is whole of its lists, and the losses of the fork
 * fall by that. A heap that is folded first loses them. */
#include "unit.h"

#include "heap/check.h"
#include "heap/fast.h"
#include "heap/flush.h"
#include "heap/fork.h"
#include "heap/inherited.h"
#include "heap/refill.h"
#include "heap/registry.h"
#include "heap/tcache.h"

enum { CLASS = 4, BEHIND = 3 };

static uint64_t lost_blocks(void) { return atomic_load_explicit(&leaked.blocks, memory_order_relaxed); }
static uint64_t lost_bytes(void) { return atomic_load_explicit(&leaked.bytes, memory_order_relaxed); }

static struct heap *other;
static unsigned length; /* of its list */

static void fork_here(void) {
  heap_retire_others();
  heap_count_leaked();
  CHECK(other->store->inherited == (uint64_t)1 << CLASS && tcache_length(other, CLASS) == 0);
  CHECK_COUNT(lost_blocks(), >=, length);
}

static void acquire_with(unsigned blocks) {
  const uint64_t before = lost_blocks(), bytes = lost_bytes();
  CHECK(heap_acquire() == other);
  CHECK(other->store->inherited == 0);
  CHECK_COUNT(tcache_length(other, CLASS), ==, blocks);
  CHECK_COUNT(before - lost_blocks(), ==, blocks);
  CHECK_COUNT(bytes - lost_bytes(), ==, blocks * class_size(CLASS));
  heap_check(other);
}

static void whole(void) {
  fork_here();
  acquire_with(length);
  const uintptr_t key = pages.key;
  for (unsigned i = 0; i < length; i++) CHECK(fast_pop(other, CLASS, key) != NULL);
  CHECK(other->list[CLASS] == CHAIN_END);
}

/* The program wrote to a free block, or the thread was in the middle of a free. */
static void broken(void) {
  fork_here();
  void **block = other->list[CLASS];
  for (int i = 0; i < BEHIND; i++) block = block_next(block);
  block[1] = NULL;
  acquire_with(BEHIND);
}

/* A thread that takes a whole slab has a longer list than a cap allows. */
static void long_one(void) {
  enum { SMALLEST = 0, BLOCKS = LIST_MOST + 500 };
  static void *blocks[BLOCKS];
  const uintptr_t key = pages.key;
  for (unsigned i = 0; i < BLOCKS; i++) {
    blocks[i] = fast_pop(other, SMALLEST, key);
    if (!blocks[i]) blocks[i] = heap_refill(other, SMALLEST);
    CHECK(blocks[i] != NULL);
  }
  struct chain chain = tcache_take(other, SMALLEST);
  for (unsigned i = 0; i < BLOCKS; i++) {
    block_mark_free(blocks[i]);
    block_link(blocks[i], chain.head);
    chain = (struct chain){blocks[i], chain.count + 1};
  }
  tcache_set(other, SMALLEST, chain);
  heap_retire_others();
  CHECK(heap_acquire() == other);
  CHECK_COUNT(tcache_length(other, SMALLEST), ==, chain.count);
}

static void twice(void) {
  fork_here();
  fork_here();
  acquire_with(length);
}

static void folded(void) {
  fork_here();
  heaps_fold_dead(other);
  CHECK(other->folded);
  CHECK(other->store->inherited == 0 && other->list[CLASS] == CHAIN_END);
  CHECK_COUNT(lost_blocks(), >=, length);
  CHECK(heap_acquire() == other);
  heap_check(other);
}

static void frozen(void) {
  fork_here();
  heap_freeze(true);
  CHECK(other->store->inherited == 0 && other->list[CLASS] == CHAIN_END);
}

int main(void) {
  start_floors();
  heap_begin_common();
  current_heap = heap_acquire();
  other = heap_acquire();
  CHECK(heap_refill(other, CLASS) != NULL);
  length = tcache_length(other, CLASS);
  CHECK_COUNT(length, >, BEHIND);
  CHECK(in_child(whole) == 0);
  CHECK(in_child(broken) == 0);
  CHECK(in_child(long_one) == 0);
  CHECK(in_child(twice) == 0);
  CHECK(in_child(folded) == 0);
  CHECK(in_child(frozen) == 0);
  return 0;
}
