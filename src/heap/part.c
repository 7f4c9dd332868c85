/* part: see part.h.                                                                                  floor: heap */
#include "heap/part.h"

#include "base/options.h"
#include "heap/fast.h"
#include "heap/heap.h"
#include "heap/large_cache.h"
#include "heap/lists.h"
#include "heap/quarantine.h"
#include "heap/sample.h"
#include "os/os.h"
#include <string.h>

struct part empty_part = {.list = {[0 ... CLASSES - 1] = CHAIN_END}, .tally = &nobodys_tally, .plain = &empty_part};
__thread struct part *current_part = &empty_part;
/* Beside current_part, with the smaller ones behind both: so static TLS is 24 bytes, without a hole. */
__thread struct thread *current_thread __attribute__((section(".tdata.current_thread"))) = NULL;
__thread uint8_t thread_heap_state;
__thread uint8_t thread_frees_unborn;
struct part common_part;
bool common_begun;
uint64_t settled_in_epochs[2];
uint32_t settled_slabs[CLASSES];
struct part *_Atomic all_parts, *_Atomic active_parts, *_Atomic noticed_parts, *_Atomic last_dead_part;
struct lock parts_lock, walk_lock;
_Atomic uint32_t parts_made;
_Atomic unsigned unsettled_parts, live_parts;
unsigned parts_given_up;

static struct {
  struct part *pool;  /* dead threads' */
  struct part *blank; /* of ended epochs */
  struct cuttings cuttings;
  uint32_t generation; /* of processes: counts forks */
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

NOINLINE void part_notice_first(struct part *part) {
  /* Acquire: pairs with the scavenger's release, before which it read next_noticed. */
  if (atomic_exchange_explicit(&part->noticed, true, memory_order_acquire)) return;
  part->next_noticed = atomic_load_explicit(&noticed_parts, memory_order_relaxed);
  /* Release: pairs with the scavenger's exchange, which takes all, so that there is no ABA. */
  while (!atomic_compare_exchange_weak_explicit(&noticed_parts, &part->next_noticed, part, memory_order_release,
                                                memory_order_relaxed)) {}
}

static void begin_lists(struct part *part) {
  part->unused_batch = 1;
  part->plain = part;
  part->remote.room = part->of_epochs ? 0 : REMOTE_BYTES;
  for (unsigned class = 0; class < CLASSES; class++) {
    part->list[class] = CHAIN_END;
    part->inverse[class] = class_inverse(class);
  }
}

/* Not before the process has a second part or gives memory back: one that does little does not touch these pages.
 * Caller holds parts_lock. */
static void begin_common(void) {
  if (common_begun) return;
  begin_lists(&common_part);
  static struct quarantine quarantine;
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

static struct part *cut_part(bool of_epochs) {
  size_t more = TSLAB_HARDENED ? sizeof(struct quarantine) : 0;
  struct part *part = pages_cut(&own.cuttings, sizeof(struct part) + more);
  if (!part) return NULL;
  if (more) part->quarantine = (struct quarantine *)(void *)(part + 1);
  if (atomic_load_explicit(&parts_made, memory_order_relaxed) != 0) begin_common();
  part->index = atomic_fetch_add_explicit(&parts_made, 1, memory_order_relaxed) + 1;
  part->of_epochs = of_epochs;
  begin_lists(part);
  link_active(part);
  part->next_part = atomic_load_explicit(&all_parts, memory_order_relaxed);
  atomic_store_explicit(&all_parts, part, memory_order_release); /* pairs with every walk of the list */
  return part;
}

#define LOOKS_AT_ONCE 64 /* a change takes well under a microsecond */

void part_look_again(unsigned *looks) {
  lock_look();
  if (++*looks % LOOKS_AT_ONCE == 0) os_rest();
}

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
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &part->bins[class];
    struct list_totals totals = list_totals(part, class);
    part->served += totals.allocations - bin->allocations;
    part->freed += totals.frees - bin->frees;
    bin->allocations = totals.allocations;
    bin->frees = totals.frees;
  }
  forget_lists(part);
  part->remote.count = 0;
  part->remote.room = part->of_epochs ? 0 : REMOTE_BYTES;
  part->lost = UINT64_MAX; /* it never looks drained, for what its lists held never comes back */
  if (TSLAB_HARDENED) memset(part->quarantine, 0, sizeof(struct quarantine));
  parts_given_up++;
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
    atomic_store_explicit(&part->noticed, false, memory_order_relaxed);
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
    frees += list.frees + LOAD_RACING(part->bins[class].remote_frees);
  }
  part->tally->allocations_before = allocations;
  part->tally->frees_before = frees;
  tally_begin(part->tally);
}

struct part *part_acquire(void) {
  lock_take(&parts_lock);
  struct part *part = take_from_pool();
  if (!part) part = cut_part(false);
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
  lock_take(&parts_lock);
  struct part *part = own.blank;
  if (part) {
    own.blank = part->next_dead;
    part->pooled = false;
    unsettle(part);
  } else {
    part = cut_part(true);
  }
  lock_release(&parts_lock);
  if (!part) return NULL;
  lock_take(&part->lock);
  part->live = true;
  part->closing = false;
  part->thread = current_thread;
  part->tally = current_part->tally;
  part->plain = current_part->plain;
  part->before = list_handed_out(part);
  part->lost = part->served - part->freed;
  __atomic_store_n(&part->lifetime, lifetime, __ATOMIC_RELEASE); /* for the scavenger's look */
  lock_release(&part->lock);
  return part;
}

void part_give_back(struct part *part) {
  lock_take(&part->lock); /* who settled its last slab may still hold it */
  INVARIANT(1, part->slab_granules == 0 && part->depot_bytes == 0);
  part->live = false;
  part->thread = NULL;
  __atomic_store_n(&part->lifetime, NULL, __ATOMIC_RELAXED);
  lock_release(&part->lock);
  lock_take(&parts_lock);
  part->next_dead = own.blank;
  part->pooled = true;
  part_notice(part);
  own.blank = part;
  lock_release(&parts_lock);
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
  bool keeps_chunks = part->chunks.claimed != 0 || part->chunks.spare_of != 0;
  return part->unlisted_slabs == 0 && part->large.count == 0 && !keeps_chunks && !part->sampling.aside;
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
    if (part->of_epochs) {
      settled_in_epochs[0] += from->allocations;
      settled_in_epochs[1] += from->frees + from->remote_frees;
    }
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
  part->restless_slabs = 0;
  STORE_RACING(part->granted_bytes, 0);
  move(&common_part.served, &part->served);
  move(&common_part.freed, &part->freed);
  tally_add(&common_part.bump.allocations, part_bumped(part));
  part->bump.allocations = part->bump.sealed = part->bump.count = 0;
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
  if (part->of_epochs) return true;
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
static void notice_again(struct part *part) {
  if (!atomic_load_explicit(&part->noticed, memory_order_relaxed)) return; /* what is not written is not copied */
  atomic_store_explicit(&part->noticed, false, memory_order_relaxed);
  part_notice(part);
}

/* Settled parts stay as they are: the locks that guard them were free. */
void parts_bury_others(void) {
  own.generation++;
  lock_reset(&walk_lock);
  atomic_store(&noticed_parts, NULL);
  notice_again(&common_part);
  for (struct part *p = atomic_load_explicit(&active_parts, memory_order_acquire); p; p = p->next_active) {
    if (p == &common_part) continue;
    notice_again(p);
    undo_change(p);
    if (p->unlisted_slabs) p->unlisted_slabs = 0; /* they are PENDING, so bins_after_fork lists them */
    if (p->live && is_other(p)) bury(p);
    if (!p->of_epochs && !p->live && !p->pooled) put_in_pool(p); /* also one whose thread was just ending */
  }
  atomic_store(&live_parts, current_part != &empty_part);
}

/* Everything that leads to slabs of it. */
static void empty_bins(struct part *part) {
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
  part->unlisted_slabs = 0;
  large_cache_forget(part);
  part->chunks = (struct chunk_cache){.count = 0};
}

void parts_freeze(bool knows_its_thread) {
  own.pool = own.blank = NULL;
  own.cuttings = (struct cuttings){NULL, NULL};
  lock_reset(&walk_lock);
  atomic_store(&unsettled_parts, 0);
  atomic_store(&noticed_parts, NULL);
  atomic_store(&last_dead_part, NULL);
  empty_bins(&common_part);
  undo_change(&common_part);
  forget_lists(&common_part);
  common_part.tally = &nobodys_tally;
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part) {
    undo_change(p);
    if (knows_its_thread && p->live && is_other(p)) bury(p);
    if (!p->settled) empty_bins(p);
    atomic_store_explicit(&p->noticed, false, memory_order_relaxed);
    p->pooled = false;
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
  if (!options.scavenger) heap_settle_dead(part);
}
