/* bump: blocks lie one after the other; a chunk whose blocks are all freed goes, at once when it is sealed; a part
 * that reuses memory turns to slabs, as does a label's first; what one part leaves another continues. Each count is
 * compared with what was handed out. */
#include "unit.h"

#include "base/options.h"
#include "heap/bump.h"
#include "heap/fast.h"

enum { FULL = 4000 };

static struct lifetime *lifetime;
static struct part *part, *other;
static char *blocks[FULL];

static struct part *new_part(void) {
  struct part *const p = part_take_blank(lifetime);
  CHECK(p != NULL);
  bump_start(p);
  return p;
}

static char *take(struct part *p, size_t size) {
  char *const block = bump_take(p, size);
  return block ? block : bump_refill(p, size);
}

static struct run *chunk_of(const void *block) { return pages_run_of(block); }

static void begin(void) {
  lifetime = lifetime_make();
  CHECK(lifetime != NULL);
  lifetime->budget = SIZE_MAX;
  part = new_part();
  other = new_part();
  CHECK(bump_is_all(part) && !bump_has_live(part));
}

static void end(void) {
  bump_leave(part, false);
  bump_leave(other, false);
  CHECK_COUNT(lifetime->own, ==, 0);
  CHECK_COUNT(lifetime->charged, ==, 0);
  part_give_back(part);
  part_give_back(other);
}

/* Blocks of one size until the chunk is full; how many. */
static unsigned fill(struct part *p, size_t size) {
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
  CHECK(bump_take(part, 100) == NULL); /* no chunk yet */
  char *const first = bump_refill(part, 100);
  CHECK(first == run_start(chunk_of(first)) && chunk_of(first)->kind == RUN_CHUNK);
  CHECK(atomic_load(&chunk_of(first)->part) == part && chunk_of(first)->epoch == lifetime->index);
  CHECK_COUNT(lifetime->own, ==, GRANULE);
  CHECK(bump_refill(part, BUMP_MOST + 1) == NULL);
  char *const none = bump_refill(part, 0), *const largest = bump_take(part, BUMP_MOST);
  CHECK(none == first + 112 && largest == none + CHUNK_UNIT);
  char *const aligned = bump_aligned(part, 4096, 10);
  CHECK((uintptr_t)aligned % 4096 == 0 && aligned >= largest + BUMP_MOST && aligned < largest + BUMP_MOST + 4096);
  CHECK(bump_aligned(part, 2 * BUMP_MOST, 10) == NULL && bump_aligned(part, 64, BUMP_MOST + 1) == NULL);
  CHECK_COUNT(bump_blocks(chunk_of(first)) - 4, <=, 1); /* and the gap, which counts as one that was freed */
  CHECK_COUNT(chunk_live(chunk_of(first)).blocks, ==, 4);
  CHECK(bump_is_all(part) && bump_has_live(part));
  bump_empty(part);
  CHECK(bump_is_all(part) && !bump_has_live(part) && take(part, 50) == first);
  bump_empty(part);
  end();
}

/* In the current chunk by its thread, in any chunk by anybody. */
static void freeing(void) {
  begin();
  const unsigned count = fill(part, 1000);
  struct run *const chunk = chunk_of(blocks[0]);
  CHECK(!bump_free_current(part, blocks[0] + 16) && !bump_free_current(part, blocks[count - 1] + 1008));
  CHECK(bump_free_current(part, blocks[0]) && !bump_free_current(part, blocks[0]) && !bump_free(chunk, blocks[0]));
  CHECK(bump_free(chunk, blocks[1]) && !bump_free(chunk, blocks[1]) && !bump_free_current(part, blocks[1]));
  CHECK_COUNT(chunk_live(chunk).blocks, ==, count - 2);

  char *const next = take(part, 1000); /* the full chunk is sealed */
  CHECK(chunk_of(next) != chunk && !bump_is_all(part) && !bump_free_current(part, blocks[2]));
  CHECK_COUNT(lifetime->bumped, ==, count);
  for (unsigned i = 2; i < count; i++) {
    CHECK_COUNT(lifetime->freed, ==, i);
    CHECK_COUNT(lifetime->own, ==, 2 * GRANULE);
    CHECK(bump_free(chunk, blocks[i]));
  }
  CHECK_COUNT(lifetime->own, ==, GRANULE);
  CHECK(bump_is_all(part) && bump_has_live(part));
  CHECK(bump_free_current(part, next) && !bump_has_live(part));
  end();
}

/* All blocks of the full chunk are free: the part goes on in it. */
static void refilled(void) {
  begin();
  const unsigned count = fill(part, 2000);
  for (unsigned i = 0; i < count; i++)
    CHECK(i % 2 ? bump_free(chunk_of(blocks[0]), blocks[i]) : bump_free_current(part, blocks[i]));
  CHECK(take(part, 2000) == blocks[0] && bump_is_all(part));
  CHECK(bump_free_current(part, blocks[0]));
  end();
}

/* A quarter and more freed by the time a chunk is full. */
static void check_no_marks(const struct run *chunk) {
  for (unsigned word = 0; word < CHUNK_WORDS; word++) {
    CHECK_COUNT(chunk_starts(chunk)[word].word, ==, word == 0); /* where the first block will start */
    CHECK_COUNT(chunk_freed(chunk)[word].here | chunk_freed(chunk)[word].elsewhere, ==, 0);
  }
}

/* As in a fork child, whose parent another thread left in the middle of a free. */
static void half_freed(void) {
  current_part = part;
  CHECK(chunk_mark_freed(part->bump.chunk, blocks[7]));
  parts_bury_others();
  bump_empty(part);
  check_no_marks(part->bump.chunk);
}

/* However its blocks went, an emptied chunk is as new. */
static void emptied(void) {
  begin();
  for (unsigned how = 0; how < 5; how++) {
    for (unsigned i = 0; i < 100; i++) blocks[i] = take(part, 16 + i * 4);
    struct run *const chunk = part->bump.chunk;
    if (how == 1) CHECK(bump_free_current(part, blocks[99]));
    if (how == 2) CHECK(bump_free(chunk, blocks[99]));
    if (how == 3) CHECK(in_child(half_freed) == 0);
    if (how == 4) CHECK(bump_aligned(part, 4096, 10) != NULL); /* from here on it has gaps */
    bump_empty(part);
    CHECK(part->bump.chunk == chunk && !bump_has_live(part));
    check_no_marks(chunk);
  }
  end();
}

static void turning(bool over) {
  begin();
  const unsigned count = fill(part, 1000), freed = count / 4 + over;
  for (unsigned i = 0; i < freed; i++) CHECK(bump_free_current(part, blocks[i]));
  char *const next = take(part, 1000);
  CHECK((next == NULL) == over);
  CHECK((bump_refill(part, 10) == NULL) == over);
  struct run *const chunk = chunk_of(blocks[0]);
  for (unsigned i = freed; i < count; i++) CHECK(bump_free(chunk, blocks[i]));
  if (!over) bump_empty(part);
  end();
}

static void turning_at_once(void) {
  begin();
  lifetime->novel = true;
  unsigned count = fill(part, 1000);
  CHECK(bump_refill(part, 1000) == NULL && bump_refill(part, 10) == NULL);
  struct run *const chunk = chunk_of(blocks[0]);
  while (count) CHECK(bump_free(chunk, blocks[--count]));
  end();
}

/* The rest of a chunk is the next part's, unless the epoch is closing; its frees are everybody's. */
static void leaving(bool to_continue) {
  begin();
  char *const mine = take(part, 1000);
  struct run *const chunk = chunk_of(mine);
  bump_leave(part, to_continue);
  CHECK(atomic_load(&chunk->part) == NULL && bump_take(part, 10) == NULL);
  CHECK_COUNT(bump_blocks(chunk), ==, 1);
  char *const theirs = take(other, 1000);
  CHECK((theirs == mine + 1008) == to_continue);
  CHECK(bump_free(chunk, mine));
  CHECK_COUNT(lifetime->own, ==, GRANULE);
  CHECK(bump_free_current(other, theirs));
  end();
}

static void halted(void) {
  begin();
  char *const block = take(part, 100);
  bump_halt(part);
  CHECK(bump_take(part, 100) == NULL);
  atomic_store(&lifetime->closing, true);
  CHECK(bump_refill(part, 100) == NULL);
  CHECK(bump_free_current(part, block));
  end();
}

static void budgeted(void) {
  begin();
  lifetime->budget = GRANULE;
  unsigned count = fill(part, 1000);
  CHECK(bump_refill(part, 1000) == NULL && take(other, 10) == NULL);
  struct run *const chunk = chunk_of(blocks[0]);
  while (count) CHECK(bump_free(chunk, blocks[--count]));
  CHECK_COUNT(lifetime->charged, ==, 0);
  end();
}

int main(void) {
  start_floors();
  options.reserve_bytes = 0;
  options.sample = 0; /* a sampled call ends a chunk early */
  current_part = part_acquire();
  const uint64_t before = bump_allocations();
  one_after_the_other();
  freeing();
  refilled();
  emptied();
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
