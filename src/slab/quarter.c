/* quarter: see quarter.h.                                                                           floor: slab */
#include "slab/quarter.h"

#include "base/options.h"
#include "os/os.h"

#define ALL ((1u << QUARTERS) - 1)

struct lock quarter_lock;

static uint32_t newest; /* split granules with a free quarter, through next and previous */

static struct run *run_at(uint32_t granule) { return granule ? pages.runs + granule : NULL; }

static void link_newest(struct run *split) {
  split->previous = 0;
  split->next = newest;
  if (newest) run_at(newest)->previous = (uint32_t)run_index(split);
  newest = (uint32_t)run_index(split);
}

static void unlink_run(struct run *split) {
  if (split->previous) run_at(split->previous)->next = split->next;
  else newest = split->next;
  if (split->next) run_at(split->next)->previous = split->previous;
  split->next = split->previous = 0;
}

bool quarters_are_allowed(void) { return os_page_size <= QUARTER && options.on_destroy != DESTROY_TRAPS; }

/* Sets a quarter's descriptor as pages_alloc sets a run's. This needs no lock: other threads may read `back` of a
 * neighbouring run, never of a quarter. */
static struct run *begin(struct run *quarter) {
  uint8_t was = quarter->was;
  *quarter = (struct run){.kind = RUN_RESERVED, .was = was};
  return quarter;
}

struct run *quarter_split(struct run *run) {
  if (!pages_reach_quarters(run)) return NULL;
  for (unsigned i = 0; i < QUARTERS; i++) begin(quarter_at(run_index(run), i));
  pages_reuse(run, RUN_SPLIT);
  run->epoch = SPLIT_EPOCH;
  run->class = ALL;
  return quarter_at(run_index(run), 0);
}

struct run *quarter_take(void) {
  struct run *quarter = NULL;
  lock_take(&quarter_lock);
  struct run *split = run_at(newest);
  if (split) {
    unsigned number = lowest_bit(split->threshold);
    split->threshold = (uint16_t)(split->threshold & ~(1u << number));
    split->class = (uint8_t)(split->class | 1u << number);
    if (split->threshold == 0) unlink_run(split);
    quarter = begin(quarter_at(run_index(split), number));
  }
  lock_release(&quarter_lock);
  return quarter;
}

void quarters_give(size_t granule, unsigned quarters, unsigned dirty) {
  struct run *split = pages.runs + granule;
  if (UNLIKELY(pages_is_frozen(split))) return;
  lock_take(&quarter_lock);
  for (unsigned left = quarters; left; left &= left - 1)
    STORE_RACING(quarter_at(granule, lowest_bit(left))->kind, RUN_FREE);
  unsigned before = split->threshold;
  INVARIANT(0, split->kind == RUN_SPLIT && (before & quarters) == 0);
  split->threshold = (uint16_t)(before | quarters);
  split->class = (uint8_t)((split->class & ~quarters) | dirty);
  bool whole = split->threshold == ALL;
  if (whole && before) unlink_run(split);
  else if (!whole && !before) link_newest(split);
  lock_release(&quarter_lock);
  if (!whole) return;
  bool clean = split->class == 0;
  pages_reuse(split, RUN_BUSY);
  split->was = CHUNK_WAS;
  pages_free(split, clean);
}

void quarters_freeze(void) { newest = 0; }

void quarters_check(void) {
  lock_take(&quarter_lock);
  uint32_t before = 0;
  for (const struct run *split = run_at(newest); split; split = run_at(split->next)) {
    INVARIANT(0, split->kind == RUN_SPLIT && split->threshold != 0 && split->threshold < ALL);
    INVARIANT(0, split->previous == before);
    before = (uint32_t)run_index(split);
    for (unsigned left = split->threshold; left; left &= left - 1)
      INVARIANT(0, quarter_at(run_index(split), lowest_bit(left))->kind == RUN_FREE);
  }
  lock_release(&quarter_lock);
}
