/* profile: see profile.h.                                                                           floor: stats */
#include "stats/profile.h"

#include "epoch/epoch.h"
#include "heap/guard.h"
#include "heap/label.h"
#include "heap/profile.h"
#include "heap/sampled.h"
#include "heap/timing.h"
#include "os/os.h"
#include "stats/pace.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <string.h>

struct lock profile_reading;

#if TSLAB_TELEMETRY

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Sums over live samples. */
struct sums {
  uint64_t samples, blocks, bytes; /* blocks and bytes in units of 1 / PROFILE_WEIGHT_ONE */
  unsigned __int128 squares;       /* of their errors: profile_square */
};

static void add(struct sums *to, const struct profile_sample *sample) {
  uint64_t weight = sample->weight;
  to->samples++;
  to->blocks += weight;
  to->bytes += weight * sample->size;
  to->squares += profile_square(sample);
}

static uint64_t whole(uint64_t weighted) { return (weighted + PROFILE_WEIGHT_ONE / 2) / PROFILE_WEIGHT_ONE; }

static uint64_t root_of(unsigned __int128 square) {
  uint64_t root = 0;
  for (uint64_t bit = (uint64_t)1 << 63; bit; bit >>= 1)
    if ((unsigned __int128)(root | bit) * (root | bit) <= square) root |= bit;
  return root;
}

static uint64_t error_of(unsigned __int128 squares) { return whole(root_of(squares)); }

/* ---- walking ----------------------------------------------------------------------------------------------------- */

#define SAMPLES_A_HOLD 64

/* Calls `visit` for each live sample, under profile_lock. */
static void each_sample(void (*visit)(uint32_t index, const struct profile_sample *sample)) {
  lock_take(&profile_lock);
  uint32_t most = profile_samples_most();
  for (uint32_t i = 1; i <= most; i++) {
    const struct profile_sample *sample = profile_sample_at(i);
    if (sample) visit(i, sample);
    if (i % SAMPLES_A_HOLD != 0) continue;
    lock_release(&profile_lock);
    lock_take(&profile_lock);
  }
  lock_release(&profile_lock);
}

/* ---- the profile ------------------------------------------------------------------------------------------------- */

size_t profile_collect(void *rows, size_t most) {
  struct profile_row *row = rows;
  if (most == 0 || !profile_is_on()) return 0;
  *row = (struct profile_row){.interval_bytes = pace_interval_bytes()};
  lock_take(&profile_lock);
  struct profile_totals totals = profile_totals();
  lock_release(&profile_lock);
  row->samples = totals.samples;
  row->frees = totals.frees;
  row->lost = totals.lost;
  row->stackless = totals.stackless;
  row->live_samples = totals.live;
  row->sites = totals.sites;
  row->memory_bytes = totals.bytes;
  struct guard_totals guards = guard_totals();
  row->guards = guards.placed;
  row->guards_live = guards.live;
  row->guards_refused = guards.refused;
  row->guard_bytes = guards.bytes;
  row->began_ns = totals.began_ns;
  row->automatic = pace_is_automatic();
  return 1;
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

/* profile_reading protects this. */
static struct site_sums {
  struct sums live;
  uint64_t rank; /* the sites of the highest rank get rows; 0: none */
} sums_of_sites[PROFILE_SITES + 1];

static void add_to_site(uint32_t index, const struct profile_sample *sample) {
  (void)index;
  add(&sums_of_sites[sample->site].live, sample);
}

static uint32_t sites_now(void) {
  lock_take(&profile_lock);
  uint32_t sites = profile_sites();
  lock_release(&profile_lock);
  return sites;
}

/* profile_reading protects this. Clears only the rows of sites that there are, because the others are zero and should
 * not become resident. A site that begins during the walk has its row cleared by the next call. */
static void sum_sites(void) {
  memset(sums_of_sites, 0, (sites_now() + 1) * sizeof *sums_of_sites);
  each_sample(add_to_site);
}

static void write_stack(char *to, const struct profile_site *site) {
  static const char digits[] = "0123456789abcdef";
  const uintptr_t *frames = profile_frames(site);
  for (uint32_t i = 0; i < site->depth; i++) {
    if (i) *to++ = ' ';
    unsigned nibbles = log2_floor(frames[i] | 1) / 4 + 1;
    while (nibbles-- > 0) *to++ = digits[frames[i] >> 4 * nibbles & 15];
  }
}

/* Ranks the sites: those that hold nothing come last. Returns how many sites there are. */
static uint32_t rank_sites(void) {
  lock_take(&profile_lock);
  uint32_t sites = profile_sites();
  for (uint32_t i = 1; i <= sites; i++) {
    uint64_t live = sums_of_sites[i].live.bytes;
    sums_of_sites[i].rank = live ? live | (uint64_t)1 << 63 : profile_site_at(i)->allocated_bytes >> 1;
  }
  lock_release(&profile_lock);
  return sites;
}

/* Returns a rank that at most `most` sites reach or exceed, to a factor of two. */
static uint64_t least_rank(uint32_t sites, size_t most) {
  uint32_t of_log[64] = {0};
  for (uint32_t i = 1; i <= sites; i++) of_log[log2_floor(sums_of_sites[i].rank | 1)]++;
  size_t count = 0;
  for (unsigned log = 64; log-- > 0; count += of_log[log])
    if (count + of_log[log] > most) return log == 63 ? UINT64_MAX : (uint64_t)2 << log;
  return 1;
}

static void fill_site(struct site_row *row, uint32_t index) {
  const struct profile_site *site = profile_site_at(index);
  const struct sums *sums = &sums_of_sites[index].live;
  *row = (struct site_row){
      .site = index,
      .allocated_samples = site->allocated_samples,
      .allocated_blocks = whole(site->allocated_blocks),
      .allocated_bytes = whole(site->allocated_bytes),
      .allocated_error_bytes = error_of(site->allocated_squares),
      .live_samples = sums->samples,
      .live_blocks = whole(sums->blocks),
      .live_bytes = whole(sums->bytes),
      .error_bytes = error_of(sums->squares),
  };
  write_stack(row->stack, site);
}

static size_t fill_sites(struct site_row *rows, size_t most) {
  size_t count = 0;
  uint32_t sites = rank_sites();
  uint64_t least = least_rank(sites, most);
  for (int round = 0; round < 2; round++) /* round 1 gives the rows that are left to sites of half that rank */
    for (uint32_t i = 1; i <= sites && count < most; i++) {
      uint64_t rank = sums_of_sites[i].rank;
      if (rank == 0 || (rank >= least) != (round == 0) || rank < least / 2) continue;
      lock_take(&profile_lock);
      fill_site(&rows[count++], i);
      lock_release(&profile_lock);
    }
  return count;
}

size_t profile_collect_sites(void *rows, size_t most) {
  if (!profile_is_on()) return 0;
  lock_take(&profile_reading);
  sum_sites();
  size_t count = fill_sites(rows, most);
  lock_release(&profile_reading);
  return count;
}

/* ---- holders ----------------------------------------------------------------------------------------------------- */

#define SLOTS (4 * TABLE_HOLDERS_MOST)
#define ROWS_ALONE (TABLE_HOLDERS_MOST / 2) /* fixed: a table that fills its room is collected again with more */
#define CLOSING_TOGETHER ((uint32_t)1 << 31) /* with a label: all its closing epochs that have no row of their own */

/* profile_reading protects this. A closing epoch has a row of its own while there is room. All open epochs of a label
 * share a row. */
static struct {
  struct holder_row *rows;
  size_t most, count, alone; /* rows of single closing epochs: at most ROWS_ALONE */
  struct sums sums[TABLE_HOLDERS_MOST];
  uint32_t epochs[TABLE_HOLDERS_MOST]; /* index of the closing epoch, or the label, perhaps with CLOSING_TOGETHER */
  uint16_t slots[SLOTS];               /* by hash: number of a row, from 1 */
} holders;

static enum holder_state state_of(const struct profile_sample *sample) {
  if (sample->epoch == 0) return HOLDER_PLAIN;
  return arena_is_closing(arena_at(sample->epoch)) ? HOLDER_CLOSING : HOLDER_OPEN;
}

/* Returns the slot for the row of that site and these epochs, used or not. */
static uint16_t *slot_of(uint32_t site, enum holder_state state, uint32_t epochs) {
  uint64_t hash = (((uint64_t)site << 32 | epochs) * 4 + state) * UINT64_C(0x9e3779b97f4a7c15);
  for (size_t slot = hash >> 53;; slot = (slot + 1) % SLOTS) {
    size_t row = holders.slots[slot];
    if (row == 0) return &holders.slots[slot];
    const struct holder_row *found = &holders.rows[row - 1];
    if (found->site == site && found->state == state && holders.epochs[row - 1] == epochs) return &holders.slots[slot];
  }
}

static size_t begin_row(uint16_t *slot, const struct profile_sample *sample, enum holder_state state, bool alone) {
  struct holder_row *row = &holders.rows[holders.count++];
  *row = (struct holder_row){.site = sample->site, .state = state, .oldest_ns = sample->born_ns};
  if (alone) row->epoch = epoch_id(epoch_at(sample->epoch));
  if (state != HOLDER_PLAIN) memcpy(row->label, labels[sample->label].text, sizeof row->label);
  holders.alone += alone;
  *slot = (uint16_t)holders.count;
  return holders.count - 1;
}

/* Returns the row of the sample's site and epochs. If all rows are in use, the last one serves all other samples. */
static size_t row_of(const struct profile_sample *sample) {
  enum holder_state state = state_of(sample);
  bool alone = state == HOLDER_CLOSING;
  uint32_t epochs = alone ? sample->epoch : sample->label;
  uint16_t *slot = slot_of(sample->site, state, epochs);
  if (alone && *slot == 0 && holders.alone >= ROWS_ALONE) {
    alone = false;
    epochs = sample->label | CLOSING_TOGETHER;
    slot = slot_of(sample->site, state, epochs);
  }
  if (*slot) return *slot - 1;
  if (holders.count == holders.most) return holders.most - 1;
  holders.epochs[holders.count] = epochs;
  return begin_row(slot, sample, state, alone);
}
_Static_assert(SLOTS == 1 << (64 - 53), "the hash has as many bits");

static void add_to_holder(uint32_t index, const struct profile_sample *sample) {
  size_t at = row_of(sample);
  struct holder_row *row = &holders.rows[at];
  if (holders.count == holders.most && at == holders.most - 1 && row->site != sample->site)
    *row = (struct holder_row){.oldest_ns = sample->born_ns, .slabs = row->slabs};
  add(&holders.sums[at], sample);
  row->slabs += profile_is_first_in_run(index);
  row->oldest_ns = min_size(row->oldest_ns, sample->born_ns);
}

size_t profile_collect_holders(void *rows, size_t most) {
  if (!profile_is_on() || most == 0) return 0;
  lock_take(&profile_reading);
  memset(&holders, 0, sizeof holders);
  holders.rows = rows;
  holders.most = min_size(most, TABLE_HOLDERS_MOST);
  each_sample(add_to_holder);
  for (size_t i = 0; i < holders.count; i++) {
    struct holder_row *row = &holders.rows[i];
    row->live_samples = holders.sums[i].samples;
    row->live_blocks = whole(holders.sums[i].blocks);
    row->live_bytes = whole(holders.sums[i].bytes);
    row->error_bytes = error_of(holders.sums[i].squares);
  }
  size_t count = holders.count;
  lock_release(&profile_reading);
  return count;
}

/* ---- the C face -------------------------------------------------------------------------------------------------- */

_Static_assert(sizeof(tslab_profile_site) % 128 == 0 && TSLAB_STACK == STACK_MOST, "a fixed multiple, and all of it");

/* Caller holds profile_lock. */
static void fill_visited(tslab_profile_site *row, uint32_t index) {
  const struct profile_site *site = profile_site_at(index);
  const struct sums *sums = &sums_of_sites[index].live;
  *row = (tslab_profile_site){
      .allocated_samples = site->allocated_samples,
      .allocated_blocks = whole(site->allocated_blocks),
      .allocated_bytes = whole(site->allocated_bytes),
      .allocated_error_bytes = error_of(site->allocated_squares),
      .live_samples = sums->samples,
      .live_blocks = whole(sums->blocks),
      .live_bytes = whole(sums->bytes),
      .error_bytes = error_of(sums->squares),
      .depth = site->depth,
  };
  for (uint32_t i = 0; i < site->depth; i++) row->stack[i] = profile_frames(site)[i];
}

/* Returns the bytes of rows for all sites, in pages. These become resident as rows are written. */
static size_t rows_bytes(void) { return round_up(PROFILE_SITES * sizeof(tslab_profile_site), os_page_size); }

static size_t copy_sites(tslab_profile_site *rows) {
  size_t count = 0;
  lock_take(&profile_reading);
  sum_sites();
  uint32_t sites = sites_now();
  for (uint32_t i = 1; i <= sites; i++) {
    lock_take(&profile_lock);
    if (profile_site_at(i)->allocated_samples) fill_visited(&rows[count++], i);
    lock_release(&profile_lock);
  }
  lock_release(&profile_reading);
  return count;
}

int tslab_profile_each(int (*visit)(const tslab_profile_site *, void *), void *arg) {
  if (!visit) return EINVAL;
  if (!profile_is_on()) return ENODATA;
  size_t bytes = rows_bytes();
  tslab_profile_site *rows = os_reserve(NULL, bytes);
  if (!rows) return ENOMEM;
  int result = os_commit(rows, bytes) ? 0 : ENOMEM;
  size_t count = result ? 0 : copy_sites(rows);
  for (size_t i = 0; i < count && result == 0; i++) result = visit(&rows[i], arg);
  os_unreserve(rows, bytes);
  return result;
}

#else

int tslab_profile_each(int (*visit)(const tslab_profile_site *, void *), void *arg) {
  (void)arg;
  return visit ? ENODATA : EINVAL;
}

size_t profile_collect(void *rows, size_t most) { return (void)rows, (void)most, 0; }
size_t profile_collect_sites(void *rows, size_t most) { return (void)rows, (void)most, 0; }
size_t profile_collect_holders(void *rows, size_t most) { return (void)rows, (void)most, 0; }

#endif
