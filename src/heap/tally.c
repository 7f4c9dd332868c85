/* tally: see tally.h.                                                                                floor: heap */
#include "heap/tally.h"

#include "os/os.h"
#include <string.h>

static struct tally settled; /* the sum of those that left the list; the last of the list */
struct tally nobodys_tally;
struct tally *_Atomic all_tallies = &nobodys_tally;
struct doings departed;

static struct {
  struct tally *free; /* of threads that are gone; all counts are zero */
  struct cuttings cuttings;
  bool first_is_taken;
} own;
static struct tally first_tally; /* most processes need no second one */

static void put_on_list(struct tally *tally) {
  struct tally *head = atomic_load_explicit(&all_tallies, memory_order_relaxed);
  tally->next = head;
  tally->previous = NULL;
  head->previous = tally;
  atomic_store_explicit(&all_tallies, tally, memory_order_release); /* pairs with every walk of the list */
}

#define SOON 1024 /* where in the stretch between two samples a thread begins is chance */

struct tally *tally_make(void) {
  struct tally *tally = own.free;
  if (tally) {
    own.free = tally->next;
    put_on_list(tally);
    return tally;
  }
  tally = &first_tally;
  if (!own.first_is_taken) nobodys_tally.next = &settled;
  else tally = pages_cut(&own.cuttings, round_up(sizeof(struct tally), CACHE_LINE));
  own.first_is_taken = true;
  if (!tally) return NULL;
  tally->large.is_own = true;
  tally->random = (os_random() ^ (uintptr_t)tally) | 1;
  tally->slow_countdown = (uint32_t)(tally->random / 2 % SOON) + 1;
  tally->bump_countdown = (int64_t)(tally->random / 2 / SOON % SOON) + 1;
  put_on_list(tally);
  return tally;
}

static uint64_t of(const uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }

void times_add(struct times *to, const struct times *from) {
  tally_add(&to->count, of(&from->count));
  tally_add(&to->wall_sum, of(&from->wall_sum));
  tally_max(&to->wall_max, of(&from->wall_max));
  tally_add(&to->cpu_count, of(&from->cpu_count));
  tally_add(&to->cpu_sum, of(&from->cpu_sum));
  tally_max(&to->cpu_max, of(&from->cpu_max));
  tally_add(&to->wait_sum, of(&from->wait_sum));
  tally_max(&to->wait_max, of(&from->wait_max));
}

void doings_add(struct doings *to, const struct doings *from) {
  tally_add(&to->slow_allocations, of(&from->slow_allocations));
  tally_add(&to->slow_frees, of(&from->slow_frees));
  tally_add(&to->slow_ns, of(&from->slow_ns));
  times_add(&to->samples, &from->samples);
  times_add(&to->repairs, &from->repairs);
  tally_add(&to->repair_remote, of(&from->repair_remote));
  tally_add(&to->repair_adopt, of(&from->repair_adopt));
  tally_add(&to->repair_purge, of(&from->repair_purge));
  tally_add(&to->repair_other, of(&from->repair_other));
}

struct large_counts tally_large(void) {
  struct large_counts sum = {0};
  struct tally *first = atomic_load_explicit(&all_tallies, memory_order_acquire);
  for (const struct tally *t = first; t; t = t->next) large_add_freed(&sum, &t->large);
  first = atomic_load_explicit(&all_tallies, memory_order_acquire); /* also of who allocated since what was freed */
  for (const struct tally *t = first; t; t = t->next) large_add_allocated(&sum, &t->large);
  return sum;
}

/* Nobody writes either but the caller. */
static void move_counters(void *to, void *from, size_t bytes) {
  uint64_t *sums = to, *counters = from;
  for (size_t i = 0; i < bytes / sizeof *sums; i++) {
    if (counters[i] == 0) continue; /* a page that was not written to is not touched */
    tally_add(&sums[i], counters[i]);
    __atomic_store_n(&counters[i], 0, __ATOMIC_RELAXED);
  }
}

static void move_times(struct path_times *to, struct path_times *from) {
  if (from->wall_max) tally_max(&to->wall_max, from->wall_max);
  uint64_t most = to->wall_max;
  move_counters(to, from, sizeof *to);
  __atomic_store_n(&to->wall_max, most, __ATOMIC_RELAXED);
}

void tally_settle(struct tally *tally) {
  doings_add(&departed, &tally->doings);
  memset(&tally->doings, 0, sizeof tally->doings);
  struct large_counts *large = &tally->large;
  move_counters(&settled.large.allocations, &large->allocations, sizeof large->allocations);
  move_counters(&settled.large.frees, &large->frees, sizeof large->frees);
  move_counters(&settled.large.allocated_bytes, &large->allocated_bytes, sizeof large->allocated_bytes);
  move_counters(&settled.large.freed_bytes, &large->freed_bytes, sizeof large->freed_bytes);
  move_counters(settled.refills, tally->refills, sizeof tally->refills);
  move_counters(settled.classes, tally->classes, sizeof tally->classes);
  for (unsigned path = 0; path < PATHS; path++) move_times(&settled.paths[path], &tally->paths[path]);
  if (tally->previous) tally->previous->next = tally->next;
  else atomic_store_explicit(&all_tallies, tally->next, memory_order_relaxed);
  tally->next->previous = tally->previous;
}

/* From here on a tally that is not in use holds only zeros. */
void tally_purge(struct tally *tally) {
  uintptr_t from = round_up((uintptr_t)tally->refills, os_page_size);
  uintptr_t to = round_down((uintptr_t)(tally + 1), os_page_size);
  if (tally == &first_tally || from >= to) return;
  pages_count_purge(to - from, os_purge((void *)from, to - from));
}

void tally_free(struct tally *tally) {
  tally->next = own.free;
  own.free = tally;
}

void tally_is_of_this_thread(struct tally *tally) {
  __atomic_store_n(&tally->doings.thread_id, os_thread_id(), __ATOMIC_RELAXED);
}

void tally_begin(struct tally *tally) {
  doings_add(&departed, &tally->doings);
  uint64_t *words = (uint64_t *)&tally->doings;
  for (size_t i = 0; i < sizeof tally->doings / sizeof *words; i++) __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
  tally_is_of_this_thread(tally);
}
