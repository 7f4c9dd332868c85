/* The test runs with TSLAB_ON_DESTROY=check: destroy becomes close and lists live blocks on standard error. */
#include "../epochs.h"

#include <fcntl.h>

static char said[8192];

/* Calls tslab_epoch_destroy or _reset, and returns the text that it wrote. */
static tslab_epoch_report end(tslab_epoch e, int (*call)(tslab_epoch, tslab_epoch_report *)) {
  tslab_epoch_report report;
  int pipe_ends[2];
  const int kept = dup(2);
  CHECK(kept >= 0 && pipe(pipe_ends) == 0);
  dup2(pipe_ends[1], 2);
  const int error = call(e, &report);
  dup2(kept, 2);
  close(kept), close(pipe_ends[1]);
  const ssize_t length = read(pipe_ends[0], said, sizeof said - 1); /* few enough bytes to arrive in one read */
  said[length > 0 ? length : 0] = 0;
  close(pipe_ends[0]);
  CHECK_COUNT(error, ==, 0);
  CHECK_COUNT(report.epoch, ==, e);
  return report;
}

static tslab_epoch_report destroy(tslab_epoch e) { return end(e, tslab_epoch_destroy); }

/* Takes `expected` off the front of *text. */
static void check_starts(const char **text, const char *expected) {
  if (strncmp(*text, expected, strlen(expected)) != 0) {
    dprintf(2, "expected: %sgot: %s", expected, *text);
    _exit(1);
  }
  *text += strlen(expected);
}

/* One line for each of `lines` of the `count` blocks, none twice. */
static void check_names(const char *text, void *const *blocks, int count, int lines) {
  const void *named[8];
  for (int line = 0; line < lines; line++) {
    char expected[96];
    check_starts(&text, "tslab:   0x");
    void *const block = (void *)strtoul(text, NULL, 16); /* NOLINT: an address as the message prints it */
    int known = 0;
    for (int i = 0; i < count; i++) known += blocks[i] == block;
    CHECK_COUNT(known, ==, 1);
    for (int i = 0; i < line; i++) CHECK(named[i] != block);
    named[line] = block;
    snprintf(expected, sizeof expected, "%lx, %zu bytes\n", (unsigned long)block, tslab_malloc_usable_size(block));
    check_starts(&text, expected);
  }
  CHECK(*text == 0);
}

static void survivors(int count, size_t size, int lines) {
  static void *blocks[5000];
  char first[256];
  const char *text = said;
  uint64_t bytes = 0;
  const tslab_epoch e = open_epoch("vouched for", TSLAB_EPOCH_DESTROYABLE);
  for (int i = 0; i < count; i++) {
    tslab_free(block_in(e, size)); /* freed ones are no survivors */
    blocks[i] = block_in(e, size + (size_t)i % 50);
    bytes += tslab_malloc_usable_size(blocks[i]);
  }
  const tslab_epoch_report report = destroy(e);
  CHECK_COUNT(report.live_blocks, ==, count);
  CHECK_COUNT(report.live_bytes, ==, bytes);
  CHECK_COUNT(report.slabs_pinned, >, 0);
  snprintf(first, sizeof first,
           "tslab: epoch %llu \"vouched for\": %d blocks (%llu bytes) outlive destroy; kept, because "
           "TSLAB_ON_DESTROY=check\n",
           (unsigned long long)e, count, (unsigned long long)bytes);
  check_starts(&text, first);
  check_names(text, blocks, count, lines);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_CLOSING);
  check_refused(e, ESHUTDOWN);
  for (int i = 0; i < count; i++) {
    for (size_t j = 0; j < size; j++) CHECK(((unsigned char *)blocks[i])[j] == 0x5C);
    tslab_free(blocks[i]);
  }
  check_stale(e);
}

static void nobody_survives(void) {
  const tslab_epoch e = open_epoch("clean", TSLAB_EPOCH_DESTROYABLE);
  for (size_t i = 0; i < 500; i++) tslab_free(block_in(e, i));
  CHECK_COUNT(destroy(e).live_blocks, ==, 0);
  CHECK(said[0] == 0);
  check_stale(e);
}

static void a_child_is_named_too(void) {
  const tslab_epoch parent = open_epoch("parent", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch child =
      open_options((tslab_epoch_options){.label = "child", .flags = TSLAB_EPOCH_DESTROYABLE, .parent = parent});
  char *block = block_in(child, 100);
  destroy(parent);
  CHECK(strstr(said, "\"child\": 1 block") != NULL);
  CHECK(strstr(said, "\"parent\"") == NULL);
  CHECK(block[99] == 0x5C);
  tslab_free(block);
  check_stale(child);
  check_stale(parent);
}

/* A reset names the live blocks too; the epoch stays open, and the blocks stay in it. */
static void a_reset_keeps_them(void) {
  const tslab_epoch e = open_epoch("reset", TSLAB_EPOCH_DESTROYABLE);
  char *block = block_in(e, 100);
  CHECK_COUNT(end(e, tslab_epoch_reset).live_blocks, ==, 1);
  CHECK(strstr(said, "\"reset\": 1 block") != NULL);
  CHECK(strstr(said, "outlive reset; kept, because TSLAB_ON_DESTROY=check\ntslab:   0x") != NULL);
  CHECK_COUNT(status_of(e).state, ==, TSLAB_EPOCH_OPEN);
  CHECK_COUNT(status_of(e).era, ==, 1);
  CHECK(block[99] == 0x5C);
  CHECK_COUNT(tslab_epoch_of(block), ==, e);
  tslab_free(block_in(e, 100));
  tslab_free(block);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  check_stale(e);
}

/* A thread of this program reads the messages, and looks at all epochs before it reads more. The pipe is full most of
 * the time, so the thread that destroys waits in the middle of a message. */
enum { EPOCHS_TOLD = 200, LEFT = 8, PATIENCE_S = 60 };
static int visit(const tslab_epoch_status *status, void *unused) { return (void)status, (void)unused, 0; }

static void *read_and_look(void *pipe_end) {
  char some[256];
  while (read(*(int *)pipe_end, some, sizeof some) > 0) CHECK_COUNT(tslab_epoch_each(visit, NULL), ==, 0);
  return NULL;
}

static void leave_some(int (*call)(tslab_epoch, tslab_epoch_report *)) {
  const tslab_epoch e = open_epoch("left", TSLAB_EPOCH_DESTROYABLE);
  void *left[LEFT];
  for (int i = 0; i < LEFT; i++) left[i] = block_in(e, 100);
  CHECK_COUNT(call(e, NULL), ==, 0);
  for (int i = 0; i < LEFT; i++) tslab_free(left[i]);
  tslab_epoch_close(e, NULL);
}

static void no_message_is_written_under_a_lock(void) {
  pthread_t thread;
  int pipe_ends[2];
  const int kept = dup(2);
  CHECK(kept >= 0 && pipe(pipe_ends) == 0);
  fcntl(pipe_ends[1], F_SETPIPE_SZ, 4096);
  CHECK(pthread_create(&thread, NULL, read_and_look, &pipe_ends[0]) == 0);
  alarm(PATIENCE_S);
  dup2(pipe_ends[1], 2);
  for (int i = 0; i < EPOCHS_TOLD; i++) leave_some(i % 2 ? tslab_epoch_destroy : tslab_epoch_reset);
  dup2(kept, 2);
  close(kept), close(pipe_ends[1]);
  CHECK(pthread_join(thread, NULL) == 0);
  close(pipe_ends[0]);
}

int main(void) {
  survivors(3, 100, 3);
  survivors(8, 1000, 8);
  survivors(9, 20, 8);
  survivors(5000, 200, 8);
  survivors(2, 200000, 2);
  nobody_survives();
  a_child_is_named_too();
  a_reset_keeps_them();
  no_message_is_written_under_a_lock();
  return 0;
}
