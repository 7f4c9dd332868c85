/* random-mixed: one operation is one turn of a slot - free what it holds, or allocate 16 to 1,039 bytes into it.
 *
 * With --draws=same slot and size come from the same xorshift32 number, as in the earlier system's benchmark. That
 * ties the size's low bits to the slot (400 is a multiple of 16), so not every size occurs: --draws=independent draws
 * twice. Warm-up: a tenth of the turns, untimed, which leaves the slots about half full. The timed part ends with
 * every block freed. Each thread has its own slots; the throughput is every thread's turns over the time until the
 * last has ended. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>

/* Classes by powers of two: 16, 32 ... 1,024, above. */
enum { LEAST = 16, SPREAD = 0x3FF, CLASSES = 8, REPLAYED = 1000000 };

static long iterations = 20000000, slots = 400, threads = 1;
static const char *draws = "same";
static _Atomic uint64_t allocations;

static const lab_option options[] = {
  { .name = "draws", .help = "slot and size from the same number, or from two", .text = &draws,
    .choices = "same|independent" },
  { .name = "slots", .help = "blocks that can live at a time, per thread", .number = &slots, .least = 1 },
  { .name = "threads", .help = "threads", .number = &threads, .least = 1 },
  { .name = "iterations", .help = "timed turns per thread", .number = &iterations, .least = 10 },
  { .name = NULL },
};
static const lab_about workload = { "random-mixed", "frees or allocates one random slot, 16 to 1,039 bytes", options };

static inline __attribute__((always_inline)) void turn(char **table, uint32_t *state, uint32_t count, bool same) {
  uint32_t r = lab_xorshift32(state);
  char **slot = &table[r % count];
  if (*slot) {
    free(*slot);
    *slot = NULL;
  } else {
    size_t size = LEAST + ((same ? r : lab_xorshift32(state)) & SPREAD);
    char *block = malloc(size);
    if (!block)
      lab_fail("out of memory");
    *block = (char)r;
    *slot = block;
  }
}

static __attribute__((noinline)) void turns(char **table, uint32_t *state, long n, bool same) {
  uint32_t count = (uint32_t)slots;
  if (same)
    for (long i = 0; i < n; i++)
      turn(table, state, count, true);
  else
    for (long i = 0; i < n; i++)
      turn(table, state, count, false);
}

static void work(unsigned index) {
  bool same = strcmp(draws, "same") == 0;
  char **table = lab_map((size_t)slots * sizeof *table);
  lab_litter(LEAST, LEAST + SPREAD);
  uint32_t state = lab_seed32(index + 1000);
  turns(table, &state, iterations / 10, same);
  long before = 0, after = 0;
  for (long i = 0; i < slots; i++)
    before += table[i] != NULL;
  if (index == 0)
    lab_proof_live((uint64_t)before * (LEAST + SPREAD / 2));
  state = lab_seed32(index);
  lab_team_begin();
  turns(table, &state, iterations, same);
  for (long i = 0; i < slots; i++) {
    after += table[i] != NULL;
    free(table[i]);
  }
  lab_team_end();
  allocations += (uint64_t)(iterations + after - before) / 2;   /* each turn allocates or frees */
}

static unsigned class_of(size_t size) {
  unsigned c = 0;
  while (c + 1 < CLASSES && size > (16u << c))
    c++;
  return c;
}

/* The first thread's sizes, counted by playing its first turns once more without an allocator. */
static void class_shares(void) {
  bool same = strcmp(draws, "same") == 0;
  bool *held = lab_map((size_t)slots);
  uint64_t count[CLASSES] = { 0 }, total = 0;
  long played = iterations < REPLAYED ? iterations : REPLAYED;
  uint32_t state = lab_seed32(0);
  for (long i = 0; i < played; i++) {
    uint32_t r = lab_xorshift32(&state), slot = r % (uint32_t)slots;
    if (!held[slot]) {
      count[class_of(LEAST + ((same ? r : lab_xorshift32(&state)) & SPREAD))]++;
      total++;
    }
    held[slot] = !held[slot];
  }
  static const char *const names[CLASSES] = {
    "share_to_16_pct", "share_to_32_pct", "share_to_64_pct", "share_to_128_pct",
    "share_to_256_pct", "share_to_512_pct", "share_to_1024_pct", "share_above_1024_pct",
  };
  for (unsigned c = 0; c < CLASSES; c++)
    lab_metric(names[c], total ? 100 * (double)count[c] / (double)total : 0);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  lab_team_result r = lab_team((unsigned)threads, work);
  double turns_done = (double)iterations * (double)threads;
  lab_row(NULL);
  lab_metric("ops_per_s", turns_done / r.wall_ns * 1e9);
  lab_metric("op_ns", r.wall_ns * (double)threads / turns_done);
  lab_metric("cpu_per_op_ns", r.cpu_ns / turns_done);
  lab_metric("slowest_thread_ops_per_s", (double)iterations / r.slowest_ns * 1e9);
  lab_metric("wall_ns", r.wall_ns);
  class_shares();
  lab_calls = allocations;
  return lab_finish();
}
