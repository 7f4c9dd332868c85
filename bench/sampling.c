/* sampling: the cost of the heap profile in a program that does nothing but malloc and free. An operation is one turn
 * of a slot, as in random-mixed.
 *
 * The process turns the profile on and off every few milliseconds. Two pieces of equal work make a pair: one with the
 * profile at --interval and one without, in an order that chance decides. The cost is the median over all pairs, and
 * its interval that of the median's order statistics (95 %). With --interval=0 both are without, so that the row shows
 * what such a comparison finds where there is nothing to find. With --auto=1 the interval is the one that an automatic
 * profile settles at in this program. */
#include "epoch_calls.h"

#include <math.h>
#include <stdlib.h>

enum { SLOTS = 400, LEAST = 16, SPREAD = 0x3FF, LEAD_IN = 20000, SETTLED_S = 3 };
static long pairs = 2000, turns = 100000, interval = 8 << 20, automatic;

static const lab_option options[] = {
  { .name = "pairs", .help = "pairs of pieces", .number = &pairs, .least = 10 },
  { .name = "turns", .help = "turns in a piece", .number = &turns, .least = 100 },
  { .name = "interval", .help = "bytes between samples while the profile is on (TSLAB_PROFILE)", .number = &interval },
  { .name = "auto", .help = "1: the process chooses the interval (TSLAB_PROFILE=auto)", .number = &automatic },
  { .name = NULL },
};
static const lab_about workload = { "sampling", "frees or allocates one random slot, with the profile or without",
                                    options };

static int (*set_interval)(size_t bytes, size_t *before);
static char *table[SLOTS];
static uint32_t state;

static void turn_slots(long count) {
  for (long i = 0; i < count; i++) {
    uint32_t r = lab_xorshift32(&state);
    char **slot = &table[r % SLOTS];
    if (*slot) {
      free(*slot);
      *slot = NULL;
    } else {
      *slot = malloc(LEAST + (r & SPREAD));
      if (!*slot)
        lab_fail("out of memory");
      **slot = (char)r;
    }
  }
}

/* Returns the interval that an automatic profile had for some seconds, of turns alone. */
static long settle(void) {
  size_t now = 0, before = 1;
  set_interval((size_t)interval, NULL);
  while (now != before) {
    before = now;
    set_interval(TSLAB_PROFILE_AUTO, NULL);
    for (uint64_t start = lab_now_ns(CLOCK_MONOTONIC); lab_now_ns(CLOCK_MONOTONIC) - start < SETTLED_S * 1000000000ull;)
      turn_slots(LEAD_IN);
    set_interval(TSLAB_PROFILE_AUTO, &now);
  }
  return (long)now;
}

/* The classes follow a change at their next visits, so some turns come before those that are timed. */
static double piece_ns(long bytes) {
  set_interval((size_t)bytes, NULL);
  turn_slots(LEAD_IN);
  uint64_t start = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
  turn_slots(turns);
  return (double)(lab_now_ns(CLOCK_THREAD_CPUTIME_ID) - start);
}

static double pair_pct(uint64_t *random) {
  bool on_first = lab_below(random, 2) == 0;
  double first = piece_ns(on_first ? interval : 0), second = piece_ns(on_first ? 0 : interval);
  return 100 * (on_first ? first / second : second / first) - 100;
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  lab_bind("--interval", (const lab_binding[]){ { "tslab_profile_interval", &set_interval }, { NULL, NULL } });
  double *cost = lab_map((size_t)pairs * sizeof *cost);
  uint64_t random = lab_seed;
  state = lab_seed32(0);
  if (automatic)
    interval = settle();
  for (int i = 0; i < 10; i++)
    pair_pct(&random);
  lab_proof_live(SLOTS / 2 * (LEAST + SPREAD / 2));
  for (long i = 0; i < pairs; i++)
    cost[i] = pair_pct(&random);
  double median = lab_median(cost, (size_t)pairs);
  long beside = (long)(0.98 * sqrt((double)pairs)), middle = pairs / 2;
  lab_row(NULL);
  lab_metric("interval_bytes", (double)interval);
  lab_metric("cost_pct", median);
  lab_metric("cost_least_pct", cost[middle - beside > 0 ? middle - beside : 0]);
  lab_metric("cost_most_pct", cost[middle + beside < pairs ? middle + beside : pairs - 1]);
  lab_calls = (uint64_t)(pairs * (turns + LEAD_IN));
  return lab_finish();
}
