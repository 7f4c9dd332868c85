/* epoch: see epoch.h.                                                                               floor: epoch */
#include "epoch/epoch.h"

#include "base/options.h"
#include "epoch/close.h"
#include "epoch/scope.h"
#include "epoch/cache.h"
#include "heap/label.h"
#include "os/os.h"
#include <errno.h>
#include <string.h>

struct lone_lock epoch_locks[EPOCH_LOCKS], epoch_gates[EPOCH_GATES];
struct lock tree_lock;

struct lock slots_lock;

static struct {
  uint32_t free; /* slots, through next_free */
} state;

/* ---- owners ------------------------------------------------------------------------------------------------------ */

enum { NOT_OWNED, OWNED, AWAITED };

/* Caller holds the lock, and holds it again at the end. */
void epoch_wait(const struct epoch *e) {
  _Atomic uint32_t *owned = &epoch_at(e->arena.index)->arena.owned;
  do {
    atomic_store_explicit(owned, AWAITED, memory_order_relaxed);
    epoch_unlock(e);
    os_wait(owned, AWAITED, LOCK_PATIENCE_MS);
    lock_take(epoch_lock_of(e));
  } while (epoch_is_owned(e));
}

#define LITTLE (2 * GRANULE) /* to take apart, to look at, or to give to the kernel */

/* Under the lock. */
static bool holds_little(const struct epoch *e) {
  const struct heap *heap = e->heaps;
  return atomic_load_explicit(&e->arena.own, memory_order_relaxed) <= LITTLE &&
         LOAD_RACING(e->arena.ready) == 0 &&
         atomic_load_explicit(&e->arena.spilled, memory_order_relaxed) <= LITTLE &&
         atomic_load_explicit(&e->handles, memory_order_relaxed) == 0 &&
         (!heap || (!heap->next_of_epoch && !heap_has_slabs(heap)));
}

/* One that is free, so that owners do not wait for each other while there are fewer than gates. */
static struct lock *take_gate(void) {
  unsigned first = (unsigned)((uintptr_t)current_thread / CACHE_LINE % EPOCH_GATES);
  for (unsigned i = 0; i < EPOCH_GATES; i++) {
    struct lock *gate = &epoch_gates[(first + i) % EPOCH_GATES].lock;
    if (lock_try(gate)) return gate;
  }
  lock_take(&epoch_gates[first].lock);
  return &epoch_gates[first].lock;
}

/* While another thread owns the epoch, nobody waits for it with a gate: a fork would wait, too. */
static struct lock *own_epoch(struct epoch *e) {
  for (;;) {
    struct lock *gate = take_gate();
    lock_take(epoch_lock_of(e));
    if (!epoch_is_owned(e)) {
      atomic_store_explicit(&e->arena.owned, OWNED, memory_order_relaxed);
      epoch_unlock(e);
      return gate;
    }
    lock_release(gate);
    epoch_wait(e);
    epoch_unlock(e);
  }
}

struct lock *epoch_take(struct epoch *e) {
  epoch_lock(e);
  if (holds_little(e)) return NULL;
  epoch_unlock(e);
  return own_epoch(e);
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static struct epoch *take_slot(void) {
  lock_take(&slots_lock);
  struct epoch *e = state.free ? epoch_at(state.free) : NULL;
  if (e) state.free = e->next_free;
  else if (arenas_made() < ((uint32_t)1 << EPOCH_INDEX_BITS) - 1) e = (struct epoch *)(void *)arena_make();
  lock_release(&slots_lock);
  return e;
}

static void free_slot(struct epoch *e) {
  lock_take(&slots_lock);
  e->next_free = state.free;
  state.free = e->arena.index;
  lock_release(&slots_lock);
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

/* Under tree_lock. */
static void join_parent(struct epoch *e, struct epoch *parent) {
  e->arena.parent = &parent->arena;
  e->previous_sibling = 0;
  e->next_sibling = parent->children;
  if (parent->children) epoch_at(parent->children)->previous_sibling = e->arena.index;
  __atomic_store_n(&parent->children, e->arena.index, __ATOMIC_RELAXED);
}

static struct epoch *leave_tree(struct epoch *e) {
  lock_take(&tree_lock);
  struct epoch *parent = (struct epoch *)(void *)e->arena.parent;
  if (parent) {
    if (e->previous_sibling) epoch_at(e->previous_sibling)->next_sibling = e->next_sibling;
    else __atomic_store_n(&parent->children, e->next_sibling, __ATOMIC_RELAXED);
    if (e->next_sibling) epoch_at(e->next_sibling)->previous_sibling = e->previous_sibling;
  }
  e->arena.parent = NULL;
  e->next_sibling = e->previous_sibling = 0;
  lock_release(&tree_lock);
  return parent;
}

/* ---- opening and ending ------------------------------------------------------------------------------------------ */

static NOINLINE void change_label(struct epoch *e, const char *label) {
  struct label *before = &labels[e->arena.label];
  uint64_t opened = e->opened_here, allocated = e->allocated_here, recycled = e->recycled_here;
  STORE_RACING(e->opened_here, 0); /* first: a reader may miss them for a moment, but not see them twice */
  STORE_RACING(e->allocated_here, 0);
  STORE_RACING(e->recycled_here, 0);
  e->drained = e->doubts = 0;
  STORE_RACING(e->kept_granules, 0); /* with slabs it will not be kept again */
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

void epoch_begin(struct epoch *e, const char *label, uint32_t flags) {
  if (!label) label = "";
  /* Mostly a slot's next epoch is called as the one before. */
  if (UNLIKELY(strncmp(e->label, label, TSLAB_EPOCH_LABEL - 1) != 0)) change_label(e, label);
  e->arena.first_of_label = e->opened_here == 0 && atomic_load_explicit(&labels[e->arena.label].opened,
                                                                  memory_order_relaxed) == 0;
  STORE_RACING(e->opened_here, e->opened_here + 1);
  STORE_RACING(e->flags, (uint8_t)flags); /* a destroy that comes too late may be looking */
  e->era = 0;
  atomic_store_explicit(&e->scope_ended, false, memory_order_relaxed);
  STORE_RACING(e->opened_ns, os_now_coarse_ns());
  atomic_store_explicit(&e->diverted, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.bumped, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.freed, 0, memory_order_relaxed);
  atomic_store_explicit(&e->arena.closing, false, memory_order_relaxed);
  atomic_store_explicit(&e->arena.release_target, RELEASE_TO_COMMON_USE, memory_order_relaxed);
  uint64_t id = epoch_id(e);
  e->arena.by_slabs = epoch_cache_learned(e);
  id = ((id >> EPOCH_INDEX_BITS) + 1) << EPOCH_INDEX_BITS | e->arena.index;
  atomic_store_explicit(&e->id, id, memory_order_relaxed);
  atomic_store_explicit(&e->state, EPOCH_OPEN, memory_order_release);
  /* Pairs with enter's load: who sees it sees all of the above. */
  atomic_store_explicit(&e->open_id, id, memory_order_release);
}

/* Under tree_lock. A thread that closes the parent, or keeps it as a cached epoch, locks or owns it: so it sees the
 * child, or was first. EBUSY: the parent is open and has an owner, for whom nobody waits under tree_lock. */
static int join(struct epoch *e, uint64_t parent_id) {
  struct epoch *parent = epoch_slot(parent_id);
  if (!parent) return ESTALE;
  lock_take(epoch_lock_of(parent));
  int error = epoch_error(parent, parent_id);
  unsigned depth = 1;
  for (const struct arena *l = parent->arena.parent; l; l = l->parent) depth++;
  if (error == 0 && epoch_is_owned(parent)) error = EBUSY;
  if (error == 0 && depth > EPOCH_DEPTH) error = EOVERFLOW;
  if (error == 0) join_parent(e, parent);
  epoch_unlock(parent);
  return error;
}

/* Open and a child in one step, as a walk over the tree sees it. Locks it, but after an error. */
static int try_to_begin(struct epoch *e, const tslab_epoch_options *wanted) {
  if (wanted->parent) lock_take(&tree_lock);
  int error = wanted->parent ? join(e, wanted->parent) : 0;
  if (error == 0) {
    epoch_lock(e);
    epoch_begin(e, wanted->label, wanted->flags);
  }
  if (wanted->parent) lock_release(&tree_lock);
  return error;
}

static int begin(struct epoch *e, const tslab_epoch_options *wanted) {
  int error;
  while ((error = try_to_begin(e, wanted)) == EBUSY) {
    const struct epoch *parent = epoch_slot(wanted->parent);
    epoch_lock(parent);
    epoch_unlock(parent);
  }
  return error;
}

/* Memory for the first chunks, by the epoch's owner. The epoch is locked before and after. */
static bool prepare(struct epoch *e, size_t bytes) {
  if (bytes == 0) return true;
  uint64_t id = epoch_id(e);
  epoch_unlock(e);
  struct lock *gate = own_epoch(e);
  /* In between a close or destroy of its parent may have ended it; then the slot may be another's, or nobody's. */
  bool done = epoch_error(e, id) != 0 || arena_prepare(&e->arena, bytes);
  epoch_give_back(e, gate);
  return done;
}

uint64_t epoch_open(const tslab_epoch_options *wanted, int *error) {
  struct epoch *e = take_slot();
  *error = ENOMEM;
  if (!e) return 0;
  struct arena *arena = &e->arena;
  arena->budget = wanted->budget_bytes ? wanted->budget_bytes : SIZE_MAX;
  atomic_store_explicit(&arena->refused, 0, memory_order_relaxed);
  atomic_store_explicit(&arena->spilled, 0, memory_order_relaxed);
  *error = begin(e, wanted);
  if (*error != 0) {
    free_slot(e);
    return 0;
  }
  uint64_t id = epoch_id(e); /* locked until it is whole */
  if (wanted->prefault_bytes) arena->first_of_label = false; /* so much will be used at once */
  if (!epoch_cache_is_plain(e) || wanted->prefault_bytes) arena->by_slabs = false; /* they could not be kept */
  if (prepare(e, wanted->prefault_bytes)) {
    epoch_unlock(e);
    return id;
  }
  *error = ENOMEM;
  atomic_store_explicit(&e->open_id, 0, memory_order_relaxed);
  struct epoch *parent = epoch_end(e);
  if (parent) epoch_after_free(parent->arena.index); /* which may be closing, and have waited for its last child */
  return 0;
}

static struct epoch *leave_for_good(struct epoch *e) {
  struct epoch *parent = e->arena.parent ? leave_tree(e) : NULL;
  if (options.on_destroy != DESTROY_TRAPS) free_slot(e); /* a trap may yet ask for its label */
  return parent;
}

struct epoch *epoch_end(struct epoch *e) {
  epoch_count_allocations(e, NULL, 0);
  epoch_count_bytes(e);
  count_refusals(e);
  INVARIANT(1, e->heaps == NULL && atomic_load(&e->arena.own) == 0 && e->arena.first == 0);
  atomic_store_explicit(&e->state, EPOCH_ENDED, memory_order_relaxed);
  epoch_unlock(e); /* tree_lock comes first; nobody else can find an ended epoch but as somebody's child */
  return leave_for_good(e);
}

/* ---- fork and check ---------------------------------------------------------------------------------------------- */

void epochs_after_fork(void) {
  for (uint32_t i = 1; i <= arenas_made(); i++)
    if (epoch_state(epoch_at(i)) == EPOCH_ENDED && epoch_at(i)->arena.parent) leave_for_good(epoch_at(i));
}

/* It never ends, for what it owns is frozen. Its runs can still be walked, whatever was being done to the list: a link
 * is stored before what leads to it. */
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
  scope_check(e);
  epoch_unlock(e);
}
