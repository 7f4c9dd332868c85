/* reserve: last in, first out, no more than the setting allows, none for longer than a second. A thread's claim is
 * never refused, and leaves room for ready granules with any number of claimants. One call gives all neighbours back to
 * the kernel. */
#include "unit.h"

#include "base/options.h"
#include "slab/reserve.h"

enum { MOST = 4 };

static struct run *new_run(size_t granules) {
  bool zero;
  struct run *const run = pages_alloc(granules, GRANULE, RUN_CHUNK, &zero, NULL);
  CHECK(run != NULL);
  memset(run_start(run), 0x5c, run_bytes(run));
  return run;
}

static void order(void) {
  struct run *runs[MOST];
  for (int i = 0; i < MOST; i++) {
    runs[i] = new_run(1);
    CHECK(reserve_put(runs[i]) && runs[i]->kind == RUN_RESERVED);
    CHECK_COUNT(reserve_bytes(), ==, (i + 1) * GRANULE);
  }
  struct run *const one_more = new_run(1);
  CHECK(!reserve_put(one_more) && one_more->kind == RUN_CHUNK);
  for (int i = MOST; i-- > 0;) {
    CHECK(reserve_take(RUN_CHUNK) == runs[i] && runs[i]->kind == RUN_CHUNK);
    CHECK(runs[i]->next == 0 && runs[i]->previous == 0 && runs[i]->seen == 0);
    CHECK_COUNT(*(unsigned char *)run_start(runs[i]), ==, 0x5c); /* resident: no call cleared it */
    pages_free(runs[i], false);
  }
  CHECK(reserve_take(RUN_CHUNK) == NULL);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  struct run *const two = new_run(2);
  CHECK(!reserve_put(two));
  pages_free(one_more, false);
  pages_free(two, false);
}

static size_t give_back(struct run *first) {
  struct returning r = {0};
  returning_keep_all(&r, first);
  returning_flush(&r);
  return r.returned;
}

/* One thread: its claim and the ready granules together are the setting. */
static void one_claims(void) {
  for (int i = 0; i < MOST; i++) CHECK(reserve_put(new_run(1)));
  CHECK_COUNT(give_back(reserve_claim(0, MOST - 1)), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, MOST * GRANULE);
  CHECK_COUNT(reserve_ready_bytes(), ==, GRANULE);
  struct run *const more = new_run(1);
  CHECK(!reserve_put(more));
  CHECK(reserve_claim(MOST - 1, 1) == NULL);
  CHECK(reserve_put(more));
  CHECK_COUNT(give_back(reserve_claim(1, MOST)), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_ready_bytes(), ==, 0);
  CHECK(reserve_claim(MOST, 0) == NULL);
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

/* With more threads, as much is ready as with none, unless each thread claims the most that it may. */
static void many_claim(void) {
  enum { THREADS = 64 };
  for (int i = 0; i < THREADS; i++) CHECK(reserve_claim(0, 1) == NULL);
  CHECK_COUNT(reserve_bytes(), ==, THREADS * GRANULE);
  for (int i = 0; i < MOST; i++) CHECK(reserve_put(new_run(1)));
  struct run *const more = new_run(1);
  CHECK(!reserve_put(more));
  pages_free(more, false);
  for (int i = 0; i < THREADS - 2; i++) CHECK(reserve_claim(1, MOST) == NULL);
  CHECK_COUNT(reserve_ready_bytes(), ==, MOST * GRANULE);
  CHECK_COUNT(give_back(reserve_claim(1, MOST)), ==, GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, THREADS * MOST * GRANULE);
  CHECK_COUNT(give_back(reserve_claim(1, MOST)), ==, (MOST - 1) * GRANULE);
  for (int i = 0; i < THREADS; i++) CHECK(reserve_claim(MOST, 0) == NULL);
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

/* A thread in many epochs may claim more than its part. The others' is as before. */
static void one_claims_more(void) {
  CHECK(reserve_claim(0, 1) == NULL);
  for (int i = 0; i < MOST - 1; i++) CHECK(reserve_put(new_run(1)));
  CHECK(reserve_claim(0, 10 * MOST) == NULL);
  CHECK_COUNT(reserve_ready_bytes(), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 11 * MOST * GRANULE);
  CHECK(reserve_claim(10 * MOST, 2) == NULL && reserve_claim(2, 20 * MOST) == NULL);
  CHECK(reserve_claim(20 * MOST, 0) == NULL);
  CHECK(reserve_claim(1, 0) == NULL);
  CHECK_COUNT(reserve_empty(), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

/* A thread without a claim reduces the bound by its part. */
static void one_of_two_stops(void) {
  CHECK(reserve_claim(0, 1) == NULL && reserve_claim(0, 2) == NULL);
  for (int i = 0; i < MOST; i++) CHECK(reserve_put(new_run(1)));
  CHECK_COUNT(reserve_bytes(), ==, (MOST + 3) * GRANULE);
  CHECK_COUNT(give_back(reserve_claim(1, 0)), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, MOST * GRANULE);
  CHECK(reserve_claim(2, 0) == NULL);
  CHECK_COUNT(reserve_empty(), ==, (MOST - 2) * GRANULE);
}

/* Four ticks are a second. The older one goes first. */
static void ageing(void) {
  struct run *const old = new_run(1), *const young = new_run(1);
  CHECK_COUNT(reserve_trim(100), ==, 0);
  CHECK(reserve_put(old));
  CHECK_COUNT(reserve_trim(102), ==, 0);
  CHECK(reserve_put(young));
  CHECK_COUNT(reserve_trim(104), ==, 0);
  CHECK_COUNT(reserve_trim(105), ==, GRANULE);
  CHECK(pages_run_of(run_start(old))->kind == RUN_FREE && young->kind == RUN_RESERVED);
  CHECK_COUNT(reserve_trim(107), ==, GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

static void neighbours(void) {
  struct run *runs[5];
  struct returning r = {0};
  struct run *const all = new_run(5);
  for (size_t i = 5; i-- > 0;) { /* cut from the end into runs of one granule, none of them free in between */
    runs[i] = all + i;
    if (i == 0) break;
    CHECK(pages_resize(all, i));
    bool zero;
    CHECK(pages_alloc(1, GRANULE, RUN_CHUNK, &zero, NULL) == runs[i]);
  }
  const size_t calls = pages_totals().purge_calls, returned = pages_totals().returned;
  returning_keep(&r, runs[1]);
  returning_keep(&r, runs[2]);
  returning_keep(&r, runs[0]);
  CHECK_COUNT(pages_totals().purge_calls, ==, calls);
  returning_keep(&r, runs[4]); /* no neighbour */
  CHECK_COUNT(pages_totals().purge_calls, ==, calls + 1);
  CHECK_COUNT(r.returned, ==, 3 * GRANULE);
  returning_flush(&r);
  CHECK_COUNT(pages_totals().purge_calls, ==, calls + 2);
  CHECK_COUNT(r.returned, ==, 4 * GRANULE);
  CHECK_COUNT(pages_totals().returned - returned, ==, 4 * GRANULE);
  CHECK_COUNT(r.recycled, ==, 0);
  for (const char *p = run_start(runs[0]); p < run_start(runs[0]) + 3 * GRANULE; p++) CHECK_COUNT(*p, ==, 0);

  returning_add(&r, runs[3]); /* there is room in the reserve */
  CHECK_COUNT(r.recycled, ==, GRANULE);
  CHECK_COUNT(reserve_empty(), ==, GRANULE);
}

int main(void) {
  start_floors();
  options.reserve_bytes = MOST * GRANULE;
  order();
  one_claims();
  many_claim();
  one_claims_more();
  one_of_two_stops();
  ageing();
  pages_purge(UINT64_MAX, SIZE_MAX);
  neighbours();
  pages_check();
  return 0;
}
