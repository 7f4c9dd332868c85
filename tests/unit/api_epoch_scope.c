/* Scopes: a scope decides in which epoch a thread's malloc allocates, until the thread leaves it. */
#include "../epochs.h"

#include <setjmp.h>
#include <signal.h>

static tslab_epoch a, b;

/* The thread's next block of each size that takes a path of its own belongs to `e`, and tslab_epoch_of agrees. */
static void check_routed(tslab_epoch e) {
  const size_t sizes[] = {0, 1, 24, 500, 1281, 9000, 33000, 300000};
  CHECK_COUNT(tslab_epoch_current(), ==, e);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *block = block_here(sizes[i]);
    CHECK_COUNT(tslab_epoch_of(block), ==, e);
    tslab_free(block);
  }
}

static void scopes_nest(void) {
  const tslab_epoch path[] = {a, b, a, a, 0, b, 0, a};
  const int count = sizeof path / sizeof *path;
  check_routed(0);
  for (int i = 0; i < count; i++) {
    CHECK_COUNT(tslab_epoch_enter(path[i]), ==, 0);
    CHECK_COUNT(tslab_scope_depth(), ==, i + 1);
    check_routed(path[i]);
  }
  for (int i = count - 1; i >= 0; i--) {
    check_routed(path[i]);
    CHECK_COUNT(tslab_epoch_leave(path[i]), ==, 0);
    CHECK_COUNT(tslab_scope_depth(), ==, i);
  }
  check_routed(0);
}

static void out_of_order_changes_nothing(void) {
  CHECK_COUNT(tslab_epoch_leave(a), ==, EINVAL);
  CHECK_COUNT(tslab_epoch_leave(0), ==, EINVAL);
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(b), ==, 0);
  const tslab_epoch wrong[] = {a, 0, NEVER_ISSUED};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    CHECK_COUNT(tslab_epoch_leave(wrong[i]), ==, EINVAL);
    CHECK_COUNT(tslab_scope_depth(), ==, 2);
    CHECK_COUNT(status_of(a).threads_inside, ==, 1);
    CHECK_COUNT(status_of(b).threads_inside, ==, 1);
    check_routed(b);
  }
  CHECK_COUNT(tslab_epoch_leave(b), ==, 0);
  CHECK_COUNT(tslab_epoch_leave(b), ==, EINVAL);
  check_routed(a);
  CHECK_COUNT(tslab_epoch_leave(a), ==, 0);
  CHECK_COUNT(status_of(a).threads_inside, ==, 0);
}

static void sixty_four_and_no_more(void) {
  for (int i = 0; i < TSLAB_SCOPES; i++) CHECK_COUNT(tslab_epoch_enter(i % 3 ? a : b), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(a), ==, EOVERFLOW);
  CHECK_COUNT(tslab_epoch_enter(0), ==, EOVERFLOW);
  CHECK_COUNT(tslab_scope_depth(), ==, TSLAB_SCOPES);
  check_routed((TSLAB_SCOPES - 1) % 3 ? a : b);
  for (int i = TSLAB_SCOPES - 1; i >= 0; i--) CHECK_COUNT(tslab_epoch_leave(i % 3 ? a : b), ==, 0);
  check_routed(0);
}

static void enter_refuses_what_is_gone(void) {
  const tslab_epoch e = open_epoch("gone", 0);
  void *pin = block_in(e, 10);
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(e), ==, ESHUTDOWN);
  tslab_free(pin);
  CHECK_COUNT(tslab_epoch_enter(e), ==, ESTALE);
  CHECK_COUNT(tslab_scope_depth(), ==, 1);
  check_routed(a);
  CHECK_COUNT(tslab_epoch_leave(a), ==, 0);
}

static void switching(void) {
  errno = 1234;
  CHECK_COUNT(tslab_epoch_switch(a), ==, 0); /* outside all scopes */
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
  check_routed(a);
  CHECK_COUNT(tslab_epoch_switch(b), ==, a);
  check_routed(b);
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0); /* a scope over it, whose epoch is then switched */
  CHECK_COUNT(tslab_epoch_switch(0), ==, a);
  check_routed(0);
  CHECK_COUNT(tslab_epoch_switch(b), ==, 0);
  CHECK_COUNT(tslab_epoch_switch(b), ==, b);
  CHECK_COUNT(errno, ==, 1234);
  CHECK_COUNT(tslab_epoch_leave(a), ==, EINVAL);
  CHECK_COUNT(tslab_epoch_leave(b), ==, 0);
  check_routed(b);
  errno = 0;
  CHECK_COUNT(tslab_epoch_switch(NEVER_ISSUED), ==, b);
  CHECK_COUNT(errno, ==, ESTALE);
  check_routed(b);
  CHECK_COUNT(tslab_epoch_switch(0), ==, b);
  CHECK_COUNT(status_of(a).threads_inside, ==, 0);
  CHECK_COUNT(status_of(b).threads_inside, ==, 0);
}

static void unwinding(void) {
  static jmp_buf out;
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0);
  const int depth = tslab_scope_depth();
  if (setjmp(out) == 0) {
    for (int i = 0; i < 10; i++) CHECK_COUNT(tslab_epoch_enter(i % 2 ? a : b), ==, 0);
    longjmp(out, 1);
  }
  CHECK_COUNT(tslab_scope_depth(), ==, 11);
  tslab_scope_unwind(TSLAB_SCOPES); /* no scope is above this one */
  CHECK_COUNT(tslab_scope_depth(), ==, 11);
  tslab_scope_unwind(4);
  CHECK_COUNT(tslab_scope_depth(), ==, 4);
  check_routed(b);
  tslab_scope_unwind(depth);
  CHECK_COUNT(tslab_scope_depth(), ==, 1);
  check_routed(a);
  CHECK_COUNT(status_of(b).threads_inside, ==, 0);
  tslab_scope_unwind(0);
  check_routed(0);
  CHECK_COUNT(status_of(a).threads_inside, ==, 0);
}

static void the_whole_family_is_routed(void) {
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0);
  void *blocks[9] = {tslab_malloc(10),           tslab_calloc(3, 30),       tslab_realloc(NULL, 100),
                     tslab_aligned_alloc(64, 9), tslab_memalign(4096, 10), tslab_valloc(10),
                     tslab_pvalloc(10),          tslab_reallocarray(NULL, 10, 10)};
  CHECK(tslab_posix_memalign(&blocks[8], 256, 20) == 0);
  CHECK_COUNT(tslab_epoch_leave(a), ==, 0);
  for (int i = 0; i < 9; i++) {
    CHECK(blocks[i] != NULL);
    CHECK_COUNT(tslab_epoch_of(blocks[i]), ==, a);
    tslab_free(blocks[i]);
  }
}

static void *starts_outside(void *unused) {
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
  check_routed(0);
  CHECK_COUNT(tslab_epoch_enter(b), ==, 0);
  check_routed(b);
  return unused; /* the thread ended without a leave: an ended thread is not inside */
}

static void threads_have_scopes_of_their_own(void) {
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0);
  elsewhere(starts_outside, NULL);
  check_routed(a);
  CHECK_COUNT(status_of(b).threads_inside, ==, 0);
  CHECK_COUNT(tslab_epoch_leave(a), ==, 0);
}

static volatile tslab_epoch asked[3];
static void *volatile ask_about;

/* Functions that are marked async-signal-safe; a signal handler runs in its thread's epoch. */
static void handler(int number) {
  (void)number;
  asked[0] = tslab_epoch_current();
  asked[1] = tslab_epoch_of(ask_about);
  asked[2] = tslab_owns(ask_about);
}

static void a_signal_handler_inherits(void) {
  CHECK(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler}, NULL) == 0);
  ask_about = block_in(b, 40);
  CHECK_COUNT(tslab_epoch_enter(a), ==, 0);
  CHECK(raise(SIGUSR1) == 0);
  CHECK_COUNT(tslab_epoch_leave(a), ==, 0);
  CHECK_COUNT(asked[0], ==, a);
  CHECK_COUNT(asked[1], ==, b);
  CHECK_COUNT(asked[2], ==, 1);
  tslab_free(ask_about);
}

/* More epochs than a thread keeps attached after leaving. */
static void many_by_turns(void) {
  enum { COUNT = 50, ROUNDS = 20 };
  static tslab_epoch epochs[COUNT];
  static void *blocks[COUNT][ROUNDS];
  for (int i = 0; i < COUNT; i++) epochs[i] = open_epoch("turns", 0);
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < COUNT; i++) {
      CHECK_COUNT(tslab_epoch_enter(epochs[i]), ==, 0);
      blocks[i][round] = block_here(100);
      if (round % 2) tslab_free(blocks[i][round - 1]);
      CHECK_COUNT(tslab_epoch_leave(epochs[i]), ==, 0);
    }
  for (int i = 0; i < COUNT; i++) {
    CHECK_COUNT(status_of(epochs[i]).live_blocks, ==, ROUNDS / 2);
    for (int round = 1; round < ROUNDS; round += 2) {
      CHECK_COUNT(tslab_epoch_of(blocks[i][round]), ==, epochs[i]);
      tslab_free(blocks[i][round]);
    }
    CHECK_COUNT(tslab_epoch_close(epochs[i], NULL), ==, 0);
    check_stale(epochs[i]);
  }
}

int main(void) {
  a = open_epoch("a", 0);
  b = open_epoch("b", 0);
  scopes_nest();
  out_of_order_changes_nothing();
  sixty_four_and_no_more();
  enter_refuses_what_is_gone();
  switching();
  unwinding();
  the_whole_family_is_routed();
  threads_have_scopes_of_their_own();
  a_signal_handler_inherits();
  many_by_turns();
  CHECK_COUNT(tslab_epoch_close(a, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(b, NULL), ==, 0);
  check_stale(a);
  check_stale(b);
  return 0;
}
