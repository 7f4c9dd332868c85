/* Parents: a close, destroy or reset of a parent does the same to its children first. */
#include "../epochs.h"

static tslab_epoch open_child(tslab_epoch parent, uint32_t flags) {
  const tslab_epoch e = open_options((tslab_epoch_options){.label = "child", .flags = flags, .parent = parent});
  CHECK(e != 0);
  CHECK_COUNT(status_of(e).parent, ==, parent);
  return e;
}

static void close_takes_the_children_along(void) {
  const tslab_epoch parent = open_epoch("parent", 0), empty = open_child(parent, 0), child = open_child(parent, 0);
  const tslab_epoch grandchild = open_child(child, 0), other = open_epoch("no relation", 0);
  void *block = block_in(grandchild, 100), *mine = block_in(parent, 100);
  tslab_epoch_report report;
  CHECK_COUNT(tslab_epoch_close(parent, &report), ==, 0);
  CHECK_COUNT(report.epoch, ==, parent);
  check_stale(empty);
  check_refused(grandchild, ESHUTDOWN);
  check_refused(parent, ESHUTDOWN);
  CHECK_COUNT(status_of(other).state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(tslab_epoch_of(block), ==, grandchild);
  tslab_free(block);
  check_stale(grandchild);
  check_stale(child);
  tslab_free(mine);
  check_stale(parent);
  CHECK_COUNT(tslab_epoch_close(other, NULL), ==, 0);
}

static void a_child_may_close_alone(void) {
  const tslab_epoch parent = open_epoch("parent", 0), child = open_child(parent, 0);
  void *block = block_in(child, 100);
  CHECK_COUNT(tslab_epoch_close(child, NULL), ==, 0);
  CHECK_COUNT(status_of(parent).state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(status_of(parent).charged_bytes, >, 0); /* the bytes that the child still holds */
  tslab_free(block);
  check_stale(child);
  CHECK_COUNT(status_of(parent).charged_bytes, ==, 0);
  tslab_free(block_in(parent, 10));
  CHECK_COUNT(tslab_epoch_close(parent, NULL), ==, 0);
  check_stale(parent);
}

static void auto_close_takes_them_too(void) {
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_AUTO_CLOSE), child = open_child(parent, 0);
  CHECK_COUNT(tslab_epoch_enter(parent), ==, 0);
  CHECK_COUNT(tslab_epoch_leave(parent), ==, 0);
  check_stale(child);
  check_stale(parent);
}

static void step_takes_them_too(void) {
  const tslab_epoch parent = open_epoch("parent", 0), child = open_child(parent, 0);
  void *block = block_in(child, 100);
  int error, steps = 0;
  while ((error = tslab_epoch_close_step(parent, 1, NULL)) == EAGAIN) CHECK_COUNT(++steps, <, 1000);
  CHECK_COUNT(error, ==, 0);
  CHECK_COUNT(status_of(child).state, ==, TSLAB_EPOCH_CLOSING);
  tslab_free(block);
  check_stale(child);
  check_stale(parent);
}

/* The child's blocks live on, and keep the parent's id valid. The parent's own blocks are gone, and their handles are
   stale. */
static void destroy_beside_a_closing_child(void) {
  void *of_parent, *of_child;
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child = open_child(parent, TSLAB_EPOCH_DESTROYABLE);
  const tslab_handle gone = tslab_handle_alloc(parent, 100, &of_parent);
  const tslab_handle stays = tslab_handle_alloc(child, 100, &of_child);
  CHECK(gone != 0 && stays != 0);
  CHECK_COUNT(tslab_epoch_close(child, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, 0);
  CHECK_COUNT(status_of(parent).state, ==, TSLAB_EPOCH_CLOSING);
  CHECK(tslab_handle_get(gone) == NULL && !tslab_handle_free(gone));
  CHECK(tslab_handle_get(stays) == of_child && tslab_handle_free(stays));
  check_stale(child);
  check_stale(parent);
}

static void destroy_needs_every_childs_flag(void) {
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child = open_child(parent, TSLAB_EPOCH_DESTROYABLE), grandchild = open_child(child, 0);
  unsigned char *blocks[] = {block_in(parent, 100), block_in(child, 100), block_in(grandchild, 100)};
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, EPERM);
  CHECK_COUNT(tslab_epoch_reset(parent, NULL), ==, EPERM);
  for (int i = 0; i < 3; i++) CHECK(blocks[i][99] == 0x5C);
  CHECK_COUNT(status_of(parent).live_blocks + status_of(child).live_blocks + status_of(grandchild).live_blocks, ==, 3);
  CHECK_COUNT(status_of(child).era, ==, 0);
  tslab_free(blocks[2]);
  CHECK_COUNT(tslab_epoch_close(grandchild, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, 0); /* nothing is left of the epoch that was not destroyable */
  check_stale(child);
  check_stale(parent);
}

static void nobody_may_be_inside_a_child(void) {
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child = open_child(parent, TSLAB_EPOCH_DESTROYABLE);
  unsigned char *mine = block_in(parent, 100), *its = block_in(child, 100);
  struct guest guest;
  guest_start(&guest, child, NULL);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, EBUSY);
  CHECK_COUNT(tslab_epoch_reset(parent, NULL), ==, EBUSY);
  CHECK(mine[99] == 0x5C && its[99] == 0x5C);
  CHECK_COUNT(status_of(parent).live_blocks, ==, 1);
  CHECK_COUNT(status_of(parent).era + status_of(child).era, ==, 0);
  guest_end(&guest);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, 0);
  check_stale(child);
  check_stale(parent);
}

/* Children end first, but only after the library knows that every one of them may end. */
static void nobody_may_be_inside_the_parent(void) {
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child = open_child(parent, TSLAB_EPOCH_DESTROYABLE);
  unsigned char *its = block_in(child, 100);
  struct guest guest;
  guest_start(&guest, parent, NULL);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, EBUSY);
  CHECK_COUNT(tslab_epoch_reset(parent, NULL), ==, EBUSY);
  CHECK_COUNT(status_of(child).state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(status_of(child).live_blocks, ==, 1);
  CHECK_COUNT(status_of(child).era, ==, 0);
  CHECK(its[99] == 0x5C);
  guest_end(&guest);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, 0);
  check_stale(child);
  check_stale(parent);
}

static void reset_takes_the_children_along(void) {
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child = open_child(parent, TSLAB_EPOCH_DESTROYABLE);
  for (uint64_t era = 1; era < 5; era++) {
    for (int i = 0; i < 100; i++) block_in(parent, 500), block_in(child, 500);
    CHECK_COUNT(tslab_epoch_reset(parent, NULL), ==, 0);
    CHECK_COUNT(status_of(parent).era, ==, era);
    CHECK_COUNT(status_of(child).era, ==, era);
    CHECK_COUNT(status_of(child).state, ==, TSLAB_EPOCH_OPEN);
    CHECK_COUNT(status_of(parent).live_blocks + status_of(child).live_blocks, ==, 0);
  }
  CHECK_COUNT(tslab_epoch_reset(child, NULL), ==, 0); /* the child's own bytes */
  CHECK_COUNT(status_of(child).era, ==, 5);
  CHECK_COUNT(status_of(parent).era, ==, 4);
  CHECK_COUNT(tslab_epoch_destroy(parent, NULL), ==, 0);
  check_stale(child);
  check_stale(parent);
}

/* ---- a long chain on a small stack ------------------------------------------------------------------------------- */

enum { LEVELS = 65, STACK_BYTES = 2 << 20, UNUSED = 0xA5, STACK_MOST = 8 << 10 };

static tslab_epoch chain[LEVELS];
static void *lowest_block;
static unsigned char stack[STACK_BYTES] __attribute__((aligned(4096)));
static size_t stack_used;

/* The root, and 64 levels below it, which is the most. With a sibling at each level, which ends first. */
static void open_chain(void) {
  chain[0] = open_epoch("root", TSLAB_EPOCH_DESTROYABLE);
  for (int i = 1; i < LEVELS; i++) {
    chain[i] = open_child(chain[i - 1], TSLAB_EPOCH_DESTROYABLE);
    open_child(chain[i - 1], TSLAB_EPOCH_DESTROYABLE);
    block_in(chain[i], 100);
  }
  CHECK(open_options((tslab_epoch_options){.parent = chain[LEVELS - 1]}) == 0 && errno == EOVERFLOW);
}

static void check_chain_stale(void) {
  for (int i = 0; i < LEVELS; i++) check_stale(chain[i]);
}

static void close_chain(void) { CHECK_COUNT(tslab_epoch_close(chain[0], NULL), ==, 0); }
static void step_chain(void) { CHECK_COUNT(tslab_epoch_close_step(chain[0], 1000000000, NULL), ==, 0); }
static void destroy_chain(void) { CHECK_COUNT(tslab_epoch_destroy(chain[0], NULL), ==, 0); }
static void reset_chain(void) { CHECK_COUNT(tslab_epoch_reset(chain[0], NULL), ==, 0); }
static void free_lowest(void) { tslab_free(lowest_block); }

/* Calls `run` on a stack of a known content, and measures how much of the stack below this frame has changed. */
static void *measure(void *run) {
  const unsigned char *const here = __builtin_frame_address(0), *lowest = stack;
  (*(void (**)(void))run)();
  while (*lowest == UNUSED) lowest++;
  stack_used = (size_t)(here - lowest);
  return NULL;
}

static void on_small_stack(const char *what, void (*run)(void)) {
  pthread_t thread;
  pthread_attr_t attributes;
  memset(stack, UNUSED, sizeof stack);
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
  CHECK(pthread_create(&thread, &attributes, measure, &run) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && pthread_attr_destroy(&attributes) == 0);
  dprintf(1, "%-16s %zu bytes of stack\n", what, stack_used);
  if (!SANITIZED) CHECK_COUNT(stack_used, <=, STACK_MOST);
}

static void a_long_chain_needs_no_large_stack(void) {
  open_chain();
  on_small_stack("reset", reset_chain);
  for (int i = 0; i < LEVELS; i++) CHECK(status_of(chain[i]).era == 1 && status_of(chain[i]).live_blocks == 0);
  on_small_stack("close", close_chain);
  check_chain_stale();
  open_chain();
  on_small_stack("destroy", destroy_chain);
  check_chain_stale();
  open_chain();
  CHECK_COUNT(tslab_epoch_reset(chain[0], NULL), ==, 0);
  on_small_stack("close by steps", step_chain);
  check_chain_stale();
  open_chain();
  CHECK_COUNT(tslab_epoch_reset(chain[0], NULL), ==, 0);
  lowest_block = block_in(chain[LEVELS - 1], 100);
  on_small_stack("close of a block", close_chain);
  for (int i = 0; i < LEVELS; i++) CHECK_COUNT(status_of(chain[i]).state, ==, TSLAB_EPOCH_CLOSING);
  on_small_stack("its free", free_lowest); /* ends the whole chain */
  check_chain_stale();
}

int main(void) {
  close_takes_the_children_along();
  a_child_may_close_alone();
  auto_close_takes_them_too();
  step_takes_them_too();
  destroy_beside_a_closing_child();
  destroy_needs_every_childs_flag();
  nobody_may_be_inside_a_child();
  nobody_may_be_inside_the_parent();
  reset_takes_the_children_along();
  a_long_chain_needs_no_large_stack();
  return 0;
}
