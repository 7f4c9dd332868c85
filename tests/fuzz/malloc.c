/* malloc.c: malloc's family by four threads against a model of every block.
 *
 * Blocks lie in slots, by themselves, and in piles of up to 4,096, which fill slabs, lists and magazines. Any thread
 * frees any block. In racing inputs each slot and pile is one thread's, and blocks go to others by mail. */
#include "fuzz.h"

#include <sched.h>

enum kind {
  MALLOC, CALLOC, REALLOC, REALLOCARRAY, ALIGNED_ALLOC, POSIX_MEMALIGN, MEMALIGN, PAGES, FREE, FREE_SIZED, ASK, NOTHING,
  PILE_UP, PILE_OFF, SEND, RECEIVE, PURGE, STATISTICS, EXIT, KINDS
};

static bool exits(struct op op) { return op.kind % KINDS == EXIT; }
static void exited(unsigned thread) { (void)thread; }
static void begin(void) {}

static struct block *slot_of(unsigned thread, uint8_t x) {
  return &slots[fuzz_racing ? x % (SLOTS / THREADS) * THREADS + thread : x % SLOTS];
}

static void put(struct block *b, void *start, size_t size, size_t alignment) {
  block_free(b, false);
  *b = block_new(start, size, alignment, 0);
}

static void resize(struct block *b, size_t size, size_t unit) {
  if (!b->start) {
    *b = block_new(tslab_realloc(NULL, size), size, 16, 0);
  } else if (size == 0) {
    void *const start = b->start;
    block_forget(b);
    CHECK(tslab_realloc(start, 0) == NULL);
  } else {
    CHECK(block_resize(b, size, unit));
  }
}

static void ask(const struct block *b) {
  CHECK(tslab_malloc_usable_size(NULL) == 0);
  CHECK(!tslab_owns(b));
  CHECK(tslab_epoch_of(b) == TSLAB_EPOCH_DEFAULT && tslab_epoch_current() == TSLAB_EPOCH_DEFAULT);
  if (!b->start) return;
  CHECK_COUNT(tslab_malloc_usable_size(b->start), ==, b->usable);
  CHECK(tslab_owns(b->start) && tslab_owns(b->start + b->usable - 1));
  CHECK(tslab_epoch_of(b->start) == TSLAB_EPOCH_DEFAULT);
}

static void nothing(void) {
  errno = 77;
  tslab_free(NULL);
  tslab_free_sized(NULL, 10);
  CHECK_COUNT(errno, ==, 77);
  void *out = &errno;
  CHECK_COUNT(tslab_posix_memalign(&out, 24, 10), ==, EINVAL);
  CHECK_COUNT(tslab_posix_memalign(&out, 4, 10), ==, EINVAL);
  CHECK_COUNT(tslab_posix_memalign(&out, 0, 10), ==, EINVAL);
  CHECK(out == &errno);
}

static void pile_up(struct pile *pile, unsigned count, size_t size) {
  for (size_t bytes = 0; count > 0 && bytes <= PILE_BYTES; count--, bytes += size) {
    struct block *const b = pile_next(pile);
    if (!b) return;
    *b = block_new(tslab_malloc(size), size, 16, 0);
  }
}

static void pile_off(struct pile *pile, unsigned count, bool oldest) {
  for (struct block *b; count > 0 && (b = pile_take(pile, oldest)); count--) block_free(b, false);
}

static void receive(unsigned thread) {
  struct block b;
  if (mail_receive(thread, &b)) block_free(&b, false);
}

static void step(unsigned thread, struct op op) {
  struct block *const b = slot_of(thread, op.x);
  struct pile *const pile = &piles[fuzz_racing ? thread : op.variant % PILES];
  const size_t size = fuzz_size(op.a, op.b), alignment = (size_t)1 << op.variant % 19;
  void *start = NULL;
  switch ((enum kind)(op.kind % KINDS)) {
  case MALLOC: put(b, tslab_malloc(size), size, 16); break;
  case CALLOC:
    start = op.variant % 2 ? tslab_calloc(size, 1) : tslab_calloc((size + 6) / 7, 7);
    CHECK(start);
    check_zero(start, size);
    put(b, start, size, 16);
    break;
  case REALLOC: resize(b, size, 0); break;
  case REALLOCARRAY: resize(b, size / 8 * 8, 8); break;
  case ALIGNED_ALLOC: put(b, tslab_aligned_alloc(alignment, size), size, alignment); break;
  case POSIX_MEMALIGN:
    CHECK_COUNT(tslab_posix_memalign(&start, alignment < 8 ? 8 : alignment, size), ==, 0);
    put(b, start, size, alignment);
    break;
  case MEMALIGN: put(b, tslab_memalign(alignment - (op.variant & 32 && alignment > 2), size), size, alignment); break;
  case PAGES: put(b, op.variant % 2 ? tslab_valloc(size) : tslab_pvalloc(size), size, 4096); break;
  case FREE: block_free(b, false); break;
  case FREE_SIZED: block_free(b, true); break;
  case ASK: ask(b); break;
  case NOTHING: nothing(); break;
  case PILE_UP: pile_up(pile, (op.x + 1u) << op.variant / PILES % 4, size); break;
  case PILE_OFF: pile_off(pile, (op.x + 1u) << op.variant / PILES % 4, op.b % 2); break;
  case SEND: mail_send(b, op.variant % THREADS); break;
  case RECEIVE: receive(thread); break;
  case PURGE:
    if (op.variant % 2) tslab_purge();
    else tslab_malloc_trim(0);
    break;
  case STATISTICS:
    if (fuzz_racing) sched_yield();
    else check_statistics();
    break;
  case EXIT: case KINDS: break;
  }
}

static void end(void) {
  for (unsigned i = 0; i < THREADS; i++) receive(i);
  for (unsigned i = 0; i < SLOTS; i++) block_free(&slots[i], i % 2);
  for (unsigned i = 0; i < PILES; i++) pile_off(&piles[i], PILE_MOST, i % 2);
  if (fuzz_purges) tslab_purge();
  check_statistics();
}

const struct fuzzer fuzzer = {begin, step, exits, exited, end};
