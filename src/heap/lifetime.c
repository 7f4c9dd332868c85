/* lifetime: see lifetime.h.                                                                          floor: heap */
#include "heap/lifetime.h"

#include "heap/sample.h"
#include "os/os.h"

/* ---- slots ------------------------------------------------------------------------------------------------------- */

char *_Atomic lifetime_segments[LIFETIME_SEGMENTS];
_Atomic uint32_t lifetimes_so_far;

static size_t slots_in(unsigned segment) { return (size_t)1 << (LIFETIME_FIRST_LOG + segment); }

struct lifetime *lifetime_make(void) {
  uint32_t index = lifetimes_made() + 1;
  unsigned segment = log2_floor(index - 1 + slots_in(0)) - LIFETIME_FIRST_LOG;
  if (segment >= LIFETIME_SEGMENTS) return NULL;
  if (!atomic_load_explicit(&lifetime_segments[segment], memory_order_relaxed)) {
    char *start = pages_keep(slots_in(segment) * LIFETIME_SLOT);
    if (!start) return NULL;
    atomic_store_explicit(&lifetime_segments[segment], start, memory_order_relaxed);
  }
  struct lifetime *lifetime = lifetime_at(index);
  lifetime->index = index;
  /* Release: who sees the new number sees the segment. */
  atomic_store_explicit(&lifetimes_so_far, index, memory_order_release);
  return lifetime;
}

/* ---- runs and their cost ----------------------------------------------------------------------------------------- */

struct lone_lock lifetime_locks[LIFETIME_LOCKS];

static struct lock *lock_of(const struct lifetime *lifetime) {
  return &lifetime_locks[lifetime->index % LIFETIME_LOCKS].lock;
}

void lifetime_lock(const struct lifetime *lifetime) { tally_wait(tally_here(), lock_take(lock_of(lifetime))); }
void lifetime_unlock(const struct lifetime *lifetime) { lock_release(lock_of(lifetime)); }

bool lifetime_charge(struct lifetime *lifetime, size_t bytes) {
  for (struct lifetime *l = lifetime; l; l = l->parent) {
    size_t before = atomic_fetch_add_explicit(&l->charged, bytes, memory_order_relaxed);
    if (LIKELY(before + bytes <= l->budget)) continue;
    for (struct lifetime *undo = lifetime;; undo = undo->parent) {
      atomic_fetch_sub_explicit(&undo->charged, bytes, memory_order_relaxed);
      if (undo == l) break;
    }
    return false;
  }
  return true;
}

void lifetime_discharge(struct lifetime *lifetime, size_t bytes) {
  for (struct lifetime *l = lifetime; l; l = l->parent)
    atomic_fetch_sub_explicit(&l->charged, bytes, memory_order_relaxed);
}

static struct run *run_at(uint32_t granule) { return granule ? pages.runs + granule : NULL; }

/* Atomic for the look of whoever frees a neighbouring run: it lies where a free run's `back` does. */
static void set_previous(struct run *run, uint32_t granule) {
  __atomic_store_n(&run->previous_of_epoch, granule, __ATOMIC_RELAXED);
}

void lifetime_add(struct lifetime *lifetime, struct run *run) {
  lifetime_lock(lifetime);
  set_previous(run, 0);
  run->next_of_epoch = lifetime->first;
  if (lifetime->first) set_previous(run_at(lifetime->first), (uint32_t)run_index(run));
  lifetime->first = (uint32_t)run_index(run);
  atomic_fetch_add_explicit(&lifetime->own, run_bytes(run), memory_order_relaxed);
  lifetime_unlock(lifetime);
}

void lifetime_unlist(struct lifetime *lifetime, struct run *run) {
  lifetime_lock(lifetime);
  for (struct lifetime_walk *walk = lifetime->walks; UNLIKELY(walk != NULL); walk = walk->other)
    if (walk->next == run_index(run)) walk->next = run->next_of_epoch;
  if (run->previous_of_epoch) run_at(run->previous_of_epoch)->next_of_epoch = run->next_of_epoch;
  else lifetime->first = run->next_of_epoch;
  if (run->next_of_epoch) set_previous(run_at(run->next_of_epoch), run->previous_of_epoch);
  set_previous(run, 0);
  run->next_of_epoch = 0;
  lifetime_unlock(lifetime);
}

void lifetime_settle(struct lifetime *lifetime, size_t collected) {
  lifetime_discharge(lifetime, collected);
  /* Last, because a lifetime that owns nothing may end. Pairs with the load by who ends it, and is seq_cst for
   * epoch/ending.h. */
  atomic_fetch_sub_explicit(&lifetime->own, collected, memory_order_seq_cst);
}

static void count_returning(struct lifetime *lifetime, const struct returning *returning) {
  atomic_fetch_add_explicit(&lifetime->recycled, returning->recycled, memory_order_relaxed);
  atomic_fetch_add_explicit(&lifetime->returned, returning->returned, memory_order_relaxed);
}

bool lifetime_release(struct lifetime *lifetime, struct run *run, bool clean) {
  if (UNLIKELY(pages_is_frozen(run))) return false;
  size_t bytes = run_bytes(run);
  bool recycled = false;
  lifetime_unlist(lifetime, run);
  enum lateness late = (enum lateness)atomic_load_explicit(&lifetime->late, memory_order_relaxed);
  if (late != LIFETIME_NOT_LATE) {
    struct returning returning = {0};
    if (late == LIFETIME_LATE) returning_add(&returning, run);
    else returning_keep(&returning, run);
    returning_flush(&returning);
    count_returning(lifetime, &returning);
    recycled = returning.recycled != 0;
  } else if (reserve_put(run)) {
    atomic_fetch_add_explicit(&lifetime->recycled, bytes, memory_order_relaxed);
    recycled = true;
  } else {
    if (!clean) atomic_fetch_add_explicit(&lifetime->spilled, bytes, memory_order_relaxed);
    pages_free(run, clean);
  }
  lifetime_settle(lifetime, bytes);
  return recycled;
}

bool lifetime_return_spilled(struct lifetime *lifetime, size_t most) {
  size_t spilled = atomic_load_explicit(&lifetime->spilled, memory_order_relaxed), wanted = min_size(spilled, most);
  if (wanted == 0) return false;
  size_t purged = pages_purge(UINT64_MAX, wanted);
  atomic_fetch_add_explicit(&lifetime->returned, purged, memory_order_relaxed);
  /* Less than wanted: others used the rest, or returned it. */
  size_t left = purged < wanted ? 0 : spilled - min_size(purged, spilled);
  atomic_store_explicit(&lifetime->spilled, left, memory_order_relaxed);
  return left != 0;
}

/* ---- prefaulting ------------------------------------------------------------------------------------------------- */

struct run *lifetime_take_ready(struct lifetime *lifetime, enum run_kind kind) {
  if (__atomic_load_n(&lifetime->ready, __ATOMIC_RELAXED) == 0) return NULL;
  lifetime_lock(lifetime);
  struct run *run = run_at(lifetime->ready);
  if (run) {
    __atomic_store_n(&lifetime->ready, run->next, __ATOMIC_RELAXED);
    pages_reuse(run, kind);
    run->epoch = lifetime->index;
  }
  lifetime_unlock(lifetime);
  return run;
}

void lifetime_drop_ready(struct lifetime *lifetime) {
  struct returning returning = {0};
  for (struct run *run; (run = lifetime_take_ready(lifetime, RUN_META)) != NULL;) {
    lifetime_discharge(lifetime, run_bytes(run));
    returning_add(&returning, run);
  }
  returning_flush(&returning);
  count_returning(lifetime, &returning);
}

/* Each run that waits knows how many wait behind it. */
size_t lifetime_ready_bytes(const struct lifetime *lifetime) {
  lifetime_lock(lifetime);
  const struct run *run = run_at(lifetime->ready);
  size_t count = run ? run->size : 0;
  lifetime_unlock(lifetime);
  return count * GRANULE;
}

/* What a filter does not let us know is taken as enough. */
static bool can_be_resident(size_t bytes) {
  size_t memory = os_physical_memory();
  return bytes <= (memory ? memory : pages_most());
}

bool lifetime_prepare(struct lifetime *lifetime, size_t bytes) {
  if (bytes == 0) return true;
  /* Said now, because to find out page by page would take all the machine's memory first. */
  if (bytes > lifetime->budget || !can_be_resident(bytes)) return false;
  for (size_t left = bytes; left > 0; left -= min_size(left, GRANULE)) {
    bool zero, charged = lifetime_charge(lifetime, GRANULE);
    struct run *run = charged ? pages_alloc(1, GRANULE, RUN_RESERVED, &zero, NULL) : NULL;
    if (!run || !pages_reach_chunk_bits(run)) {
      if (run) pages_free(run, zero);
      if (charged) lifetime_discharge(lifetime, GRANULE);
      lifetime_drop_ready(lifetime);
      return false;
    }
    os_populate(run_start(run), GRANULE);
    os_populate((void *)round_down((uintptr_t)chunk_starts(run), os_page_size), os_page_size);
    os_populate((void *)round_down((uintptr_t)chunk_freed(run), os_page_size), os_page_size);
    run->next = lifetime->ready;
    run->size = run->next ? run_at(run->next)->size + 1 : 1;
    __atomic_store_n(&lifetime->ready, (uint32_t)run_index(run), __ATOMIC_RELAXED);
  }
  return true;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

struct run *lifetime_first(const struct lifetime *lifetime) { return run_at(lifetime->first); }
struct run *lifetime_next(const struct run *run) { return run_at(run->next_of_epoch); }

struct run *lifetime_walk(struct lifetime_walk *walk, struct lifetime *lifetime) {
  lifetime_lock(lifetime);
  *walk = (struct lifetime_walk){lifetime, lifetime->walks, &current_thread, lifetime->first, 0};
  lifetime->walks = walk;
  return lifetime_walk_on(walk, 0);
}

struct run *lifetime_walk_on(struct lifetime_walk *walk, unsigned steps) {
  walk->steps += steps;
  if (UNLIKELY(walk->steps >= LIFETIME_STEPS)) {
    lock_count_steps(walk->steps);
    walk->steps = 0;
    lifetime_unlock(walk->lifetime);
    lifetime_lock(walk->lifetime);
  }
  struct run *run = run_at(walk->next);
  if (run) walk->next = run->next_of_epoch;
  else lifetime_walk_end(walk);
  return run;
}

void lifetime_walk_end(struct lifetime_walk *walk) {
  struct lifetime_walk **link = &walk->lifetime->walks;
  while (*link != walk) link = &(*link)->other;
  *link = walk->other;
  lock_count_steps(walk->steps);
  lifetime_unlock(walk->lifetime);
}

/* In a fork child: walks of threads that it does not have. */
static void forget_walks(struct lifetime *lifetime) {
  for (struct lifetime_walk **link = &lifetime->walks; UNLIKELY(*link != NULL);) {
    if ((*link)->thread == &current_thread) link = &(*link)->other;
    else *link = (*link)->other;
  }
}

static size_t listed_bytes(const struct lifetime *lifetime) {
  size_t bytes = 0;
  for (const struct run *run = lifetime_first(lifetime); run; run = lifetime_next(run)) bytes += run_bytes(run);
  return bytes;
}

/* Most slots are idle: what is not written is not copied for the child. */
static void set_if_other(_Atomic size_t *counter, size_t value) {
  if (atomic_load_explicit(counter, memory_order_relaxed) != value)
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

void lifetimes_after_fork(void) {
  uint32_t made = lifetimes_made();
  for (uint32_t i = 1; i <= made; i++) set_if_other(&lifetime_at(i)->charged, 0);
  for (uint32_t i = 1; i <= made; i++) {
    struct lifetime *lifetime = lifetime_at(i);
    forget_walks(lifetime);
    size_t own = listed_bytes(lifetime), charged = own + lifetime_ready_bytes(lifetime);
    set_if_other(&lifetime->own, own);
    for (struct lifetime *l = lifetime; l && charged; l = l->parent)
      atomic_fetch_add_explicit(&l->charged, charged, memory_order_relaxed);
  }
}

void lifetimes_lock_totals(struct lock_totals *to) {
  for (unsigned i = 0; i < LIFETIME_LOCKS; i++) lock_totals_add(to, &lifetime_locks[i].lock);
}
