/* part: see part.h.                                                                                  floor: heap */
#include "heap/part.h"

#include "base/options.h"
#include "heap/fast.h"
#include "heap/heap.h"
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
struct part common_part;
bool common_begun;
uint32_t settled_slabs[CLASSES];
struct part *_Atomic all_parts, *_Atomic active_parts, *_Atomic last_dead_part;
struct notice *_Atomic notices;
_Atomic uint32_t parts_here;
_Atomic unsigned unsettled_parts, live_parts;
unsigned parts_given_up;

static struct {
  struct part *pool;  /* dead threads' */
  struct cuttings cuttings, spans;
  uint32_t generation; /* of processes: counts forks */
  struct span *roomy;  /* with a part that is blank, or was not cut yet */
  struct span *empty;  /* without a part in use */
  struct span *purged; /* without memory */
  unsigned empties, least_empties; /* of `empty`, now and since the last trim */
  char *granules;      /* had at once, for spans, and how many are left */
  uint32_t granules_had, granules_left;
  uint32_t made;
} own;

_Static_assert(sizeof(struct part) <= GRANULE / 4, "several parts to a granule");

/* ---- the lists of parts ------------------------------------------------------------------------------------------ */

static void link_active(struct part *part) {
  struct part *head = atomic_load_explicit(&active_parts, memory_order_relaxed);
  part->next_active = head;
  part->previous_active = NULL;
  if (head) head->previous_active = part;
  atomic_store_explicit(&active_parts, part, memory_order_release); /* pairs with every walk of the list */
}

static void unlink_active(struct part *part) {
  if (part->previous_active) part->previous_active->next_active = part->next_active;
  else atomic_store_explicit(&active_parts, part->next_active, memory_order_relaxed);
  if (part->next_active) part->next_active->previous_active = part->previous_active;
}

NOINLINE void part_notice_first(struct notice *notice) {
  /* Acquire: pairs with the scavenger's release, before which it read `next`. */
  if (atomic_exchange_explicit(&notice->is_given, true, memory_order_acquire)) return;
  notice->next = atomic_load_explicit(&notices, memory_order_relaxed);
  /* Release: pairs with the scavenger's exchange, which takes all, so that there is no ABA. */
  while (!atomic_compare_exchange_weak_explicit(&notices, &notice->next, notice, memory_order_release,
                                                memory_order_relaxed)) {}
}

static void begin_lists(struct part *part) {
  part->plain = part;
  part->unused_batch = 1;
  for (unsigned class = 0; class < CLASSES; class++) {
    part->list[class] = CHAIN_END;
    part->inverse[class] = class_inverse(class);
  }
}

static void init(struct part *part, bool of_epochs) {
  if (TSLAB_HARDENED) part->quarantine = (struct quarantine *)(uintptr_t)&no_quarantine;
  part->index = ++own.made;
  atomic_fetch_add_explicit(&parts_here, 1, memory_order_relaxed);
  part->of_epochs = of_epochs;
  begin_lists(part);
}

/* A part that keeps its store lies in one of these; its quarantine, where it has one, lies behind. */
struct lasting_part {
  struct part part;
  struct notice notice;
  struct part_store store;
};

/* Not before the process has a second thread or gives memory back: one that does little does not touch these pages.
 * Caller holds parts_lock. */
static void begin_common(void) {
  static struct notice notice;
  static struct part_store store;
  static struct quarantine quarantine;
  if (common_begun) return;
  begin_lists(&common_part);
  store_keep(&common_part, &store, &notice);
  if (TSLAB_HARDENED) common_part.quarantine = &quarantine;
  common_part.tally = &nobodys_tally;
  link_active(&common_part);
  common_begun = true;
}

void part_begin_common(void) {
  lock_take(&parts_lock);
  begin_common();
  lock_release(&parts_lock);
}

static struct part *cut_part(void) {
  size_t more = TSLAB_HARDENED ? sizeof(struct quarantine) : 0;
  struct lasting_part *lasting = pages_cut(&own.cuttings, sizeof(struct lasting_part) + more);
  if (!lasting) return NULL;
  struct part *part = &lasting->part, *newest = atomic_load_explicit(&all_parts, memory_order_relaxed);
  if (newest) begin_common();
  init(part, false);
  store_keep(part, &lasting->store, &lasting->notice);
  if (more) part->quarantine = (struct quarantine *)(void *)(lasting + 1);
  link_active(part);
  part->next_part = newest;
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
uint64_t parts_folded_bumped;
struct lock_totals parts_folded_locks;

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

/* Adds the counts of the span's parts to those that stay. Caller holds walk_lock and parts_lock. */
static void fold(struct span *span) {
  uint32_t present = atomic_load_explicit(&span->present, memory_order_relaxed);
  for (struct part *p = span->parts; p < span->parts + present; p++) {
    parts_folded_bumped += part_bumped(p);
    lock_totals_add(&parts_folded_locks, &p->lock);
  }
  atomic_store_explicit(&span->present, 0, memory_order_release);
  atomic_fetch_sub_explicit(&parts_here, present, memory_order_relaxed);
}

/* Under parts_lock. */
static void return_to_span(struct part *part) {
  struct span *span = span_of(part);
  bool was_roomy = span->blank || atomic_load_explicit(&span->present, memory_order_relaxed) < PART_SPAN;
  part->next_dead = span->blank;
  span->blank = part;
  if (--span->in_use > 0) {
    if (!was_roomy) join_roomy(span);
    return;
  }
  if (was_roomy) leave_roomy(span);
  span->next_roomy = own.empty;
  own.empty = span;
  own.empties++;
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

/* Gives back the memory of a span without a part in use. Caller holds walk_lock. */
static bool purge_empty(void) {
  lock_take(&parts_lock);
  struct span *span = pop_empty();
  if (span) {
    span->blank = NULL;
    fold(span);
  }
  lock_release(&parts_lock);
  if (span) purge_span(span);
  return span != NULL;
}

/* Not while a thread walks over parts, which may take long: whoever comes next does it. */
static void trim_one(void) {
  if (!lock_try(&walk_lock)) return;
  purge_empty();
  lock_release(&walk_lock);
}

static struct part *first_from(const struct span *span) {
  for (; span; span = span->next)
    if (atomic_load_explicit(&span->present, memory_order_acquire) > 0) return span->parts;
  return NULL;
}

struct part *parts_first_of_epochs(void) {
  return first_from(atomic_load_explicit(&all_spans, memory_order_acquire));
}

/* A walk over many parts looks at a few lines of each, and would wait for every one. */
#define PARTS_AHEAD 6
static void ask_for(const struct part *part) {
  __builtin_prefetch(&part->sampling.sequence);
  __builtin_prefetch(&part->bump);
  __builtin_prefetch(&part->bump.sealed);
  __builtin_prefetch(&part->lock);
}

struct part *parts_next_of_epochs(struct part *part) {
  const struct span *span = span_of(part);
  uint32_t next = (uint32_t)(part - span->parts) + 1;
  ask_for(part + PARTS_AHEAD);
  if (next < atomic_load_explicit(&span->present, memory_order_acquire)) return &span->parts[next];
  return first_from(span->next);
}

size_t parts_trim(bool all) {
  size_t bytes = 0;
  lock_take(&walk_lock);
  lock_take(&parts_lock);
  unsigned going = all ? own.empties : own.least_empties;
  own.least_empties = own.empties - going;
  lock_release(&parts_lock);
  for (; going > 0 && purge_empty(); going--) bytes += GRANULE;
  lock_release(&walk_lock);
  return bytes;
}

bool part_make_store(struct part *part) {
  lock_take(&parts_lock);
  struct stored *stored = store_take();
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

static void forget_lists(struct part *part) {
  for (unsigned class = 0; class < CLASSES; class++) {
    part->list[class] = CHAIN_END;
    part->count[class] = (struct count){0, 0};
  }
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
  }
  forget_lists(part);
  part->store->remote.count = 0;
  part->store->remote.room = part->of_epochs ? 0 : REMOTE_BYTES;
  if (part->of_epochs) part->lost = UINT64_MAX; /* it never looks drained: what its lists held never comes back */
  if (TSLAB_HARDENED) memset(part->quarantine, 0, sizeof(struct quarantine));
}

static void put_in_pool(struct part *part) {
  part->next_dead = own.pool;
  part->pooled = true;
  own.pool = part;
  atomic_fetch_add_explicit(&unsettled_parts, 1, memory_order_relaxed);
  atomic_store_explicit(&last_dead_part, part, memory_order_relaxed);
  part_notice(part);
}

/* Under parts_lock, and not the part's. */
static void unsettle(struct part *part) {
  if (!part->settled) return;
  if (part->generation != own.generation) { /* a thread that the child does not have may have been looking at it */
    lock_reset(&part->lock);
    atomic_store_explicit(&part->store->notice->is_given, false, memory_order_relaxed);
  }
  lock_take(&part->lock);
  lock_take(&common_part.lock);
  for (unsigned class = 0; class < CLASSES; class++) settled_slabs[class] -= part->bins[class].slabs;
  STORE_RACING(part->settled, false);
  lock_release(&common_part.lock);
  lock_release(&part->lock);
  link_active(part);
}

static struct part *take_from_pool(void) {
  struct part *part = own.pool;
  if (!part) return NULL;
  own.pool = part->next_dead;
  part->pooled = false;
  if (part->settled) unsettle(part);
  else atomic_fetch_sub_explicit(&unsettled_parts, 1, memory_order_relaxed);
  return part;
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
  struct part *part = take_from_pool();
  if (!part) part = cut_part();
  if (part && !part->tally) part->tally = tally_make();
  if (part && part->tally) begin_tally(part);
  if (part && !part->tally) part->tally = &nobodys_tally;
  if (part) {
    lock_take(&part->lock);
    part->live = true;
    atomic_fetch_add_explicit(&live_parts, 1, memory_order_relaxed);
    lock_release(&part->lock);
  }
  lock_release(&parts_lock);
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
  return_to_span(part);
  bool is_too_much = own.empties > SPANS_KEPT;
  lock_release(&parts_lock);
  if (is_too_much) trim_one();
  if (stored) store_give_up(stored);
}

/* ---- settling ---------------------------------------------------------------------------------------------------- */

struct lock *part_lock(struct part *part) {
  for (;;) {
    struct lock *guard = part_guard(part);
    tally_wait(tally_here(), lock_take(guard));
    if (LIKELY(guard == part_guard(part))) return guard;
    lock_release(guard); /* it was settled, or a thread got it, in between */
  }
}

static bool holds_nothing(const struct part *part) {
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct bin *bin = &part->bins[class];
    if (bin->listed || bin->depot_blocks || !list_is_settled(part, class)) return false;
  }
  const struct part_store *store = part->store;
  bool keeps_chunks = store->chunks.claimed != 0 || store->chunks.spare_of != 0;
  return store->unlisted_slabs == 0 && store->large.count == 0 && !keeps_chunks && !part->sampling.aside;
}

static void move(uint64_t *to, uint64_t *from) {
  tally_add(to, *from);
  __atomic_store_n(from, 0, __ATOMIC_RELAXED);
}

static void move_lock_counts(struct lock *to, struct lock *from) {
  move(&to->taken, &from->taken);
  move(&to->contended, &from->contended);
  move(&to->waited, &from->waited);
  move(&to->held, &from->held);
}

/* What the part counted is common_part's from now on; its caps start anew. Under walk_lock, so that no reader sees a
 * part of it twice. */
static void move_counts(struct part *part) {
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *from = &part->bins[class], *to = &common_part.bins[class];
    move(&to->allocations, &from->allocations);
    move(&to->frees, &from->frees);
    move(&to->remote_frees, &from->remote_frees);
    move(&to->refills, &from->refills);
    move(&to->overflows, &from->overflows);
    to->born += from->born, from->born = 0;
    to->retired += from->retired, from->retired = 0;
    settled_slabs[class] += from->slabs;
    from->cap = 0;
    from->halvings = from->due = 0;
    from->countdown = 0;
    part->count[class] = (struct count){0, 0};
  }
  part->opened = 0;
  part->store->restless_slabs = 0;
  STORE_RACING(part->granted_bytes, 0);
  move(&common_part.served, &part->served);
  move(&common_part.freed, &part->freed);
  move_lock_counts(&common_part.lock, &part->lock);
}

/* Under parts_lock. *tally: what the part does not need any more. */
static bool settle_locked(struct part *part, struct tally **tally) {
  lock_take(&part->lock);
  bool settles = part->pooled && !part->live && !part->settled && holds_nothing(part);
  if (settles) {
    lock_take(&common_part.lock);
    move_counts(part);
    part->generation = own.generation;
    STORE_RACING(part->settled, true);
    lock_release(&common_part.lock);
  }
  lock_release(&part->lock);
  if (!settles) return false;
  unlink_active(part);
  if (part->tally != &nobodys_tally) {
    *tally = part->tally;
    tally_settle(*tally);
  }
  part->tally = NULL;
  atomic_fetch_sub_explicit(&unsettled_parts, 1, memory_order_relaxed);
  struct part *last = part;
  atomic_compare_exchange_strong_explicit(&last_dead_part, &last, NULL, memory_order_relaxed, memory_order_relaxed);
  return true;
}

bool part_settle(struct part *part) {
  struct tally *tally = NULL;
  lock_take(&walk_lock);
  lock_take(&parts_lock);
  bool settled = settle_locked(part, &tally);
  lock_release(&parts_lock);
  lock_release(&walk_lock);
  if (!tally) return settled;
  tally_purge(tally);
  lock_take(&parts_lock);
  tally_free(tally);
  lock_release(&parts_lock);
  return settled;
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

static void bury(struct part *part) {
  part->live = false;
  part->thread = NULL;
  give_up_lists(part);
}

/* The scavenger of the parent may have had some in its hands. */
static void notice_again(struct notice *notice) {
  if (!atomic_load_explicit(&notice->is_given, memory_order_relaxed)) return; /* what is not written is not copied */
  atomic_store_explicit(&notice->is_given, false, memory_order_relaxed);
  part_notice_first(notice);
}

static void notice_all_again(void) {
  atomic_store(&notices, NULL);
  for (struct part *p = atomic_load_explicit(&active_parts, memory_order_acquire); p; p = p->next_active)
    notice_again(p->store->notice);
  for (struct stored *stored = stored_first(); stored; stored = stored->next) notice_again(&stored->notice);
}

static void bury_if_other(struct part *part) {
  undo_change(part);
  if (part->live && is_other(part)) bury(part);
}

/* Settled parts stay as they are: the locks that guard them were free. */
void parts_bury_others(void) {
  own.generation++;
  lock_reset(&walk_lock);
  notice_all_again();
  for (struct part *p = parts_first_of_epochs(); p; p = parts_next_of_epochs(p)) {
    bury_if_other(p);
    if (p->store && p->store->unlisted_slabs) p->store->unlisted_slabs = 0; /* PENDING: bins_after_fork lists them */
  }
  for (struct part *p = atomic_load_explicit(&active_parts, memory_order_acquire); p; p = p->next_active) {
    if (p == &common_part) continue;
    bury_if_other(p);
    if (p->store->unlisted_slabs) p->store->unlisted_slabs = 0; /* as above */
    if (!p->live && !p->pooled) put_in_pool(p); /* also one whose thread was just ending */
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
  part->store->unlisted_slabs = 0;
  large_cache_forget(part);
  part->store->chunks = (struct chunk_cache){.count = 0};
}

static void freeze(struct part *part, bool knows_its_thread) {
  undo_change(part);
  if (knows_its_thread && part->live && is_other(part)) bury(part);
  if (!part->settled) empty_bins(part);
}

static void freeze_common(void) {
  if (!common_begun) return;
  empty_bins(&common_part);
  undo_change(&common_part);
  forget_lists(&common_part);
  common_part.tally = &nobodys_tally;
  atomic_store_explicit(&common_part.store->notice->is_given, false, memory_order_relaxed);
}

void parts_freeze(bool knows_its_thread) {
  own.pool = NULL;
  own.roomy = own.empty = own.purged = NULL;
  own.empties = own.least_empties = own.granules_had = own.granules_left = 0;
  own.cuttings = own.spans = (struct cuttings){NULL, NULL};
  lock_reset(&walk_lock);
  stores_freeze();
  atomic_store(&unsettled_parts, 0);
  atomic_store(&notices, NULL);
  atomic_store(&last_dead_part, NULL);
  freeze_common();
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part) {
    freeze(p, knows_its_thread);
    atomic_store_explicit(&p->store->notice->is_given, false, memory_order_relaxed);
    p->pooled = false;
  }
  for (struct part *p = parts_first_of_epochs(); p; p = parts_next_of_epochs(p)) freeze(p, knows_its_thread);
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
  if (!options.scavenger) heap_settle_dead(part);
}
