/* bump: blocks lie one after the other; a chunk goes back once its blocks are all freed, at once if it is sealed; a
 * heap that reuses memory turns to slabs, and so does a label's first epoch; a heap continues the chunk that another
 * one left. The test compares each count with the blocks handed out. */
#include "unit.h"

#include "base/options.h"
#include "heap/bump.h"
#include "heap/fast.h"
#include "heap/fork.h"
#include "heap/registry.h"

enum { FULL = 4000 };

static struct arena *arena;
static struct heap *heap, *other;
static char *blocks[FULL];

static struct heap *new_heap(void) {
  struct heap *const p = heap_take_blank(arena);
  CHECK(p != NULL);
  bump_start(p);
  return p;
}

static char *take(struct heap *p, size_t size) {
  char *const block = bump_take(p, size);
  return block ? block : bump_refill(p, size);
}

static struct run *chunk_of(const void *block) { return pages_run_of(block); }

static void begin(void) {
  arena = arena_make();
  CHECK(arena != NULL);
  arena->budget = SIZE_MAX;
  heap = new_heap();
  other = new_heap();
  CHECK(bump_is_all(heap) && !bump_has_live(heap));
}

static void end(void) {
  bump_leave(heap, false);
  bump_leave(other, false);
  CHECK_COUNT(arena->own, ==, 0);
  CHECK_COUNT(arena->charged, ==, 0);
  heap_give_back(heap);
  heap_give_back(other);
}

/* Allocates blocks of one size until the chunk is full. Returns their number. */
static unsigned fill(struct heap *p, size_t size) {
  unsigned count = 0;
  blocks[count++] = take(p, size);
  for (char *block; (block = bump_take(p, size)) != NULL; blocks[count++] = block) {
    CHECK_COUNT(block - blocks[count - 1], ==, round_up(size, CHUNK_UNIT));
    CHECK(count < FULL - 1);
  }
  CHECK_COUNT(count, ==, CHUNK_CAPACITY / round_up(size, CHUNK_UNIT));
  return count;
}

static void one_after_the_other(void) {
  begin();
  CHECK(bump_take(heap, 100) == NULL); /* no chunk yet */
  char *const first = bump_refill(heap, 100);
  CHECK(first == run_start(chunk_of(first)) && chunk_of(first)->kind == RUN_CHUNK);
  CHECK(atomic_load(&chunk_of(first)->heap) == heap && chunk_of(first)->epoch == arena->index);
  CHECK_COUNT(arena->own, ==, GRANULE);
  CHECK(bump_refill(heap, BUMP_MOST + 1) == NULL);
  char *const none = bump_refill(heap, 0), *const largest = bump_take(heap, BUMP_MOST);
  CHECK(none == first + 112 && largest == none + CHUNK_UNIT);
  char *const aligned = bump_aligned(heap, 4096, 10);
  CHECK((uintptr_t)aligned % 4096 == 0 && aligned >= largest + BUMP_MOST && aligned < largest + BUMP_MOST + 4096);
  CHECK(bump_aligned(heap, 2 * BUMP_MOST, 10) == NULL && bump_aligned(heap, 64, BUMP_MOST + 1) == NULL);
  CHECK_COUNT(bump_blocks(chunk_of(first)) - 4, <=, 1); /* and the gap, which the chunk counts as a freed block */
  CHECK_COUNT(chunk_live(chunk_of(first)).blocks, ==, 4);
  CHECK(bump_is_all(heap) && bump_has_live(heap));
  bump_empty(heap);
  CHECK(bump_is_all(heap) && !bump_has_live(heap) && take(heap, 50) == first);
  bump_empty(heap);
  end();
}

/* The thread frees in its current chunk, and any thread frees in any chunk. */
static void freeing(void) {
  begin();
  const unsigned count = fill(heap, 1000);
  struct run *const chunk = chunk_of(blocks[0]);
  CHECK(!bump_free_current(heap, blocks[0] + 16) && !bump_free_current(heap, blocks[count - 1] + 1008));
  CHECK(bump_free_current(heap, blocks[0]) && !bump_free_current(heap, blocks[0]) && !bump_free(chunk, blocks[0]));
  CHECK(bump_free(chunk, blocks[1]) && !bump_free(chunk, blocks[1]) && !bump_free_current(heap, blocks[1]));
  CHECK_COUNT(chunk_live(chunk).blocks, ==, count - 2);

  char *const next = take(heap, 1000); /* the full chunk is sealed */
  CHECK(chunk_of(next) != chunk && !bump_is_all(heap) && !bump_free_current(heap, blocks[2]));
  CHECK_COUNT(arena->bumped, ==, count);
  for (unsigned i = 2; i < count; i++) {
    CHECK_COUNT(arena->freed, ==, i);
    CHECK_COUNT(arena->own, ==, 2 * GRANULE);
    CHECK(bump_free(chunk, blocks[i]));
  }
  CHECK_COUNT(arena->own, ==, GRANULE);
  CHECK(bump_is_all(heap) && bump_has_live(heap));
  CHECK(bump_free_current(heap, next) && !bump_has_live(heap));
  end();
}

/* All blocks of the full chunk are free: the heap goes on in it. */
static void refilled(void) {
  begin();
  const unsigned count = fill(heap, 2000);
  for (unsigned i = 0; i < count; i++)
    CHECK(i % 2 ? bump_free(chunk_of(blocks[0]), blocks[i]) : bump_free_current(heap, blocks[i]));
  CHECK(take(heap, 2000) == blocks[0] && bump_is_all(heap));
  CHECK(bump_free_current(heap, blocks[0]));
  end();
}

/* A quarter or more of the blocks is free when a chunk is full. */
static void check_no_marks(const struct run *chunk) {
  for (unsigned word = 0; word < CHUNK_WORDS; word++) {
    CHECK_COUNT(chunk_starts(chunk)[word].word, ==, word == 0); /* where the first block will start */
    CHECK_COUNT(chunk_freed(chunk)[word].local | chunk_freed(chunk)[word].remote, ==, 0);
  }
}

/* As in a fork child whose parent had another thread in the middle of a free. */
static void half_freed(void) {
  current_heap = heap;
  CHECK(chunk_mark_freed(heap->bump.chunk, blocks[7]));
  heap_retire_others();
  bump_empty(heap);
  check_no_marks(heap->bump.chunk);
}

/* An emptied chunk is as new, in whichever order its blocks were freed. */
static void emptied(void) {
  begin();
  for (unsigned how = 0; how < 5; how++) {
    for (unsigned i = 0; i < 100; i++) blocks[i] = take(heap, 16 + i * 4);
    struct run *const chunk = heap->bump.chunk;
    if (how == 1) CHECK(bump_free_current(heap, blocks[99]));
    if (how == 2) CHECK(bump_free(chunk, blocks[99]));
    if (how == 3) CHECK(in_child(half_freed) == 0);
    if (how == 4) CHECK(bump_aligned(heap, 4096, 10) != NULL); /* from here on it has gaps */
    bump_empty(heap);
    CHECK(heap->bump.chunk == chunk && !bump_has_live(heap));
    check_no_marks(chunk);
  }
  end();
}

static uint64_t served(void) { return bump_allocations(); }

/* The next block takes the place of the last one if that is free, and so on down to earlier free blocks; the place
   stays if another thread freed the block. The counts include every block. */
static void taken_back(void) {
  begin();
  const uint64_t before = served();
  for (unsigned i = 0; i < 6; i++) blocks[i] = take(heap, 1000);
  struct run *const chunk = chunk_of(blocks[0]);
  CHECK(bump_free_current(heap, blocks[5]) && !bump_free_current(heap, blocks[5]) && !bump_free(chunk, blocks[5]));
  CHECK(chunk_place_of(chunk, blocks[5]) == CHUNK_NOWHERE && chunk_place_of(chunk, blocks[5] + 16) == CHUNK_NOWHERE);
  CHECK(take(heap, 2000) == blocks[5] && bump_free_at_once(heap, blocks[5]) == BUMP_FREED);
  CHECK_COUNT(bump_blocks(chunk), ==, 5);
  CHECK(bump_free_at_once(heap, blocks[4]) == BUMP_FREED);
  CHECK(take(heap, 16) == blocks[4]);
  CHECK(bump_free_current(heap, blocks[3]) && bump_free_current(heap, blocks[2]) && bump_free(chunk, blocks[1]));
  CHECK_COUNT(chunk_live(chunk).blocks, ==, 2);
  CHECK(bump_free_current(heap, blocks[4]) && take(heap, 16) == blocks[2]);
  CHECK_COUNT(bump_blocks(chunk), ==, 3);
  CHECK_COUNT(chunk_live(chunk).blocks, ==, 2);
  CHECK(bump_free_current(heap, blocks[2]) && !bump_free_current(heap, blocks[1]));
  CHECK_COUNT(served() - before, ==, 9);
  CHECK(bump_has_live(heap) && bump_free_current(heap, blocks[0]) && !bump_has_live(heap));
  bump_empty(heap);
  check_no_marks(chunk);
  CHECK_COUNT(served() - before, ==, 9);
  end();
}

/* No block lies in the gap before an aligned block. */
static void taken_back_aligned(void) {
  begin();
  char *const first = take(heap, 16), *const block = bump_aligned(heap, 1024, 16);
  CHECK(block == first + 1024 && !bump_free_current(heap, first + 16));
  CHECK(bump_free_current(heap, block) && !bump_free_current(heap, first + 16) && take(heap, 16) == block);
  CHECK(bump_free_current(heap, first) && bump_has_live(heap));
  CHECK(bump_free_current(heap, block) && !bump_has_live(heap));
  CHECK_COUNT(chunk_live(chunk_of(first)).blocks, ==, 0);
  bump_empty(heap);
  check_no_marks(chunk_of(first));
  end();
}

static void resized(void) {
  begin();
  char *const first = take(heap, 16), *const block = take(heap, 100);
  struct run *const chunk = chunk_of(first);
  CHECK(!bump_resize(heap, first, 32) && !bump_resize(heap, block, BUMP_MOST + 1));
  CHECK(bump_resize(heap, block, 5000) && chunk_size_of(chunk, block) == 5008);
  CHECK(bump_resize(heap, block, 5000) && chunk_size_of(chunk, block) == 5008);
  CHECK(bump_resize(heap, block, 17) && chunk_size_of(chunk, block) == 32);
  CHECK_COUNT(chunk_live(chunk).blocks, ==, 2);
  CHECK(take(heap, 16) == block + 32 && !bump_resize(heap, block, 16));
  CHECK(bump_free_current(heap, block + 32) && bump_resize(heap, block, 64) && bump_free_current(heap, block));
  CHECK(take(heap, 16) == block);
  bump_empty(heap);
  while (bump_take(heap, BUMP_MOST)) {}
  char *const last = take(heap, 16);
  CHECK(!bump_resize(heap, last, BUMP_MOST) && chunk_size_of(chunk_of(last), last) == 16);
  bump_empty(heap);
  end();
}

/* Repeated often: the counts include every block, and in a scope the heap turns to slabs if a block lives, unless its
   thread is in many epochs. */
static void busy(bool in_scope, bool has_live, bool in_many) {
  begin();
  _Atomic uint32_t *const attached = &heap->plain->store->chunks.attached;
  const uint32_t few = *attached;
  struct heap *const mine = current_heap;
  const uint64_t before = served();
  uint64_t count = 0;
  char *const first = has_live ? take(heap, 16) : NULL;
  if (in_scope) current_heap = heap;
  if (in_many) *attached = 100;
  for (char *block; count < 10000 && (block = take(heap, 100)); count++) {
    CHECK(chunk_of(block) == heap->bump.chunk && block == heap->bump.start + (has_live ? 16 : 0));
    CHECK(bump_free_at_once(heap, block) == BUMP_FREED || bump_free_current(heap, block));
    CHECK_COUNT(heap->bump.count, <=, 1100);
  }
  CHECK_COUNT(served() - before - has_live, ==, count);
  CHECK((count == 10000) == (in_many || !(in_scope && has_live)));
  CHECK_COUNT(count, >=, 4000);
  current_heap = mine;
  *attached = few;
  if (count < 10000) CHECK(heap->bump.off && bump_free(chunk_of(first), first));
  else bump_empty(heap);
  end();
}

static void turning(bool over) {
  begin();
  const unsigned count = fill(heap, 1000), freed = count / 4 + over;
  for (unsigned i = 0; i < freed; i++) CHECK(bump_free_current(heap, blocks[i])); /* the last one stays */
  char *const next = take(heap, 1000);
  CHECK((next == NULL) == over);
  CHECK((bump_refill(heap, 10) == NULL) == over);
  struct run *const chunk = chunk_of(blocks[0]);
  for (unsigned i = freed; i < count; i++) CHECK(bump_free(chunk, blocks[i]));
  if (!over) bump_empty(heap);
  end();
}

static void turning_at_once(void) {
  begin();
  arena->first_of_label = true;
  unsigned count = fill(heap, 1000);
  CHECK(bump_refill(heap, 1000) == NULL && bump_refill(heap, 10) == NULL);
  struct run *const chunk = chunk_of(blocks[0]);
  while (count) CHECK(bump_free(chunk, blocks[--count]));
  end();
}

/* The next heap continues the rest of a chunk unless the epoch is closing; any thread may free in it. */
static void leaving(bool to_continue) {
  begin();
  char *const mine = take(heap, 1000);
  struct run *const chunk = chunk_of(mine);
  bump_leave(heap, to_continue);
  CHECK(atomic_load(&chunk->heap) == NULL && bump_take(heap, 10) == NULL);
  CHECK_COUNT(bump_blocks(chunk), ==, 1);
  char *const theirs = take(other, 1000);
  CHECK((theirs == mine + 1008) == to_continue);
  CHECK(bump_free(chunk, mine));
  CHECK_COUNT(arena->own, ==, GRANULE);
  CHECK(bump_free_current(other, theirs));
  end();
}

static void halted(void) {
  begin();
  char *const block = take(heap, 100);
  bump_halt(heap);
  CHECK(bump_take(heap, 100) == NULL);
  atomic_store(&arena->closing, true);
  CHECK(bump_refill(heap, 100) == NULL);
  CHECK(bump_free_current(heap, block));
  end();
}

static void budgeted(void) {
  begin();
  arena->budget = GRANULE;
  unsigned count = fill(heap, 1000);
  CHECK(bump_refill(heap, 1000) == NULL && take(other, 10) == NULL);
  struct run *const chunk = chunk_of(blocks[0]);
  while (count) CHECK(bump_free(chunk, blocks[--count]));
  CHECK_COUNT(arena->charged, ==, 0);
  end();
}

int main(void) {
  start_floors();
  options.reserve_bytes = 0;
  options.sample = 0; /* a sampled call ends a chunk early */
  current_heap = heap_acquire();
  const uint64_t before = bump_allocations();
  one_after_the_other();
  freeing();
  refilled();
  emptied();
  if (!TSLAB_HARDENED) { /* there the place of a freed block rests until its chunk ends */
    taken_back();
    taken_back_aligned();
    resized();
    for (unsigned how = 0; how < 8; how++) busy(how & 1, how & 2, how & 4);
  }
  turning(false);
  turning(true);
  turning_at_once();
  leaving(true);
  leaving(false);
  halted();
  budgeted();
  CHECK_COUNT(bump_allocations(), >, before);
  pages_check();
  return 0;
}
