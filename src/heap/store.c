/* store: see store.h.                                                                               floor: heap */
#include "heap/store.h"

#include "heap/profile.h"
#include "os/os.h"
#include <string.h>

struct lock heaps_lock, walk_lock;
struct stored *_Atomic all_stored;
struct stores_folded stores_folded;

static struct {
  struct stored *unused, *gone; /* `unused` have memory, `gone` have none; through next_unused */
  unsigned count, least;        /* of `unused`, now and since the last trim */
  struct cuttings stores, stored;
} state;

#define STORE_BYTES (sizeof(struct heap_store) + (TSLAB_HARDENED ? sizeof(struct quarantine) : 0))
_Static_assert(STORE_BYTES <= GRANULE / 2, "several to a granule");

/* Returns true if a store has pages of its own, so that its memory can go back. On large pages that would be a
 * waste. */
static bool has_own_pages(void) { return os_page_size <= GRANULE / 4; }
static size_t bytes_of_store(void) { return has_own_pages() ? round_up(STORE_BYTES, os_page_size) : STORE_BYTES; }

static struct stored *new_stored(void) {
  struct heap_store *store = pages_cut(&state.stores, bytes_of_store());
  struct stored *stored = store ? pages_cut(&state.stored, sizeof(struct stored)) : NULL;
  if (!stored) return NULL;
  stored->store = store;
  stored->next = atomic_load_explicit(&all_stored, memory_order_relaxed);
  atomic_store_explicit(&all_stored, stored, memory_order_release); /* pairs with stored_first */
  return stored;
}

static struct stored *pop_unused(void) {
  struct stored *stored = state.unused;
  if (!stored) return NULL;
  state.unused = stored->next_unused;
  state.least = (unsigned)min_size(state.least, --state.count);
  return stored;
}

struct stored *store_take(void) {
  struct stored *stored = pop_unused();
  if (stored) return stored;
  if (!(stored = state.gone)) return new_stored();
  state.gone = stored->next_unused;
  if (stored->is_absent) pages_count_present(bytes_of_store());
  stored->is_absent = false;
  return stored;
}

static void attach(struct heap *heap, struct heap_store *store, struct notice *notice) {
  store->notice = notice;
  heap->bins = store->bins;
  heap->magazines = store->magazines;
  __atomic_store_n(&heap->store, store, __ATOMIC_RELEASE); /* pairs with heap_has_store */
  atomic_store_explicit(&notice->heap, heap, memory_order_release); /* pairs with notice_heap */
}

void store_give_to(struct heap *heap, struct stored *stored) {
  struct heap_store *store = stored->store;
  store->stored = stored;
  if (TSLAB_HARDENED) heap->quarantine = (struct quarantine *)(void *)(store + 1);
  attach(heap, store, &stored->notice);
}

void store_keep(struct heap *heap, struct heap_store *store, struct notice *notice) {
  store->remote.room = REMOTE_BYTES;
  attach(heap, store, notice);
}

struct stored *store_leave(struct heap *heap) {
  struct heap_store *store = heap->store;
  if (!store) return NULL;
  INVARIANT(1, store->remote.count == 0 && store->large.count == 0 && store->chunks.whole.count == 0);
  INVARIANT(1, store->chunks.quarters.count == 0);
  heap->free_magazine = 0;
  heap->unused_magazine = 1;
  if (TSLAB_HARDENED) heap->quarantine = (struct quarantine *)(uintptr_t)&no_quarantine;
  atomic_store_explicit(&store->notice->heap, NULL, memory_order_release); /* pairs with notice_heap */
  __atomic_store_n(&heap->store, NULL, __ATOMIC_RELEASE);
  heap->bins = NULL;
  heap->magazines = NULL;
  return store->stored;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

/* Adds the counts of a store to stores_folded. Caller holds walk_lock and heaps_lock. */
static void fold(struct heap_store *store) {
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *to = &stores_folded.bins[class], *from = &store->bins[class];
    STORE_RACING(to->allocations, to->allocations + from->allocations);
    STORE_RACING(to->frees, to->frees + from->frees);
    STORE_RACING(to->remote_frees, to->remote_frees + from->remote_frees);
    STORE_RACING(to->kept_frees, to->kept_frees + from->kept_frees);
    STORE_RACING(to->refills, to->refills + from->refills);
    STORE_RACING(to->overflows, to->overflows + from->overflows);
    STORE_RACING(to->born, to->born + from->born);
    STORE_RACING(to->retired, to->retired + from->retired);
    memset(from, 0, sizeof *from);
  }
  if (profile_is_on()) memset(store->draws, 0, sizeof store->draws); /* they count from the bins' counts */
  STORE_RACING(stores_folded.first_use_bytes, stores_folded.first_use_bytes + store->first_use_bytes);
}

/* ---- memory goes back -------------------------------------------------------------------------------------------- */

#define FOLDED_AT_ONCE 8 /* one hold of heaps_lock: some ten microseconds */

static struct stored *fold_unused(unsigned most) {
  struct stored *going = NULL, *stored;
  lock_take(&heaps_lock);
  for (; most > 0 && (stored = pop_unused()); most--) {
    fold(stored->store);
    stored->next_unused = going;
    going = stored;
  }
  lock_release(&heaps_lock);
  return going;
}

static void purge(struct stored *stored) {
  stored->is_absent = pages_purge_own(stored->store, bytes_of_store());
  if (!stored->is_absent) memset(stored->store, 0, STORE_BYTES);
  lock_take(&heaps_lock);
  stored->next_unused = state.gone;
  state.gone = stored;
  lock_release(&heaps_lock);
}

/* Caller holds walk_lock. */
static size_t purge_unused(unsigned most) {
  size_t bytes = 0;
  while (most > 0 && has_own_pages()) {
    unsigned count = (unsigned)min_size(most, FOLDED_AT_ONCE);
    struct stored *going = fold_unused(count), *next;
    if (!going) break;
    for (; going; going = next, bytes += bytes_of_store()) {
      next = going->next_unused;
      purge(going);
    }
    most -= count;
  }
  return bytes;
}

/* If a thread adds up counters now, which may take long, a later call gives the memory back. */
void store_give_up(struct stored *stored) {
  lock_take(&heaps_lock);
  stored->next_unused = state.unused;
  state.unused = stored;
  bool is_too_much = ++state.count > STORES_KEPT;
  lock_release(&heaps_lock);
  if (!is_too_much || !lock_try(&walk_lock)) return;
  purge_unused(1);
  lock_release(&walk_lock);
}

size_t stores_trim(bool all) {
  lock_take(&walk_lock);
  lock_take(&heaps_lock);
  unsigned going = all ? state.count : state.least;
  state.least = state.count - going;
  lock_release(&heaps_lock);
  size_t bytes = purge_unused(going);
  lock_release(&walk_lock);
  return bytes;
}

void stores_freeze(void) {
  state.unused = state.gone = NULL;
  state.count = state.least = 0;
  state.stores = state.stored = (struct cuttings){NULL, NULL};
}
