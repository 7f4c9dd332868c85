/* chunk: the kind of every address of a chunk, and its live blocks with their sizes, against the test's own list of
 * blocks; a block is freed once; a cleared chunk has no bit left. */
#include "unit.h"

#include "slab/chunk.h"

enum { MOST = (int)(GRANULE / CHUNK_UNIT), EPOCH = 7 };

static struct run *chunk;
static char *at; /* of the next block */
static struct block {
  char *start;
  size_t size;
  bool freed;
} blocks[MOST];
static unsigned count;
static uint64_t seed = 1;

static void begin(void) {
  chunk = chunk_new(EPOCH, NULL);
  CHECK(chunk != NULL && chunk->kind == RUN_CHUNK && chunk->epoch == EPOCH && chunk->granules == 1);
  CHECK_COUNT(pages_pagemap()[run_index(chunk)], ==, 0);
  at = run_start(chunk);
  count = 0;
}

/* Advances as a heap bumps: the next block may start where the block ends. */
static bool put(size_t size) {
  char *const next = at + round_up(size, CHUNK_UNIT);
  if (next > run_start(chunk) + CHUNK_CAPACITY) return false;
  chunk_set(&chunk_starts(chunk)[chunk_word((uintptr_t)next)].word, chunk_bit((uintptr_t)next));
  blocks[count++] = (struct block){at, (size_t)(next - at), false};
  at = next;
  return true;
}

static void check_places(void) {
  for (unsigned i = 0; i < count; i++) {
    const struct block *b = &blocks[i];
    CHECK_COUNT(chunk_place_of(chunk, b->start), ==, b->freed ? CHUNK_FREED : CHUNK_LIVE);
    CHECK_COUNT(chunk_size_of(chunk, b->start), ==, b->size);
    for (char *p = b->start; p < b->start + b->size; p++) CHECK(chunk_block_of(chunk, p) == b->start);
    for (char *p = b->start + 1; p < b->start + b->size; p++)
      CHECK_COUNT(chunk_place_of(chunk, p), ==, CHUNK_INTERIOR);
  }
  for (char *p = at; p < run_start(chunk) + GRANULE; p++) {
    CHECK_COUNT(chunk_place_of(chunk, p), ==, CHUNK_NOWHERE);
    CHECK(chunk_block_of(chunk, p) == NULL);
  }
}

static void check_one(void *start, size_t size, void *next) {
  unsigned *const i = next;
  while (*i < count && blocks[*i].freed) ++*i;
  CHECK(*i < count && start == blocks[*i].start && size == blocks[*i].size);
  ++*i;
}

static void check_live(void) {
  struct chunk_live live = {0, 0};
  unsigned next = 0;
  for (unsigned i = 0; i < count; i++) {
    live.blocks += !blocks[i].freed;
    live.bytes += blocks[i].freed ? 0 : blocks[i].size;
  }
  CHECK_COUNT(chunk_live(chunk).blocks, ==, live.blocks);
  CHECK_COUNT(chunk_live(chunk).bytes, ==, live.bytes);
  chunk_each_live(chunk, check_one, &next);
  while (next < count && blocks[next].freed) next++;
  CHECK_COUNT(next, ==, count);
}

/* The heap's thread frees, which may set its own bit, and other threads free; the second of two frees is reported. */
static void free_one(struct block *b) {
  if (check_random(&seed) % 2) {
    CHECK(chunk_mark_freed(chunk, b->start));
  } else {
    chunk_set(&chunk_freed(chunk)[chunk_word((uintptr_t)b->start)].local, chunk_bit((uintptr_t)b->start));
  }
  b->freed = true;
  CHECK(!chunk_mark_freed(chunk, b->start));
}

static void end(void) {
  struct chunk_starts *starts = chunk_starts(chunk);
  struct chunk_freed *freed = chunk_freed(chunk);
  size_t used = (size_t)(at - run_start(chunk));
  chunk_clear_starts(starts, used);
  chunk_clear_freed(freed, used);
  for (unsigned i = 0; i < CHUNK_WORDS; i++)
    CHECK_COUNT(starts[i].word | freed[i].local | freed[i].remote, ==, 0);
  pages_free(chunk, false);
}

static void sizes(size_t least, size_t most) {
  begin();
  check_places();
  while (put(least + check_random(&seed) % (most - least + 1))) {}
  check_places();
  check_live();
  for (unsigned i = 0; i < count; i++)
    if (check_random(&seed) % 3) free_one(&blocks[i]);
  check_places();
  check_live();
  for (unsigned i = 0; i < count; i++)
    if (!blocks[i].freed) free_one(&blocks[i]);
  check_live();
  end();
}

/* The gap before an aligned block counts as a freed block. */
static void skip(void) {
  begin();
  CHECK(put(100));
  char *const to = at + 400;
  chunk_skip(chunk, at, to);
  blocks[count++] = (struct block){at, 400, true};
  at = to;
  CHECK(put(200));
  check_places();
  check_live();
  CHECK_COUNT(chunk_live_of_first(chunk, 2).blocks, ==, 2); /* two blocks were handed out; the gap is not one */
  end();
}

static void expect_settled(const char *next, unsigned all, unsigned expected) {
  unsigned kept;
  CHECK_COUNT(chunk_settle(chunk, next, &kept), ==, all);
  CHECK_COUNT(kept, ==, expected);
  check_places();
  check_live();
}

static uint64_t *starts_of(const char *p) { return &chunk_starts(chunk)[chunk_word((uintptr_t)p)].word; }

/* A fork may meet the chunk's thread between any two stores. */
static void settled(void) {
  begin();
  expect_settled(at, 0, 0);
  while (count < 40) CHECK(put(100 + 40 * count));
  for (unsigned i = 0; i < count; i += 3)
    chunk_set(&chunk_freed(chunk)[chunk_word((uintptr_t)blocks[i].start)].local, chunk_bit((uintptr_t)blocks[i].start));
  for (unsigned i = 0; i < count; i += 3) blocks[i].freed = true;
  expect_settled(at, 40, 26); /* whole: nothing changes */
  expect_settled(NULL, 40, 26);
  expect_settled(at + 64, 40, 26); /* the next block was not marked yet */
  chunk_set(starts_of(at + 128), chunk_bit((uintptr_t)(at + 128)));
  expect_settled(at, 40, 26); /* it was marked, and nothing else */
  chunk_unset(starts_of(at), chunk_bit((uintptr_t)at));
  at = blocks[--count].start; /* the last one was taken back, and its end is still the next place */
  chunk_freed(chunk)[chunk_word((uintptr_t)at)].local |= chunk_bit((uintptr_t)at);
  expect_settled(at + 64, 39, 26 - !blocks[39].freed);
  CHECK_COUNT(chunk_freed(chunk)[chunk_word((uintptr_t)at)].local & chunk_bit((uintptr_t)at), ==, 0);
  /* It was being emptied: the first eight words are clear. */
  const size_t cleared = (size_t)8 * 64 * CHUNK_UNIT;
  unsigned first = 0;
  while (blocks[first].start < run_start(chunk) + cleared) first++;
  for (size_t i = 0; i < 8; i++) chunk_starts(chunk)[i].word = 0;
  blocks[0] = (struct block){run_start(chunk), (size_t)(blocks[first].start - run_start(chunk)), true};
  for (unsigned i = first; i < count; i++) blocks[i - first + 1] = blocks[i];
  count -= first - 1;
  unsigned live = 0;
  for (unsigned i = 0; i < count; i++) live += !blocks[i].freed;
  expect_settled(at, count, live);
  for (size_t i = 0; i < CHUNK_WORDS; i++) chunk_starts(chunk)[i].word = 0;
  count = 0;
  at = run_start(chunk);
  expect_settled(NULL, 0, 0);
  end();
}

int main(void) {
  start_floors();
  for (int i = 0; i < 10; i++) sizes(1, 2000 / (i + 1));
  sizes(1, 16);
  sizes(16384, 16384);
  sizes(CHUNK_CAPACITY, CHUNK_CAPACITY);
  skip();
  settled();
  pages_check();
  return 0;
}
