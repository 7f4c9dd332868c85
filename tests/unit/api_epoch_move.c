/* tslab_epoch_move moves a block to another epoch, with its bytes, size and alignment, or leaves it as it was. */
#include "../epochs.h"

static unsigned char pattern(size_t i) { return (unsigned char)(i * 31 + 7); }

static void fill(unsigned char *block, size_t size) {
  for (size_t i = 0; i < size; i++) block[i] = pattern(i);
}

static void check_filled(const unsigned char *block, size_t size) {
  for (size_t i = 0; i < size; i++) CHECK(block[i] == pattern(i));
}

/* Moves a block of `from` and frees the copy; neither epoch holds anything of it afterwards. */
static void move_one(void *block, tslab_epoch from, tslab_epoch to) {
  CHECK(block != NULL);
  const size_t size = tslab_malloc_usable_size(block);
  const uint64_t live = from ? status_of(from).live_blocks : 0;
  fill(block, size);
  errno = 7;
  void *const copy = tslab_epoch_move(block, to);
  CHECK(copy != NULL && copy != block && errno == 7);
  CHECK_COUNT(tslab_epoch_of(copy), ==, to);
  CHECK_COUNT(tslab_malloc_usable_size(copy), >=, size);
  check_filled(copy, size);
  if (from) CHECK_COUNT(status_of(from).live_blocks, ==, live - 1);
  tslab_free(copy);
}

static void every_kind(tslab_epoch from, tslab_epoch to) {
  const size_t sizes[] = {0, 1, 16, 24, 100, 1000, 4096, 5000, 16384, 20000, 40000, 100000, 3 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int again = 0; again < 3; again++) move_one(tslab_epoch_malloc(from, sizes[i]), from, to);
}

static void every_alignment(tslab_epoch from, tslab_epoch to) {
  const size_t sizes[] = {1, 48, 100, 4096, 40000, 300000};
  for (size_t alignment = 16; alignment <= ((size_t)2 << 20); alignment *= 2)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (int again = 0; again < 4; again++) {
        void *const block = tslab_epoch_aligned_alloc(from, alignment, sizes[i]), *odd = tslab_epoch_malloc(to, 1);
        CHECK(block != NULL);
        void *const copy = tslab_epoch_move(block, to);
        CHECK(copy != NULL);
        CHECK_COUNT((uintptr_t)copy % alignment, ==, 0);
        tslab_free(copy);
        tslab_free(odd);
      }
}

/* Blocks without a demanded alignment take no more room than before, at whatever address they lie. */
static void small_ones_stay_small(void) {
  enum { COUNT = 1000, SIZE = 48 };
  static void *blocks[COUNT];
  const tslab_epoch from = open_epoch("request", 0), to = open_epoch("session", 0);
  for (int i = 0; i < COUNT; i++) blocks[i] = block_in(from, SIZE);
  for (int i = 0; i < COUNT; i++) blocks[i] = tslab_epoch_move(blocks[i], to);
  CHECK_COUNT(status_of(from).live_blocks, ==, 0);
  CHECK_COUNT(status_of(to).live_blocks, ==, COUNT);
  CHECK_COUNT(status_of(to).committed_bytes, <=, 2 * GRANULE);
  for (int i = 0; i < COUNT; i++) tslab_free(blocks[i]);
  CHECK_COUNT(tslab_epoch_close(from, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(to, NULL), ==, 0);
}

static void its_own_epoch_is_no_move(void) {
  const tslab_epoch e = open_epoch("own", 0);
  void *const block = block_in(e, 100), *const plain = tslab_malloc(100);
  CHECK(tslab_epoch_move(block, e) == block);
  CHECK(tslab_epoch_move(plain, 0) == plain);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK(tslab_epoch_move(block, e) == block); /* the epoch is closing and still owns the block */
  tslab_free(plain);
  tslab_free(block);
  check_stale(e);
}

static void check_not_moved(void *block, tslab_epoch to, int error) {
  errno = 0;
  CHECK(tslab_epoch_move(block, to) == NULL);
  CHECK_COUNT(errno, ==, error);
  check_filled(block, 100);
}

static void a_refusal_leaves_the_block(void) {
  const tslab_epoch e = open_epoch("from", 0), closing = open_epoch("closing", 0), ended = open_epoch("ended", 0);
  const tslab_epoch small = open_options((tslab_epoch_options){.label = "small", .budget_bytes = GRANULE});
  void *const block = block_in(e, 100), *const pin = block_in(closing, 10), *const large = block_in(e, 4 * GRANULE);
  fill(block, 100);
  fill(large, 100);
  CHECK_COUNT(tslab_epoch_close(closing, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(ended, NULL), ==, 0);
  check_not_moved(block, closing, ESHUTDOWN);
  check_not_moved(block, ended, ESTALE);
  check_not_moved(block, NEVER_ISSUED, ESTALE);
  check_not_moved(large, small, ENOMEM);
  CHECK_COUNT(status_of(small).refused, ==, 1);
  CHECK_COUNT(status_of(e).live_blocks, ==, 2);
  errno = 0;
  CHECK(tslab_epoch_move(NULL, e) == NULL && errno == EINVAL);
  tslab_free(pin);
  tslab_free(large);
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_close(small, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

/* The use of a move: it is the last free of a closing epoch's block, so it returns the epoch's memory. */
static void a_promoted_block_pins_nothing(void) {
  const tslab_epoch request = open_epoch("request", 0);
  CHECK_COUNT(tslab_epoch_enter(request), ==, 0);
  void *const block = block_here(100);
  fill(block, 100);
  CHECK_COUNT(tslab_epoch_leave(request), ==, 0);
  CHECK_COUNT(tslab_epoch_close(request, NULL), ==, 0);
  void *const kept = tslab_epoch_move(block, 0);
  CHECK(kept != NULL);
  check_filled(kept, 100);
  check_stale(request);
  tslab_free(kept);
}

/* A thread that allocated nothing may move a block, and so may another thread than the block's. */
static void *move_to_plain(void *block) { return tslab_epoch_move(block, 0); }

static void any_thread_may(void) {
  const tslab_epoch e = open_epoch("from", 0);
  pthread_t thread;
  void *copy, *const block = block_in(e, 100);
  fill(block, 100);
  CHECK(pthread_create(&thread, NULL, move_to_plain, block) == 0);
  CHECK(pthread_join(thread, &copy) == 0);
  CHECK(copy != NULL && tslab_epoch_of(copy) == 0);
  check_filled(copy, 100);
  tslab_free(copy);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

int main(void) {
  const tslab_epoch e = open_epoch("one", 0), other = open_epoch("other", 0);
  for (int scope = 0; scope < 2; scope++) { /* the scope of the calling thread makes no difference */
    if (scope) CHECK_COUNT(tslab_epoch_enter(other), ==, 0);
    every_kind(e, other);
    every_kind(e, 0);
    every_kind(0, e);
    every_alignment(e, other);
    every_alignment(0, e);
    every_alignment(e, 0);
  }
  CHECK_COUNT(tslab_epoch_leave(other), ==, 0);
  CHECK_COUNT(status_of(e).live_blocks, ==, 0);
  CHECK_COUNT(tslab_epoch_close(other, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  small_ones_stay_small();
  its_own_epoch_is_no_move();
  a_refusal_leaves_the_block();
  a_promoted_block_pins_nothing();
  any_thread_may();
  return 0;
}
