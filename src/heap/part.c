/* part: see part.h.                                                                                  floor: heap */
#include "heap/part.h"

#include "heap/fast.h"
#include "heap/large_cache.h"
#include "heap/lists.h"
#include "heap/quarantine.h"
#include "os/os.h"
#include <string.h>

struct part empty_part = {.list = {[0 ... CLASSES - 1] = CHAIN_END}, .tally = &nobodys_tally, .plain = &empty_part};
__thread struct part *current_part = &empty_part;
/* Beside current_part, with the smaller ones behind both: so static TLS is 24 bytes, without a hole. */
__thread struct thread *current_thread __attribute__((section(".tdata.current_thread"))) = NULL;
__thread uint8_t thread_heap_state;
__thread uint8_t thread_frees_unborn;
struct part *_Atomic all_parts;
struct lock parts_lock;
_Atomic unsigned dead_parts, live_parts;
unsigned parts_given_up;

static struct {
  struct part *pool;  /* dead threads' */
  struct part *blank; /* of ended epochs */
  struct cuttings cuttings;
  uint32_t made;
} own;

_Static_assert(sizeof(struct part) <= GRANULE / 4, "several parts to a granule");

static struct part *cut_part(bool of_epochs) {
  size_t more = TSLAB_HARDENED ? sizeof(struct quarantine) : 0;
  struct part *part = pages_cut(&own.cuttings, sizeof(struct part) + more);
  if (!part) return NULL;
  if (more) part->quarantine = (struct quarantine *)(void *)(part + 1);
  part->index = ++own.made;
  part->of_epochs = of_epochs;
  part->plain = part;
  part->unused_batch = 1;
  part->remote.room = of_epochs ? 0 : REMOTE_BYTES;
  for (unsigned class = 0; class < CLASSES; class++) {
    part->list[class] = CHAIN_END;
    part->inverse[class] = class_inverse(class);
  }
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
    part->list[class] = CHAIN_END;
    part->count[class] = (struct count){0, 0};
  }
  part->remote.count = 0;
  part->remote.room = part->of_epochs ? 0 : REMOTE_BYTES;
  part->lost = UINT64_MAX; /* it never looks drained, for what its lists held never comes back */
  if (TSLAB_HARDENED) memset(part->quarantine, 0, sizeof(struct quarantine));
  parts_given_up++;
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
    frees += list.frees + LOAD_RACING(part->bins[class].remote_frees);
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
    part = cut_part(false);
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
  lock_take(&parts_lock);
  struct part *part = own.blank;
  if (part) own.blank = part->next_dead;
  else part = cut_part(true);
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
  own.blank = part;
  lock_release(&parts_lock);
}

static void bury(struct part *part) {
  part->live = false;
  part->thread = NULL;
  give_up_lists(part);
}

void parts_bury_others(void) {
  own.pool = NULL;
  atomic_store(&dead_parts, 0);
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part) {
    undo_change(p);
    if (p->live && is_other(p)) bury(p);
    if (!p->of_epochs && !p->live) put_in_pool(p); /* also one whose thread was being born or dying */
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
  large_cache_forget(part);
  part->chunks = (struct chunk_cache){.count = 0};
}

void parts_freeze(bool knows_its_thread) {
  own.pool = own.blank = NULL;
  own.cuttings = (struct cuttings){NULL, NULL};
  atomic_store(&dead_parts, 0);
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part) {
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
