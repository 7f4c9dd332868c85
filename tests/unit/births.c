/* births: a child of a fork without handlers has the whole heap if no lock was held at the fork. Otherwise its
 * inherited memory freezes, for any lock, and all else works. Statistics count the losses of both, and all earlier
 * calls. A close that was under way in the parent ends in the child. */
#include "unit.h"

#include "base/options.h"
#include "epoch/handle.h"
#include "epoch/scope.h"
#include "epoch/tree.h"
#include "heap/label.h"
#include "heap/tcache.h"
#include "slab/quarter.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { KEPT = 200 };

static void *kept[KEPT], *large;
static tslab_epoch epoch;
static void *in_epoch;
static tslab_handle handle;
static unsigned listed; /* free blocks on the other thread's list, on its detached list, and in its quarantine */
static pthread_barrier_t barrier;

static tslab_stats_global stats(void) {
  tslab_stats_global now;
  CHECK(tslab_stats(&now, sizeof now) == 0);
  return now;
}

static void *must(size_t size) {
  void *const block = tslab_malloc(size);
  CHECK(block != NULL);
  return memset(block, 1, size);
}

/* Puts free blocks on the thread's lists and another thread's block on its way, and then waits. */
static void *stand_by(void *unused) {
  void *own[30];
  for (int i = 0; i < 30; i++) own[i] = must(200); /* its list would keep a block of a class in use */
  for (int i = 0; i < 30; i++) tslab_free(own[i]);
  tslab_free(kept[0]);
  listed = (unsigned)tcache_totals(current_heap, class_of(200)).length;
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return unused;
}

static void in_bare_child(void (*run)(void)) {
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  int status;
  CHECK(child >= 0);
  if (child == 0) {
    run();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void use_heap(void) {
  void *blocks[300];
  for (size_t i = 0; i < 300; i++) blocks[i] = must(i * i + 1);
  for (size_t i = 0; i < 300; i += 3) CHECK((blocks[i] = tslab_realloc(blocks[i], i * 400 + 1)) != NULL);
  for (size_t i = 0; i < 300; i++) tslab_free(blocks[i]);
}

static void free_kept(void) {
  for (int i = 1; i < KEPT; i++) {
    CHECK(tslab_malloc_usable_size(kept[i]) >= 100 && tslab_owns(kept[i]));
    if (i % 4 == 0) CHECK((kept[i] = tslab_realloc(kept[i], 500)) != NULL);
    tslab_free(kept[i]);
  }
  tslab_free(large);
}

static void use_new_epoch(void) {
  const tslab_epoch other = tslab_epoch_open("new");
  CHECK(other != 0 && tslab_epoch_enter(other) == 0);
  use_heap();
  void *block;
  const tslab_handle h = tslab_handle_alloc(other, 100, &block);
  CHECK(h != 0 && tslab_handle_free(h) && !tslab_handle_free(h));
  CHECK(tslab_epoch_leave(other) == 0 && tslab_epoch_close(other, NULL) == 0);
  CHECK(tslab_epoch_info(other, &(tslab_epoch_status){0}) == ESTALE);
}

static void see_whole(void) {
  const tslab_stats_global at_birth = stats();
  CHECK_COUNT(at_birth.live_blocks, ==, KEPT - 1 + 1 + 2); /* kept[0] is free; `large` and two blocks live */
  CHECK_COUNT(at_birth.leaked_at_fork, ==, 1);
  CHECK_COUNT(at_birth.leaked_blocks, ==, listed + 1);
  CHECK_COUNT(at_birth.frozen_bytes, ==, 0);
  CHECK_COUNT(at_birth.threads, ==, 1);
  CHECK(tslab_epoch_current() == epoch && tslab_handle_free(handle));
  tslab_free(in_epoch);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
  CHECK(tslab_epoch_info(epoch, &(tslab_epoch_status){0}) == ESTALE);
  use_heap();
  use_new_epoch();
  free_kept();
  tslab_purge();
  CHECK_COUNT(stats().live_blocks, ==, 0);
}

static void whole(void) { see_whole(); }

static void see_frozen(void) {
  tslab_epoch_status status;
  const tslab_stats_global at_birth = stats();
  CHECK_COUNT(at_birth.live_blocks, ==, KEPT - 1 + 1 + 2);
  CHECK_COUNT(at_birth.frozen_bytes, ==, at_birth.committed_bytes);
  CHECK_COUNT(at_birth.leaked_at_fork, ==, 1);
  use_heap(); /* allocated in the scope, but of epoch 0 */
  CHECK(tslab_epoch_current() == epoch && tslab_epoch_info(epoch, &status) == 0);
  CHECK(status.state == TSLAB_EPOCH_CLOSING);
  tslab_free(in_epoch);
  CHECK(tslab_handle_free(handle) && !tslab_handle_free(handle));
  CHECK(tslab_epoch_enter(epoch) == ESHUTDOWN && tslab_epoch_leave(epoch) == 0);
  CHECK(tslab_epoch_close(epoch, NULL) == ESHUTDOWN);
  use_heap();
  use_new_epoch();
  free_kept();
  tslab_purge();
  CHECK_COUNT(stats().live_blocks, ==, 0);
  CHECK(in_child(use_heap) == 0);
  in_bare_child(use_heap);
}

static void frozen(void) {
  struct lock *const locks[] = {&tree_lock,          &epoch_locks[epoch_index(epoch) % EPOCH_LOCKS].lock,
                                &slots_lock,         &labels_lock,
                                &threads_lock,       &handles_zero_lock,
                                &handles_lock,       &heaps_lock,
                                &current_heap->lock, &current_thread->plain->lock,
                                &reserve_lock,       &arena_locks[epoch_index(epoch) % ARENA_LOCKS].lock,
                                &pages_lock,         &quarter_lock};
  for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
    lock_take(locks[i]);
    in_bare_child(see_frozen);
    lock_release(locks[i]);
  }
}

static tslab_epoch parent, below;

static void see_ended(void) {
  CHECK(tslab_epoch_info(below, &(tslab_epoch_status){0}) == ESTALE);
  CHECK(tslab_epoch_info(parent, &(tslab_epoch_status){0}) == ESTALE);
}

/* The closing thread released the lock to close the children; the child process does not have this thread. */
/* The first call of such a child finds out that the block it changes is frozen. */
static void *beside_free;
static void grow_first(void) {
  CHECK((beside_free = tslab_realloc(beside_free, 5 * GRANULE)) != NULL);
  pages_check();
  CHECK_COUNT(stats().free_clean_bytes + stats().free_dirty_bytes, <, GiB);
  use_heap();
}

static void shrink_first(void) {
  CHECK(tslab_realloc(beside_free, 2 * GRANULE) == beside_free);
  pages_check();
  use_heap();
}

static void frozen_at_first_call(void) {
  CHECK(tslab_epoch_leave(epoch) == 0);
  beside_free = must(3 * GRANULE);
  void *const next = must(8 * GRANULE);
  tslab_free(next);
  tslab_purge();
  lock_take(&tree_lock);
  in_bare_child(grow_first);
  in_bare_child(shrink_first);
  lock_release(&tree_lock);
  tslab_free(beside_free);
  CHECK(tslab_epoch_enter(epoch) == 0);
}

static void closes_go_on(void) {
  const tslab_epoch_options plain = {.struct_size = sizeof plain};
  parent = tslab_epoch_open_with(&plain);
  below = tslab_epoch_open_with(&(tslab_epoch_options){.struct_size = sizeof plain, .parent = parent});
  CHECK(parent != 0 && below != 0);
  struct epoch *const e = epoch_slot(parent);
  CHECK(e != NULL);
  atomic_store(&e->open_id, 0);
  atomic_store(&e->arena.closing, true);
  atomic_store(&e->state, EPOCH_CLOSING);
  e->descending = true;
  CHECK(in_child(see_ended) == 0);
  in_bare_child(see_ended);
}

static tslab_stats_global before;

static void see_counted(void) {
  const tslab_stats_global now = stats();
  CHECK_COUNT(now.allocations, ==, before.allocations);
  CHECK_COUNT(now.frees, ==, before.frees);
  CHECK_COUNT(now.live_blocks, ==, before.live_blocks);
}

/* Waits with a chunk that is half full and whose blocks are mostly free. */
static void *stand_in_epoch(void *unused) {
  void *own[30];
  const tslab_epoch filled = tslab_epoch_open("filled");
  CHECK(filled != 0 && tslab_epoch_enter(filled) == 0);
  for (int i = 0; i < 30; i++) own[i] = must(100);
  for (int i = 0; i < 20; i++) tslab_free(own[i]);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  for (int i = 20; i < 30; i++) tslab_free(own[i]);
  CHECK(tslab_epoch_leave(filled) == 0 && tslab_epoch_close(filled, NULL) == 0);
  return unused;
}

/* Counts of the parent hold in a child, also for chunks of threads that the child does not have. */
static void calls_stay_counted(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, stand_in_epoch, NULL) == 0);
  pthread_barrier_wait(&barrier);
  before = stats();
  CHECK(in_child(see_counted) == 0);
  in_bare_child(see_counted);
  pthread_barrier_wait(&barrier);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  pthread_t thread;
  if (SANITIZED) options.scavenger = 0; /* a sanitizer's runtime starts no thread in a child */
  for (int i = 0; i < KEPT; i++) kept[i] = must(100);
  large = must(300000);
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, stand_by, NULL) == 0);
  pthread_barrier_wait(&barrier);
  epoch = tslab_epoch_open("inherited");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  in_epoch = must(100);
  handle = tslab_handle_alloc(epoch, 100, &(void *){NULL});
  CHECK(handle != 0);
  CHECK(in_child(whole) == 0);
  in_bare_child(whole);
  frozen();
  frozen_at_first_call();
  closes_go_on();
  pthread_barrier_wait(&barrier);
  CHECK(pthread_join(thread, NULL) == 0);
  calls_stay_counted();
  return 0;
}
