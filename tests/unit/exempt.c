/* exempt: a scope of epoch 0 inside another scope counts its bytes for the label around it, and nothing else does. */
#include "unit.h"

#include "epoch/scope.h"
#include <pthread.h>
#include <tslab/tslab.h>

static tslab_label_stats of(const char *label) {
  tslab_label_stats row;
  memset(&row, 0, sizeof row);
  for (unsigned i = 0; tslab_stats_label(i, &row, sizeof row) == 0; i++)
    if (strcmp(row.label, label) == 0) return row;
  CHECK(!"a label without a row");
  return row;
}

/* Checks what the label counted since the last call. */
static void check_moved(const char *label, uint64_t scopes, uint64_t bytes) {
  static struct seen {
    const char *label;
    uint64_t scopes, bytes;
  } before[2];
  struct seen *was = before;
  const tslab_label_stats now = of(label);
  while (was->label && strcmp(was->label, label) != 0) was++;
  was->label = label;
  CHECK_COUNT(now.exempt_scopes - was->scopes, ==, scopes);
  CHECK_COUNT(now.exempt_bytes - was->bytes, ==, bytes);
  was->scopes = now.exempt_scopes;
  was->bytes = now.exempt_bytes;
}

static void allocate(size_t size, unsigned count) {
  for (unsigned i = 0; i < count; i++) {
    void *const block = tslab_malloc(size);
    CHECK(block != NULL);
    tslab_free(block);
  }
}

static uint64_t small(size_t size, unsigned count) { return class_size(class_of(size)) * count; }

static void enter(tslab_epoch e) { CHECK(tslab_epoch_enter(e) == 0); }
static void leave(tslab_epoch e) { CHECK(tslab_epoch_leave(e) == 0); }

static void plain_scopes(tslab_epoch request) {
  enter(0);
  allocate(100, 50);
  leave(0);
  check_moved("request", 0, 0); /* no scope is around this one */
  enter(request);
  allocate(100, 50);
  leave(request);
  check_moved("request", 0, 0);
}

static void counted(tslab_epoch request) {
  enter(request);
  allocate(100, 7);
  enter(0);
  allocate(100, 5000); /* more than a list holds, so that slow paths are among them */
  allocate(24, 3);
  leave(0);
  allocate(100, 7);
  leave(request);
  check_moved("request", 1, small(100, 5000) + small(24, 3));
}

/* Blocks in epochs are not exempt, whatever their size and whoever names the epoch. */
static void large_blocks(tslab_epoch request, tslab_epoch other) {
  const size_t size = 3 * MiB;
  enter(request);
  allocate(size, 1);
  enter(0);
  void *const block = tslab_malloc(size);
  void *const by_id = tslab_epoch_malloc(other, size), *const small_by_id = tslab_epoch_malloc(other, 100);
  CHECK(block && by_id && small_by_id);
  const uint64_t bytes = tslab_malloc_usable_size(block);
  leave(0);
  leave(request);
  tslab_free(block), tslab_free(by_id), tslab_free(small_by_id);
  CHECK_COUNT(bytes, >=, size);
  check_moved("request", 1, bytes);
  check_moved("other", 0, 0);
}

/* The label is that of the nearest epoch. The count rests in a scope of another epoch. */
static void nested(tslab_epoch request, tslab_epoch other) {
  enter(request);
  enter(0);
  allocate(40, 10);
  enter(other);
  allocate(40, 100);
  enter(0);
  allocate(40, 4);
  enter(0);
  allocate(40, 5);
  leave(0);
  leave(0);
  allocate(40, 100);
  leave(other);
  allocate(40, 20);
  leave(0);
  leave(request);
  check_moved("request", 1, small(40, 30));
  check_moved("other", 2, small(40, 9));
}

static void switched(tslab_epoch request, tslab_epoch other) {
  enter(request);
  enter(other);
  CHECK(tslab_epoch_switch(0) == other);
  allocate(40, 6);
  CHECK(tslab_epoch_switch(other) == 0);
  allocate(40, 60);
  CHECK(tslab_epoch_switch(0) == other);
  tslab_scope_unwind(0);
  check_moved("request", 2, small(40, 6));
  CHECK(tslab_epoch_switch(other) == 0); /* outside all scopes, as coroutines do */
  allocate(40, 60);
  enter(0);
  allocate(40, 8);
  leave(0);
  CHECK(tslab_epoch_switch(0) == other);
  allocate(40, 60); /* no scope is around this one */
  check_moved("other", 1, small(40, 8));
}

static tslab_epoch of_thread;

static void *end_inside(void *unused) {
  enter(of_thread);
  enter(0);
  allocate(40, 9);
  return unused;
}

/* A thread that ends leaves its scopes. Another thread that takes over its place is in none. */
static void threads(tslab_epoch request) {
  pthread_t thread;
  of_thread = request;
  for (unsigned i = 0; i < 2; i++) {
    CHECK(pthread_create(&thread, NULL, end_inside, NULL) == 0 && pthread_join(thread, NULL) == 0);
    check_moved("request", 1, small(40, 9));
  }
}

static void refused(tslab_epoch request) {
  enter(request);
  CHECK(tslab_epoch_leave(0) == EINVAL);
  enter(0);
  CHECK(tslab_epoch_leave(request) == EINVAL && tslab_epoch_enter(1) == ESTALE);
  allocate(40, 2);
  leave(0);
  leave(request);
  check_moved("request", 1, small(40, 2));
  for (unsigned i = 0; i < TSLAB_SCOPES; i++) enter(request);
  CHECK(tslab_epoch_enter(0) == EOVERFLOW);
  tslab_scope_unwind(0);
  check_moved("request", 0, 0);
}

int main(void) {
  const tslab_epoch request = tslab_epoch_open("request"), other = tslab_epoch_open("other");
  CHECK(request != 0 && other != 0);
  plain_scopes(request);
  counted(request);
  large_blocks(request, other);
  nested(request, other);
  switched(request, other);
  threads(request);
  refused(request);
  CHECK(tslab_epoch_close(request, NULL) == 0 && tslab_epoch_close(other, NULL) == 0);
  check_moved("request", 0, 0); /* the counts outlive the epoch */
  return 0;
}
