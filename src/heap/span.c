/* span: see span.h.                                                                                 floor: heap */
#include "heap/span.h"

#include "os/os.h"
#include <string.h>

static struct {
  struct cuttings spans;
  struct span *roomy;  /* with a blank heap, or one that was not cut yet */
  struct span *empty;  /* without a heap in use */
  struct span *purged; /* without memory */
  unsigned empties, least_empties; /* of `empty`, now and since the last trim */
  char *granules;      /* taken at once for spans; how many, and how many are left */
  uint32_t granules_had, granules_left;
} state;

/* heaps_lock protects a span. Walks read `next`, which never changes once set, and `present`. */
struct span {
  struct span *next;       /* every span ever made */
  struct heap *heaps;      /* its granule */
  struct heap *blank;      /* heaps that are not in use, through next_dead */
  struct span *next_roomy, *previous_roomy; /* or the next empty or purged one */
  _Atomic uint32_t present; /* heaps that were cut since the granule had no memory */
  uint32_t in_use;          /* heaps */
  bool is_absent;           /* its memory went back to the kernel */
} ALIGNED(CACHE_LINE);

static struct span *_Atomic all_spans;
uint64_t heaps_folded_bumped;
struct lock_totals heaps_folded_locks;

static struct run *run_of(const struct heap *heap) { return pages.runs + granule_of(heap); }

/* Returns the span of an epoch's heap; NULL for a thread's heap. */
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

/* Takes twice as many granules at a time as the last time, because a granule that stays in use among free ones keeps
 * these from being one free run. They become resident only when used. */
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
  atomic_store_explicit(&all_spans, span, memory_order_release); /* pairs with every walk */
  return span;
}

static struct span *pop_empty(void) {
  struct span *span = state.empty;
  if (!span) return NULL;
  state.empty = span->next_roomy;
  state.least_empties = (unsigned)min_size(state.least_empties, --state.empties);
  return span;
}

static struct span *pop_purged(void) {
  struct span *span = state.purged;
  if (!span) return NULL;
  state.purged = span->next_roomy;
  if (span->is_absent) pages_count_present(GRANULE);
  span->is_absent = false;
  return span;
}

static struct span *roomy_span(void) {
  if (state.roomy) return state.roomy;
  struct span *span = pop_empty();
  if (!span) span = pop_purged();
  if (!span) span = new_span();
  if (span) join_roomy(span);
  return span;
}

struct heap *span_take_heap(bool *grows) {
  struct span *span = roomy_span();
  if (!span) return NULL;
  uint32_t present = atomic_load_explicit(&span->present, memory_order_relaxed);
  struct heap *heap = span->blank;
  if (heap) {
    span->blank = heap->next_dead;
  } else {
    *grows = present == 0 && span->next;
    heap = &span->heaps[present++];
    heap_init(heap, true);
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

/* Caller holds heaps_lock. */
void span_return_heap(struct heap *heap) {
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
  span->is_absent = pages_purge_own(span->heaps, GRANULE);
  if (!span->is_absent) memset(span->heaps, 0, GRANULE);
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

/* Does nothing while a thread walks over heaps, which may take long; a later call does it. */
void spans_trim_one(void) {
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

/* Prefetches for a walk over many heaps, which would wait for a few lines of each. */
#define HEAPS_AHEAD 6
static void ask_for(const struct heap *heap) {
  __builtin_prefetch(&heap->sampling.sequence);
  __builtin_prefetch(&heap->bump);
  __builtin_prefetch(&heap->bump.allocations);
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

bool spans_are_many(void) { return state.empties > SPANS_KEPT; }

void spans_freeze(void) {
  state.roomy = state.empty = state.purged = NULL;
  state.empties = state.least_empties = state.granules_had = state.granules_left = 0;
  state.spans = (struct cuttings){NULL, NULL};
}
