/* lifespans: how long blocks live, and how full the slabs are that they share.                      floor: stats
 *
 * `tslab advise` compares the two: memory of slabs that no block uses, and the call sites whose blocks left it.
 * Thread: any. See stats/profile.h. */
#include "slab/classes.h"
#include "slab/slab.h"
#include "stats/profile.h"
#include <string.h>

#if TSLAB_TELEMETRY

/* ---- lifespans --------------------------------------------------------------------------------------------------- */

static uint64_t whole(uint64_t weighted) { return (weighted + PROFILE_WEIGHT_ONE / 2) / PROFILE_WEIGHT_ONE; }

/* Returns an age that `share` of `of` freed samples did not exceed. */
static uint64_t age_of(const struct profile_lifespan *row, unsigned share, unsigned of) {
  uint64_t passed = 0;
  unsigned i = 0;
  if (row->freed_samples == 0) return 0;
  while (i < LIFESPAN_AGES - 1 && (passed += row->ages[i]) * of < (uint64_t)row->freed_samples * share) i++;
  return LIFESPAN_FIRST_NS << i;
}

static struct profile_lifespan lifespan_of(uint32_t index) {
  lock_take(&profile_lock);
  struct profile_lifespan copy = *profile_lifespan_at(index);
  lock_release(&profile_lock);
  return copy;
}

static uint32_t count_lifespans(void) {
  lock_take(&profile_lock);
  uint32_t count = profile_lifespans();
  lock_release(&profile_lock);
  return count;
}

/* Returns a peak that at most `most` lifespans reach, to a factor of two. */
static uint64_t least_peak(uint32_t lifespans, size_t most) {
  uint32_t of_log[64] = {0};
  for (uint32_t i = 1; i <= lifespans; i++) of_log[log2_floor(lifespan_of(i).peak | 1)]++;
  size_t count = 0;
  for (unsigned log = 64; log-- > 0; count += of_log[log])
    if (count + of_log[log] > most) return log == 63 ? UINT64_MAX : (uint64_t)2 << log;
  return 0;
}

size_t profile_collect_lifespans(void *rows, size_t most) {
  struct lifespan_row *row = rows;
  size_t count = 0;
  if (!profile_is_on()) return 0;
  uint32_t lifespans = count_lifespans();
  uint64_t least = least_peak(lifespans, most);
  for (uint32_t i = 1; i <= lifespans && count < most; i++) {
    struct profile_lifespan now = lifespan_of(i);
    if (now.peak < least) continue;
    row[count++] = (struct lifespan_row){
        .site = now.site,
        .object_size = class_size(now.class),
        .live_samples = now.live_samples,
        .live_bytes = whole(now.live),
        .peak_bytes = whole(now.peak),
        .freed_samples = now.freed_samples,
        .freed_bytes = whole(now.freed),
        .ebbs = now.ebbs,
        .age_half_ns = age_of(&now, 1, 2),
        .age_most_ns = age_of(&now, 9, 10),
    };
  }
  return count;
}

/* ---- spreads ----------------------------------------------------------------------------------------------------- */

/* A larger heap is looked at in steps of several granules, so that a reading takes about a millisecond. */
#define GRANULES_LOOKED 65536

struct seen {
  uint64_t word, unlinked;
  uint32_t epoch;
  uint8_t kind, class, moved;
};

/* Not instrumented: other threads change a run as they use it. The run may become one of another kind between two
 * reads. Then the row mixes numbers of both. */
__attribute__((no_sanitize("thread"))) static NOINLINE struct seen see(const struct run *run) {
  return (struct seen){atomic_load_explicit(&run->word, memory_order_relaxed), run->unlinked, run->epoch,
                       run->kind, run->class, run->moved};
}

static void add_slab(struct spread_row *rows, const struct run *run, uint64_t times) {
  struct seen seen = see(run);
  if (seen.kind != RUN_SLAB || seen.epoch != 0 || seen.class >= CLASSES || seen.moved > SLAB_HAS_HOLES) return;
  struct spread_row *row = &rows[seen.class];
  unsigned linked = slab_linked(seen.word), unused = (unsigned)min_size(slab_count(seen.word), linked);
  struct slab_look look = {seen.unlinked, seen.class, linked, linked - unused, (enum slab_memory)seen.moved};
  row->slabs += times;
  row->resident_bytes += times * slab_resident_bytes(run, &look);
  row->used_bytes += times * look.used * class_size(seen.class);
}

size_t profile_collect_spreads(void *out, size_t most) {
  struct spread_row rows[CLASSES];
  struct spread_row *row = out;
  const struct run *first = profile_is_on() ? pages_first_run() : NULL;
  if (!first) return 0;
  size_t count = 0, granules = __atomic_load_n(&pages.count, __ATOMIC_ACQUIRE);
  size_t step = divide_up(granules, GRANULES_LOOKED) | 1; /* odd, because slabs of four granules may lie in a row */
  memset(rows, 0, sizeof rows);
  for (size_t g = run_index(first); g < granules; g += step) add_slab(rows, pages.runs + g, step);
  for (unsigned class = 0; class < CLASSES && count < most; class++) {
    if (rows[class].slabs == 0) continue;
    rows[class].object_size = class_size(class);
    row[count++] = rows[class];
  }
  return count;
}

#else

size_t profile_collect_lifespans(void *rows, size_t most) { return (void)rows, (void)most, 0; }
size_t profile_collect_spreads(void *rows, size_t most) { return (void)rows, (void)most, 0; }

#endif
