/* arena: see arena.h.                                                                               floor: heap */
#include "heap/arena.h"

#include "heap/heap.h"
#include "os/os.h"

/* ---- slots ------------------------------------------------------------------------------------------------------- */

char *_Atomic arena_segments[ARENA_SEGMENTS];
_Atomic uint32_t arenas_so_far;

static size_t slots_in(unsigned segment) { return (size_t)1 << (ARENA_FIRST_LOG + segment); }

struct arena *arena_make(void) {
  uint32_t index = arenas_made() + 1;
  unsigned segment = log2_floor(index - 1 + slots_in(0)) - ARENA_FIRST_LOG;
  if (segment >= ARENA_SEGMENTS) return NULL;
  if (!atomic_load_explicit(&arena_segments[segment], memory_order_relaxed)) {
    char *start = pages_keep(slots_in(segment) * ARENA_SLOT);
    if (!start) return NULL;
    atomic_store_explicit(&arena_segments[segment], start, memory_order_relaxed);
  }
  struct arena *arena = arena_at(index);
  arena->index = index;
  /* Release: a thread that sees the new number sees the segment. */
  atomic_store_explicit(&arenas_so_far, index, memory_order_release);
  return arena;
}

/* ---- runs and their cost ----------------------------------------------------------------------------------------- */

struct lone_lock arena_locks[ARENA_LOCKS];

static struct lock *lock_of(const struct arena *arena) {
  return &arena_locks[arena->index % ARENA_LOCKS].lock;
}

void arena_lock(const struct arena *arena) { counters_wait(counters_here(), lock_take(lock_of(arena))); }
void arena_unlock(const struct arena *arena) { lock_release(lock_of(arena)); }

bool arena_charge(struct arena *arena, size_t bytes) {
  for (struct arena *l = arena; l; l = l->parent) {
    size_t before = atomic_fetch_add_explicit(&l->charged, bytes, memory_order_relaxed);
    if (LIKELY(before + bytes <= l->budget)) continue;
    for (struct arena *undo = arena;; undo = undo->parent) {
      atomic_fetch_sub_explicit(&undo->charged, bytes, memory_order_relaxed);
      if (undo == l) break;
    }
    return false;
  }
  return true;
}

/* Subtracts, down to 0 at most: this may be a fork child whose thread was in the middle of a release, or of a charge,
 * and arenas_after_fork has set the sum since. */
static void subtract(_Atomic size_t *sum, size_t bytes) {
  size_t before = atomic_fetch_sub_explicit(sum, bytes, memory_order_seq_cst);
  if (UNLIKELY(before < bytes)) atomic_fetch_add_explicit(sum, bytes - before, memory_order_relaxed);
}

void arena_discharge(struct arena *arena, size_t bytes) {
  for (struct arena *l = arena; l; l = l->parent) subtract(&l->charged, bytes);
}

static struct run *run_at(uint32_t granule) { return granule ? pages.runs + granule : NULL; }

/* Atomic, because a thread that frees a neighbouring run reads this word as a free run's `back`. */
static void set_previous(struct run *run, uint32_t granule) {
  __atomic_store_n(&run->previous_of_epoch, granule, __ATOMIC_RELAXED);
}

void arena_add(struct arena *arena, struct run *run) {
  arena_lock(arena);
  set_previous(run, 0);
  run->next_of_epoch = arena->first;
  if (arena->first) set_previous(run_at(arena->first), (uint32_t)run_index(run));
  arena->first = (uint32_t)run_index(run);
  atomic_fetch_add_explicit(&arena->own, run_bytes(run), memory_order_relaxed);
  arena_unlock(arena);
}

void arena_unlist(struct arena *arena, struct run *run) {
  arena_lock(arena);
  for (struct arena_walk *walk = arena->walks; UNLIKELY(walk != NULL); walk = walk->other)
    if (walk->next == run_index(run)) walk->next = run->next_of_epoch;
  if (run->previous_of_epoch) run_at(run->previous_of_epoch)->next_of_epoch = run->next_of_epoch;
  else arena->first = run->next_of_epoch;
  if (run->next_of_epoch) set_previous(run_at(run->next_of_epoch), run->previous_of_epoch);
  set_previous(run, 0);
  run->next_of_epoch = 0;
  arena_unlock(arena);
}

void arena_finish_release(struct arena *arena, size_t collected) {
  arena_discharge(arena, collected);
  /* Last, because an arena that owns nothing may end. Pairs with the load of the thread that ends it; seq_cst for
   * epoch_after_free. */
  subtract(&arena->own, collected);
}

static void count_returning(struct arena *arena, const struct returning *returning) {
  atomic_fetch_add_explicit(&arena->recycled, returning->recycled, memory_order_relaxed);
  atomic_fetch_add_explicit(&arena->returned, returning->returned, memory_order_relaxed);
}

void arena_return(struct arena *arena, struct run *run) {
  struct returning returning = {0};
  returning_keep(&returning, run);
  returning_flush(&returning);
  count_returning(arena, &returning);
}

bool arena_release(struct arena *arena, struct run *run, bool clean) {
  if (UNLIKELY(pages_is_frozen(run))) return false;
  size_t bytes = run_bytes(run);
  bool recycled = false;
  arena_unlist(arena, run);
  enum release_target late = (enum release_target)atomic_load_explicit(&arena->release_target, memory_order_relaxed);
  if (late != RELEASE_TO_COMMON_USE) {
    struct returning returning = {0};
    if (late == RELEASE_TO_KERNEL) returning_add(&returning, run);
    else returning_keep(&returning, run);
    returning_flush(&returning);
    count_returning(arena, &returning);
    recycled = returning.recycled != 0;
  } else if (reserve_put(run)) {
    atomic_fetch_add_explicit(&arena->recycled, bytes, memory_order_relaxed);
    recycled = true;
  } else {
    if (!clean) atomic_fetch_add_explicit(&arena->spilled, bytes, memory_order_relaxed);
    pages_free(run, clean);
  }
  arena_finish_release(arena, bytes);
  return recycled;
}

bool arena_return_spilled(struct arena *arena, size_t most) {
  size_t spilled = atomic_load_explicit(&arena->spilled, memory_order_relaxed), wanted = min_size(spilled, most);
  if (wanted == 0) return false;
  size_t purged = pages_purge(UINT64_MAX, wanted);
  atomic_fetch_add_explicit(&arena->returned, purged, memory_order_relaxed);
  /* If it purged less, other threads have used or returned the rest. */
  size_t left = purged < wanted ? 0 : spilled - min_size(purged, spilled);
  atomic_store_explicit(&arena->spilled, left, memory_order_relaxed);
  return left != 0;
}

/* ---- prefaulting ------------------------------------------------------------------------------------------------- */

struct run *arena_take_ready(struct arena *arena, enum run_kind kind) {
  if (__atomic_load_n(&arena->ready, __ATOMIC_RELAXED) == 0) return NULL;
  arena_lock(arena);
  struct run *run = run_at(arena->ready);
  if (run) {
    __atomic_store_n(&arena->ready, run->next, __ATOMIC_RELAXED);
    pages_reuse(run, kind);
    run->epoch = arena->index;
  }
  arena_unlock(arena);
  return run;
}

void arena_drop_ready(struct arena *arena) {
  struct returning returning = {0};
  for (struct run *run; (run = arena_take_ready(arena, RUN_BUSY)) != NULL;) {
    arena_discharge(arena, run_bytes(run));
    returning_add(&returning, run);
  }
  returning_flush(&returning);
  count_returning(arena, &returning);
}

/* The size of each ready run is how many are ready from it on. */
size_t arena_ready_bytes(const struct arena *arena) {
  arena_lock(arena);
  const struct run *run = run_at(arena->ready);
  size_t count = run ? run->size : 0;
  arena_unlock(arena);
  return count * GRANULE;
}

static bool can_be_resident(size_t bytes) { return bytes <= pages_memory(); }

bool arena_prepare(struct arena *arena, size_t bytes) {
  if (bytes == 0) return true;
  /* Checked first, because page by page this would take all the machine's memory before it failed. */
  if (bytes > arena->budget || !can_be_resident(bytes)) return false;
  for (size_t left = bytes; left > 0; left -= min_size(left, GRANULE)) {
    bool zero, charged = arena_charge(arena, GRANULE);
    struct run *run = charged ? pages_alloc(1, GRANULE, RUN_RESERVED, &zero, NULL) : NULL;
    if (!run || !pages_reach_chunk_bits(run)) {
      if (run) pages_free(run, zero);
      if (charged) arena_discharge(arena, GRANULE);
      arena_drop_ready(arena);
      return false;
    }
    os_populate(run_start(run), GRANULE);
    os_populate((void *)round_down((uintptr_t)chunk_starts(run), os_page_size), os_page_size);
    os_populate((void *)round_down((uintptr_t)chunk_freed(run), os_page_size), os_page_size);
    run->next = arena->ready;
    run->size = run->next ? run_at(run->next)->size + 1 : 1;
    __atomic_store_n(&arena->ready, (uint32_t)run_index(run), __ATOMIC_RELAXED);
  }
  return true;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

struct run *arena_first(const struct arena *arena) { return run_at(arena->first); }
struct run *arena_next(const struct run *run) { return run_at(run->next_of_epoch); }

/* Moves the walk on by one run. Returns NULL at the end. Caller holds the lock. */
static struct run *step(struct arena_walk *walk) {
  struct run *run = run_at(walk->next);
  if (run) walk->next = run->next_of_epoch;
  return run;
}

struct run *arena_walk(struct arena_walk *walk, struct arena *arena) {
  arena_lock(arena);
  if (arena->first == 0) {
    arena_unlock(arena);
    return NULL;
  }
  *walk = (struct arena_walk){arena, arena->walks, &current_thread, arena->first, 0};
  arena->walks = walk;
  return step(walk);
}

struct run *arena_walk_on(struct arena_walk *walk, unsigned steps) {
  walk->steps += steps;
  if (UNLIKELY(walk->steps >= ARENA_STEPS)) {
    lock_count_steps(walk->steps);
    walk->steps = 0;
    arena_unlock(walk->arena);
    arena_lock(walk->arena);
  }
  struct run *run = step(walk);
  if (!run) arena_walk_end(walk);
  return run;
}

void arena_walk_end(struct arena_walk *walk) {
  struct arena_walk **link = &walk->arena->walks;
  while (*link != walk) link = &(*link)->other;
  *link = walk->other;
  lock_count_steps(walk->steps);
  arena_unlock(walk->arena);
}

/* For a fork child: drops the walks of threads that do not exist there. */
static void forget_walks(struct arena *arena) {
  for (struct arena_walk **link = &arena->walks; UNLIKELY(*link != NULL);) {
    if ((*link)->thread == &current_thread) link = &(*link)->other;
    else *link = (*link)->other;
  }
}

static size_t listed_bytes(const struct arena *arena) {
  size_t bytes = 0;
  for (const struct run *run = arena_first(arena); run; run = arena_next(run)) bytes += run_bytes(run);
  return bytes;
}

/* Writes only on a change, because most slots are idle and a write would copy the slot's page. */
static void set_if_other(_Atomic size_t *counter, size_t value) {
  if (atomic_load_explicit(counter, memory_order_relaxed) != value)
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

void arenas_after_fork(void) {
  uint32_t made = arenas_made();
  for (uint32_t i = 1; i <= made; i++) set_if_other(&arena_at(i)->charged, 0);
  for (uint32_t i = 1; i <= made; i++) {
    struct arena *arena = arena_at(i);
    forget_walks(arena);
    size_t own = listed_bytes(arena), charged = own + arena_ready_bytes(arena);
    set_if_other(&arena->own, own);
    for (struct arena *l = arena; l && charged; l = l->parent)
      atomic_fetch_add_explicit(&l->charged, charged, memory_order_relaxed);
  }
}

void arenas_lock_totals(struct lock_totals *to) {
  for (unsigned i = 0; i < ARENA_LOCKS; i++) lock_totals_add(to, &arena_locks[i].lock);
}
