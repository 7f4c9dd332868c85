/* counters: the list only grows; when a thread takes over counters, `departed` gets their earlier counts, so that sums
 * over both never shrink; sums add up, and of two maxima the larger stays. */
#include "unit.h"

#include "heap/counters.h"

enum { MADE = 20 };

static unsigned listed(const struct counters *wanted) {
  unsigned found = 0;
  for (struct counters *t = atomic_load(&all_counters); t; t = t->next) found += t == wanted;
  return found;
}

static bool all_zero(const void *from, size_t bytes) {
  const unsigned char *byte = from;
  for (size_t i = 0; i < bytes; i++)
    if (byte[i] != 0) return false;
  return true;
}

static void made_and_listed(void) {
  static struct counters made_of[MADE];
  struct counters *made[MADE];
  CHECK_COUNT(listed(&shared_counters), ==, 1);
  for (unsigned i = 0; i < MADE; i++) {
    counters_start(made[i] = &made_of[i]);
    CHECK(listed(made[i]) == 1);
    CHECK(made[i]->random != 0);
    CHECK_COUNT(made[i]->slow_countdown, >=, 1); /* the first sample comes by chance, not with the first call */
    CHECK_COUNT(made[i]->slow_countdown, <=, 1024);
    CHECK_COUNT(made[i]->bump_countdown, >=, 1);
    CHECK_COUNT(made[i]->bump_countdown, <=, 1024);
    CHECK(all_zero(&made[i]->thread_totals, sizeof made[i]->thread_totals));
    CHECK(all_zero(made[i]->classes, sizeof made[i]->classes));
    for (unsigned j = 0; j < i; j++) {
      CHECK(made[i]->random != made[j]->random);
      CHECK(listed(made[j]) == 1);
    }
  }
  CHECK_COUNT(listed(&shared_counters), ==, 1);
}

/* Each number differs, so that the test notices any two that are mixed up. */
static struct thread_totals thread_totals_from(uint64_t first) {
  struct thread_totals d;
  uint64_t *const words = (uint64_t *)&d;
  for (size_t i = 0; i < sizeof d / sizeof *words; i++) words[i] = first + i * i;
  return d;
}

static void check_times(const struct times *sum, const struct times *a, const struct times *b) {
  CHECK_COUNT(sum->count, ==, a->count + b->count);
  CHECK_COUNT(sum->wall_sum, ==, a->wall_sum + b->wall_sum);
  CHECK_COUNT(sum->wall_max, ==, b->wall_max);
  CHECK_COUNT(sum->cpu_count, ==, a->cpu_count + b->cpu_count);
  CHECK_COUNT(sum->cpu_sum, ==, a->cpu_sum + b->cpu_sum);
  CHECK_COUNT(sum->cpu_max, ==, b->cpu_max);
  CHECK_COUNT(sum->wait_sum, ==, a->wait_sum + b->wait_sum);
  CHECK_COUNT(sum->wait_max, ==, b->wait_max);
}

static void check_sum(const struct thread_totals *sum, const struct thread_totals *a, const struct thread_totals *b) {
  CHECK_COUNT(sum->slow_allocations, ==, a->slow_allocations + b->slow_allocations);
  CHECK_COUNT(sum->slow_frees, ==, a->slow_frees + b->slow_frees);
  CHECK_COUNT(sum->slow_ns, ==, a->slow_ns + b->slow_ns);
  check_times(&sum->samples, &a->samples, &b->samples);
  check_times(&sum->repairs, &a->repairs, &b->repairs);
  CHECK_COUNT(sum->repair_remote, ==, a->repair_remote + b->repair_remote);
  CHECK_COUNT(sum->repair_adopt, ==, a->repair_adopt + b->repair_adopt);
  CHECK_COUNT(sum->repair_purge, ==, a->repair_purge + b->repair_purge);
  CHECK_COUNT(sum->repair_other, ==, a->repair_other + b->repair_other);
}

static void sums_add_up(void) {
  const struct thread_totals less = thread_totals_from(1000), more = thread_totals_from(5000);
  struct thread_totals sum = less;
  thread_totals_add(&sum, &more);
  check_sum(&sum, &less, &more);
  CHECK_COUNT(sum.thread_id, ==, less.thread_id); /* identifies the thread, and is not added */
  struct thread_totals same = sum;
  thread_totals_add(&same, &(struct thread_totals){0});
  CHECK(memcmp(&same, &sum, sizeof sum) == 0);
}

static void departs(void) {
  static struct counters counters_of;
  struct counters *const counters = &counters_of;
  counters_start(counters);
  const struct thread_totals before = departed, did = thread_totals_from(before.samples.wall_max + 70000);
  counters->thread_totals = did;
  counters->classes[3].samples = 7;
  counters_begin(counters);
  check_sum(&departed, &before, &did);
  CHECK_COUNT(counters->thread_totals.thread_id, ==, os_thread_id());
  counters->thread_totals.thread_id = 0;
  CHECK(all_zero(&counters->thread_totals, sizeof counters->thread_totals));
  CHECK_COUNT(counters->classes[3].samples, ==, 7); /* the classes' sums cover all threads: none counts twice */
}

static void counters(void) {
  uint64_t n = 5;
  counter_add(&n, 7);
  CHECK_COUNT(n, ==, 12);
  counter_max(&n, 11);
  CHECK_COUNT(n, ==, 12);
  counter_max(&n, 13);
  CHECK_COUNT(n, ==, 13);

  static struct counters counters;
  counters_stage(&counters, PATH_SLAB);
  counters_stage(&counters, PATH_MAP);
  counters_stage(&counters, PATH_SLAB);
  CHECK_COUNT(counters.stages, ==, 1u << PATH_SLAB | 1u << PATH_MAP);
  counters_lock(&counters, 4, 0);
  counters_lock(&counters, 4, 30);
  counters_lock(&counters, 4, 12);
  CHECK_COUNT(counters.refills[4].lock_fast, ==, 1);
  CHECK_COUNT(counters.refills[4].lock_contended, ==, 2);
  CHECK_COUNT(counters.waited, ==, 42);
  CHECK_COUNT(counters.refills[5].lock_fast + counters.refills[5].lock_contended, ==, 0);
}

int main(void) {
  start_floors();
  made_and_listed();
  sums_add_up();
  departs();
  counters();
  return 0;
}
