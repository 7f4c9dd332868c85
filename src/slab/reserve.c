/* reserve: see reserve.h.                                                                            floor: slab */
#include "slab/reserve.h"

#include "base/options.h"
#include "os/os.h"

#define AGE 4 /* ticks of the scavenger: a second */

struct lock reserve_lock;

static struct {
  uint32_t newest, oldest; /* runs, by granule, through next and previous */
  size_t count;
  uint64_t tick;
} own;
static _Atomic int lent;

static struct run *run_at(uint32_t granule) { return pages.runs + granule; }

static void unlink_run(struct run *run) {
  if (run->previous) run_at(run->previous)->next = run->next;
  else own.newest = run->next;
  if (run->next) run_at(run->next)->previous = run->previous;
  else own.oldest = run->previous;
  run->next = run->previous = 0;
  __atomic_store_n(&own.count, own.count - 1, __ATOMIC_RELAXED);
}

static void link_newest(struct run *run) {
  uint32_t g = (uint32_t)run_index(run);
  run->previous = 0;
  run->next = own.newest;
  if (own.newest) run_at(own.newest)->previous = g;
  else own.oldest = g;
  own.newest = g;
  __atomic_store_n(&own.count, own.count + 1, __ATOMIC_RELAXED);
}

struct run *reserve_take(enum run_kind kind) {
  lock_take(&reserve_lock);
  struct run *run = own.newest ? run_at(own.newest) : NULL;
  if (run) {
    unlink_run(run);
    pages_reuse(run, kind);
  }
  lock_release(&reserve_lock);
  return run;
}

bool reserve_put(struct run *run) {
  if (run->granules != 1) return false;
  lock_take(&reserve_lock);
  size_t lent_now = (size_t)atomic_load_explicit(&lent, memory_order_relaxed);
  bool room = (own.count + lent_now + 1) * GRANULE <= options.reserve_bytes;
  if (room) {
    pages_reuse(run, RUN_RESERVED);
    run->seen = own.tick;
    link_newest(run);
  }
  lock_release(&reserve_lock);
  return room;
}

void reserve_freeze(void) {
  own.newest = own.oldest = 0;
  own.count = 0;
  atomic_store_explicit(&lent, 0, memory_order_relaxed);
}

void reserve_lend(int granules) { atomic_fetch_add_explicit(&lent, granules, memory_order_relaxed); }

static struct run *take_older_than(uint64_t tick) {
  lock_take(&reserve_lock);
  struct run *run = own.oldest && run_at(own.oldest)->seen < tick ? run_at(own.oldest) : NULL;
  if (run) {
    unlink_run(run);
    pages_reuse(run, RUN_META); /* in use, for everyone else */
  }
  lock_release(&reserve_lock);
  return run;
}

static size_t return_older_than(uint64_t tick) {
  struct returning r = {0};
  for (struct run *run; (run = take_older_than(tick)) != NULL;) returning_keep(&r, run);
  returning_flush(&r);
  return r.returned;
}

static bool is_over(void) {
  lock_take(&reserve_lock);
  size_t held = own.count + (size_t)atomic_load_explicit(&lent, memory_order_relaxed);
  lock_release(&reserve_lock);
  return held * GRANULE > options.reserve_bytes;
}

bool reserve_lend_within(int granules) {
  lock_take(&reserve_lock);
  int wanted = atomic_load_explicit(&lent, memory_order_relaxed) + granules;
  bool room = (size_t)wanted * GRANULE <= options.reserve_bytes;
  if (room) reserve_lend(granules);
  lock_release(&reserve_lock);
  struct returning r = {0};
  for (struct run *run; room && is_over() && (run = take_older_than(UINT64_MAX)) != NULL;) returning_keep(&r, run);
  returning_flush(&r);
  return room;
}

size_t reserve_trim(uint64_t tick) {
  lock_take(&reserve_lock);
  own.tick = tick;
  lock_release(&reserve_lock);
  return tick > AGE ? return_older_than(tick - AGE) : 0;
}

size_t reserve_empty(void) { return return_older_than(UINT64_MAX); }

size_t reserve_bytes(void) {
  int held = (int)LOAD_RACING(own.count) + atomic_load_explicit(&lent, memory_order_relaxed);
  return (size_t)(held > 0 ? held : 0) * GRANULE;
}

/* ---- giving back ---------------------------------------------------------------------------------------------- */

#define PIECE ((16 * MiB) >> GRANULE_SHIFT) /* one system call's: what close_step may have to wait for is less */

void returning_flush(struct returning *r) {
  if (!r->first) return;
  if (r->granules != r->first->granules) pages_join(r->first, r->granules);
  size_t bytes = run_bytes(r->first);
  bool done = os_purge(run_start(r->first), bytes);
  pages_count_purge(bytes, done);
  pages_free(r->first, done);
  if (done) r->returned += bytes;
  r->first = NULL;
  r->granules = 0;
}

void returning_keep(struct returning *r, struct run *run) {
  bool joins = r->first && r->granules + run->granules <= PIECE && !run->moved && !r->first->moved;
  if (joins && r->first + r->granules == run) {
    r->granules += run->granules;
  } else if (joins && run + run->granules == r->first) {
    r->first = run;
    r->granules += run->granules;
  } else {
    returning_flush(r);
    r->first = run;
    r->granules = run->granules;
  }
}

void returning_add(struct returning *r, struct run *run) {
  size_t bytes = run_bytes(run);
  if (reserve_put(run)) r->recycled += bytes;
  else returning_keep(r, run);
}
