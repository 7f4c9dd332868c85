/* registry: see registry.h.                                                                         floor: heap */
#include "heap/registry.h"

#include "base/options.h"
#include "heap/inherited.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/span.h"
#include "heap/store.h"
#include "heap/tcache.h"
#include "heap/timing.h"
#include "os/os.h"
#include <string.h>

/* A shelf: 2 MiB that heaps, or their bodies, are cut from. Linux 6.14 and later free the page tables of so much if one
 * call gives all of it back; a fork would look through them, also if they are empty. The first heaps lie in granules,
 * because a process of few threads should not hold 2 MiB for them. */
#define SHELF       (2 * MiB)
#define SHELVES     1024 /* of bodies; the bodies of later heaps lie in granules, too */
#define FIRST_HEAPS 64
struct shelf {
  char *start;
  uint32_t bodies, purged;
};

static struct {
  struct heap *pool; /* heaps of dead threads */
  struct cuttings heaps, bodies;
  struct shelf shelves[SHELVES];
  uint32_t shelves_begun, lasting_heaps; /* made until now */
  uint32_t generation; /* counts forks */
} state;

static void link_active(struct heap *heap) {
  struct heap *head = atomic_load_explicit(&active_heaps, memory_order_relaxed);
  heap->next_active = head;
  heap->previous_active = NULL;
  if (head) head->previous_active = heap;
  atomic_store_explicit(&active_heaps, heap, memory_order_release); /* pairs with every walk of the list */
}

static void unlink_active(struct heap *heap) {
  if (heap->previous_active) heap->previous_active->next_active = heap->next_active;
  else atomic_store_explicit(&active_heaps, heap->next_active, memory_order_relaxed);
  if (heap->next_active) heap->next_active->previous_active = heap->previous_active;
}

/* The greater part of a thread's heap. It has pages of its own, which go back to the kernel while the heap is folded
 * and owns no slab. The heap's quarantine, if it has one, lies behind. */
struct body {
  char of_thread[THREAD_ROOM] ALIGNED(CACHE_LINE); /* beside the bins, whose pages every process touches */
  struct heap_store store;
  struct counters counters;
};
#define BODY_BYTES (sizeof(struct body) + (TSLAB_HARDENED ? sizeof(struct quarantine) : 0))
_Static_assert(BODY_BYTES <= GRANULE, "cut from one");
_Static_assert(sizeof(struct body) <= GRANULE / 2, "two of them are cut from one, but for the hardened build");

/* Where pages are large, bodies share them and stay. */
static bool has_own_pages(void) { return os_page_size <= GRANULE / 4; }
static size_t bytes_of_body(void) { return round_up(BODY_BYTES, has_own_pages() ? os_page_size : CACHE_LINE); }

/* The heap of a thread, and of one after another. It never moves, and never goes. */
struct lasting_heap {
  struct heap heap; /* the first field */
  struct notice notice;
  struct body *body;
  struct shelf *shelf; /* that the body lies on, or NULL */
  bool is_purged; /* the body's pages go back, or have; heaps_lock protects this */
  bool is_absent; /* they have; the heap's lock protects this */
};
static struct lasting_heap first; /* most processes have only one */

static struct lasting_heap *lasting_of(struct heap *heap) { return (struct lasting_heap *)(void *)heap; }

/* Begins common_heap, when the process gets a second thread or gives memory back: a small process does not touch these
 * pages. Caller holds heaps_lock. */
static void begin_common(void) {
  static struct notice notice;
  static struct heap_store store;
  static struct quarantine quarantine;
  if (common_begun) return;
  heap_begin_lists(&common_heap);
  store_keep(&common_heap, &store, &notice);
  if (TSLAB_HARDENED) common_heap.quarantine = &quarantine;
  common_heap.counters = &shared_counters;
  link_active(&common_heap);
  common_begun = true;
}

void heap_begin_sampled(void) {
  static struct notice notice;
  static struct heap_store store;
  static struct quarantine quarantine;
  lock_take(&heaps_lock);
  if (!sampled_heap.store) {
    heap_begin_lists(&sampled_heap);
    store_keep(&sampled_heap, &store, &notice);
    if (TSLAB_HARDENED) sampled_heap.quarantine = &quarantine;
    sampled_heap.counters = &shared_counters;
    link_active(&sampled_heap);
  }
  lock_release(&heaps_lock);
}

void heap_begin_common(void) {
  lock_take(&heaps_lock);
  begin_common();
  lock_release(&heaps_lock);
}

/* Once the process has many heaps, this takes a shelf to cut from where a piece of `bytes` does not fit any more.
 * Returns its start, or NULL: there is none, or none is needed. */
static char *take_shelf(struct cuttings *from, size_t bytes) {
  bool zero;
  if (cuttings_fit(*from, bytes) || state.lasting_heaps < FIRST_HEAPS || !has_own_pages()) return NULL;
  struct pages_how how = {.wants_zero = true};
  struct run *run = pages_alloc(SHELF >> GRANULE_SHIFT, SHELF, RUN_META, &zero, &how);
  if (!run) return NULL;
  *from = (struct cuttings){run_start(run), run_start(run) + SHELF};
  return from->next;
}

static struct body *cut_body(void) {
  char *start = state.shelves_begun < SHELVES ? take_shelf(&state.bodies, bytes_of_body()) : NULL;
  if (start) state.shelves[state.shelves_begun++] = (struct shelf){.start = start};
  return pages_cut(&state.bodies, bytes_of_body());
}

static struct lasting_heap *cut_lasting_heap(void) {
  take_shelf(&state.heaps, sizeof(struct lasting_heap));
  return pages_cut(&state.heaps, sizeof(struct lasting_heap));
}

/* Returns the shelf that a new body lies on, or NULL. */
static struct shelf *shelf_of(const struct body *body) {
  struct shelf *last = state.shelves_begun ? &state.shelves[state.shelves_begun - 1] : NULL;
  return last && (uintptr_t)body - (uintptr_t)last->start < SHELF ? last : NULL;
}

static struct heap *cut_heap(void) {
  struct heap *newest = atomic_load_explicit(&all_heaps, memory_order_relaxed);
  struct body *body = cut_body();
  struct lasting_heap *lasting = &first;
  if (newest && body) lasting = cut_lasting_heap();
  if (!body || !lasting) return NULL;
  lasting->shelf = shelf_of(body);
  if (lasting->shelf) lasting->shelf->bodies++;
  state.lasting_heaps++;
  struct heap *heap = &lasting->heap;
  if (newest) begin_common();
  heap_init(heap, false);
  lasting->body = body;
  store_keep(heap, &body->store, &lasting->notice);
  if (TSLAB_HARDENED) heap->quarantine = (struct quarantine *)(void *)(body + 1);
  link_active(heap);
  heap->next_heap = newest;
  atomic_store_explicit(&all_heaps, heap, memory_order_release); /* pairs with every walk of the list */
  return heap;
}

bool heap_make_store(struct heap *heap) {
  lock_take(&heaps_lock);
  struct stored *stored = store_take();
  if (stored) {
    lock_take(&heap->lock);
    store_give_to(heap, stored);
    lock_release(&heap->lock);
  }
  lock_release(&heaps_lock);
  return stored != NULL;
}

void heap_put_in_pool(struct heap *heap) {
  heap->next_dead = state.pool;
  heap->pooled = true;
  state.pool = heap;
  atomic_fetch_add_explicit(&unfolded_heaps, 1, memory_order_relaxed);
  atomic_store_explicit(&last_dead_heap, heap, memory_order_relaxed);
  heap_notice(heap);
  pages_note_freed(FREED_MUCH);
}

/* Resets the lock of a folded heap, once in a fork child, because a thread that does not exist there may have held it.
 * Caller holds heaps_lock, but not the heap's lock. */
static void inherit(struct heap *heap) {
  if (!heap->folded || heap->generation == state.generation) return;
  lock_reset(&heap->lock);
  heap->generation = state.generation;
  atomic_store_explicit(&lasting_of(heap)->notice.is_given, false, memory_order_relaxed);
}

/* Caller holds heaps_lock, but not the heap's lock. */
static void unfold(struct heap *heap) {
  if (!heap->folded) return;
  struct lasting_heap *lasting = lasting_of(heap);
  inherit(heap);
  lock_take(&heap->lock);
  lock_take(&common_heap.lock);
  heap->store->notice = &lasting->notice; /* the store may be purged; in a fork child also in part */
  heap->store->remote.room = REMOTE_BYTES;
  if (lasting->is_purged && lasting->shelf) lasting->shelf->purged--;
  lasting->is_purged = false;
  if (lasting->is_absent) pages_count_present(bytes_of_body());
  lasting->is_absent = false;
  for (unsigned class = 0; class < CLASSES; class++) folded_slabs[class] -= heap->bins[class].slabs;
  STORE_RACING(heap->folded, false);
  lock_release(&common_heap.lock);
  lock_release(&heap->lock);
  link_active(heap);
}

static struct heap *take_from_pool(void) {
  struct heap *heap = state.pool;
  if (!heap) return NULL;
  state.pool = heap->next_dead;
  heap->pooled = false;
  if (heap->folded) unfold(heap);
  else atomic_fetch_sub_explicit(&unfolded_heaps, 1, memory_order_relaxed);
  return heap;
}

static void begin_counters(struct heap *heap) {
  uint64_t allocations = 0, frees = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct tcache_totals list = tcache_totals(heap, class);
    allocations += list.allocations;
    frees += list.frees + LOAD_RACING(heap_bin(heap, class)->remote_frees);
  }
  heap->counters->allocations_before = allocations;
  heap->counters->frees_before = frees;
  counters_begin(heap->counters);
}

void *heap_room_for_thread(const struct heap *heap) {
  return ((const struct lasting_heap *)(const void *)heap)->body->of_thread;
}

struct heap *heap_acquire(void) {
  lock_take(&heaps_lock);
  struct heap *heap = take_from_pool();
  if (!heap) heap = cut_heap();
  if (heap) {
    if (!heap->counters) counters_start(heap->counters = &lasting_of(heap)->body->counters);
    begin_counters(heap);
    lock_take(&heap->lock);
    heap->live = true;
    atomic_fetch_add_explicit(&live_heaps, 1, memory_order_relaxed);
    lock_release(&heap->lock);
  }
  lock_release(&heaps_lock);
  if (heap && UNLIKELY(heap->store->inherited)) heap_inherit_lists(heap);
  return heap;
}

struct heap *heap_take_blank(struct arena *arena) {
  bool grows = false;
  lock_take(&heaps_lock);
  struct heap *heap = span_take_heap(&grows);
  lock_release(&heaps_lock);
  if (!heap) return NULL;
  if (grows) os_populate(heap, GRANULE); /* the next heaps come soon, and each would take half a page fault */
  lock_take(&heap->lock);
  heap->live = true;
  heap->closing = false;
  STORE_RACING(heap->thread, current_thread); /* a stale entry may lead another thread here: epoch/attach.h */
  heap->counters = current_heap->counters;
  heap->plain = current_heap->plain;
  heap->before = tcache_handed_out(heap);
  heap->lost = heap->served - heap->freed;
  __atomic_store_n(&heap->arena, arena, __ATOMIC_RELEASE); /* the scavenger reads it */
  lock_release(&heap->lock);
  return heap;
}

/* Takes the heap's store from it. The bins keep their counts. */
static struct stored *leave_store(struct heap *heap) {
  if (!heap->store) return NULL;
  heap->counters = current_heap->counters; /* this thread counts now, and not the one that the heap served */
  if (heap->sampling.timings) timing_count(heap);
  tcache_shut(heap);
  return store_leave(heap);
}

void heap_give_back(struct heap *heap) {
  lock_take(&heap->lock); /* the thread that relisted the heap's last slab may still hold it */
  INVARIANT(1, heap->slab_granules == 0 && heap->magazine_bytes == 0);
  struct stored *stored = leave_store(heap);
  heap->live = false;
  STORE_RACING(heap->thread, NULL);
  __atomic_store_n(&heap->arena, NULL, __ATOMIC_RELAXED);
  lock_release(&heap->lock);
  lock_take(&heaps_lock);
  span_return_heap(heap);
  bool is_too_much = spans_are_many();
  lock_release(&heaps_lock);
  if (is_too_much) spans_trim_one();
  if (stored) store_give_up(stored);
}

bool heap_is_live(struct heap *heap) {
  lock_take(&heap->lock);
  bool is_live = heap->live;
  lock_release(&heap->lock);
  return is_live;
}

/* Leaves the lists to the next thread or the scavenger, so that a thread's end is short. */
void heap_release(struct heap *heap) {
  lock_take(&heap->lock);
  heap->live = false;
  heap->thread = NULL;
  atomic_fetch_sub_explicit(&live_heaps, 1, memory_order_relaxed);
  lock_release(&heap->lock);
  lock_take(&heaps_lock);
  heap_put_in_pool(heap);
  lock_release(&heaps_lock);
}

static bool holds_nothing(const struct heap *heap) {
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct bin *bin = &heap->bins[class];
    if (bin->listed || bin->magazine_blocks || !tcache_is_folded(heap, class)) return false;
  }
  const struct heap_store *store = heap->store;
  bool keeps_chunks = store->chunks.claimed != 0 || store->chunks.cached_epoch != 0;
  return store->unlisted_slabs == 0 && store->large.count == 0 && !keeps_chunks && !heap->sampling.detached;
}

static void move(uint64_t *to, uint64_t *from) {
  counter_add(to, *from);
  __atomic_store_n(from, 0, __ATOMIC_RELAXED);
}

static void move_lock_counts(struct lock *to, struct lock *from) {
  move(&to->taken, &from->taken);
  move(&to->contended, &from->contended);
  move(&to->waited, &from->waited);
  move(&to->held, &from->held);
}

/* Moves the heap's counts to common_heap; its caps start anew. Caller holds walk_lock, so that no reader sees a count
 * twice. */
static void move_counts(struct heap *heap) {
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *from = &heap->bins[class], *to = &common_heap.bins[class];
    move(&to->allocations, &from->allocations);
    move(&to->frees, &from->frees);
    move(&to->remote_frees, &from->remote_frees);
    move(&to->kept_frees, &from->kept_frees);
    move(&to->refills, &from->refills);
    move(&to->overflows, &from->overflows);
    to->born += from->born, from->born = 0;
    to->retired += from->retired, from->retired = 0;
    folded_slabs[class] += from->slabs;
    from->cap = 0;
    from->halvings = from->due = 0;
    from->countdown = 0;
    heap->count[class] = (struct count){0, 0};
    if (profile_is_on()) heap->store->draws[class] = (struct draw){.interval = 0};
  }
  heap->opened = 0;
  heap_disown_lists(heap);
  heap->free_magazine = 0; /* all are unused */
  heap->unused_magazine = 1;
  heap->store->restless_slabs = 0;
  STORE_RACING(stores_folded.first_use_bytes, stores_folded.first_use_bytes + heap->store->first_use_bytes);
  STORE_RACING(heap->store->first_use_bytes, 0);
  STORE_RACING(heap->granted_bytes, 0);
  move(&common_heap.served, &heap->served);
  move(&common_heap.freed, &heap->freed);
  move_lock_counts(&common_heap.lock, &heap->lock);
}

/* Folds a heap that waits in the pool and holds nothing. Caller holds walk_lock and heaps_lock. */
static bool fold_locked(struct heap *heap) {
  lock_take(&heap->lock);
  bool folds_now = heap->pooled && !heap->live && !heap->folded && holds_nothing(heap);
  if (folds_now) {
    lock_take(&common_heap.lock);
    move_counts(heap);
    heap->generation = state.generation;
    STORE_RACING(heap->folded, true);
    lock_release(&common_heap.lock);
  }
  lock_release(&heap->lock);
  if (!folds_now) return false;
  unlink_active(heap);
  counters_fold(heap->counters);
  heap->counters = NULL;
  atomic_fetch_sub_explicit(&unfolded_heaps, 1, memory_order_relaxed);
  struct heap *last = heap;
  atomic_compare_exchange_strong_explicit(&last_dead_heap, &last, NULL, memory_order_relaxed, memory_order_relaxed);
  return true;
}

/* Returns true if the body's pages may go back: no slab leads to the heap any more. Caller holds heaps_lock and the
 * heap's lock. */
static bool may_purge(struct heap *heap) {
  if (!heap->folded || lasting_of(heap)->is_purged || !has_own_pages()) return false;
  lock_take(&common_heap.lock); /* a thread that takes the last slab of a folded heap holds it */
  bool has_slabs = heap_has_slabs(heap);
  lock_release(&common_heap.lock);
  return !has_slabs;
}

static void purge(struct lasting_heap *lasting) {
  lasting->is_absent = pages_purge_own(lasting->body, bytes_of_body());
}

/* Says that the body goes back. If it is the last on its shelf, this gives all of that back and returns true. Caller
 * holds heaps_lock. */
static bool purge_with_shelf(struct lasting_heap *lasting) {
  struct shelf *shelf = lasting->shelf;
  lasting->is_purged = true;
  if (!shelf || ++shelf->purged < shelf->bodies) return false;
  if (!os_purge(shelf->start, SHELF)) return false;
  purge(lasting);
  return true;
}

/* Holds the heap's lock beyond heaps_lock only for a purge, for which only its next thread may wait. In the child of a
 * fork of that moment the lock stays taken until heap_fold or unfold looks at that heap. */
bool heap_fold(struct heap *heap) {
  lock_take(&walk_lock);
  lock_take(&heaps_lock);
  inherit(heap);
  bool folded = fold_locked(heap);
  lock_take(&heap->lock);
  bool purges = may_purge(heap) && !purge_with_shelf(lasting_of(heap));
  if (!purges) lock_release(&heap->lock);
  lock_release(&heaps_lock);
  lock_release(&walk_lock);
  if (!purges) return folded;
  purge(lasting_of(heap));
  lock_release(&heap->lock);
  return folded;
}

void registry_after_fork(void) { state.generation++; }

void registry_freeze(void) {
  state.pool = NULL;
  state.heaps = state.bodies = (struct cuttings){NULL, NULL};
}
