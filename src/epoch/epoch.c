/* epoch: see epoch.h.                                                                                floor: epoch */
#include "epoch/epoch.h"

#include "base/probe.h"
#include "heap/label.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>

struct lone_lock epoch_locks[EPOCH_LOCKS], epoch_gates[EPOCH_GATES];
struct lock slots_lock;

static struct {
  uint32_t free; /* slots, through next_free */
} state;

/* ---- owners ------------------------------------------------------------------------------------------------------ */

enum { NOT_OWNED, OWNED, AWAITED };

/* Sleeps until the owner is done. */
static void await_owner(const struct epoch *e) {
  _Atomic uint32_t *owned = &epoch_at(e->arena.index)->arena.owned;
  uint32_t seen = OWNED;
  atomic_compare_exchange_strong_explicit(owned, &seen, AWAITED, memory_order_relaxed, memory_order_relaxed);
  if (seen != NOT_OWNED) os_wait(owned, AWAITED, LOCK_PATIENCE_MS);
}

void epoch_lock_unowned(const struct epoch *e) {
  for (;;) {
    await_owner(e);
    lock_take(epoch_lock_of(e));
    if (!epoch_is_owned(e)) return;
    lock_release(epoch_lock_of(e));
  }
}

#define LITTLE (2 * GRANULE) /* the most memory that a thread gives up or reads under the lock */

/* Caller holds the lock. */
static bool holds_little(const struct epoch *e) {
  const struct heap *heap = e->heaps;
  return atomic_load_explicit(&e->arena.own, memory_order_relaxed) <= LITTLE &&
         LOAD_RACING(e->arena.ready) == 0 &&
         atomic_load_explicit(&e->arena.spilled, memory_order_relaxed) <= LITTLE &&
         atomic_load_explicit(&e->handles, memory_order_relaxed) == 0 &&
         (!heap || (!heap->next_of_epoch && !heap_has_slabs(heap)));
}

/* Takes a free gate, so that owners do not wait for each other while there are fewer owners than gates. */
static struct lock *take_gate(void) {
  unsigned first = (unsigned)((uintptr_t)current_thread / CACHE_LINE % EPOCH_GATES);
  for (unsigned i = 0; i < EPOCH_GATES; i++) {
    struct lock *gate = &epoch_gates[(first + i) % EPOCH_GATES].lock;
    if (lock_try(gate)) return gate;
  }
  lock_take(&epoch_gates[first].lock);
  return &epoch_gates[first].lock;
}

/* A thread that waits for the epoch's owner holds no gate meanwhile, because a fork would wait for that gate, too. */
struct lock *epoch_own(struct epoch *e) {
  for (;;) {
    struct lock *gate = take_gate();
    lock_take(epoch_lock_of(e));
    bool is_free = !epoch_is_owned(e);
    if (is_free) atomic_store_explicit(&e->arena.owned, OWNED, memory_order_relaxed);
    lock_release(epoch_lock_of(e));
    if (is_free) return gate;
    lock_release(gate);
    epoch_lock(e); /* waits for the owner */
    epoch_unlock(e);
  }
}

struct lock *epoch_take(struct epoch *e) {
  epoch_lock(e);
  if (holds_little(e)) return NULL;
  epoch_unlock(e);
  return epoch_own(e);
}

void epoch_release(struct epoch *e, struct lock *gate) {
  if (gate) {
    lock_take(epoch_lock_of(e));
    if (UNLIKELY(atomic_exchange_explicit(&e->arena.owned, NOT_OWNED, memory_order_relaxed) == AWAITED))
      os_wake(&e->arena.owned, INT_MAX);
    lock_release(gate);
  }
  epoch_unlock(e);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

struct epoch *epoch_slot_take(void) {
  lock_take(&slots_lock);
  struct epoch *e = state.free ? epoch_at(state.free) : NULL;
  if (e) state.free = e->next_free;
  else if (arenas_made() < ((uint32_t)1 << EPOCH_INDEX_BITS) - 1) e = (struct epoch *)(void *)arena_make();
  lock_release(&slots_lock);
  return e;
}

void epoch_slot_free(struct epoch *e) {
  lock_take(&slots_lock);
  e->next_free = state.free;
  state.free = e->arena.index;
  lock_release(&slots_lock);
}

/* ---- opening and ending ------------------------------------------------------------------------------------------ */

static NOINLINE void change_label(struct epoch *e, const char *label) {
  struct label *before = &labels[e->arena.label];
  uint64_t opened = e->opened_here, allocated = e->allocated_here, recycled = e->recycled_here;
  STORE_RACING(e->opened_here, 0); /* first: a reader may miss counts, but never sees them twice */
  STORE_RACING(e->allocated_here, 0);
  STORE_RACING(e->recycled_here, 0);
  e->drained = e->doubts = 0;
  STORE_RACING(e->kept_granules, 0); /* its slabs will not be kept again */
  shared_add(&before->opened, opened);
  shared_add(&before->allocations, allocated);
  shared_add(&before->recycled, recycled);
  size_t length = strnlen(label, TSLAB_EPOCH_LABEL - 1);
  memcpy(e->label, label, length);
  e->label[length] = 0;
  STORE_RACING(e->arena.label, label_row(e->label));
}
_Static_assert(TSLAB_EPOCH_LABEL == LABEL_BYTES, "a label fits into a row");

uint64_t epoch_allocations(const struct epoch *e) {
  uint64_t sum = LOAD_RACING(e->allocations) + atomic_load_explicit(&e->arena.large, memory_order_relaxed);
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) sum += tcache_handed_out(p) - p->before;
  return sum;
}

void epoch_count_bytes(struct epoch *e) {
  struct label *label = &labels[e->arena.label];
  shared_add(&label->recycled, atomic_exchange_explicit(&e->arena.recycled, 0, memory_order_relaxed));
  shared_add(&label->returned, atomic_exchange_explicit(&e->arena.returned, 0, memory_order_relaxed));
}

static void count_refusals(struct epoch *e) {
  struct label *label = &labels[e->arena.label];
  shared_add(&label->refused, atomic_exchange_explicit(&e->arena.refused, 0, memory_order_relaxed));
  shared_add(&label->diverted, atomic_exchange_explicit(&e->diverted, 0, memory_order_relaxed));
}

uint64_t epoch_begin(struct epoch *e, const char *label, uint32_t flags) {
  if (!label) label = "";
  /* Most times a slot's next epoch has the label of the one before. */
  if (UNLIKELY(strncmp(e->label, label, TSLAB_EPOCH_LABEL - 1) != 0)) change_label(e, label);
  e->arena.first_of_label = e->opened_here == 0 && atomic_load_explicit(&labels[e->arena.label].opened,
                                                                  memory_order_relaxed) == 0;
  STORE_RACING(e->flags, (uint8_t)flags); /* a late destroy may read it */
  e->era = 0;
  atomic_store_explicit(&e->scope_ended, false, memory_order_relaxed);
  STORE_RACING(e->opened_ns, os_now_coarse_ns());
  atomic_store_explicit(&e->diverted, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.bumped, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.freed, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.closing, false, memory_order_relaxed);
  atomic_store_explicit(&e->arena.release_target, RELEASE_TO_COMMON_USE, memory_order_relaxed);
  uint64_t id = epoch_id(e);
  e->arena.by_slabs = epoch_has_learned(e);
  id = ((id >> EPOCH_INDEX_BITS) + 1) << EPOCH_INDEX_BITS | e->arena.index;
  atomic_store_explicit(&e->id, id, memory_order_relaxed);
  /* Release: pairs with enter's load. A thread that sees this id sees all of the above. */
  atomic_store_explicit(&e->open_id, id, memory_order_release);
  /* After open_id: as soon as the epoch is open, any thread that finds it may close it. */
  atomic_store_explicit(&e->state, EPOCH_OPEN, memory_order_release);
  counter_add_release(&e->opened_here, 1); /* last: to a reader an epoch that is counted and not open has ended */
  PROBE2("tslab", "epoch_open", id, (uintptr_t)e->label);
  return id;
}

void epoch_end(struct epoch *e) {
  epoch_count_allocations(e, NULL, 0);
  epoch_count_bytes(e);
  count_refusals(e);
  INVARIANT(1, e->heaps == NULL && atomic_load(&e->arena.own) == 0 && e->arena.first == 0);
  atomic_store_explicit(&e->state, EPOCH_ENDED, memory_order_relaxed);
}

/* ---- fork and check ---------------------------------------------------------------------------------------------- */

/* Freezes an epoch: it never ends, because its runs are frozen. Threads can still walk over its runs, even if the fork
 * interrupted a change of the list, because each link is stored before the entry that leads to it. */
static void freeze(struct epoch *e) {
  struct arena *arena = &e->arena;
  if (epoch_state(e) == EPOCH_OPEN) atomic_store_explicit(&e->state, EPOCH_CLOSING, memory_order_relaxed);
  atomic_store_explicit(&e->open_id, 0, memory_order_relaxed);
  atomic_store_explicit(&arena->closing, true, memory_order_relaxed);
  arena->parent = NULL;
  arena->walks = NULL;
  atomic_store_explicit(&arena->owned, NOT_OWNED, memory_order_relaxed);
  arena->ready = 0;
  if (atomic_load_explicit(&arena->own, memory_order_relaxed) == 0)
    atomic_store_explicit(&arena->own, GRANULE, memory_order_relaxed);
  __atomic_store_n(&e->children, 0, __ATOMIC_RELAXED);
  e->next_sibling = e->previous_sibling = e->roomy = 0;
  e->stepping = e->descending = false;
  e->kept_granules = 0;
  e->closed_after = 0;
}

void epochs_freeze(void) {
  state.free = 0;
  for (uint32_t i = 1; i <= arenas_made(); i++) freeze(epoch_at(i));
}

void epoch_check(struct epoch *e) {
  epoch_lock(e);
  bool open = epoch_state(e) == EPOCH_OPEN;
  INVARIANT(0, open == (atomic_load_explicit(&e->open_id, memory_order_relaxed) != 0));
  size_t own_bytes = 0;
  arena_lock(&e->arena);
  for (struct run *run = arena_first(&e->arena); run; run = arena_next(run)) {
    INVARIANT(0, run->epoch == e->arena.index);
    own_bytes += run_bytes(run);
  }
  arena_unlock(&e->arena);
  INVARIANT(0, own_bytes <= atomic_load_explicit(&e->arena.own, memory_order_relaxed));
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) INVARIANT(0, p->arena == &e->arena);
  const struct thread *owner = atomic_load_explicit(&e->owner, memory_order_relaxed);
  INVARIANT(0, !owner || (e->heaps && e->heaps->thread == owner));
  epoch_unlock(e);
}
