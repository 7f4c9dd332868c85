/* zombie-repair: sixteen threads work against slabs: they keep them hovering between full and one block free.
 *
 * Each turn a thread does one of three things with its 512 blocks of 768 bytes (few to a slab): it frees one and
 * takes one, often the same slot again; it drains an eighth and fills it up; or it swaps a block with another thread
 * through a shared slot, so that the last block of a slab is freed from elsewhere. This broke the earlier system's
 * slabs apart (its "zombies": full slabs on the list of partial ones). Every block carries its owner's mark, checked
 * when freed. One malloc in 1,024 is timed, wall and CPU. */
#include "lab.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { HELD = 512, SHARED = 64, MOST_THREADS = 256 };
static long threads = 16, operations = 50000, size = 768;

static const lab_option options[] = {
  { .name = "threads", .help = "threads", .number = &threads, .least = 1 },
  { .name = "operations", .help = "mallocs per thread", .number = &operations, .least = 1024 },
  { .name = "size", .help = "bytes of a block", .number = &size, .least = 16 },
  { .name = NULL },
};
static const lab_about workload = { "zombie-repair", "keeps slabs between full and one block free", options };

static lab_sampler samplers[MOST_THREADS];
static _Atomic(uint64_t *) shared[SHARED];
static const uint64_t mark = 0x7A6F6D626965u;

static uint64_t *take(lab_sampler *sampler) {
  uint64_t *block = lab_sampled_malloc(sampler, (size_t)size);
  block[0] = mark;
  block[1] = (uint64_t)(uintptr_t)block;
  return block;
}

static void give(uint64_t *block) {
  if (!block)
    return;
  if (block[0] != mark || block[1] != (uint64_t)(uintptr_t)block)
    lab_fail("block %p lost its mark: two owners had it", (void *)block);
  block[0] = 0;
  free(block);
}

static void attack(uint64_t **held, uint32_t *state, long n, lab_sampler *sampler) {
  for (long done = 0; done < n;) {
    uint32_t r = lab_xorshift32(state), slot = (r >> 8) % HELD;
    if (r % 8 < 5) {
      give(held[slot]);
      held[slot] = take(sampler);
      done++;
    } else if (r % 8 < 6) {
      for (uint32_t i = 0; i < HELD / 8; i++) {
        give(held[(slot + i) % HELD]);
        held[(slot + i) % HELD] = NULL;
      }
      for (uint32_t i = 0; i < HELD / 8; i++, done++)
        held[(slot + i) % HELD] = take(sampler);
    } else {
      /* Pairs with itself: a thread that gets a block sees the writes of the thread that gave it. */
      give(atomic_exchange_explicit(&shared[(r >> 20) % SHARED], held[slot], memory_order_acq_rel));
      held[slot] = take(sampler);
      done++;
    }
  }
}

static void work(unsigned index) {
  uint64_t *held[HELD] = { 0 };
  uint32_t state = lab_seed32(index);
  lab_sampler warm = { 0 };
  lab_litter((size_t)size, (size_t)size);
  attack(held, &state, operations / 10, &warm);
  lab_team_begin();
  attack(held, &state, operations, &samplers[index]);
  lab_team_end();
  if (index == 0)
    lab_proof_live(HELD / 2 * (uint64_t)size);
  for (unsigned i = 0; i < HELD; i++)
    give(held[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (threads > MOST_THREADS)
    lab_fail("--threads=%ld: at most %d", threads, MOST_THREADS);
  lab_team_result r = lab_team((unsigned)threads, work);
  for (unsigned i = 0; i < SHARED; i++)
    give(atomic_load(&shared[i]));
  for (long i = 1; i < threads; i++)
    lab_sampler_merge(&samplers[0], &samplers[i]);
  lab_calls = samplers[0].calls;
  lab_row(NULL);
  lab_metric("ops_per_s", (double)lab_calls / r.wall_ns * 1e9);
  lab_metric("cpu_per_op_ns", r.cpu_ns / (double)lab_calls);
  lab_metric_sampler(&samplers[0]);
  return lab_finish();
}
