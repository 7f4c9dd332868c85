/* simple: one thread allocates 100,000 blocks of 128 bytes and frees them; one malloc in 1,024 is timed, wall and CPU.
 *
 * The earlier system's simplest check of its sampling. wait = wall - CPU is time that the thread did not run: it
 * belongs to the scheduler or to the hypervisor. The clocks' own cost is subtracted. */
#include "lab.h"

#include <stdlib.h>

static long objects = 100000, size = 128;

static const lab_option options[] = {
  { .name = "objects", .help = "blocks", .number = &objects, .least = 1024 },
  { .name = "size", .help = "bytes of a block", .number = &size, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "simple", "fills and empties a heap once, sampling its mallocs", options };

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  char **blocks = lab_map((size_t)objects * sizeof *blocks);
  lab_sampler sampler = { 0 };
  lab_litter((size_t)size, (size_t)size);
  for (long i = 0; i < objects / 10; i++)
    blocks[i] = malloc((size_t)size);
  for (long i = 0; i < objects / 10; i++)
    free(blocks[i]);
  for (long i = 0; i < objects; i++) {
    blocks[i] = lab_sampled_malloc(&sampler, (size_t)size);
    *blocks[i] = 1;
  }
  lab_proof_live((uint64_t)objects * (uint64_t)size);
  for (long i = 0; i < objects; i++)
    free(blocks[i]);
  lab_calls = (uint64_t)objects;
  lab_row(NULL);
  lab_metric_sampler(&sampler);
  return lab_finish();
}
