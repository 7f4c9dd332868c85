/* bursts: one operation is a malloc and the free of that block, in a burst of them.
 *
 * One thread takes a burst of 1 to `longest` blocks of `least` to `most` bytes, writes the first byte of each, and
 * frees all of them, the oldest or the newest first. Then the next burst comes. `pairs` blocks are timed, after a
 * tenth as many for warm-up. Nothing lives between the bursts, so what an allocator does when its lists run full
 * and run empty is most of what is measured. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>

static long longest = 5000, least = 16, most = 128, pairs = 20000000;
static const char *first = "oldest";

static const lab_option options[] = {
  { .name = "longest", .help = "blocks of the longest burst", .number = &longest, .least = 1 },
  { .name = "least", .help = "bytes of the smallest block", .number = &least, .least = 1 },
  { .name = "most", .help = "bytes of the largest block", .number = &most, .least = 1 },
  { .name = "first", .help = "the blocks that are freed first", .text = &first, .choices = "oldest|newest" },
  { .name = "pairs", .help = "blocks that are timed", .number = &pairs, .least = 10 },
  { .name = NULL },
};
static const lab_about workload = { "bursts", "takes small blocks and frees them, burst by burst", options };

static char **block;
static uint64_t state;

static void take(long count) {
  for (long i = 0; i < count; i++) {
    block[i] = malloc((size_t)least + lab_below(&state, (uint32_t)(most - least + 1)));
    if (!block[i])
      lab_fail("out of memory");
    *block[i] = 1;
  }
}

static void free_oldest(long count) {
  for (long i = 0; i < count; i++)
    free(block[i]);
}

static void free_newest(long count) {
  while (count > 0)
    free(block[--count]);
}

/* Returns the number of bursts. */
static long burst_until(long wanted, void (*free_all)(long count)) {
  long bursts = 0;
  for (long done = 0; done < wanted; bursts++) {
    long count = 1 + lab_below(&state, (uint32_t)longest);
    if (count > wanted - done)
      count = wanted - done;
    take(count);
    free_all(count);
    done += count;
  }
  return bursts;
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (most < least)
    lab_fail("--most must not be below --least");
  state = lab_seed;
  block = lab_map((size_t)longest * sizeof *block);
  void (*free_all)(long) = strcmp(first, "oldest") == 0 ? free_oldest : free_newest;
  lab_litter((size_t)least, (size_t)most);
  burst_until(pairs / 10, free_all);
  uint64_t begin = lab_now_ns(CLOCK_MONOTONIC);
  long bursts = burst_until(pairs, free_all);
  double ns = (double)(lab_now_ns(CLOCK_MONOTONIC) - begin);
  lab_calls = (uint64_t)pairs;
  lab_row(NULL);
  take(longest); /* nothing is live between bursts, so the proof has one of its own */
  lab_proof_live((uint64_t)(longest * least));
  free_all(longest);
  lab_metric("pair_mean_ns", ns / (double)pairs);
  lab_metric("bursts_count", (double)bursts);
  return lab_finish();
}
