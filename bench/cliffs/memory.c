/* Kinds that count blocks, buffers, free runs and MiB.
 *
 *   blocks   `count` live blocks of 16 to 143 bytes, the oldest replaced each time
 *   live     `count` MiB of live blocks of 16 to 527 bytes at rest: resident bytes, processor time, fork
 *   grow     `count` buffers that grow in turn by realloc, an eighth at a time, to 2 MiB
 *   runs     `count` free runs of 40,000 bytes of each of two ages, while another thread takes and frees 3 MiB
 *   fit      `count` free runs of 2 MiB, all a little too short for the blocks that are taken then; none of them is
 *            written, so that the time is the search's and not the kernel's
 *   sparse   `count` GiB of blocks of 64 MiB, each with one page written, and malloc_trim after their frees
 *   destroy  the end of `count` MiB of blocks of 30,000 bytes, beside an epoch of another thread
 *
 * A wait is how long the other thread's operation took; where it is not the allocator, it is the machine's. */
#include "kinds.h"

#include <malloc.h>

enum { LEAST = 16, SPREAD = 128 };
enum { GROW_FIRST = 1000, GROW_STEP = 512, GROW_TOP = 2 << 20, GROW_CALLS = 4000 };
enum { RUN = 40000, PROBED = 3 << 20, PROBE_US = 500, AGE_MS = 350 };
enum { UNIT = 65536, SHORT = 33 * UNIT, WANTED = 39 * UNIT, FITS = 500 };
enum { PIECE = 30000, REQUEST = 100, REQUEST_LARGE = 65536, REQUEST_US = 100, SETTLE_MS = 20 };

/* ---- live blocks ---- */

static char **live;
static long oldest;
static uint64_t draws;

static size_t drawn(void) { return LEAST + lab_below(&draws, SPREAD); }

static void replace_oldest(long n) {
  for (long i = 0; i < n; i++) {
    free(live[oldest]);
    live[oldest] = take(drawn());
    oldest = oldest + 1 == count ? 0 : oldest + 1;
  }
}

void run_blocks(void) {
  draws = lab_seed;
  live = lab_map((size_t)count * sizeof *live);
  uint64_t before = lab_rss_now();
  for (long i = 0; i < count; i++)
    live[i] = take(drawn());
  cliffs_figure("block_rss_bytes", bytes_each(before, count));
  cliffs_figure("pair_ns", cliffs_ns(replace_oldest, operations));
}

/* ---- much live memory ---- */

enum { LIVE_LEAST = 16, LIVE_SPREAD = 512 };

/* Each block leads to the one before it, so that no table adds to the memory. */
void run_live(void) {
  draws = lab_seed;
  char *newest = NULL;
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  long blocks = 0;
  for (size_t left = (size_t)count << 20, size; left >= LIVE_LEAST + LIVE_SPREAD; left -= size, blocks++) {
    size = LIVE_LEAST + lab_below(&draws, LIVE_SPREAD);
    char *block = take(size);
    memcpy(memset(block, 1, size), &newest, sizeof newest);
    newest = block;
  }
  cliffs_figure("fill_ns", ns_each(start, blocks));
  cliffs_sleep(idle_ms);
  cliffs_figure("live_rss_bytes", bytes_each(before, count));
  cliffs_figure("rest_cpu_pct", cliffs_rest_cpu());
  cliffs_fork();
}

/* ---- addresses of which few are used ---- */

enum { SPARSE = 64 << 20, SPARSE_A_GIB = (1 << 30) / SPARSE };

void run_sparse(void) {
  long blocks = count * SPARSE_A_GIB;
  live = lab_map((size_t)blocks * sizeof *live);
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  for (long i = 0; i < blocks; i++)
    live[i] = take(SPARSE);
  cliffs_figure("sparse_malloc_ns", ns_each(start, blocks));
  cliffs_figure("sparse_rss_bytes", bytes_each(before, count));
  start = cliffs_clock();
  for (long i = 0; i < blocks; i++)
    free(live[i]);
  cliffs_figure("sparse_free_ns", ns_each(start, blocks));
  start = cliffs_clock();
  malloc_trim(0);
  cliffs_figure("sparse_trim_ns", ns_each(start, count));
}

/* ---- buffers that grow ---- */

/* Returns the number of calls. */
static long grow_all(char **buffers) {
  long calls = 0;
  for (size_t size = GROW_FIRST; size < GROW_TOP; size += size / 8 + GROW_STEP)
    for (long i = 0; i < count; i++, calls++) {
      buffers[i] = written(realloc(buffers[i], size));
      buffers[i][size - 1] = 1;
    }
  for (long i = 0; i < count; i++) {
    free(buffers[i]);
    buffers[i] = NULL;
  }
  return calls;
}

void run_grow(void) {
  char **buffers = lab_map((size_t)count * sizeof *buffers);
  long calls = 0, least = operations < GROW_CALLS ? operations : GROW_CALLS;
  uint64_t start = cliffs_clock();
  while (calls < least)
    calls += grow_all(buffers);
  cliffs_figure("realloc_ns", ns_each(start, calls));
}

/* ---- free runs ---- */

static void probe_large(void) { free(take(PROBED)); }

/* Every other block stays, so that no two free runs are one. */
void run_runs(void) {
  char **blocks = lab_map((size_t)(4 * count) * sizeof *blocks);
  for (long i = 0; i < 4 * count; i++)
    blocks[i] = take(RUN);
  prober_start(probe_large, PROBE_US);
  for (long i = 0; i < count; i++)
    free(blocks[4 * i]);
  cliffs_sleep(AGE_MS);
  for (long i = 0; i < count; i++)
    free(blocks[4 * i + 2]);
  cliffs_sleep(idle_ms);
  prober_figures(prober_end());
}

static char *unwritten(size_t size) {
  char *block = malloc(size);
  if (!block)
    lab_fail("out of memory");
  return block;
}

void run_fit(void) {
  char **runs = lab_map((size_t)count * sizeof *runs), **fits = lab_map(FITS * sizeof *fits);
  uint64_t longest = 0, cost = lab_timer_cost(), start;
  for (long i = 0; i < count; i++) {
    runs[i] = unwritten(SHORT);
    take(RUN);                                      /* stays, and keeps the run apart from the next */
  }
  for (long i = 0; i < count; i++)
    free(runs[i]);
  start = cliffs_clock();
  for (long i = 0; i < FITS; i++) {
    uint64_t begin = lab_ticks_begin();
    fits[i] = unwritten(WANTED);
    uint64_t ticks = lab_ticks_between(begin, lab_ticks_end(), cost);
    longest = ticks > longest ? ticks : longest;
  }
  cliffs_figure("malloc_ns", ns_each(start, FITS));
  cliffs_figure("malloc_longest_ns", (double)longest * lab_tick_ns());
  for (long i = 0; i < FITS; i++)
    free(fits[i]);
}

/* ---- the end of much memory ---- */

static tslab_epoch other;
static __typeof__(&tslab_epoch_info) epoch_info;

static void probe_request(void) {
  scope_enter(other);
  free(take(REQUEST));
  free(take(REQUEST_LARGE));
  scope_leave(other);
  tslab_epoch_status status;
  if (form == IN_EPOCHS)
    must(epoch_info(other, &status), "info");
}

void run_destroy(void) {
  use_form();
  if (form == IN_EPOCHS)
    lab_bind("--kind=destroy", (const lab_binding[]){ { "tslab_epoch_info", &epoch_info }, { NULL, NULL } });
  long pieces = (count << 20) / PIECE;
  char **blocks = lab_map((size_t)pieces * sizeof *blocks);
  tslab_epoch large = scope_open("large");
  other = scope_open("other");
  scope_enter(large);
  for (long i = 0; i < pieces; i++)
    blocks[i] = memset(take(PIECE), 1, PIECE);
  scope_leave(large);
  prober_start(probe_request, REQUEST_US);
  cliffs_sleep(SETTLE_MS);
  uint64_t start = cliffs_clock();
  scope_end(large, blocks, pieces);
  cliffs_figure("end_mib_ns", ns_each(start, count));
  cliffs_sleep(SETTLE_MS);
  prober_figures(prober_end());
}
