/* birth: see birth.h.                                                                               floor: runtime
 *
 * A pthread key keeps a thread's heap until the thread ends. thread.c says when a thread gets a heap. */
#include "runtime/birth.h"

#include "base/options.h"
#include "epoch/scope.h"
#include "heap/flush.h"
#include "heap/registry.h"
#include "process/process.h"
#include <pthread.h>

__thread uint8_t thread_heap_state;
__thread uint8_t thread_frees_unborn;
static pthread_key_t key; /* written before KEY_MADE */
static _Atomic enum { KEY_UNTRIED, KEY_REFUSED, KEY_MADE } key_state;

/* Acquire: pairs with the release in set_key. */
static int state_of_key(void) { return atomic_load_explicit(&key_state, memory_order_acquire); }
static bool has_key(void) { return state_of_key() == KEY_MADE; }

/* Returns false if another thread was first. */
static bool set_key(bool is_made, pthread_key_t made) {
  lock_take(&start_lock);
  bool is_first = state_of_key() == KEY_UNTRIED;
  if (is_first) {
    key = made;
    atomic_store_explicit(&key_state, is_made ? KEY_MADE : KEY_REFUSED, memory_order_release);
  }
  lock_release(&start_lock);
  return is_first;
}

/* All libcs of a process, for instance one that dlmopen loads, keep a thread's values in the same place, but each
 * numbers its keys itself. So the first key of another libc would show it our heap. Few libraries make so many keys
 * that they get to this one. glibc has room for the values of the first 32 in each thread, and allocates for others. */
#define OUR_KEY 31

/* Makes keys up to ours and deletes the others. */
static bool make_high_key(pthread_key_t *made, void (*thread_dies)(void *heap)) {
  pthread_key_t keys[OUR_KEY + 1];
  unsigned count = 0;
  while (count <= OUR_KEY && pthread_key_create(&keys[count], thread_dies) == 0)
    if (keys[count++] >= OUR_KEY) break;
  if (count == 0) return false;
  *made = keys[--count];
  while (count > 0) pthread_key_delete(keys[--count]);
  return true;
}

/* A program that defines pthread_key_create may allocate there, or take a lock under which another thread allocates. So
 * this thread holds no lock meanwhile, and has a heap only for a call. */
void birth_make_key(void (*thread_dies)(void *heap)) {
  if (LIKELY(state_of_key() != KEY_UNTRIED) || thread_heap_state != HEAP_IS_KEPT) return;
  pthread_key_t made = 0;
  thread_heap_state = HEAP_ENDED;
  bool is_made = make_high_key(&made, thread_dies);
  if (thread_heap_state == HEAP_ENDED) thread_heap_state = HEAP_IS_KEPT; /* a scope that it entered keeps a heap */
  if (!set_key(is_made, made) && is_made) pthread_key_delete(made);
}

/* Without a scavenger this thread folds the dead heap itself. */
static void give_up(struct heap *heap) {
  heap_release(heap);
  if (!options.scavenger) heaps_fold_dead(heap);
}

void birth_end_heap(struct heap *heap) {
  lock_change_begins();
  thread_release(current_thread);
  current_heap = &empty_heap;
  current_thread = NULL;
  heap_leave(heap);
  give_up(heap);
  lock_change_ends();
}

void birth_drop_key(void) {
  if (has_key()) pthread_setspecific(key, NULL);
}

void birth_expect_no_end(void) {
  bool has_none = state_of_key() == KEY_REFUSED;
  if (UNLIKELY(has_none) && thread_heap_state == HEAP_IS_KEPT) thread_heap_state = HEAP_ENDED;
}

static _Atomic bool has_made_threads, has_had_two_heaps;
static bool expects_notes; /* written before there are threads */

void birth_expect_notes(void) { expects_notes = true; }
void birth_note_thread(void) { atomic_store_explicit(&has_made_threads, true, memory_order_relaxed); }

/* libc makes threads by other names, too: most of these have heaps. */
bool birth_had_threads(void) {
  return atomic_load_explicit(&has_made_threads, memory_order_relaxed) ||
         atomic_load_explicit(&has_had_two_heaps, memory_order_relaxed);
}

bool birth_may_have_had_threads(void) { return !expects_notes || birth_had_threads(); }

/* In the child of a signal handler that interrupted the birth and forked: the heap was of no thread yet there, so it
 * waits for the next one. */
static struct heap *give_heap_anew(void) {
  current_heap = &empty_heap;
  current_thread = NULL;
  return birth_give_heap();
}

struct heap *birth_give_heap(void) {
  struct heap *heap = heap_acquire();
  if (!heap) return NULL;
  struct thread *thread = thread_acquire(heap);
  heap->thread = thread;
  bool is_second = atomic_load_explicit(&live_heaps, memory_order_relaxed) > 1 && thread_heap_state != HEAP_ENDED;
  if (is_second) atomic_store_explicit(&has_had_two_heaps, true, memory_order_relaxed);
  current_heap = heap; /* set before setspecific, which may allocate */
  bool is_kept = has_key() && thread_heap_state != HEAP_ENDED;
  bool will_end = !is_kept || pthread_setspecific(key, heap) == 0;
  current_thread = thread; /* set after it, for birth_is_under_way */
  if (UNLIKELY(!heap_is_live(heap))) return give_heap_anew();
  if (LIKELY(will_end)) return heap;
  birth_end_heap(heap); /* no memory for setspecific, so no destructor would end the heap */
  return NULL;
}

bool birth_heap_will_end(void) { return has_key() && current_thread; }

bool birth_is_under_way(void) { return current_heap != &empty_heap && !current_thread; }

/* A library that wraps pthread_create may have allocated in the thread already. */
void birth_keep_no_heap(void) {
  thread_heap_state = HEAP_ENDED;
  if (!current_thread) return;
  birth_drop_key();
  birth_end_heap(current_thread->plain);
}
