/* thread: a thread gets a heap at its first malloc, or when it goes on freeing, but never by a free after its heap
 * ended; the next thread takes the heap over; a fork child goes on with one heap and without the parent's file. A
 * thread leaves nothing behind even if its destructors allocate to the last, or if libc does not announce its end. */
#include "unit.h"

#include "base/options.h"
#include "heap/remote.h"
#include "process/process.h"
#include "runtime/thread.h"
#include <pthread.h>

static struct heap *seen[2];
static void *block;

static void *only_free(void *unused) {
  CHECK(current_heap == &empty_heap);
  tslab_free(block);
  CHECK(tslab_malloc_usable_size(unused) == 0 && !tslab_owns(&seen));
  CHECK(current_heap == &empty_heap);
  return NULL;
}

static void *be_born(void *place) {
  CHECK(current_heap == &empty_heap);
  void *const own = tslab_malloc(100);
  *(struct heap **)place = current_heap;
  CHECK(own != NULL && current_heap != &empty_heap && current_heap->live && thread_own_heap() == current_heap);
  tslab_free(own);
  return NULL;
}

/* More frees than any thread makes without a heap. Each block is another thread's, so none of them is a malloc. */
enum { GOES_ON = 200 };
static void *many[GOES_ON];
static uint64_t unowned; /* frees that were made without a heap */

static void take_many(void) {
  for (int i = 0; i < GOES_ON; i++) CHECK((many[i] = tslab_malloc(100)) != NULL);
  unowned = unowned_frees_of(class_of(100));
}

static void free_many(void) {
  for (int i = 0; i < GOES_ON; i++) tslab_free(many[i]);
}

static void *go_on_freeing(void *unused) {
  free_many();
  CHECK(current_heap != &empty_heap && current_heap->live && current_thread->plain == current_heap);
  CHECK_COUNT(live_heaps, ==, 2);
  return unused;
}

/* Runs in a destructor after ours, in the same round and, for the second time, in the next. */
static pthread_key_t late;
static void free_at_the_end(void *round) {
  if (round == &late) {
    CHECK(pthread_setspecific(late, &unowned) == 0);
    return;
  }
  free_many();
  CHECK(current_heap == &empty_heap && !current_thread);
  CHECK_COUNT(live_heaps, ==, 1);
}

static void *die_first(void *unused) {
  tslab_free(tslab_malloc(100));
  CHECK(current_heap != &empty_heap && pthread_setspecific(late, &late) == 0);
  return unused;
}

static void run_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, argument) == 0 && pthread_join(thread, NULL) == 0);
}

/* Two threads at a time have two heaps; two threads one after the other share one. */
static void *live_beside_another(void *place) {
  be_born(place);
  run_thread(be_born, &seen[1]);
  CHECK(seen[0] != seen[1] && current_heap == seen[0]);
  return NULL;
}

static void live_as_child(void) {
  CHECK(options.stats_at_exit == NULL);
  CHECK_COUNT(live_heaps, ==, 1);
  tslab_free(tslab_malloc(4 * MiB)); /* starts a scavenger of its own */
  if (!SANITIZED) run_thread(be_born, &seen[0]);
  CHECK_COUNT(live_heaps, ==, 1);
}

/* A new thread starts with the memory that another one keeps free, if there is no other. */
enum { LATE = 8 };
static pthread_barrier_t nothing_left;

static void *be_born_late(void *unused) {
  pthread_barrier_wait(&nothing_left);
  CHECK(current_heap == &empty_heap);
  CHECK(thread_own_heap() != NULL); /* a malloc begins with this, and afterwards it might find the memory itself */
  pthread_barrier_wait(&nothing_left); /* so that no thread has another one's heap */
  return unused;
}

static void *larges[4096];

static void take_all_memory(void) {
  unsigned count = 0;
  struct rlimit limit = {512 * MiB, 512 * MiB};
  options.scavenger = 0;
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  while (count < 4096 && (larges[count] = tslab_malloc(500000)) != NULL) count++;
  CHECK(count < 4096);
  for (unsigned size = 60000; size >= 16; size /= 2) /* the memory that is left in between */
    while (tslab_malloc(size)) {}
}

static void live_on_what_others_keep(void) {
  pthread_t threads[LATE];
  CHECK(pthread_barrier_init(&nothing_left, NULL, LATE + 1) == 0);
  for (int i = 0; i < LATE; i++) CHECK(pthread_create(&threads[i], NULL, be_born_late, NULL) == 0);
  take_all_memory();
  tslab_free(larges[0]);
  tslab_free(larges[1]);
  pthread_barrier_wait(&nothing_left);
  pthread_barrier_wait(&nothing_left);
  for (int i = 0; i < LATE; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Sets itself again as often as libc calls it, and allocates each time, so that its last call comes after ours. */
static pthread_key_t keys[2];
static _Atomic unsigned last_rounds;

static void use_all(void) {
  void *const a = tslab_malloc(100), *const b = tslab_calloc(1, 100000), *const c = tslab_aligned_alloc(256, 300);
  CHECK(a != NULL && b != NULL && c != NULL);
  void *const d = tslab_realloc(a, 5000), *const e = tslab_valloc(10);
  CHECK(d != NULL && e != NULL);
  tslab_free(b), tslab_free(c), tslab_free(d), tslab_free(e);
}

static void come_again(void *round) {
  use_all();
  if ((uintptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS)
    CHECK(pthread_setspecific(keys[0], (void *)((uintptr_t)round + 1)) == 0);
  else last_rounds++;
}

static void use_epoch(void *round) {
  const tslab_epoch epoch = tslab_epoch_open("late");
  if ((uintptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS)
    CHECK(pthread_setspecific(keys[1], (void *)((uintptr_t)round + 1)) == 0);
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  use_all();
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
}

static void *come_again_at_end(void *born_before) {
  if (born_before) use_all();
  CHECK(pthread_setspecific(keys[0], (void *)1) == 0 && pthread_setspecific(keys[1], (void *)1) == 0);
  return NULL;
}

static unsigned count_heaps(void) {
  unsigned count = 0;
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) count++;
  return count;
}

static void threads_that_come_again(void) {
  enum { THREADS = 20 };
  unsigned heaps = 0;
  CHECK(pthread_key_create(&keys[0], come_again) == 0 && pthread_key_create(&keys[1], use_epoch) == 0);
  for (int i = 0; i < THREADS; i++) {
    run_thread(come_again_at_end, i % 2 ? keys : NULL);
    CHECK_COUNT(live_heaps, ==, 1);
    if (i == 1) heaps = count_heaps();
  }
  CHECK_COUNT(count_heaps(), ==, heaps);
  CHECK_COUNT(last_rounds, ==, THREADS);
}

/* libc has no memory to note that a thread's end matters: then malloc takes a block without a heap. The linker replaces
   libc's function by this one. */
static _Atomic unsigned refusals;
int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value) {
  if (refusals == 0) return __real_pthread_setspecific(key, value);
  refusals--;
  return ENOMEM;
}

static void *be_refused(void *unused) {
  refusals = 3; /* malloc tries three times */
  void *const borrowed = tslab_malloc(100);
  CHECK(borrowed != NULL && current_heap == &empty_heap);
  CHECK_COUNT(live_heaps, ==, 1);
  CHECK_COUNT(refusals, ==, 0);
  tslab_free(borrowed);
  return be_born(unused);
}

/* Frees need no memory: a thread that gets no heap frees without one. More threads than there are heaps in the pool and
   in the granule that heaps are cut from. */
enum { FREEING = 20, EACH = GOES_ON / FREEING * 5 };
static void *of_others[FREEING][EACH];
static _Atomic unsigned without_heap;

static void *free_without_memory(void *mine) {
  void **blocks = mine;
  pthread_barrier_wait(&nothing_left);
  for (int i = 0; i < EACH; i++) tslab_free(blocks[i]);
  if (current_heap == &empty_heap) without_heap++;
  pthread_barrier_wait(&nothing_left); /* so that no thread has another one's heap */
  return NULL;
}

static void free_on_without_memory(void) {
  pthread_t threads[FREEING];
  tslab_stats_global before, after;
  CHECK(pthread_barrier_init(&nothing_left, NULL, FREEING + 1) == 0);
  for (int i = 0; i < FREEING; i++) {
    for (int j = 0; j < EACH; j++) CHECK((of_others[i][j] = tslab_malloc(100)) != NULL);
    CHECK(pthread_create(&threads[i], NULL, free_without_memory, of_others[i]) == 0);
  }
  take_all_memory();
  CHECK(tslab_stats(&before, sizeof before) == 0);
  pthread_barrier_wait(&nothing_left);
  pthread_barrier_wait(&nothing_left);
  for (int i = 0; i < FREEING; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(without_heap, >, 0);
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.frees - before.frees, >=, FREEING * EACH); /* and the memory of the threads that libc freed */
}

int main(void) {
  CHECK(process_has_started() && process_is_ready() && current_heap->live);
  CHECK_COUNT(live_heaps, ==, 1);
  block = tslab_malloc(100);
  run_thread(only_free, NULL);
  CHECK_COUNT(live_heaps, ==, 1);

  take_many();
  run_thread(go_on_freeing, NULL);
  CHECK_COUNT(live_heaps, ==, 1);
  CHECK_COUNT(unowned_frees_of(class_of(100)) - unowned, <, GOES_ON / 2);
  take_many();
  CHECK(pthread_key_create(&late, free_at_the_end) == 0);
  run_thread(die_first, NULL);
  CHECK_COUNT(live_heaps, ==, 1);
  CHECK_COUNT(unowned_frees_of(class_of(100)) - unowned, ==, GOES_ON);

  run_thread(be_born, &seen[0]);
  CHECK_COUNT(live_heaps, ==, 1);
  CHECK(seen[0] != current_heap && !seen[0]->live);
  run_thread(be_born, &seen[1]);
  CHECK(seen[1] == seen[0]);
  run_thread(live_beside_another, &seen[0]);
  CHECK(thread_own_heap() == current_heap);

  if (!SANITIZED) threads_that_come_again(); /* their runtime ends in the last round, too */
  if (!SANITIZED && !emulated()) {
    CHECK(in_child(live_on_what_others_keep) == 0);
    CHECK(in_child(free_on_without_memory) == 0);
  }
  run_thread(be_refused, &seen[0]);
  CHECK_COUNT(live_heaps, ==, 1);
  options.stats_at_exit = "/nonexistent/stats";
  CHECK(in_child(live_as_child) == 0);
  CHECK(options.stats_at_exit != NULL);
  options.stats_at_exit = NULL;
  return 0;
}
