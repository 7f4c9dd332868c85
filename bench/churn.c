/* churn: one cycle replaces `turnover` percent of `objects` live blocks, chosen at random.
 *
 * The live set stays as large as it was; does the process? After every cycle resident memory (exact) and committed
 * memory (VmData) are read. The first tenth of the cycles warms up. Growth is the slope of a line through the rest,
 * with its 95 % interval: an interval that holds 0 shows no growth. Sizes are drawn anew for each block when --least
 * and --most differ, so that a hole left by one size must serve others. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>

static long objects = 100000, cycles = 1000, least = 16, most = 1039;
static double turnover = 10;

static const lab_option options[] = {
  { .name = "objects", .help = "live blocks", .number = &objects, .least = 1 },
  { .name = "turnover", .help = "percent of the objects replaced in a cycle", .real = &turnover },
  { .name = "cycles", .help = "cycles, a tenth of them warm-up", .number = &cycles, .least = 30 },
  { .name = "least", .help = "bytes of the smallest block", .number = &least, .least = 1 },
  { .name = "most", .help = "bytes of the largest block", .number = &most, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "churn", "replaces a share of a live set again and again", options };

typedef struct object { char *block; size_t size; } object;

static void fill(object *o, uint64_t *state, uint64_t *live) {
  *live -= o->size;
  o->size = (size_t)least + lab_below(state, (uint32_t)(most - least + 1));
  o->block = malloc(o->size);
  if (!o->block)
    lab_fail("out of memory");
  memset(o->block, 1, o->size);
  *live += o->size;
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  uint32_t count = (uint32_t)((double)objects * turnover / 100);
  if (count == 0 || count > objects || most < least)
    lab_fail("--turnover must leave between one object and all, and --most not be below --least");
  object *table = lab_map((size_t)objects * sizeof *table);
  uint32_t *order = lab_map((size_t)objects * sizeof *order);
  double *rss = lab_map((size_t)cycles * sizeof *rss), *committed = lab_map((size_t)cycles * sizeof *committed);
  lab_litter((size_t)least, (size_t)most);
  uint64_t state = lab_seed, live = 0;
  lab_memory base = lab_memory_now();
  for (long i = 0; i < objects; i++) {
    fill(&table[i], &state, &live);
    order[i] = (uint32_t)i;
  }
  lab_proof_live(live);
  double busy_ns = 0;
  for (long c = 0; c < cycles; c++) {
    uint64_t begin = lab_now_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < count; i++) {
      uint32_t j = i + lab_below(&state, (uint32_t)objects - i), chosen = order[j];
      order[j] = order[i];
      order[i] = chosen;
      free(table[chosen].block);
    }
    for (uint32_t i = 0; i < count; i++)
      fill(&table[order[i]], &state, &live);
    busy_ns += (double)(lab_now_ns(CLOCK_MONOTONIC) - begin);
    lab_memory m = lab_memory_now();
    rss[c] = (double)m.rss - (double)base.rss;
    committed[c] = (double)m.committed - (double)base.committed;
  }
  size_t warm = (size_t)cycles / 10, measured = (size_t)cycles - warm;
  lab_line growth = lab_fit(rss + warm, measured, 1), growth_committed = lab_fit(committed + warm, measured, 1);
  lab_calls = (uint64_t)objects + (uint64_t)cycles * count;
  lab_row(NULL);
  lab_metric("live_bytes", (double)live);
  lab_metric("warm_rss_bytes", rss[warm]);
  lab_metric("last_rss_bytes", rss[cycles - 1]);
  lab_metric("last_committed_bytes", committed[cycles - 1]);
  lab_metric("growth_pct", 100 * (rss[cycles - 1] - rss[warm]) / rss[warm]);
  lab_metric("growth_per_cycle_bytes", growth.slope);
  lab_metric("growth_per_cycle_half_width_bytes", growth.half_width);
  lab_metric("committed_growth_per_cycle_bytes", growth_committed.slope);
  lab_metric("committed_growth_per_cycle_half_width_bytes", growth_committed.half_width);
  lab_metric("replacement_mean_ns", busy_ns / ((double)cycles * count));
  lab_series("rss_bytes", rss, (size_t)cycles);
  lab_series("committed_bytes", committed, (size_t)cycles);
  return lab_finish();
}
