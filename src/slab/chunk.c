/* chunk: see chunk.h.                                                                                floor: slab */
#include "slab/chunk.h"

#include "slab/reserve.h"
#include <string.h>

struct run *chunk_new(uint32_t epoch) {
  bool zero;
  struct run *run = reserve_take(RUN_CHUNK);
  if (!run) run = pages_alloc(1, GRANULE, RUN_CHUNK, &zero);
  if (!run) return NULL;
  if (!pages_reach_chunk_bits(run)) {
    pages_free(run, false);
    return NULL;
  }
  run->epoch = epoch;
  chunk_begin(run);
  return run;
}

static uint64_t word_at(const uint64_t *words, size_t i) { return __atomic_load_n(&words[i], __ATOMIC_RELAXED); }

static bool is_set(const uint64_t *words, uintptr_t p) { return word_at(words, chunk_word(p)) & chunk_bit(p); }

/* Offset of the first start bit at or after `from`; GRANULE when there is none. */
static size_t next_start(const struct chunk_bits *bits, size_t from) {
  if (from >= GRANULE) return GRANULE;
  size_t i = chunk_word(from);
  uint64_t word = word_at(bits->starts, i) & ~(chunk_bit(from) - 1);
  while (!word) {
    if (++i == CHUNK_WORDS) return GRANULE;
    word = word_at(bits->starts, i);
  }
  return (i * 64 + lowest_bit(word)) * CHUNK_UNIT;
}

static size_t offset_in(const struct run *run, const void *p) { return (size_t)((const char *)p - run_start(run)); }

enum chunk_place chunk_place_of(const struct run *run, const void *p) {
  const struct chunk_bits *bits = chunk_bits(run);
  size_t offset = offset_in(run, p), next = next_start(bits, round_down(offset, CHUNK_UNIT) + CHUNK_UNIT);
  if (next == GRANULE) return CHUNK_NOWHERE;
  if (offset % CHUNK_UNIT != 0 || !is_set(bits->starts, offset)) return CHUNK_INTERIOR;
  return is_set(bits->here, offset) || is_set(bits->elsewhere, offset) ? CHUNK_FREED : CHUNK_LIVE;
}

size_t chunk_size_of(const struct run *run, const void *p) {
  size_t offset = offset_in(run, p);
  return next_start(chunk_bits(run), offset + CHUNK_UNIT) - offset;
}

void *chunk_block_of(const struct run *run, const void *p) {
  const struct chunk_bits *bits = chunk_bits(run);
  size_t at = round_down(offset_in(run, p), CHUNK_UNIT);
  if (next_start(bits, at + CHUNK_UNIT) == GRANULE) return NULL;
  while (!is_set(bits->starts, at)) at -= CHUNK_UNIT;
  return run_start(run) + at;
}

bool chunk_mark_freed(struct run *run, const void *p) {
  struct chunk_bits *bits = chunk_bits(run);
  size_t offset = offset_in(run, p);
  uint64_t bit = chunk_bit(offset);
  uint64_t before = __atomic_fetch_or(&bits->elsewhere[chunk_word(offset)], bit, __ATOMIC_RELAXED);
  return !(before & bit) && !is_set(bits->here, offset);
}

void chunk_skip(struct run *run, const char *from, const char *to) {
  struct chunk_bits *bits = chunk_bits(run);
  size_t old = offset_in(run, from), new = offset_in(run, to);
  chunk_set(&bits->starts[chunk_word(new)], chunk_bit(new));
  chunk_set(&bits->here[chunk_word(old)], chunk_bit(old));
}

void chunk_each_live(const struct run *run, void (*visit)(void *, size_t, void *), void *argument) {
  const struct chunk_bits *bits = chunk_bits(run);
  for (size_t at = 0, next; (next = next_start(bits, at + CHUNK_UNIT)) != GRANULE; at = next)
    if (!is_set(bits->here, at) && !is_set(bits->elsewhere, at)) visit(run_start(run) + at, next - at, argument);
}

static void count_one(void *block, size_t size, void *argument) {
  (void)block;
  struct chunk_live *live = argument;
  live->blocks++;
  live->bytes += size;
}

struct chunk_live chunk_live(const struct run *run) {
  struct chunk_live live = {0, 0};
  chunk_each_live(run, count_one, &live);
  return live;
}

void chunk_clear(struct run *run, size_t used) {
  struct chunk_bits *bits = chunk_bits(run);
  size_t words = chunk_word(used) + 1;
  memset(bits->starts, 0, words * sizeof *bits->starts);
  memset(bits->here, 0, words * sizeof *bits->here);
  memset(bits->elsewhere, 0, words * sizeof *bits->elsewhere);
}
