/* burst: takes `mib` mebibytes, frees `freed` percent of the blocks, and then waits without a call.
 *
 * The test compares the memory that an allocator keeps with the memory that it must keep: the pages that still hold a
 * live block, computed from the blocks' addresses. Blocks are 16 to 1,039 bytes by default and written whole. The freed
 * blocks are drawn at random, or are the newest ones, or the oldest. Resident memory is exact (page tables) and counted
 * from before the first block. */
#include "lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long mib = 1024, freed = 90, least = 16, most = 1039, idle_ms = 2000;
static const char *which = "random";

static const lab_option options[] = {
  { .name = "which", .help = "the blocks that are freed", .text = &which, .choices = "random|newest|oldest" },
  { .name = "mib", .help = "mebibytes asked for", .number = &mib, .least = 1 },
  { .name = "freed", .help = "percent of the blocks freed", .number = &freed, .least = 0 },
  { .name = "least", .help = "bytes of the smallest block", .number = &least, .least = 1 },
  { .name = "most", .help = "bytes of the largest block", .number = &most, .least = 1 },
  { .name = "idle_ms", .help = "milliseconds without a call", .number = &idle_ms, .least = 0 },
  { .name = NULL },
};
static const lab_about workload = { "burst", "takes much memory, frees most of it, and waits", options };

typedef struct block { char *address; size_t size; } block;

static int by_page(const void *a, const void *b) {
  uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
  return (x > y) - (x < y);
}

/* Bytes of the pages that hold any byte of the blocks. A block's inner pages belong to it alone; its first and last are
 * sorted and counted once. */
static uint64_t live_page_bytes(const block *blocks, size_t count, uint64_t page) {
  uintptr_t *edges = lab_map(2 * count * sizeof *edges);
  uint64_t inner = 0, distinct = 0;
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    uintptr_t first = (uintptr_t)blocks[i].address / page;
    uintptr_t last = ((uintptr_t)blocks[i].address + blocks[i].size - 1) / page;
    edges[n++] = first;
    edges[n++] = last;
    inner += last > first + 1 ? last - first - 1 : 0;
  }
  qsort(edges, n, sizeof *edges, by_page);
  for (size_t i = 0; i < n; i++)
    distinct += i == 0 || edges[i] != edges[i - 1];
  return (distinct + inner) * page;
}

static double since(uint64_t base) { return (double)lab_rss_now() - (double)base; }

/* Brings the blocks that stay to the front. */
static void arrange(block *blocks, size_t count, size_t kept, uint64_t *state) {
  for (size_t i = 0; i < kept; i++) {
    size_t j = i;
    if (strcmp(which, "random") == 0)
      j = i + lab_below(state, (uint32_t)(count - i));
    else if (strcmp(which, "oldest") == 0)
      j = count - kept + i;
    block t = blocks[i];
    blocks[i] = blocks[j];
    blocks[j] = t;
  }
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (most < least || freed > 100)
    lab_fail("--most must not be below --least, nor --freed above 100");
  uint64_t state = lab_seed, page = (uint64_t)sysconf(_SC_PAGESIZE), taken = 0, wanted = (uint64_t)mib << 20;
  size_t capacity = (size_t)(wanted / ((uint64_t)least + (uint64_t)(most - least) / 2) * 5 / 4) + 16, count = 0;
  block *blocks = lab_map(capacity * sizeof *blocks);
  lab_litter((size_t)least, (size_t)most);
  uint64_t base = lab_rss_now(), begin = lab_now_ns(CLOCK_MONOTONIC);
  while (taken < wanted && count < capacity) {
    size_t size = (size_t)least + lab_below(&state, (uint32_t)(most - least + 1));
    char *address = malloc(size);
    if (!address)
      lab_fail("out of memory after %zu blocks", count);
    memset(address, 1, size);
    blocks[count++] = (block){ address, size };
    taken += size;
  }
  double take_ns = (double)(lab_now_ns(CLOCK_MONOTONIC) - begin), full = since(base);
  lab_proof_live(taken);
  size_t kept = count - count * (size_t)freed / 100;
  arrange(blocks, count, kept, &state);
  begin = lab_now_ns(CLOCK_MONOTONIC);
  for (size_t i = kept; i < count; i++)
    free(blocks[i].address);
  double free_ns = (double)(lab_now_ns(CLOCK_MONOTONIC) - begin), at_once = since(base);
  uint64_t live = 0;
  for (size_t i = 0; i < kept; i++)
    live += blocks[i].size;

  enum { LOOKS = 20 };
  static double looks[LOOKS + 1];
  looks[0] = at_once;
  for (unsigned i = 1; i <= LOOKS; i++) {
    struct timespec pause = { idle_ms / 1000 / LOOKS, idle_ms * 1000000l / LOOKS % 1000000000l };
    nanosleep(&pause, NULL);
    looks[i] = since(base);
  }
  double after_idle = looks[LOOKS], pages = (double)live_page_bytes(blocks, kept, page);
  lab_calls = count;
  lab_row(NULL);
  lab_metric("taken_bytes", (double)taken);
  lab_metric("full_rss_bytes", full);
  lab_metric("live_bytes", (double)live);
  lab_metric("live_pages_bytes", pages);
  lab_metric("after_free_rss_bytes", at_once);
  lab_metric("after_idle_rss_bytes", after_idle);
  lab_metric("above_live_pages_bytes", after_idle - pages);
  lab_metric("malloc_mean_ns", take_ns / (double)count);
  lab_metric("free_mean_ns", count > kept ? free_ns / (double)(count - kept) : 0);
  lab_series("idle_rss_bytes", looks, LOOKS + 1);
  return lab_finish();
}
