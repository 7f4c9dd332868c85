/* bump_holes: an epoch of a thread in many that replaces its blocks fills the holes of its chunks, against a shadow of
 * all blocks: no two overlap, contents stay, the live blocks of its chunks are those of the shadow, at any moment also
 * as a fork child would find them, and the epoch holds little. */
#include "unit.h"

#include "base/options.h"
#include "heap/bump.h"
#include "heap/registry.h"

enum { BLOCKS = 60, STEPS = 200000 / TEST_SCALE, MOST_SIZE = 300, OWN_MOST = 3 * GRANULE };

static struct arena *arena;
static struct heap *heap;
static uint64_t seed = 5;
static struct block {
  unsigned char *start;
  size_t size;
  unsigned char fill;
} blocks[BLOCKS];

static unsigned draw(unsigned below) { return (unsigned)(check_random(&seed) % below); }

static void check_contents(const struct block *b) {
  for (size_t i = 0; i < b->size; i++) CHECK_COUNT(b->start[i], ==, b->fill);
}

static void fill(struct block *b, size_t size) {
  b->size = size;
  b->fill = (unsigned char)draw(256);
  memset(b->start, b->fill, size);
}

static void allocate(struct block *b) {
  const size_t size = draw(10) ? 1 + draw(MOST_SIZE) : 1 + draw(3000), alignment = draw(20) ? 16 : 16u << draw(5);
  char *block = alignment == 16 ? bump_take(heap, size) : bump_aligned(heap, alignment, size);
  if (!block) block = bump_refill(heap, size);
  CHECK(block != NULL);
  b->start = (unsigned char *)block;
  fill(b, size);
}

static bool free_here(struct block *b) {
  switch (bump_free_at_once(heap, b->start)) {
  case BUMP_FREED: return true;
  case BUMP_UNSURE:
  case BUMP_ELSEWHERE: return bump_free_current(heap, b->start);
  }
  return false;
}

/* One in four is freed by another thread. */
static void release(struct block *b) {
  struct run *const chunk = pages_run_of(b->start);
  check_contents(b);
  const bool freed = draw(4) ? free_here(b) : false;
  if (!freed) CHECK(bump_free(chunk, b->start));
  CHECK(chunk->kind != RUN_CHUNK || chunk_place_of(chunk, b->start) != CHUNK_LIVE);
  CHECK(chunk->kind != RUN_CHUNK || !bump_free_current(heap, b->start));
  b->start = NULL;
}

/* Another thread has marked a block of the current chunk free, and counts it some steps later. Meanwhile its place may
 * serve again. */
static struct run *uncounted;
static void begin_free(struct block *b) {
  struct run *const chunk = pages_run_of(b->start);
  if (uncounted || chunk != heap->bump.chunk) return;
  check_contents(b);
  CHECK(chunk_mark_freed(chunk, b->start));
  b->start = NULL;
  uncounted = chunk;
}

static void end_free(void) {
  if (!uncounted) return;
  CHECK(atomic_fetch_sub(&uncounted->word, 1) != CHUNK_SEALED + 1); /* otherwise the free would release the chunk */
  uncounted = NULL;
}

static void resize(struct block *b) {
  const size_t size = 1 + draw(MOST_SIZE);
  if (!bump_resize(heap, b->start, size)) return;
  for (size_t i = 0; i < min_size(size, b->size); i++) CHECK_COUNT(b->start[i], ==, b->fill);
  fill(b, size);
}

static unsigned seen;
static void check_one(void *start, size_t size, void *unused) {
  (void)unused;
  unsigned i = 0;
  while (i < BLOCKS && blocks[i].start != start) i++;
  CHECK(i < BLOCKS && blocks[i].size <= size);
  seen++;
}

static void check_live(void) {
  unsigned live = 0, counted = 0;
  seen = 0;
  for (struct run *run = arena_first(arena); run; run = arena_next(run)) {
    chunk_each_live(run, check_one, NULL);
    counted += (unsigned)bump_live(run).blocks;
  }
  for (unsigned i = 0; i < BLOCKS; i++) live += blocks[i].start != NULL;
  CHECK_COUNT(seen, ==, live);
  CHECK_COUNT(counted, ==, live);
  CHECK_COUNT(arena->own, <=, OWN_MOST);
}

/* Seals the chunks as in a child in which this thread does not exist. */
static void check_in_child(void) {
  const pid_t child = fork();
  if (child != 0) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, 0);
    return;
  }
  heap->thread = NULL;
  bump_seal_orphans(arena);
  bump_orphan(heap);
  check_live();
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (!blocks[i].start) continue;
    check_contents(&blocks[i]);
    CHECK(bump_free(pages_run_of(blocks[i].start), blocks[i].start));
  }
  if (!uncounted) CHECK_COUNT(arena->own, ==, 0);
  _exit(0);
}

static void replace_blocks(void) {
  unsigned in_holes = 0;
  for (unsigned i = 0; i < STEPS; i++) {
    struct block *const b = &blocks[draw(BLOCKS)];
    if (!b->start) allocate(b);
    else if (draw(10) == 0) resize(b);
    else if (draw(50) == 0) begin_free(b);
    else release(b);
    if (draw(200) == 0 || heap->bump.chunk != uncounted) end_free();
    const struct run *const current = heap->bump.chunk;
    in_holes += current && current->class == CHUNK_HAS_HOLE;
    if (i % 100 == 0) check_live();
    if (i % 1000 == 0) bump_purge_dead(arena, 10);
    if (!SANITIZED && i % 4000 == 1) check_in_child();
  }
  end_free();
  CHECK_COUNT(in_holes, >, STEPS / 2);
}

/* The heap leaves the epoch, or the epoch is emptied, in the middle of a hole. */
static void leave_or_empty(bool leaves) {
  if (leaves) bump_leave(heap, draw(2));
  check_live();
  for (unsigned i = 0; i < BLOCKS; i++)
    if (blocks[i].start && leaves) CHECK(bump_free(pages_run_of(blocks[i].start), blocks[i].start));
    else if (blocks[i].start) release(&blocks[i]);
  if (leaves) memset(blocks, 0, sizeof blocks);
  if (!leaves && heap->bump.chunk) {
    CHECK(!bump_has_live(heap));
    bump_empty(heap);
    CHECK_COUNT(chunk_live(heap->bump.chunk).blocks, ==, 0);
    for (unsigned i = 0; i < CHUNK_WORDS / (run_is_quarter(heap->bump.chunk) ? QUARTERS : 1); i++)
      CHECK_COUNT(chunk_freed(heap->bump.chunk)[i].local | chunk_freed(heap->bump.chunk)[i].remote, ==, 0);
    bump_leave(heap, false);
  }
  CHECK_COUNT(arena->own, ==, 0);
}

int main(void) {
  start_floors();
  options.reserve_bytes = 0;
  options.sample = 0;
  current_heap = heap_acquire();
  atomic_store(&current_heap->store->chunks.attached, 1000);
  arena = arena_make();
  CHECK(arena != NULL);
  arena->budget = SIZE_MAX;
  for (int round = 0; round < 4; round++) {
    heap = heap_take_blank(arena);
    CHECK(heap != NULL);
    bump_start(heap);
    const uint64_t before = bump_allocations();
    replace_blocks();
    CHECK_COUNT(bump_allocations(), >, before + STEPS / 4);
    leave_or_empty(round % 2);
    heap_give_back(heap);
  }
  CHECK_COUNT(arena->charged, ==, 0);
  pages_check();
  return 0;
}
