/* scope: a scope sets the heap of a thread's malloc and counts the thread in; the heap stays attached after the thread
 * left. */
#include "unit.h"

#include "base/options.h"
#include "epoch/close.h"
#include "epoch/open.h"
#include "epoch/scope.h"
#include "heap/refill.h"
#include "heap/span.h"
#include "runtime/thread.h"
#include <pthread.h>

static uint64_t open_one(void) {
  int error;
  const uint64_t id = epoch_open(&(tslab_epoch_options){.label = "scope"}, &error);
  CHECK(id != 0);
  return id;
}

static struct heap *heap_of(uint64_t id) { return epoch_slot(id)->heaps; }

static void check_inside(uint64_t id, unsigned entered) {
  CHECK_COUNT(inside_threads(epoch_slot(id)), ==, entered > 0);
  if (heap_of(id)) CHECK_COUNT(heap_of(id)->bump.entered, ==, entered);
}

static void check_current(struct heap *heap, uint64_t id, unsigned depth) {
  CHECK(current_heap == heap && scope_current(current_thread) == id && current_thread->depth == depth);
}

static void nesting(void) {
  struct thread *const me = current_thread;
  const uint64_t a = open_one(), b = open_one();
  check_current(me->plain, 0, 0);
  CHECK_COUNT(scope_leave(me, 0), ==, EINVAL);
  CHECK(scope_enter(me, a) == 0 && heap_of(a)->thread == me && heap_of(a)->next_of_epoch == NULL);
  check_current(heap_of(a), a, 1);
  CHECK(scope_enter(me, b) == 0 && scope_enter(me, a) == 0);
  check_current(heap_of(a), a, 3);
  check_inside(a, 2), check_inside(b, 1);
  CHECK(scope_enter(me, 0) == 0);
  check_current(me->plain, 0, 4);
  CHECK_COUNT(scope_leave(me, a), ==, EINVAL);
  check_current(me->plain, 0, 4);
  CHECK(scope_leave(me, 0) == 0 && scope_leave(me, a) == 0);
  check_current(heap_of(b), b, 2);
  check_inside(a, 1), check_inside(b, 1);
  CHECK(scope_switch(me, a) == 0);
  check_current(heap_of(a), a, 2);
  check_inside(a, 2), check_inside(b, 0);
  CHECK(scope_leave(me, a) == 0 && scope_leave(me, a) == 0);
  check_current(me->plain, 0, 0);
  check_inside(a, 0);
  while (me->depth < TSLAB_SCOPES) CHECK(scope_enter(me, a) == 0);
  CHECK_COUNT(scope_enter(me, a), ==, EOVERFLOW);
  check_inside(a, TSLAB_SCOPES);
  while (me->depth > 0) CHECK(scope_leave(me, a) == 0);
  epoch_close(a, NULL), epoch_close(b, NULL);
  CHECK(scope_enter(me, a) == ESTALE && scope_switch(me, a) == ESTALE);
  check_current(me->plain, 0, 0);
}

static uint64_t locks_taken(void) {
  uint64_t taken = threads_lock.taken + heaps_lock.taken;
  for (unsigned i = 0; i < EPOCH_LOCKS; i++) taken += epoch_locks[i].lock.taken;
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) taken += p->lock.taken;
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) taken += p->lock.taken;
  return taken;
}

/* A thread's heap stays attached, however many other epochs the thread enters: a second enter takes no lock, and finds
   the same heap with the same chunk. */
static void attachment(unsigned count) {
  uint64_t *const ids = tslab_malloc(count * sizeof *ids);
  struct heap **const heaps = tslab_malloc(count * sizeof *heaps);
  for (unsigned i = 0; i < count; i++) {
    ids[i] = open_one();
    CHECK(scope_enter(current_thread, ids[i]) == 0);
    heaps[i] = current_heap;
    tslab_free(tslab_malloc(100));
    CHECK(scope_leave(current_thread, ids[i]) == 0);
  }
  const uint64_t taken = locks_taken();
  for (unsigned round = 0; round < 2; round++)
    for (unsigned i = 0; i < count; i++) {
      CHECK(scope_enter(current_thread, ids[i]) == 0 && current_heap == heaps[i]);
      tslab_free(tslab_malloc(100));
      CHECK(scope_leave(current_thread, ids[i]) == 0);
    }
  CHECK_COUNT(locks_taken(), ==, taken);
  for (unsigned i = 0; i < count; i++)
    CHECK(epoch_close(ids[i], NULL) == 0 && epoch_error(epoch_slot(ids[i]), ids[i]));
  tslab_free(ids), tslab_free(heaps);
}

static uint64_t shared;
static struct heap *theirs;

static void *holds(void *unused) {
  int error;
  struct heap *const heap = thread_own_heap();
  CHECK(heap != NULL);
  theirs = scope_hold(current_thread, shared, &error);
  CHECK(theirs != NULL && theirs->bump.entered == 1 && theirs->thread == current_thread && current_heap == heap);
  CHECK_COUNT(inside_threads(epoch_slot(shared)), ==, 1);
  current_heap = theirs;
  CHECK(heap_refill(theirs, 5) != NULL); /* a slab, so that the heap waits with the epoch */
  current_heap = heap;
  scope_let_go(theirs, shared);
  CHECK_COUNT(inside_threads(epoch_slot(shared)), ==, 0);
  return unused;
}

/* A heap with slabs serves the next thread that enters. */
static void handing_on(void) {
  pthread_t thread;
  shared = open_one();
  CHECK(pthread_create(&thread, NULL, holds, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(heap_of(shared) == theirs && !theirs->thread && !theirs->live && theirs->slab_granules == 1);
  CHECK(scope_enter(current_thread, shared) == 0 && current_heap == theirs && theirs->thread == current_thread);
  CHECK(scope_leave(current_thread, shared) == 0);
  epoch_close(shared, NULL);
}

static void *ends_inside(void *unused) {
  struct heap *const heap = thread_own_heap();
  CHECK(scope_enter(current_thread, shared) == 0 && current_heap == heap_of(shared));
  thread_release(current_thread);
  CHECK(current_heap == heap && current_thread->depth == 0);
  CHECK(thread_acquire(heap) == current_thread); /* for the thread's real end */
  return unused;
}

/* A thread that ends in a scope uses no heap that it has left: another thread may end it at once. */
static void ending_inside(void) {
  pthread_t thread;
  shared = open_one();
  CHECK(pthread_create(&thread, NULL, ends_inside, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(epoch_close(shared, NULL) == 0);
}

/* No thread enters while the gate is shut; a thread that is inside stays, and may enter again once it is open. */
static void shut(void) {
  const uint64_t id = open_one();
  struct epoch *const e = epoch_slot(id);
  CHECK(scope_enter(current_thread, id) == 0);
  epoch_lock(e);
  inside_shut(e);
  CHECK(atomic_load(&e->open_id) == 0 && inside_threads(e) == 1 && inside_is_busy(e->heaps));
  atomic_store(&e->open_id, id);
  epoch_unlock(e);
  CHECK(scope_enter(current_thread, id) == 0 && scope_leave(current_thread, id) == 0);
  CHECK(scope_leave(current_thread, id) == 0);
  epoch_close(id, NULL);
}

int main(void) {
  options.scavenger = 0; /* it takes locks, too */
  CHECK(thread_own_heap() != NULL && current_thread != NULL);
  nesting();
  options.sample = 0; /* a call that is timed may take a lock */
  attachment(9);
  attachment(1000);
  attachment(100000);
  handing_on();
  ending_inside();
  shut();
  return 0;
}
