/* part: see part.h.                                                                                  floor: heap */
#include "heap/part.h"

#include "heap/fast.h"
#include "heap/large_cache.h"
#include "heap/lists.h"
#include "heap/quarantine.h"
#include "heap/sample.h"
#include "heap/store.h"
#include "os/os.h"
#include <string.h>

const struct bin no_bin;
struct part empty_part = {.list = {[0 ... CLASSES - 1] = CHAIN_END}, .tally = &nobodys_tally, .plain = &empty_part};
__thread struct part *current_part = &empty_part;
/* Beside current_part, with the smaller ones behind both: so static TLS is 24 bytes, without a hole. */
__thread struct thread *current_thread __attribute__((section(".tdata.current_thread"))) = NULL;
__thread uint8_t thread_heap_state;
__thread uint8_t thread_frees_unborn;
struct part *_Atomic all_parts;
_Atomic unsigned dead_parts, live_parts;
unsigned parts_given_up;

static struct {
  struct part *pool;  /* dead threads' */
  struct cuttings cuttings, spans;
  struct span *roomy;  /* with a part that is blank, or was not cut yet */
  struct span *empty;  /* without a part in use */
  struct span *purged; /* without memory */
  unsigned empties, least_empties; /* of `empty`, now and since the last trim */
  char *granules;      /* had at once, for spans, and how many are left */
  uint32_t granules_had, granules_left;
  uint32_t made;
} own;

_Static_assert(sizeof(struct part) <= GRANULE / 4, "several parts to a granule");

static void init(struct part *part, bool of_epochs) {
  if (TSLAB_HARDENED) part->quarantine = (struct quarantine *)(uintptr_t)&no_quarantine;
  part->index = ++own.made;
  part->of_epochs = of_epochs;
  part->plain = part;
  part->unused_batch = 1;
  for (unsigned class = 0; class < CLASSES; class++) {
    part->list[class] = CHAIN_END;
    part->inverse[class] = class_inverse(class);
  }
}

static struct part *cut_part(void) {
  struct stored *stored = store_take(false);
  struct part *part = stored ? pages_cut(&own.cuttings, sizeof(struct part)) : NULL;
  if (!part) return NULL;
  init(part, false);
  store_give_to(part, stored);
  part->next_part = atomic_load_explicit(&all_parts, memory_order_relaxed);
  atomic_store_explicit(&all_parts, part, memory_order_release); /* pairs with every walk of the list */
  return part;
}

#define LOOKS_AT_ONCE 64 /* a change takes well under a microsecond */

void part_look_again(unsigned *looks) {
  lock_look();
  if (++*looks % LOOKS_AT_ONCE == 0) os_rest();
}

/* ---- parts of epochs, in granules -------------------------------------------------------------------------------- */

/* Under parts_lock, but for walks: `next`, which never changes once set, and `present`. */
struct span {
  struct span *next;       /* every one ever made */
  struct part *parts;      /* its granule */
  struct part *blank;      /* those not in use, through next_dead */
  struct span *next_roomy, *previous_roomy; /* or the next one that is empty, or purged */
  _Atomic uint32_t present; /* parts that were cut since it had no memory */
  uint32_t in_use;          /* parts */
} ALIGNED(CACHE_LINE);

static struct span *_Atomic all_spans;
_Atomic uint64_t parts_folded_bumped;
struct lock_totals parts_folded_locks;
_Atomic uint64_t parts_folds;

static struct run *run_of(const struct part *part) { return pages.runs + granule_of(part); }

/* NULL for a thread's. */
static struct span *span_of(const struct part *part) {
  return (struct span *)(void *)atomic_load_explicit(&run_of(part)->part, memory_order_relaxed);
}

static void join_roomy(struct span *span) {
  span->previous_roomy = NULL;
  span->next_roomy = own.roomy;
  if (own.roomy) own.roomy->previous_roomy = span;
  own.roomy = span;
}

static void leave_roomy(struct span *span) {
  if (span->previous_roomy) span->previous_roomy->next_roomy = span->next_roomy;
  else own.roomy = span->next_roomy;
  if (span->next_roomy) span->next_roomy->previous_roomy = span->previous_roomy;
}

/* Twice as many at a time as the last time: each granule that stays in use among others keeps these from being one free
 * run. They are not resident before they are used. */
#define SPANS_MOST 16
static char *span_granule(void) {
  if (own.granules_left == 0) {
    bool zero;
    size_t count = min_size(max_size(own.granules_had * 2, 1), SPANS_MOST);
    struct run *run = pages_alloc(count, GRANULE, RUN_META, &zero, NULL);
    if (!run) return NULL;
    if (!zero && !os_purge(run_start(run), run_bytes(run))) memset(run_start(run), 0, run_bytes(run));
    own.granules = run_start(run);
    own.granules_had = own.granules_left = (uint32_t)count;
  }
  return own.granules + GRANULE * (own.granules_had - own.granules_left--);
}

static struct span *new_span(void) {
  struct span *span = pages_cut(&own.spans, sizeof(struct span));
  struct part *parts = span ? (struct part *)(void *)span_granule() : NULL;
  if (!parts) return NULL;
  span->parts = parts;
  atomic_store_explicit(&run_of(parts)->part, (struct part *)(void *)span, memory_order_relaxed);
  span->next = atomic_load_explicit(&all_spans, memory_order_relaxed);
  atomic_store_explicit(&all_spans, span, memory_order_release); /* pairs with every walk of them */
  return span;
}

static struct span *pop_empty(void) {
  struct span *span = own.empty;
  if (!span) return NULL;
  own.empty = span->next_roomy;
  own.least_empties = (unsigned)min_size(own.least_empties, --own.empties);
  return span;
}

static struct span *roomy_span(void) {
  if (own.roomy) return own.roomy;
  struct span *span = pop_empty();
  if (!span && (span = own.purged)) own.purged = span->next_roomy;
  if (!span) span = new_span();
  if (span) join_roomy(span);
  return span;
}

static struct part *take_of_span(bool *grows) {
  struct span *span = roomy_span();
  if (!span) return NULL;
  uint32_t present = atomic_load_explicit(&span->present, memory_order_relaxed);
  struct part *part = span->blank;
  if (part) {
    span->blank = part->next_dead;
  } else {
    *grows = present == 0 && span->next;
    part = &span->parts[present++];
    init(part, true);
    atomic_store_explicit(&span->present, present, memory_order_release); /* pairs with parts_next */
  }
  span->in_use++;
  if (!span->blank && present == PART_SPAN) leave_roomy(span);
  return part;
}

/* Its parts have figures, which go on to count. */
static void fold(struct span *span) {
  uint32_t present = atomic_load_explicit(&span->present, memory_order_relaxed);
  atomic_fetch_add_explicit(&parts_folds, 1, memory_order_acq_rel);
  for (struct part *p = span->parts; p < span->parts + present; p++) {
    atomic_fetch_add_explicit(&parts_folded_bumped, part_bumped(p), memory_order_release);
    lock_totals_add(&parts_folded_locks, &p->lock);
  }
  atomic_store_explicit(&span->present, 0, memory_order_release);
  atomic_fetch_add_explicit(&parts_folds, 1, memory_order_acq_rel);
}

/* Under parts_lock. Returns an empty one without parts, whose memory is to be given back, or NULL. */
static struct span *take_empty(void) {
  struct span *span = pop_empty();
  if (!span) return NULL;
  span->blank = NULL;
  fold(span);
  return span;
}

/* Under parts_lock. Returns what take_empty does, if one is too many. */
static struct span *return_to_span(struct part *part) {
  struct span *span = span_of(part);
  bool was_roomy = span->blank || atomic_load_explicit(&span->present, memory_order_relaxed) < PART_SPAN;
  part->next_dead = span->blank;
  span->blank = part;
  if (--span->in_use > 0) {
    if (!was_roomy) join_roomy(span);
    return NULL;
  }
  if (was_roomy) leave_roomy(span);
  span->next_roomy = own.empty;
  own.empty = span;
  return ++own.empties > SPANS_KEPT ? take_empty() : NULL;
}

static void purge_span(struct span *span) {
  bool done = os_purge(span->parts, GRANULE);
  pages_count_purge(GRANULE, done);
  if (!done) memset(span->parts, 0, GRANULE);
  lock_take(&parts_lock);
  span->next_roomy = own.purged;
  own.purged = span;
  lock_release(&parts_lock);
}

static struct part *first_from(const struct span *span) {
  for (; span; span = span->next)
    if (atomic_load_explicit(&span->present, memory_order_acquire) > 0) return span->parts;
  return NULL;
}

static struct part *first_of_epochs(void) {
  return first_from(atomic_load_explicit(&all_spans, memory_order_acquire));
}

struct part *parts_first(void) {
  struct part *part = atomic_load_explicit(&all_parts, memory_order_acquire);
  return part ? part : first_of_epochs();
}

/* A walk over many parts looks at a few lines of each, and would wait for every one. */
#define PARTS_AHEAD 6
static void ask_for(const struct part *part) {
  __builtin_prefetch(&part->sampling.sequence);
  __builtin_prefetch(&part->bump);
  __builtin_prefetch(&part->bump.sealed);
  __builtin_prefetch(&part->lock);
}

struct part *parts_next(struct part *part) {
  const struct span *span = span_of(part);
  if (!span) return part->next_part ? part->next_part : first_of_epochs();
  uint32_t next = (uint32_t)(part - span->parts) + 1;
  ask_for(part + PARTS_AHEAD);
  if (next < atomic_load_explicit(&span->present, memory_order_acquire)) return &span->parts[next];
  return first_from(span->next);
}

size_t parts_of_epochs(void) {
  size_t count = 0;
  for (struct span *span = atomic_load_explicit(&all_spans, memory_order_acquire); span; span = span->next)
    count += atomic_load_explicit(&span->present, memory_order_relaxed);
  return count;
}

size_t parts_trim(bool all) {
  size_t bytes = 0;
  lock_take(&parts_lock);
  unsigned going = all ? own.empties : own.least_empties;
  own.least_empties = own.empties - going;
  lock_release(&parts_lock);
  for (; going > 0; going--, bytes += GRANULE) {
    lock_take(&parts_lock);
    struct span *span = take_empty();
    lock_release(&parts_lock);
    if (!span) break;
    purge_span(span);
  }
  return bytes;
}

bool part_make_store(struct part *part) {
  lock_take(&parts_lock);
  struct stored *stored = store_take(part->of_epochs);
  if (stored) {
    lock_take(&part->lock);
    store_give_to(part, stored);
    lock_release(&part->lock);
  }
  lock_release(&parts_lock);
  return stored != NULL;
}

/* ---- births and ends --------------------------------------------------------------------------------------------- */

static bool is_other(const struct part *part) {
  return part != current_part && (!current_thread || part->thread != current_thread);
}

/* By who finds the part in a fork child, and no thread in it: the numbers are those of before a change again. A block
 * of its chunk that another thread was freeing may be marked and not counted, so counts say nothing of marks. */
static void undo_change(struct part *part) {
  const struct undo *undo = &part->undo;
  struct run *chunk = part_chunk(part);
  if (chunk) chunk->class = CHUNK_HAS_GAPS;
  if (part->sampling.sequence % 2 == 0) return;
  if (undo->class == UNDO_CHUNKS) {
    part->bump.allocations = undo->was[0];
    part->bump.sealed = undo->was[1];
    part->bump.count = (uint32_t)undo->was[2];
  } else if (undo->class < CLASSES) {
    part->bins[undo->class].allocations = undo->was[0];
    part->bins[undo->class].frees = undo->was[1];
    part->served = undo->was[2];
    part->freed = undo->was[3];
    part->count[undo->class] = undo->count;
  }
  part->sampling.sequence++;
}

/* The thread is gone in the middle of anything, so its lists may be half written and are given up; that is rare, so no
 * attempt is made to tell. What it did counts. */
static void give_up_lists(struct part *part) {
  part->sampling = (struct sampling){.aside = NULL};
  parts_given_up++;
  if (!part_has_store(part)) return;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &part->bins[class];
    struct list_totals totals = list_totals(part, class);
    part->served += totals.allocations - bin->allocations;
    part->freed += totals.frees - bin->frees;
    bin->allocations = totals.allocations;
    bin->frees = totals.frees;
    part->list[class] = CHAIN_END;
    part->count[class] = (struct count){0, 0};
  }
  part->store->remote.count = 0;
  part->store->remote.room = part->of_epochs ? 0 : REMOTE_BYTES;
  part->lost = UINT64_MAX; /* it never looks drained, for what its lists held never comes back */
  if (TSLAB_HARDENED) memset(part->quarantine, 0, sizeof(struct quarantine));
}

static void put_in_pool(struct part *part) {
  part->next_dead = own.pool;
  own.pool = part;
  atomic_fetch_add_explicit(&dead_parts, 1, memory_order_relaxed);
}

static void begin_tally(struct part *part) {
  uint64_t allocations = 0, frees = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct list_totals list = list_totals(part, class);
    allocations += list.allocations;
    frees += list.frees + LOAD_RACING(part_bin(part, class)->remote_frees);
  }
  part->tally->allocations_before = allocations;
  part->tally->frees_before = frees;
  tally_begin(part->tally);
}

struct part *part_acquire(void) {
  lock_take(&parts_lock);
  struct part *part = own.pool;
  if (part) {
    own.pool = part->next_dead;
    atomic_fetch_sub_explicit(&dead_parts, 1, memory_order_relaxed);
  } else {
    part = cut_part();
  }
  if (part && !part->tally) part->tally = tally_make();
  if (part && part->tally) begin_tally(part);
  if (part && !part->tally) part->tally = &nobodys_tally;
  lock_release(&parts_lock);
  if (!part) return NULL;
  lock_take(&part->lock);
  part->live = true;
  atomic_fetch_add_explicit(&live_parts, 1, memory_order_relaxed);
  lock_release(&part->lock);
  return part;
}

struct part *part_take_blank(struct lifetime *lifetime) {
  bool grows = false;
  lock_take(&parts_lock);
  struct part *part = take_of_span(&grows);
  lock_release(&parts_lock);
  if (!part) return NULL;
  if (grows) os_populate(part, GRANULE); /* the next ones come soon, and each would cost half a page fault */
  lock_take(&part->lock);
  part->live = true;
  part->closing = false;
  STORE_RACING(part->thread, current_thread); /* a stale look: epoch/attach.h */
  part->tally = current_part->tally;
  part->plain = current_part->plain;
  part->before = list_handed_out(part);
  part->lost = part->served - part->freed;
  __atomic_store_n(&part->lifetime, lifetime, __ATOMIC_RELEASE); /* for the scavenger's look */
  lock_release(&part->lock);
  return part;
}

/* What its bins counted stays in them, wherever they are. */
static struct stored *leave_store(struct part *part) {
  if (!part->store) return NULL;
  part->tally = current_part->tally; /* the thread that it served is not the one that counts now */
  if (part->sampling.timings) sample_count(part);
  lists_shut(part);
  return store_leave(part);
}

void part_give_back(struct part *part) {
  lock_take(&part->lock); /* who settled its last slab may still hold it */
  INVARIANT(1, part->slab_granules == 0 && part->depot_bytes == 0);
  struct stored *stored = leave_store(part);
  part->live = false;
  STORE_RACING(part->thread, NULL);
  __atomic_store_n(&part->lifetime, NULL, __ATOMIC_RELAXED);
  lock_release(&part->lock);
  lock_take(&parts_lock);
  struct span *empty = return_to_span(part);
  lock_release(&parts_lock);
  if (empty) purge_span(empty);
  if (stored) store_give_up(stored);
}

static void bury(struct part *part) {
  part->live = false;
  part->thread = NULL;
  give_up_lists(part);
}

/* A walk that took a lock of a part whose memory was given back is not there to release it. */
static void reset_absent_locks(void) {
  for (struct span *span = atomic_load_explicit(&all_spans, memory_order_acquire); span; span = span->next)
    for (unsigned i = atomic_load_explicit(&span->present, memory_order_relaxed); i < PART_SPAN; i++)
      if (atomic_load_explicit(&span->parts[i].lock.word, memory_order_relaxed)) lock_reset(&span->parts[i].lock);
}

void parts_bury_others(void) {
  reset_absent_locks();
  own.pool = NULL;
  atomic_store(&dead_parts, 0);
  for (struct part *p = parts_first(); p; p = parts_next(p)) {
    undo_change(p);
    if (p->live && is_other(p)) bury(p);
    if (!p->of_epochs && !p->live) put_in_pool(p); /* also one whose thread was being born or dying */
  }
  atomic_store(&live_parts, current_part != &empty_part);
}

/* Everything that leads to slabs of it. */
static void empty_bins(struct part *part) {
  if (!part_has_store(part)) return;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &part->bins[class];
    __atomic_store_n(&bin->first, 0, __ATOMIC_RELAXED); /* for the look of bins.c without the lock */
    bin->last = bin->listed = 0;
    bin->newest = bin->oldest = 0;
    bin->depot_blocks = bin->depot_least = 0;
  }
  __atomic_store_n(&part->depot_bytes, 0, __ATOMIC_RELAXED);
  part->free_batch = 0;
  part->unused_batch = 1;
  large_cache_forget(part);
  part->store->chunks = (struct chunk_cache){.count = 0};
}

void parts_freeze(bool knows_its_thread) {
  own.pool = NULL;
  own.roomy = own.empty = own.purged = NULL;
  own.empties = own.least_empties = own.granules_had = own.granules_left = 0;
  own.cuttings = own.spans = (struct cuttings){NULL, NULL};
  stores_freeze();
  atomic_store(&dead_parts, 0);
  for (struct part *p = parts_first(); p; p = parts_next(p)) {
    undo_change(p);
    if (knows_its_thread && p->live && is_other(p)) bury(p);
    empty_bins(p);
  }
  if (knows_its_thread) atomic_store(&live_parts, current_part != &empty_part);
}

/* The lists stay, for the next thread or the scavenger, whoever comes first: a thread's end costs little. */
void part_release(struct part *part) {
  lock_take(&part->lock);
  part->live = false;
  part->thread = NULL;
  atomic_fetch_sub_explicit(&live_parts, 1, memory_order_relaxed);
  lock_release(&part->lock);
  lock_take(&parts_lock);
  put_in_pool(part);
  lock_release(&parts_lock);
}
