/* contention-sampling: eight threads, each pinned to a core, allocate and free 128 bytes; one malloc in 1,024 is timed.
 *
 * Each thread keeps a window of 1,000 blocks and replaces them in turn. Wall and CPU time are apart: with more
 * threads than cores most of the waiting is the scheduler's, and only CPU time can be laid at the allocator's door. */
#include "lab.h"

#include <stdlib.h>

enum { WINDOW = 1000, MOST_THREADS = 256 };
static long threads = 8, operations = 100000, size = 128;

static const lab_option options[] = {
  { .name = "threads", .help = "threads", .number = &threads, .least = 1 },
  { .name = "operations", .help = "mallocs per thread", .number = &operations, .least = 1024 },
  { .name = "size", .help = "bytes of a block", .number = &size, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "contention-sampling", "allocates in pinned threads, sampled", options };

static lab_sampler samplers[MOST_THREADS];

static void replace(char **window, long n, lab_sampler *sampler) {
  for (long i = 0; i < n; i++) {
    char **slot = &window[i % WINDOW];
    free(*slot);
    *slot = lab_sampled_malloc(sampler, (size_t)size);
    **slot = 1;
  }
}

static void work(unsigned index) {
  char *window[WINDOW] = { 0 };
  lab_sampler warm = { 0 };
  lab_pin(index);
  lab_litter((size_t)size, (size_t)size);
  replace(window, operations / 10, &warm);
  lab_team_begin();
  replace(window, operations, &samplers[index]);
  lab_team_end();
  if (index == 0)
    lab_proof_live(WINDOW * (uint64_t)size);
  for (unsigned i = 0; i < WINDOW; i++)
    free(window[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (threads > MOST_THREADS)
    lab_fail("--threads=%ld: at most %d", threads, MOST_THREADS);
  lab_team_result r = lab_team((unsigned)threads, work);
  for (long i = 1; i < threads; i++)
    lab_sampler_merge(&samplers[0], &samplers[i]);
  lab_calls = (uint64_t)(operations * threads);
  lab_row(NULL);
  lab_metric("ops_per_s", (double)lab_calls / r.wall_ns * 1e9);
  lab_metric("cpu_per_op_ns", r.cpu_ns / (double)lab_calls);
  lab_metric("cores_count", lab_cores());
  lab_metric_sampler(&samplers[0]);
  return lab_finish();
}
