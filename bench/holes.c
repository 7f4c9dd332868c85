/* holes: how much memory goes back from between live blocks, while the program does nothing?
 *
 * `blocks` blocks of `size` bytes are allocated and written; one in `keep`, at random, stays, the others are freed, and
 * then nothing is called for `idle_ms`. A page with a live block in it cannot go back, whatever an allocator does.
 * Pages are counted by the blocks' addresses: `bound_pct` is the share of them that no live block touches. */
#include "lab.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long blocks = 300000, size = 1024, keep = 20, idle_ms = 10000;

static const lab_option options[] = {
  { .name = "blocks", .help = "blocks allocated", .number = &blocks, .least = 1 },
  { .name = "size", .help = "bytes of a block", .number = &size, .least = 1 },
  { .name = "keep", .help = "one block in so many stays", .number = &keep, .least = 1 },
  { .name = "idle_ms", .help = "milliseconds without a call, at the end", .number = &idle_ms, .least = 0 },
  { .name = NULL },
};
static const lab_about workload = { "holes", "frees most of a heap at random, and then does nothing", options };

/* ---- pages: an open hash table of their numbers ---- */

typedef struct pages { uintptr_t *slots; size_t mask, count; } pages;

static void add_page(pages *set, uintptr_t page) {
  size_t at = (page * 0x9E3779B97F4A7C15u) >> 20 & set->mask;
  while (set->slots[at] != 0 && set->slots[at] != page)
    at = (at + 1) & set->mask;
  set->count += set->slots[at] == 0;
  set->slots[at] = page;
}

static pages pages_for(size_t bytes, size_t page) {
  size_t slots = 1024;
  while (slots < 2 * (bytes / page + (size_t)blocks))
    slots *= 2;
  return (pages){ lab_map(slots * sizeof(uintptr_t)), slots - 1, 0 };
}

static void add_block(pages *set, const char *block, size_t page) {
  for (uintptr_t p = (uintptr_t)block / page; p <= ((uintptr_t)block + (size_t)size - 1) / page; p++)
    add_page(set, p);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (size_t)(blocks * size);
  uint64_t state = lab_seed, live_count = 0;
  char **block = lab_map((size_t)blocks * sizeof *block);
  pages touched = pages_for(bytes, page), live = pages_for(bytes, page);
  lab_litter((size_t)size, (size_t)size);
  uint64_t base = lab_rss_now();
  for (long i = 0; i < blocks; i++) {
    block[i] = malloc((size_t)size);
    if (!block[i])
      lab_fail("out of memory");
    memset(block[i], 1, (size_t)size);
    add_block(&touched, block[i], page);
  }
  lab_proof_live(bytes);
  uint64_t full = lab_rss_now();
  for (long i = 0; i < blocks; i++)
    if (lab_below(&state, (uint32_t)keep) == 0) {
      add_block(&live, block[i], page);
      live_count++;
    } else
      free(block[i]);
  uint64_t freed = lab_rss_now();
  usleep((useconds_t)idle_ms * 1000);
  uint64_t after = lab_rss_now(), live_pages = live.count * page;
  lab_calls = (uint64_t)blocks;
  lab_row(NULL);
  lab_metric("full_bytes", (double)full - (double)base);
  lab_metric("freed_bytes", (double)freed - (double)base);
  lab_metric("after_bytes", (double)after - (double)base);
  lab_metric("returned_pct", 100 * ((double)full - (double)after) / ((double)full - (double)base));
  lab_metric("bound_pct", 100 * (1 - (double)live.count / (double)touched.count));
  lab_metric("above_live_pages_bytes", (double)after - (double)base - (double)live_pages);
  lab_metric("live_bytes", (double)(live_count * (uint64_t)size));
  return lab_finish();
}
