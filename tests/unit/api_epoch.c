/* Epochs one by one: open, open_with, labels, info, each, and the errors for ids of no epoch. */
#include "../epochs.h"

_Static_assert(sizeof(tslab_epoch_report) % 128 == 0, "as every struct of figures");
_Static_assert(sizeof(tslab_epoch_status) % 128 == 0, "as every struct of figures");

static void ids_are_never_reused(void) {
  static tslab_epoch seen[3000 / TEST_SCALE];
  const size_t count = sizeof seen / sizeof *seen;
  tslab_epoch highest = 0;
  for (size_t i = 0; i < count; i++) {
    seen[i] = tslab_epoch_open("short");
    CHECK(seen[i] != 0);
    for (size_t j = i > 50 ? i - 50 : 0; j < i; j++) CHECK(seen[i] != seen[j]);
    highest = seen[i] > highest ? seen[i] : highest;
    CHECK_COUNT(tslab_epoch_close(seen[i], NULL), ==, 0);
  }
  for (size_t i = 0; i < count; i += 97) check_stale(seen[i]);
  CHECK_COUNT(highest, <, NEVER_ISSUED);
}

static void unknown_ids_are_stale(void) {
  check_stale(NEVER_ISSUED);
  check_stale(UINT64_MAX);
  const tslab_epoch e = open_epoch("last", 0);
  check_stale(e + ((tslab_epoch)1 << 40)); /* an id that no epoch has yet */
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

/* A thread may enter plain malloc's epoch and take blocks from it; this epoch never ends. */
static void epoch_zero(void) {
  tslab_epoch_report report;
  CHECK_COUNT(tslab_epoch_close(0, &report), ==, EPERM);
  CHECK_COUNT(tslab_epoch_close_step(0, 1000, &report), ==, EPERM);
  CHECK_COUNT(tslab_epoch_destroy(0, &report), ==, EPERM);
  CHECK_COUNT(tslab_epoch_reset(0, &report), ==, EPERM);
  CHECK_COUNT(tslab_epoch_current(), ==, 0);
  CHECK_COUNT(tslab_epoch_enter(0), ==, 0);
  CHECK_COUNT(tslab_scope_depth(), ==, 1);
  CHECK_COUNT(tslab_epoch_leave(0), ==, 0);
  tslab_free(block_in(0, 100));
  tslab_free(block_in(0, 100000));
  const tslab_epoch_status status = status_of(0);
  CHECK_COUNT(status.state, ==, TSLAB_EPOCH_OPEN);
}

static tslab_epoch refused(size_t struct_size, uint64_t budget, uint32_t flags, tslab_epoch parent, int error) {
  errno = 0;
  const tslab_epoch e = tslab_epoch_open_with(&(tslab_epoch_options){
      .struct_size = struct_size, .label = "refused", .budget_bytes = budget, .flags = flags, .parent = parent});
  CHECK(e == 0);
  CHECK_COUNT(errno, ==, error);
  return e;
}

static void options_it_does_not_know(void) {
  const size_t right = sizeof(tslab_epoch_options);
  refused(0, 0, 0, 0, EINVAL);
  refused(right - 1, 0, 0, 0, EINVAL);
  refused(right + 1, 0, 0, 0, EINVAL);
  refused(SIZE_MAX, 0, 0, 0, EINVAL);
  for (uint32_t flag = 4; flag != 0; flag *= 2) {
    refused(right, 0, flag, 0, EINVAL);
    refused(right, 0, flag | TSLAB_EPOCH_AUTO_CLOSE | TSLAB_EPOCH_DESTROYABLE, 0, EINVAL);
  }
  refused(right, 1, 0, 0, EINVAL);
  refused(right, GRANULE - 1, 0, 0, EINVAL);
  refused(right, 0, 0, NEVER_ISSUED, ESTALE);
}

static void options_it_knows(void) {
  const tslab_epoch parent = open_epoch("parent", 0);
  const tslab_epoch e = open_options((tslab_epoch_options){.label = "all of it",
                                                           .budget_bytes = 10 << 20,
                                                           .prefault_bytes = 1 << 20,
                                                           .flags = TSLAB_EPOCH_AUTO_CLOSE | TSLAB_EPOCH_DESTROYABLE,
                                                           .parent = parent});
  CHECK(e != 0);
  const tslab_epoch_status status = status_of(e);
  CHECK(strcmp(status.label, "all of it") == 0);
  CHECK_COUNT(status.era, ==, 0);
  CHECK_COUNT(status.state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(status.flags, ==, TSLAB_EPOCH_AUTO_CLOSE | TSLAB_EPOCH_DESTROYABLE);
  CHECK_COUNT(status.threads_inside, ==, 0);
  CHECK_COUNT(status.live_blocks, ==, 0);
  CHECK_COUNT(status.live_bytes, ==, 0);
  CHECK_COUNT(status.slabs_pinned, ==, 0);
  CHECK_COUNT(status.budget_bytes, ==, 10 << 20);
  CHECK_COUNT(status.refused, ==, 0);
  CHECK_COUNT(status.diverted, ==, 0);
  CHECK_COUNT(status.parent, ==, parent);
  for (size_t i = 0; i < sizeof status.reserved / 8; i++) CHECK_COUNT(status.reserved[i], ==, 0);
  CHECK_COUNT(tslab_epoch_close(parent, NULL), ==, 0);
  check_stale(e);
}

/* The first epoch may begin with the memory that earlier epochs of the thread left ready: 256 KiB at most. */
static void an_idle_epoch_holds_nothing(void) {
  tslab_epoch idle[20];
  uint64_t committed = 0;
  for (int i = 0; i < 20; i++) {
    idle[i] = open_epoch("idle", 0);
    const tslab_epoch_status status = status_of(idle[i]);
    CHECK_COUNT(status.live_blocks, ==, 0);
    CHECK_COUNT(status.slabs_pinned, ==, 0);
    committed += status.committed_bytes;
    CHECK_COUNT(status.charged_bytes, ==, status.committed_bytes);
  }
  CHECK_COUNT(committed, <=, 4 * GRANULE);
  for (int i = 0; i < 20; i++) CHECK_COUNT(tslab_epoch_close(idle[i], NULL), ==, 0);
}

static void labels_are_copied_and_cut(void) {
  char text[3 * TSLAB_EPOCH_LABEL];
  for (size_t length = 0; length < sizeof text; length++) {
    memset(text, 'a' + (int)(length % 26), length);
    text[length] = 0;
    const tslab_epoch e = tslab_epoch_open(text);
    text[0] = '!'; /* the epoch has its own copy */
    const tslab_epoch_status status = status_of(e);
    const size_t kept = length < TSLAB_EPOCH_LABEL ? length : TSLAB_EPOCH_LABEL - 1;
    CHECK_COUNT(strlen(status.label), ==, kept);
    for (size_t i = 0; i < kept; i++) CHECK(status.label[i] == 'a' + (int)(length % 26));
    CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  }
  const tslab_epoch nameless = tslab_epoch_open(NULL), same = open_epoch("same", 0), again = open_epoch("same", 0);
  CHECK(status_of(nameless).label[0] == 0);
  CHECK(same != again && strcmp(status_of(same).label, status_of(again).label) == 0);
  CHECK_COUNT(tslab_epoch_close(nameless, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(same, NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_close(again, NULL), ==, 0);
}

static void info_follows_the_epoch(void) {
  const tslab_epoch e = open_epoch("watched", 0);
  CHECK_COUNT(tslab_epoch_info(e, NULL), ==, EINVAL);
  void *small = block_in(e, 100), *large = block_in(e, 1 << 20);
  tslab_epoch_status status = status_of(e);
  CHECK_COUNT(status.live_blocks, ==, 2);
  CHECK_COUNT(status.live_bytes, ==, tslab_malloc_usable_size(small) + tslab_malloc_usable_size(large));
  CHECK_COUNT(status.slabs_pinned, ==, 2);
  CHECK_COUNT(status.slabs, >=, 2);
  CHECK_COUNT(status.committed_bytes, >=, (1 << 20) + 100);
  CHECK_COUNT(status.charged_bytes, ==, status.committed_bytes);
  const uint64_t age = status.age_ns;
  tslab_free(large);
  status = status_of(e);
  CHECK_COUNT(status.live_blocks, ==, 1);
  CHECK_COUNT(status.live_bytes, ==, tslab_malloc_usable_size(small));
  CHECK_COUNT(status.slabs_pinned, ==, 1);
  CHECK_COUNT(status.age_ns, >=, age);

  struct guest one, two;
  guest_start(&one, e, NULL);
  guest_start(&two, e, NULL);
  CHECK_COUNT(status_of(e).threads_inside, ==, 2);
  guest_end(&one);
  CHECK_COUNT(status_of(e).threads_inside, ==, 1);
  guest_end(&two);
  CHECK_COUNT(status_of(e).threads_inside, ==, 0);

  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_CLOSING);
  tslab_free(small);
  check_stale(e);
}

static int in_order(const tslab_epoch_status *status, void *next) {
  CHECK_COUNT(status->epoch, ==, *(*(const tslab_epoch **)next)++);
  return 0;
}

/* In a fresh process, so that no slot was used before. */
static void the_oldest_slot_first(void) {
  enum { COUNT = 10 };
  tslab_epoch open[COUNT];
  const tslab_epoch *next = open;
  CHECK_COUNT(tslab_epoch_each(in_order, NULL), ==, 0); /* none is open; epoch 0 is not visited */
  for (int i = 0; i < COUNT; i++) open[i] = open_epoch("in order", 0);
  CHECK_COUNT(tslab_epoch_each(in_order, &next), ==, 0);
  CHECK(next == open + COUNT);
  for (int i = 0; i < COUNT; i++) CHECK_COUNT(tslab_epoch_close(open[i], NULL), ==, 0);
}

struct seen {
  const tslab_epoch *expected;
  int count, met, stop_at;
};

static int visit(const tslab_epoch_status *status, void *argument) {
  struct seen *const seen = argument;
  CHECK(status->epoch != 0);
  tslab_free(block_in(status->state == TSLAB_EPOCH_OPEN ? status->epoch : 0, 100)); /* may call any function */
  for (int i = 0; i < seen->count; i++)
    if (seen->expected[i] == status->epoch) seen->met++;
  return seen->met == seen->stop_at ? 42 : 0;
}

static int close_each(const tslab_epoch_status *status, void *argument) {
  (void)argument;
  return tslab_epoch_close(status->epoch, NULL);
}

static void each_visits_open_and_closing(void) {
  enum { COUNT = 40 };
  tslab_epoch open[COUNT];
  void *pin = NULL;
  for (int i = 0; i < COUNT; i++) open[i] = open_epoch("each", 0);
  pin = block_in(open[7], 10);
  CHECK_COUNT(tslab_epoch_close(open[7], NULL), ==, 0); /* a closing epoch is visited, a drained one is not */
  CHECK_COUNT(tslab_epoch_close(open[8], NULL), ==, 0);
  struct seen seen = {open, COUNT, 0, -1};
  CHECK_COUNT(tslab_epoch_each(visit, &seen), ==, 0);
  CHECK_COUNT(seen.met, ==, COUNT - 1);
  seen = (struct seen){open, COUNT, 0, 5};
  CHECK_COUNT(tslab_epoch_each(visit, &seen), ==, 42);
  CHECK_COUNT(seen.met, ==, 5);
  tslab_free(pin);
  CHECK_COUNT(tslab_epoch_each(close_each, NULL), ==, 0);
  seen = (struct seen){open, COUNT, 0, -1};
  CHECK_COUNT(tslab_epoch_each(visit, &seen), ==, 0);
  CHECK_COUNT(seen.met, ==, 0);
}

static void of_and_owns(void) {
  static int data;
  int local = 0;
  CHECK_COUNT(tslab_epoch_of(NULL), ==, 0);
  CHECK_COUNT(tslab_epoch_of(&data), ==, 0);
  CHECK_COUNT(tslab_epoch_of(&local), ==, 0);
  CHECK_COUNT(tslab_epoch_of((void *)UINTPTR_MAX), ==, 0);
  const tslab_epoch e = open_epoch("asked", 0);
  for (size_t size = 0; size < ((size_t)4 << 20); size = size * 2 + 1) {
    char *const block = block_in(e, size);
    CHECK(tslab_owns(block) && tslab_owns(block + tslab_malloc_usable_size(block) - 1));
    tslab_free(block);
  }
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
}

int main(void) {
  the_oldest_slot_first();
  ids_are_never_reused();
  unknown_ids_are_stale();
  epoch_zero();
  options_it_does_not_know();
  options_it_knows();
  an_idle_epoch_holds_nothing();
  labels_are_copied_and_cut();
  info_follows_the_epoch();
  each_visits_open_and_closing();
  of_and_owns();
  return 0;
}
