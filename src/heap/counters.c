/* counters: see counters.h.                                                                         floor: heap */
#include "heap/counters.h"

#include "os/os.h"
#include <string.h>

static struct counters folded; /* the sum of the counters that left the list; the list ends with it */
struct counters shared_counters;
struct counters *_Atomic all_counters = &shared_counters;
struct thread_totals departed;

static void put_on_list(struct counters *counters) {
  struct counters *head = atomic_load_explicit(&all_counters, memory_order_relaxed);
  counters->next = head;
  counters->previous = NULL;
  head->previous = counters;
  atomic_store_explicit(&all_counters, counters, memory_order_release); /* pairs with every walk of the list */
}

#define SOON 1024 /* a thread begins at a random place between two samples */

void counters_start(struct counters *counters) {
  if (!shared_counters.next) shared_counters.next = &folded;
  counters->large.is_own = true;
  counters->random = (os_random() ^ (uintptr_t)counters) | 1;
  counters->slow_countdown = (uint32_t)(counters->random / 2 % SOON) + 1;
  counters->bump_countdown = (int64_t)(counters->random / 2 / SOON % SOON) + 1;
  put_on_list(counters);
}

static uint64_t of(const uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

void times_add(struct times *to, const struct times *from) {
  counter_add(&to->count, of(&from->count));
  counter_add(&to->wall_sum, of(&from->wall_sum));
  counter_max(&to->wall_max, of(&from->wall_max));
  counter_add(&to->cpu_count, of(&from->cpu_count));
  counter_add(&to->cpu_sum, of(&from->cpu_sum));
  counter_max(&to->cpu_max, of(&from->cpu_max));
  counter_add(&to->wait_sum, of(&from->wait_sum));
  counter_max(&to->wait_max, of(&from->wait_max));
}

void thread_totals_add(struct thread_totals *to, const struct thread_totals *from) {
  counter_add(&to->slow_allocations, of(&from->slow_allocations));
  counter_add(&to->slow_frees, of(&from->slow_frees));
  counter_add(&to->slow_ns, of(&from->slow_ns));
  times_add(&to->samples, &from->samples);
  times_add(&to->repairs, &from->repairs);
  counter_add(&to->repair_remote, of(&from->repair_remote));
  counter_add(&to->repair_adopt, of(&from->repair_adopt));
  counter_add(&to->repair_purge, of(&from->repair_purge));
  counter_add(&to->repair_other, of(&from->repair_other));
}

struct large_counts counters_large(void) {
  struct large_counts sum = {0};
  struct counters *first = atomic_load_explicit(&all_counters, memory_order_acquire);
  for (const struct counters *t = first; t; t = t->next) large_add_freed(&sum, &t->large);
  first = atomic_load_explicit(&all_counters, memory_order_acquire); /* also counters that are new since then */
  for (const struct counters *t = first; t; t = t->next) large_add_allocated(&sum, &t->large);
  return sum;
}

/* Moves counts. Only the caller writes either struct. */
static void move_counters(void *to, void *from, size_t bytes) {
  uint64_t *sums = to, *counters = from;
  for (size_t i = 0; i < bytes / sizeof *sums; i++) {
    if (counters[i] == 0) continue; /* leaves pages that were never written untouched */
    counter_add(&sums[i], counters[i]);
    __atomic_store_n(&counters[i], 0, __ATOMIC_RELAXED);
  }
}

static void move_times(struct path_times *to, struct path_times *from) {
  if (from->wall_max) counter_max(&to->wall_max, from->wall_max);
  uint64_t most = to->wall_max;
  move_counters(to, from, sizeof *to);
  __atomic_store_n(&to->wall_max, most, __ATOMIC_RELAXED);
}

void counters_fold(struct counters *counters) {
  thread_totals_add(&departed, &counters->thread_totals);
  memset(&counters->thread_totals, 0, sizeof counters->thread_totals);
  struct large_counts *large = &counters->large;
  move_counters(&folded.large.allocations, &large->allocations, sizeof large->allocations);
  move_counters(&folded.large.frees, &large->frees, sizeof large->frees);
  move_counters(&folded.large.allocated_bytes, &large->allocated_bytes, sizeof large->allocated_bytes);
  move_counters(&folded.large.freed_bytes, &large->freed_bytes, sizeof large->freed_bytes);
  counters->large_of_epochs = 0;
  move_counters(folded.refills, counters->refills, sizeof counters->refills);
  move_counters(folded.classes, counters->classes, sizeof counters->classes);
  for (unsigned path = 0; path < PATHS; path++) move_times(&folded.paths[path], &counters->paths[path]);
  if (counters->previous) counters->previous->next = counters->next;
  else atomic_store_explicit(&all_counters, counters->next, memory_order_relaxed);
  counters->next->previous = counters->previous;
}

void counters_are_of_this_thread(struct counters *counters) {
  __atomic_store_n(&counters->thread_totals.thread_id, os_thread_id(), __ATOMIC_RELAXED);
}

void counters_begin(struct counters *counters) {
  counters->caller = NULL;
  thread_totals_add(&departed, &counters->thread_totals);
  uint64_t *words = (uint64_t *)&counters->thread_totals;
  for (size_t i = 0; i < sizeof counters->thread_totals / sizeof *words; i++)
    __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
  counters_are_of_this_thread(counters);
}
