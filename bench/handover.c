/* handover: one operation is a free of a block that a thread inherited, and a malloc in its place.
 *
 * `chains` chains of threads run beside each other. Each thread of a chain inherits `blocks` blocks of `least` to
 * `most` bytes from the one before it, which is gone. It goes `passes` times through them in random order, frees
 * each and takes a new one for it, whose first bytes it writes. Then it ends and leaves its blocks to its
 * successor. In the first pass nearly all frees are of blocks of threads that are gone. `generations` threads of
 * each chain are timed, with their starts and ends. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CHAINS = 64 };

static long chains = 2, generations = 200, blocks = 10000, least = 16, most = 256, passes = 1;

static const lab_option options[] = {
  { .name = "chains", .help = "chains of threads, beside each other", .number = &chains, .least = 1 },
  { .name = "generations", .help = "threads of a chain, one after the other", .number = &generations, .least = 1 },
  { .name = "blocks", .help = "blocks that a thread leaves to its successor", .number = &blocks, .least = 1 },
  { .name = "least", .help = "bytes of the smallest block", .number = &least, .least = 1 },
  { .name = "most", .help = "bytes of the largest block", .number = &most, .least = 1 },
  { .name = "passes", .help = "blocks that a thread replaces, for each that it has", .number = &passes, .least = 1 },
  { .name = NULL },
};
static const lab_about workload = { "handover", "frees what a thread that is gone has left, and replaces it", options };

typedef struct chain {
  _Alignas(128) char **blocks;
  uint64_t state;
  uint64_t cpu_ns; /* of all threads of the chain */
} chain;
static chain all[MOST_CHAINS];

static char *take(chain *c) {
  char *block = malloc((size_t)least + lab_below(&c->state, (uint32_t)(most - least + 1)));
  if (!block)
    lab_fail("out of memory");
  *block = 1;
  return block;
}

static void *live(void *argument) {
  chain *c = argument;
  uint64_t begin = lab_now_ns(CLOCK_THREAD_CPUTIME_ID);
  for (long i = 0; i < blocks * passes; i++) {
    char **slot = &c->blocks[lab_below(&c->state, (uint32_t)blocks)];
    free(*slot);
    *slot = take(c);
  }
  c->cpu_ns += lab_now_ns(CLOCK_THREAD_CPUTIME_ID) - begin; /* without the end of the thread */
  return NULL;
}

static void work(unsigned index) {
  chain *c = &all[index];
  for (long i = 0; i < blocks; i++)
    c->blocks[i] = take(c);
  lab_team_begin();
  for (long i = 0; i < generations; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, live, c) != 0)
      lab_fail("no thread");
    pthread_join(thread, NULL);
  }
  lab_team_end();
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (chains > MOST_CHAINS)
    lab_fail("at most %d chains", MOST_CHAINS);
  if (most < least)
    lab_fail("--most must not be below --least");
  for (long i = 0; i < chains; i++)
    all[i] = (chain){ lab_map((size_t)blocks * sizeof(char *)), lab_seed + (uint64_t)i, 0 };
  lab_litter((size_t)least, (size_t)most);
  uint64_t base = lab_rss_now();
  lab_team_result r = lab_team((unsigned)chains, work);
  uint64_t after = lab_rss_now();
  lab_proof_live((uint64_t)(chains * blocks * least));
  double cpu_ns = 0;
  for (long i = 0; i < chains; i++)
    cpu_ns += (double)all[i].cpu_ns;
  double pairs = (double)chains * (double)generations * (double)blocks * (double)passes;
  lab_calls = (uint64_t)pairs;
  lab_row(NULL);
  lab_metric("pairs_per_s", pairs / r.wall_ns * 1e9);
  lab_metric("cpu_per_pair_ns", cpu_ns / pairs);
  lab_metric("after_rss_bytes", (double)after - (double)base);
  return lab_finish();
}
