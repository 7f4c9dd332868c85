/* tally: see tally.h.                                                                                floor: heap */
#include "heap/tally.h"

#include "os/os.h"

struct tally nobodys_tally;
struct tally *_Atomic all_tallies = &nobodys_tally;
struct doings departed;

static struct {
  struct cuttings cuttings;
  bool first_is_taken;
} own;
static struct tally first_tally; /* most processes need no second one */

#define SOON 1024 /* where in the stretch between two samples a thread begins is chance */

struct tally *tally_make(void) {
  struct tally *tally = &first_tally;
  if (own.first_is_taken) tally = pages_cut(&own.cuttings, round_up(sizeof(struct tally), CACHE_LINE));
  own.first_is_taken = true;
  if (!tally) return NULL;
  tally->large.is_own = true;
  tally->random = (os_random() ^ (uintptr_t)tally) | 1;
  tally->slow_countdown = (uint32_t)(tally->random / 2 % SOON) + 1;
  tally->bump_countdown = (int64_t)(tally->random / 2 / SOON % SOON) + 1;
  tally->next = atomic_load_explicit(&all_tallies, memory_order_relaxed);
  atomic_store_explicit(&all_tallies, tally, memory_order_release); /* pairs with every walk of the list */
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

void tally_is_of_this_thread(struct tally *tally) {
  __atomic_store_n(&tally->doings.thread_id, os_thread_id(), __ATOMIC_RELAXED);
}

void tally_begin(struct tally *tally) {
  doings_add(&departed, &tally->doings);
  uint64_t *words = (uint64_t *)&tally->doings;
  for (size_t i = 0; i < sizeof tally->doings / sizeof *words; i++) __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
  tally_is_of_this_thread(tally);
}
