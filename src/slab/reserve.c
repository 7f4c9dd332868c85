/* reserve: see reserve.h.                                                                           floor: slab */
#include "slab/reserve.h"

#include "base/options.h"
#include "os/os.h"
#include "slab/quarter.h"
#include "slab/wipe.h"

#define AGE 4 /* ticks of the scavenger: a second */

struct lock reserve_lock;

static struct {
  uint32_t newest, oldest; /* runs, by granule, through next and previous */
  size_t count;
  size_t claims, claimants; /* granules that threads claim, and how many of them claim any */
  size_t within;            /* the part of the claims that is within reserve_most() for each thread */
  size_t held;              /* count + claims, in one word, for readers without the lock */
  uint64_t tick;
} state;

static struct run *run_at(uint32_t granule) { return pages.runs + granule; }

static void unlink_run(struct run *run) {
  if (run->previous) run_at(run->previous)->next = run->next;
  else state.newest = run->next;
  if (run->next) run_at(run->next)->previous = run->previous;
  else state.oldest = run->previous;
  run->next = run->previous = 0;
  state.count--;
}

static void link_newest(struct run *run) {
  uint32_t g = (uint32_t)run_index(run);
  run->previous = 0;
  run->next = state.newest;
  if (state.newest) run_at(state.newest)->previous = g;
  else state.oldest = g;
  state.newest = g;
  state.count++;
}

/* Called at the end of each change, so a reader without the lock sees the state before or after it, never one in
 * between. */
static void show_held(void) { __atomic_store_n(&state.held, state.count + state.claims, __ATOMIC_RELAXED); }

size_t reserve_most(void) { return options.reserve_bytes / GRANULE; }

/* Returns how many granules the list may hold. */
static size_t limit(void) {
  size_t most = reserve_most(), in_all = most * max_size(state.claimants, 1);
  return min_size(most, in_all - min_size(state.within, in_all));
}

struct run *reserve_take(enum run_kind kind) {
  lock_take(&reserve_lock);
  struct run *run = state.newest ? run_at(state.newest) : NULL;
  if (run) {
    unlink_run(run);
    pages_reuse(run, kind);
  }
  show_held();
  lock_release(&reserve_lock);
  return run;
}

bool reserve_has_room(void) {
  lock_take(&reserve_lock);
  bool room = state.count < limit();
  lock_release(&reserve_lock);
  return room;
}

bool reserve_put(struct run *run) {
  if (run->granules != 1) return false;
  lock_take(&reserve_lock);
  bool room = state.count < limit();
  if (room) {
    pages_reuse(run, RUN_RESERVED);
    run->seen = state.tick;
    link_newest(run);
    pages_note_freed(GRANULE);
  }
  show_held();
  lock_release(&reserve_lock);
  return room;
}

void reserve_freeze(void) {
  state.newest = state.oldest = 0;
  quarters_freeze();
  state.count = state.claims = state.within = state.claimants = 0;
  __atomic_store_n(&state.held, 0, __ATOMIC_RELAXED);
}

static struct run *unlink_oldest(void) {
  struct run *run = run_at(state.oldest);
  unlink_run(run);
  pages_reuse(run, RUN_BUSY);
  return run;
}

struct run *reserve_claim(size_t before, size_t now) {
  struct run *excess = NULL;
  lock_take(&reserve_lock);
  state.claims += now - before;
  state.within += min_size(now, reserve_most()) - min_size(before, reserve_most());
  state.claimants = state.claimants + (now != 0) - (before != 0);
  while (state.count > limit()) {
    struct run *run = unlink_oldest();
    run->next = excess ? (uint32_t)run_index(excess) : 0;
    excess = run;
  }
  show_held();
  lock_release(&reserve_lock);
  return excess;
}

static struct run *take_older_than(uint64_t tick) {
  lock_take(&reserve_lock);
  struct run *run = state.oldest && run_at(state.oldest)->seen < tick ? unlink_oldest() : NULL;
  show_held();
  lock_release(&reserve_lock);
  return run;
}

/* Runs that this has taken and not yet returned do not count as reserve, and other threads may fill the list meanwhile.
 * So it returns a few runs at a time. */
#define RETURNED_AT_ONCE 16

static size_t return_older_than(uint64_t tick) {
  struct returning r = {0};
  unsigned taken = 0;
  for (struct run *run; (run = take_older_than(tick)) != NULL;) {
    returning_keep(&r, run);
    if (++taken % RETURNED_AT_ONCE == 0) returning_flush(&r);
  }
  returning_flush(&r);
  return r.returned;
}

size_t reserve_trim(uint64_t tick) {
  lock_take(&reserve_lock);
  state.tick = tick;
  show_held();
  lock_release(&reserve_lock);
  return tick > AGE ? return_older_than(tick - AGE) : 0;
}

size_t reserve_empty(void) { return return_older_than(UINT64_MAX); }

size_t reserve_bytes(void) { return __atomic_load_n(&state.held, __ATOMIC_RELAXED) * GRANULE; }

size_t reserve_ready_bytes(void) {
  lock_take(&reserve_lock);
  size_t count = state.count;
  show_held();
  lock_release(&reserve_lock);
  return count * GRANULE;
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

#define PIECE ((16 * MiB) >> GRANULE_SHIFT) /* the most for one system call, which close_step may have to wait for */

static void flush_quarters(struct returning *r) {
  char *start = pages.base + (r->split << GRANULE_SHIFT);
  unsigned dirty = 0;
  for (unsigned left = r->quarters; left;) {
    unsigned from = lowest_bit(left), length = lowest_bit(~(left >> from)), piece = ((1u << length) - 1) << from;
    bool done = os_purge(start + from * QUARTER, length * QUARTER);
    pages_count_purge(length * QUARTER, done);
    if (done) r->returned += length * QUARTER;
    else dirty |= piece;
    left &= ~piece;
  }
  quarters_give(r->split, r->quarters, dirty);
  r->quarters = 0;
}

static void keep_quarter(struct returning *r, const struct run *quarter) {
  size_t granule = quarter_granule(quarter);
  if (r->quarters && r->split != granule) flush_quarters(r);
  r->split = granule;
  r->quarters |= 1u << quarter_number(quarter);
}

static void flush_run(struct returning *r) {
  if (!r->first) return;
  if (r->granules != r->first->granules) pages_join(r->first, r->granules);
  size_t bytes = run_bytes(r->first);
  bool done = os_purge(run_start(r->first), bytes);
  pages_count_purge(bytes, done);
  if (UNLIKELY(!done)) wipe_granules(r->first, r->first->granules);
  pages_free(r->first, done);
  if (done) r->returned += bytes;
  r->first = NULL;
  r->granules = 0;
}

void returning_flush(struct returning *r) {
  flush_run(r);
  if (r->quarters) flush_quarters(r);
}

void returning_keep(struct returning *r, struct run *run) {
  if (run_is_quarter(run)) {
    keep_quarter(r, run);
    return;
  }
  bool joins = r->first && r->granules + run->granules <= PIECE && !run->moved && !r->first->moved;
  if (joins && r->first + r->granules == run) {
    r->granules += run->granules;
  } else if (joins && run + run->granules == r->first) {
    r->first = run;
    r->granules += run->granules;
  } else {
    flush_run(r);
    r->first = run;
    r->granules = run->granules;
  }
}

void returning_add(struct returning *r, struct run *run) {
  size_t bytes = run_bytes(run);
  if (reserve_put(run)) r->recycled += bytes;
  else returning_keep(r, run);
}

void returning_keep_all(struct returning *r, struct run *first) {
  for (struct run *run = first, *next; run; run = next) {
    next = run->next ? run_at(run->next) : NULL;
    run->next = 0;
    returning_keep(r, run);
  }
}
