/* thread: decides when a thread gets a heap and gives it up; starts and ends the process.           floor: runtime
 *
 * A thread gets its heap at its first malloc or at its FREES_BEFORE_BIRTH-th free; without a heap both take a slow
 * path. The destructor of a pthread key ends the heap. Destructors of other keys may run later, and allocate. libc
 * calls destructors again for keys that were set again, but only for a few rounds, and no destructor would end a heap
 * that a thread got after the last round. So from then on a thread has a heap only during each malloc, and none for a
 * free. A call of epochs gives it one that stays until the thread is in no scope, because a scope outlasts the call.
 * The same holds if the program took the last pthread key before its first malloc. */
#include "runtime/thread.h"

#include "base/log.h"
#include "base/options.h"
#include "heap/check.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "heap/sampled.h"
#include "os/os.h"
#include "os/ticks.h"
#include "pages/pages.h"
#include "process/limits.h"
#include "process/process.h"
#include "runtime/birth.h"
#include "runtime/fork.h"
#include "runtime/interpose.h"
#include "runtime/scavenger.h"
#include "stats/publish.h"
#include "stats/scope_misuse.h"
#include "stats/stats.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* A thread that only frees its argument is not worth a heap. A consumer, which goes on freeing, is: without a heap each
 * of its frees is an atomic operation on a slab that other threads use. */
#define FREES_BEFORE_BIRTH 16

/* Ends a heap. If it was the process's last one, the scavenger ends with it. That may be the heap of one malloc in a
 * destructor, because while it lives, no other thread's heap is the last. */
static void end_heap(struct heap *heap) {
  birth_end_heap(heap);
  if (atomic_load_explicit(&live_heaps, memory_order_relaxed) == 0) scavenger_stop();
}

void thread_end_call(void) {
  if (thread_heap_state == HEAP_ENDED && current_thread) end_heap(current_thread->plain);
}

void thread_end_epoch_call(void) {
  if (thread_heap_state != HEAP_REVIVED || !current_thread || scope_is_in_any(current_thread)) return;
  birth_drop_key();
  thread_heap_state = HEAP_ENDED;
  end_heap(current_thread->plain);
}

/* The value may be another libc's, whose keys have the same places. */
static void thread_dies(void *unused) {
  (void)unused;
  if (!current_thread) return;
  struct heap *heap = current_thread->plain;
  lock_look(); /* the rest waits for the scavenger, which a fork child may not have */
  scavenger_notice_death(heap);
  if (UNLIKELY(current_thread->depth != 0)) scope_misused_at_exit();
  thread_heap_state = HEAP_ENDED;
  end_heap(heap);
}

struct heap *thread_heap_to_free(void) {
  if (current_heap != &empty_heap) return current_heap; /* setspecific of this thread frees */
  birth_expect_no_end();
  if (thread_heap_state != HEAP_IS_KEPT) return &empty_heap;
  if (thread_frees_unborn < FREES_BEFORE_BIRTH - 1) {
    thread_frees_unborn++;
    return &empty_heap;
  }
  struct heap *heap = birth_give_heap();
  return heap ? heap : &empty_heap;
}

struct heap *thread_own_heap(void) {
  struct heap *heap = current_heap;
  if (LIKELY(heap != &empty_heap)) return heap;
  if (!process_start()) return NULL;
  fork_watch();
  birth_make_key(thread_dies);
  birth_expect_no_end();
  if (UNLIKELY(current_heap != &empty_heap)) return current_heap; /* the program's pthread_key_create entered a scope */
  heap = birth_give_heap();
  if (LIKELY(heap != NULL)) return heap;
  scavenger_reclaim(GRANULE); /* other threads may keep enough free memory */
  heap = birth_give_heap();
  return heap || !pages_make_room(GRANULE) ? heap : birth_give_heap();
}

struct heap *thread_heap_to_keep(void) {
  if (process_start()) {
    birth_make_key(thread_dies);
    birth_expect_no_end();
  }
  if (thread_heap_state == HEAP_ENDED) thread_heap_state = HEAP_REVIVED;
  return thread_own_heap();
}

/* ---- the start and the end of the process ------------------------------------------------------------------------ */

/* The process's environment, as a constructor finds it. glibc passes it to each constructor, to ours before it sets
 * environ. musl passes nothing, but sets environ before the first constructor. */
#if defined(__GLIBC__)
#define ENVIRONMENT(given) (given)
#else
#define ENVIRONMENT(given) ((void)(given), environ)
#endif

/* A preloaded library may find that the program has a malloc of its own. It then reserves nothing until the program
 * opens an epoch, because a sanitizer's runtime, which starts after this constructor, needs the addresses for its
 * shadow. */
static void start_if_needed(void) {
  if (!libc_is_malloc || libc_is_malloc()) thread_own_heap();
}

/* Starts the heap profile and guards. Guards are drawn from its samples, so it draws at least as many of these. */
static void start_sampling(void) {
  size_t profile = options.profile_bytes ? options.profile_bytes : SIZE_MAX;
  size_t guard = options.guard_bytes ? options.guard_bytes : SIZE_MAX;
  size_t interval = max_size(min_size(profile, guard), PROFILE_LEAST_BYTES);
  if (interval > PROFILE_MOST_BYTES || !process_start() || !sampled_start((uint32_t)interval, true)) return;
  if (options.guard_bytes && !guard_start((uint32_t)max_size(guard, PROFILE_LEAST_BYTES)))
    log_line("TSLAB_GUARD: there is no memory that can be guarded here; going on without");
}

/* Runs before the constructors of other libraries (-z initfirst) and of a program that links this library in (101 is
 * the first priority that it may use). So fork handlers that the program registers later run outside ours, and may
 * allocate. */
__attribute__((constructor(101))) static void process_starts(int count, char **arguments, char **environment) {
  (void)count, (void)arguments;
  if (!os_secure_mode()) options_read(ENVIRONMENT(environment));
  lock_times = options.lock_times;
  int kept = errno;
  start_if_needed();
  limits_start();
  start_sampling();
  fork_start();
  ticks_compare_at_start();
  process_set_ready();
  scavenger_notice_start();
  errno = kept;
}

/* Disables cancellation, because a thread whose cancellation is pending may call exit and must not end here. */
__attribute__((destructor)) static void process_ends(void) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  lock_look(); /* a fork child that took no lock does not know yet that it is one */
  bool is_interrupted = locks_held != 0; /* a signal handler calls exit while this thread holds a lock */
  publish_at_exit();
  if (!is_interrupted && current_heap != &empty_heap) heap_tell_double(current_heap);
  if (!is_interrupted && options.stats_at_exit) stats_write_file(options.stats_at_exit);
  pthread_setcancelstate(before, &before);
}
