/* heap: see heap.h.                                                                                 floor: heap */
#include "heap/heap.h"

#include "base/options.h"
#include "heap/fast.h"
#include "heap/refill.h"
#include "heap/large_cache.h"
#include "heap/tcache.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/sample.h"
#include "heap/store.h"
#include "os/os.h"
#include <string.h>

const struct bin no_bin;
struct heap empty_heap = {
    .list = {[0 ... CLASSES - 1] = CHAIN_END}, .counters = &shared_counters, .plain = &empty_heap};
__thread struct heap *current_heap = &empty_heap;
/* Beside current_heap, with the smaller ones behind both: so static TLS is 24 bytes, without a hole. */
__thread struct thread *current_thread __attribute__((section(".tdata.current_thread"))) = NULL;
__thread uint8_t thread_heap_state;
__thread uint8_t thread_frees_unborn;
struct heap common_heap, sampled_heap;
bool common_begun;
uint32_t folded_slabs[CLASSES];
struct heap *_Atomic all_heaps, *_Atomic active_heaps, *_Atomic last_dead_heap;
struct notice *_Atomic notices;
_Atomic uint32_t heaps_here;
_Atomic unsigned unfolded_heaps, live_heaps;
unsigned heaps_given_up;

static struct {
  struct heap *pool;  /* dead threads' */
  struct cuttings cuttings, spans;
  uint32_t generation; /* of processes: counts forks */
  struct span *roomy;  /* with a heap that is blank, or was not cut yet */
  struct span *empty;  /* without a heap in use */
  struct span *purged; /* without memory */
  unsigned empties, least_empties; /* of `empty`, now and since the last trim */
  char *granules;      /* had at once, for spans, and how many are left */
  uint32_t granules_had, granules_left;
  uint32_t made;
} state;

_Static_assert(sizeof(struct heap) <= GRANULE / 4, "several parts to a granule");

/* ---- the lists of heaps ------------------------------------------------------------------------------------------ */

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

NOINLINE void heap_notice_first(struct notice *notice) {
  /* Acquire: pairs with the scavenger's release, before which it read `next`. */
  if (atomic_exchange_explicit(&notice->is_given, true, memory_order_acquire)) return;
  notice->next = atomic_load_explicit(&notices, memory_order_relaxed);
  /* Release: pairs with the scavenger's exchange, which takes all, so that there is no ABA. */
  while (!atomic_compare_exchange_weak_explicit(&notices, &notice->next, notice, memory_order_release,
                                                memory_order_relaxed)) {}
}

static void begin_tcache(struct heap *heap) {
  heap->plain = heap;
  heap->unused_magazine = 1;
  for (unsigned class = 0; class < CLASSES; class++) {
    heap->list[class] = CHAIN_END;
    heap->inverse[class] = class_inverse(class);
  }
}

static void init(struct heap *heap, bool of_epochs) {
  if (TSLAB_HARDENED) heap->quarantine = (struct quarantine *)(uintptr_t)&no_quarantine;
  heap->index = ++state.made;
  atomic_fetch_add_explicit(&heaps_here, 1, memory_order_relaxed);
  heap->of_epochs = of_epochs;
  begin_tcache(heap);
}

/* A heap that keeps its store lies in one of these; its quarantine, where it has one, lies behind. */
struct lasting_heap {
  struct heap heap;
  struct notice notice;
  struct heap_store store;
};

/* Not before the process has a second thread or gives memory back: one that does little does not touch these pages.
 * Caller holds heaps_lock. */
static void begin_common(void) {
  static struct notice notice;
  static struct heap_store store;
  static struct quarantine quarantine;
  if (common_begun) return;
  begin_tcache(&common_heap);
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
    begin_tcache(&sampled_heap);
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

static struct heap *cut_heap(void) {
  size_t more = TSLAB_HARDENED ? sizeof(struct quarantine) : 0;
  struct lasting_heap *lasting = pages_cut(&state.cuttings, sizeof(struct lasting_heap) + more);
  if (!lasting) return NULL;
  struct heap *heap = &lasting->heap, *newest = atomic_load_explicit(&all_heaps, memory_order_relaxed);
  if (newest) begin_common();
  init(heap, false);
  store_keep(heap, &lasting->store, &lasting->notice);
  if (more) heap->quarantine = (struct quarantine *)(void *)(lasting + 1);
  link_active(heap);
  heap->next_heap = newest;
  atomic_store_explicit(&all_heaps, heap, memory_order_release); /* pairs with every walk of the list */
  return heap;
}

#define LOOKS_AT_ONCE 64 /* a change takes well under a microsecond */

void heap_look_again(unsigned *looks) {
  lock_look();
  if (++*looks % LOOKS_AT_ONCE == 0) os_rest();
}

/* ---- heaps of epochs, in granules -------------------------------------------------------------------------------- */

/* Under heaps_lock, but for walks: `next`, which never changes once set, and `present`. */
struct span {
  struct span *next;       /* every one ever made */
  struct heap *heaps;      /* its granule */
  struct heap *blank;      /* those not in use, through next_dead */
  struct span *next_roomy, *previous_roomy; /* or the next one that is empty, or purged */
  _Atomic uint32_t present; /* heaps that were cut since it had no memory */
  uint32_t in_use;          /* heaps */
} ALIGNED(CACHE_LINE);

static struct span *_Atomic all_spans;
uint64_t heaps_folded_bumped;
struct lock_totals heaps_folded_locks;

static struct run *run_of(const struct heap *heap) { return pages.runs + granule_of(heap); }

/* NULL for a thread's. */
static struct span *span_of(const struct heap *heap) {
  return (struct span *)(void *)atomic_load_explicit(&run_of(heap)->heap, memory_order_relaxed);
}

static void join_roomy(struct span *span) {
  span->previous_roomy = NULL;
  span->next_roomy = state.roomy;
  if (state.roomy) state.roomy->previous_roomy = span;
  state.roomy = span;
}

static void leave_roomy(struct span *span) {
  if (span->previous_roomy) span->previous_roomy->next_roomy = span->next_roomy;
  else state.roomy = span->next_roomy;
  if (span->next_roomy) span->next_roomy->previous_roomy = span->previous_roomy;
}

/* Twice as many at a time as the last time: each granule that stays in use among others keeps these from being one free
 * run. They are not resident before they are used. */
#define SPANS_MOST 16
static char *span_granule(void) {
  if (state.granules_left == 0) {
    bool zero;
    size_t count = min_size(max_size(state.granules_had * 2, 1), SPANS_MOST);
    struct run *run = pages_alloc(count, GRANULE, RUN_META, &zero, NULL);
    if (!run) return NULL;
    if (!zero && !os_purge(run_start(run), run_bytes(run))) memset(run_start(run), 0, run_bytes(run));
    state.granules = run_start(run);
    state.granules_had = state.granules_left = (uint32_t)count;
  }
  return state.granules + GRANULE * (state.granules_had - state.granules_left--);
}

static struct span *new_span(void) {
  struct span *span = pages_cut(&state.spans, sizeof(struct span));
  struct heap *heaps = span ? (struct heap *)(void *)span_granule() : NULL;
  if (!heaps) return NULL;
  span->heaps = heaps;
  atomic_store_explicit(&run_of(heaps)->heap, (struct heap *)(void *)span, memory_order_relaxed);
  span->next = atomic_load_explicit(&all_spans, memory_order_relaxed);
  atomic_store_explicit(&all_spans, span, memory_order_release); /* pairs with every walk of them */
  return span;
}

static struct span *pop_empty(void) {
  struct span *span = state.empty;
  if (!span) return NULL;
  state.empty = span->next_roomy;
  state.least_empties = (unsigned)min_size(state.least_empties, --state.empties);
  return span;
}

static struct span *roomy_span(void) {
  if (state.roomy) return state.roomy;
  struct span *span = pop_empty();
  if (!span && (span = state.purged)) state.purged = span->next_roomy;
  if (!span) span = new_span();
  if (span) join_roomy(span);
  return span;
}

static struct heap *take_of_span(bool *grows) {
  struct span *span = roomy_span();
  if (!span) return NULL;
  uint32_t present = atomic_load_explicit(&span->present, memory_order_relaxed);
  struct heap *heap = span->blank;
  if (heap) {
    span->blank = heap->next_dead;
  } else {
    *grows = present == 0 && span->next;
    heap = &span->heaps[present++];
    init(heap, true);
    atomic_store_explicit(&span->present, present, memory_order_release); /* pairs with heaps_next */
  }
  span->in_use++;
  if (!span->blank && present == HEAP_SPAN) leave_roomy(span);
  return heap;
}

/* Adds the counts of the span's heaps to those that stay. Caller holds walk_lock and heaps_lock. */
static void fold(struct span *span) {
  uint32_t present = atomic_load_explicit(&span->present, memory_order_relaxed);
  for (struct heap *p = span->heaps; p < span->heaps + present; p++) {
    heaps_folded_bumped += heap_bumped(p);
    lock_totals_add(&heaps_folded_locks, &p->lock);
  }
  atomic_store_explicit(&span->present, 0, memory_order_release);
  atomic_fetch_sub_explicit(&heaps_here, present, memory_order_relaxed);
}

/* Under heaps_lock. */
static void return_to_span(struct heap *heap) {
  struct span *span = span_of(heap);
  bool was_roomy = span->blank || atomic_load_explicit(&span->present, memory_order_relaxed) < HEAP_SPAN;
  heap->next_dead = span->blank;
  span->blank = heap;
  if (--span->in_use > 0) {
    if (!was_roomy) join_roomy(span);
    return;
  }
  if (was_roomy) leave_roomy(span);
  span->next_roomy = state.empty;
  state.empty = span;
  state.empties++;
}

static void purge_span(struct span *span) {
  bool done = os_purge(span->heaps, GRANULE);
  pages_count_purge(GRANULE, done);
  if (!done) memset(span->heaps, 0, GRANULE);
  lock_take(&heaps_lock);
  span->next_roomy = state.purged;
  state.purged = span;
  lock_release(&heaps_lock);
}

/* Gives back the memory of a span without a heap in use. Caller holds walk_lock. */
static bool purge_empty(void) {
  lock_take(&heaps_lock);
  struct span *span = pop_empty();
  if (span) {
    span->blank = NULL;
    fold(span);
  }
  lock_release(&heaps_lock);
  if (span) purge_span(span);
  return span != NULL;
}

/* Not while a thread walks over heaps, which may take long: whoever comes next does it. */
static void trim_one(void) {
  if (!lock_try(&walk_lock)) return;
  purge_empty();
  lock_release(&walk_lock);
}

static struct heap *first_from(const struct span *span) {
  for (; span; span = span->next)
    if (atomic_load_explicit(&span->present, memory_order_acquire) > 0) return span->heaps;
  return NULL;
}

struct heap *heaps_first_of_epochs(void) {
  return first_from(atomic_load_explicit(&all_spans, memory_order_acquire));
}

/* A walk over many heaps looks at a few lines of each, and would wait for every one. */
#define HEAPS_AHEAD 6
static void ask_for(const struct heap *heap) {
  __builtin_prefetch(&heap->sampling.sequence);
  __builtin_prefetch(&heap->bump);
  __builtin_prefetch(&heap->bump.sealed);
  __builtin_prefetch(&heap->lock);
}

struct heap *heaps_next_of_epochs(struct heap *heap) {
  const struct span *span = span_of(heap);
  uint32_t next = (uint32_t)(heap - span->heaps) + 1;
  ask_for(heap + HEAPS_AHEAD);
  if (next < atomic_load_explicit(&span->present, memory_order_acquire)) return &span->heaps[next];
  return first_from(span->next);
}

size_t heaps_trim(bool all) {
  size_t bytes = 0;
  lock_take(&walk_lock);
  lock_take(&heaps_lock);
  unsigned going = all ? state.empties : state.least_empties;
  state.least_empties = state.empties - going;
  lock_release(&heaps_lock);
  for (; going > 0 && purge_empty(); going--) bytes += GRANULE;
  lock_release(&walk_lock);
  return bytes;
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

/* ---- births and ends --------------------------------------------------------------------------------------------- */

static bool is_other(const struct heap *heap) {
  return heap != current_heap && (!current_thread || heap->thread != current_thread);
}

/* By who finds the heap in a fork child, and no thread in it: the numbers are those of before a change again. A block
 * of its chunk that another thread was freeing may be marked and not counted, so counts say nothing of marks. */
static void undo_change(struct heap *heap) {
  const struct undo *undo = &heap->undo;
  struct run *chunk = heap_chunk(heap);
  if (chunk) chunk->class = CHUNK_HAS_GAPS;
  if (heap->sampling.sequence % 2 == 0) return;
  if (undo->class == UNDO_CHUNKS) {
    heap->bump.allocations = undo->was[0];
    heap->bump.sealed = undo->was[1];
    heap->bump.count = (uint32_t)undo->was[2];
  } else if (undo->class < CLASSES) {
    heap->bins[undo->class].allocations = undo->was[0];
    heap->bins[undo->class].frees = undo->was[1];
    heap->served = undo->was[2];
    heap->freed = undo->was[3];
    heap->count[undo->class] = undo->count;
  }
  heap->sampling.sequence++;
}

static void forget_lists(struct heap *heap) {
  for (unsigned class = 0; class < CLASSES; class++) {
    heap->list[class] = CHAIN_END;
    heap->count[class] = (struct count){0, 0};
    if (profile_is_on()) heap->store->draws[class] = (struct draw){.interval = 0};
  }
}

static void count_what_passed(struct heap *heap) {
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &heap->bins[class];
    struct tcache_totals totals = tcache_totals(heap, class);
    heap->served += totals.allocations - bin->allocations;
    heap->freed += totals.frees - bin->frees;
    bin->allocations = totals.allocations;
    bin->frees = totals.frees;
  }
}

/* The thread is gone in the middle of anything, so its lists may be half written and are given up; that is rare, so no
 * attempt is made to tell. What it did counts. */
static void give_up_lists(struct heap *heap) {
  heap->sampling = (struct sampling){.detached = NULL};
  heaps_given_up++;
  if (!heap_has_store(heap)) return;
  count_what_passed(heap);
  forget_lists(heap);
  heap->store->remote.count = 0;
  heap->store->remote.room = heap->of_epochs ? 0 : REMOTE_BYTES;
  if (heap->of_epochs) heap->lost = UINT64_MAX; /* it never looks drained: what its lists held never comes back */
  if (TSLAB_HARDENED) memset(heap->quarantine, 0, sizeof(struct quarantine));
}

static void put_in_pool(struct heap *heap) {
  heap->next_dead = state.pool;
  heap->pooled = true;
  state.pool = heap;
  atomic_fetch_add_explicit(&unfolded_heaps, 1, memory_order_relaxed);
  atomic_store_explicit(&last_dead_heap, heap, memory_order_relaxed);
  heap_notice(heap);
}

/* Under heaps_lock, and not the heap's. */
static void unfold(struct heap *heap) {
  if (!heap->folded) return;
  if (heap->generation != state.generation) { /* a thread that the child does not have may have been looking at it */
    lock_reset(&heap->lock);
    atomic_store_explicit(&heap->store->notice->is_given, false, memory_order_relaxed);
  }
  lock_take(&heap->lock);
  lock_take(&common_heap.lock);
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

struct heap *heap_acquire(void) {
  lock_take(&heaps_lock);
  struct heap *heap = take_from_pool();
  if (!heap) heap = cut_heap();
  if (heap && !heap->counters) heap->counters = counters_make();
  if (heap && heap->counters) begin_counters(heap);
  if (heap && !heap->counters) heap->counters = &shared_counters;
  if (heap) {
    lock_take(&heap->lock);
    heap->live = true;
    atomic_fetch_add_explicit(&live_heaps, 1, memory_order_relaxed);
    lock_release(&heap->lock);
  }
  lock_release(&heaps_lock);
  return heap;
}

struct heap *heap_take_blank(struct arena *arena) {
  bool grows = false;
  lock_take(&heaps_lock);
  struct heap *heap = take_of_span(&grows);
  lock_release(&heaps_lock);
  if (!heap) return NULL;
  if (grows) os_populate(heap, GRANULE); /* the next ones come soon, and each would cost half a page fault */
  lock_take(&heap->lock);
  heap->live = true;
  heap->closing = false;
  STORE_RACING(heap->thread, current_thread); /* a stale look: epoch/attach.h */
  heap->counters = current_heap->counters;
  heap->plain = current_heap->plain;
  heap->before = tcache_handed_out(heap);
  heap->lost = heap->served - heap->freed;
  __atomic_store_n(&heap->arena, arena, __ATOMIC_RELEASE); /* for the scavenger's look */
  lock_release(&heap->lock);
  return heap;
}

/* What its bins counted stays in them, wherever they are. */
static struct stored *leave_store(struct heap *heap) {
  if (!heap->store) return NULL;
  heap->counters = current_heap->counters; /* the thread that it served is not the one that counts now */
  if (heap->sampling.timings) sample_count(heap);
  tcache_shut(heap);
  return store_leave(heap);
}

void heap_give_back(struct heap *heap) {
  lock_take(&heap->lock); /* the thread that relisted its last slab may still hold it */
  INVARIANT(1, heap->slab_granules == 0 && heap->magazine_bytes == 0);
  struct stored *stored = leave_store(heap);
  heap->live = false;
  STORE_RACING(heap->thread, NULL);
  __atomic_store_n(&heap->arena, NULL, __ATOMIC_RELAXED);
  lock_release(&heap->lock);
  lock_take(&heaps_lock);
  return_to_span(heap);
  bool is_too_much = state.empties > SPANS_KEPT;
  lock_release(&heaps_lock);
  if (is_too_much) trim_one();
  if (stored) store_give_up(stored);
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

struct lock *heap_lock(struct heap *heap) {
  for (;;) {
    struct lock *guard = heap_guard(heap);
    counters_wait(counters_here(), lock_take(guard));
    if (LIKELY(guard == heap_guard(heap))) return guard;
    lock_release(guard); /* it was folded, or a thread got it, in between */
  }
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

/* What the heap counted is common_heap's from now on; its caps start anew. Under walk_lock, so that no reader sees a
 * part of it twice. */
static void move_counts(struct heap *heap) {
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *from = &heap->bins[class], *to = &common_heap.bins[class];
    move(&to->allocations, &from->allocations);
    move(&to->frees, &from->frees);
    move(&to->remote_frees, &from->remote_frees);
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
  heap->store->restless_slabs = 0;
  STORE_RACING(heap->granted_bytes, 0);
  move(&common_heap.served, &heap->served);
  move(&common_heap.freed, &heap->freed);
  move_lock_counts(&common_heap.lock, &heap->lock);
}

/* Under heaps_lock. *counters: what the heap does not need any more. */
static bool relist_locked(struct heap *heap, struct counters **counters) {
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
  if (heap->counters != &shared_counters) {
    *counters = heap->counters;
    counters_fold(*counters);
  }
  heap->counters = NULL;
  atomic_fetch_sub_explicit(&unfolded_heaps, 1, memory_order_relaxed);
  struct heap *last = heap;
  atomic_compare_exchange_strong_explicit(&last_dead_heap, &last, NULL, memory_order_relaxed, memory_order_relaxed);
  return true;
}

bool heap_fold(struct heap *heap) {
  struct counters *counters = NULL;
  lock_take(&walk_lock);
  lock_take(&heaps_lock);
  bool folded = relist_locked(heap, &counters);
  lock_release(&heaps_lock);
  lock_release(&walk_lock);
  if (!counters) return folded;
  counters_purge(counters);
  lock_take(&heaps_lock);
  counters_free(counters);
  lock_release(&heaps_lock);
  return folded;
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

static void retire(struct heap *heap) {
  heap->live = false;
  heap->thread = NULL;
  give_up_lists(heap);
}

/* The scavenger of the parent may have had some in its hands. */
static void notice_again(struct notice *notice) {
  if (!atomic_load_explicit(&notice->is_given, memory_order_relaxed)) return; /* what is not written is not copied */
  atomic_store_explicit(&notice->is_given, false, memory_order_relaxed);
  heap_notice_first(notice);
}

static void notice_all_again(void) {
  atomic_store(&notices, NULL);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
    notice_again(p->store->notice);
  for (struct stored *stored = stored_first(); stored; stored = stored->next) notice_again(&stored->notice);
}

static void retire_if_other(struct heap *heap) {
  undo_change(heap);
  if (heap->live && is_other(heap)) retire(heap);
}

/* Folded heaps stay as they are: the locks that guard them were free. */
void heaps_retire_others(void) {
  state.generation++;
  lock_reset(&walk_lock);
  notice_all_again();
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) {
    retire_if_other(p);
    if (p->store && p->store->unlisted_slabs) p->store->unlisted_slabs = 0; /* PENDING: bins_after_fork lists them */
  }
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active) {
    if (heap_is_nobodys(p)) continue;
    retire_if_other(p);
    if (p->store->unlisted_slabs) p->store->unlisted_slabs = 0; /* as above */
    if (!p->live && !p->pooled) put_in_pool(p); /* also one whose thread was just ending */
  }
  atomic_store(&live_heaps, current_heap != &empty_heap);
}

/* Everything that leads to slabs of it. */
static void empty_bins(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &heap->bins[class];
    __atomic_store_n(&bin->first, 0, __ATOMIC_RELAXED); /* for the look of bins.c without the lock */
    bin->last = bin->listed = 0;
    bin->newest = bin->oldest = 0;
    bin->magazine_blocks = bin->magazine_least = 0;
  }
  __atomic_store_n(&heap->magazine_bytes, 0, __ATOMIC_RELAXED);
  heap->free_magazine = 0;
  heap->unused_magazine = 1;
  heap->store->unlisted_slabs = 0;
  large_cache_forget(heap);
  uint32_t attached = atomic_load_explicit(&heap->store->chunks.attached, memory_order_relaxed);
  heap->store->chunks = (struct chunk_cache){.attached = attached};
}

static void freeze(struct heap *heap, bool knows_its_thread) {
  undo_change(heap);
  if (knows_its_thread && heap->live && is_other(heap)) retire(heap);
  if (!heap->folded) empty_bins(heap);
}

static void freeze_nobodys(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  empty_bins(heap);
  undo_change(heap);
  count_what_passed(heap);
  forget_lists(heap);
  heap->counters = &shared_counters;
  atomic_store_explicit(&heap->store->notice->is_given, false, memory_order_relaxed);
}

void heaps_freeze(bool knows_its_thread) {
  state.pool = NULL;
  state.roomy = state.empty = state.purged = NULL;
  state.empties = state.least_empties = state.granules_had = state.granules_left = 0;
  state.cuttings = state.spans = (struct cuttings){NULL, NULL};
  lock_reset(&walk_lock);
  stores_freeze();
  atomic_store(&unfolded_heaps, 0);
  atomic_store(&notices, NULL);
  atomic_store(&last_dead_heap, NULL);
  freeze_nobodys(&common_heap);
  freeze_nobodys(&sampled_heap);
  profile_freeze();
  for (struct heap *p = atomic_load_explicit(&all_heaps, memory_order_acquire); p; p = p->next_heap) {
    freeze(p, knows_its_thread);
    atomic_store_explicit(&p->store->notice->is_given, false, memory_order_relaxed);
    p->pooled = false;
  }
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) freeze(p, knows_its_thread);
  if (knows_its_thread) atomic_store(&live_heaps, current_heap != &empty_heap);
}

/* The lists stay, for the next thread or the scavenger, whoever comes first: a thread's end costs little. */
void heap_release(struct heap *heap) {
  lock_take(&heap->lock);
  heap->live = false;
  heap->thread = NULL;
  atomic_fetch_sub_explicit(&live_heaps, 1, memory_order_relaxed);
  lock_release(&heap->lock);
  lock_take(&heaps_lock);
  put_in_pool(heap);
  lock_release(&heaps_lock);
  if (!options.scavenger) heaps_fold_dead(heap);
}
