/* fork: see fork.h.                                                                                 floor: heap */
#include "heap/fork.h"

#include "heap/bins.h"
#include "heap/inherited.h"
#include "heap/large_cache.h"
#include "heap/profile.h"
#include "heap/quarantine.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/span.h"
#include "heap/store.h"
#include "heap/tcache.h"
#include "heap/totals.h"
#include <string.h>

static bool is_other(const struct heap *heap) {
  return heap != current_heap && (!current_thread || heap->thread != current_thread);
}

/* Restores the numbers from before a change whose thread does not exist in the child. */
static void restore_numbers(struct heap *heap) {
  const struct undo *undo = &heap->undo;
  if (undo->class == UNDO_CHUNKS) {
    heap->bump.allocations = undo->was[0];
    heap->bump.count = (uint32_t)undo->was[1];
    heap->bump.given = (uint32_t)undo->was[2];
  } else if (undo->class < CLASSES) {
    heap->bins[undo->class].allocations = undo->was[0];
    heap->bins[undo->class].frees = undo->was[1];
    heap->served = undo->was[2];
    heap->freed = undo->was[3];
    heap->count[undo->class] = undo->count;
  }
}

/* Ends a change that the fork met, so that no reader waits for its end. If this thread was changing its own heap, the
 * fork comes from a signal handler. Once that returns, the thread goes on with the change, so the numbers stay as they
 * are. Another thread may have marked a block of its chunk freed without counting it. So the counts and the marks of
 * the chunk may differ. */
static void end_change(struct heap *heap) {
  struct run *chunk = heap_chunk(heap);
  if (chunk) chunk_note_gaps(chunk);
  if (heap->sampling.sequence % 2 == 0) return;
  if (is_other(heap)) restore_numbers(heap);
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

/* ---- lists of threads that do not exist in the child ------------------------------------------------------------- */

/* Gives up the lists of a thread that does not exist in the child. They may be half written, and most children end or
 * call exec before a check would pay. So the next thread to take the heap checks them (heap_inherit_lists). But the
 * heap of an epoch at once keeps what is whole of them, so that the epoch can end. In a frozen child all are lost. The
 * calls of the thread still count. */
static void give_up_lists(struct heap *heap, bool is_frozen) {
  bool keeps = heap_has_store(heap) && !is_frozen;
  struct chain kept[CLASSES];
  for (unsigned class = 0; keeps && class < CLASSES; class++) {
    bool checks = heap->of_epochs || tcache_is_detached(heap, class);
    kept[class] = checks ? heap_recover_list(heap, class) : (struct chain){heap->list[class], 0};
  }
  heap->sampling = (struct sampling){.detached = NULL};
  heaps_given_up++;
  if (!heap_has_store(heap)) return;
  count_what_passed(heap);
  forget_lists(heap);
  heap->store->remote.count = 0;
  heap->store->remote.room = heap->of_epochs ? 0 : REMOTE_BYTES;
  if (heap->of_epochs) heap->lost = UINT64_MAX; /* never counts as drained: lost blocks never come back */
  if (TSLAB_HARDENED) memset(heap->quarantine, 0, sizeof(struct quarantine));
  for (unsigned class = 0; keeps && class < CLASSES; class++)
    if (!heap->of_epochs) heap_leave_list(heap, class, kept[class].head);
    else if (kept[class].count) tcache_set(heap, class, kept[class]);
}

static void retire(struct heap *heap, bool is_frozen) {
  heap->live = false;
  heap->thread = NULL;
  give_up_lists(heap, is_frozen);
}

/* Notices a heap again, because the parent's scavenger may have taken its notice. */
static void notice_again(struct notice *notice) {
  if (!atomic_load_explicit(&notice->is_given, memory_order_relaxed)) return; /* a write would copy the page */
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
  end_change(heap);
  if (heap->live && is_other(heap)) retire(heap, false);
}

/* Folded heaps stay as they are, because the locks that protect them were free. */
static void retire_others(void) {
  registry_after_fork();
  lock_reset(&walk_lock);
  notice_all_again();
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) {
    retire_if_other(p);
    if (p->store && p->store->unlisted_slabs) p->store->unlisted_slabs = 0; /* bins_after_fork relists them */
  }
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active) {
    if (heap_is_nobodys(p)) continue;
    retire_if_other(p);
    if (p->store->unlisted_slabs) p->store->unlisted_slabs = 0; /* as above */
    if (!p->live && !p->pooled) heap_put_in_pool(p); /* even if its thread was just ending */
  }
  atomic_store(&live_heaps, current_heap != &empty_heap);
}

/* Clears everything that leads to slabs of the heap. */
static void empty_bins(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &heap->bins[class];
    __atomic_store_n(&bin->first, 0, __ATOMIC_RELAXED); /* bins.c reads it without the lock */
    bin->last = bin->listed = 0;
    bin->newest = bin->oldest = 0;
    bin->magazine_blocks = 0;
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
  end_change(heap);
  if (knows_its_thread && heap->live && is_other(heap)) retire(heap, true);
  if (!heap->folded) empty_bins(heap);
  if (!heap->folded && heap_has_store(heap)) heap_disown_lists(heap);
}

static void freeze_nobodys(struct heap *heap) {
  if (!heap_has_store(heap)) return;
  empty_bins(heap);
  end_change(heap);
  count_what_passed(heap);
  forget_lists(heap);
  heap->counters = &shared_counters;
  atomic_store_explicit(&heap->store->notice->is_given, false, memory_order_relaxed);
}

static void freeze_all(bool knows_its_thread) {
  registry_freeze();
  spans_freeze();
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
    if (!p->folded) atomic_store_explicit(&p->store->notice->is_given, false, memory_order_relaxed);
    p->pooled = false;
  }
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) freeze(p, knows_its_thread);
  if (knows_its_thread) atomic_store(&live_heaps, current_heap != &empty_heap);
}

void heap_retire_others(void) {
  retire_others();
  bins_after_fork();
}

/* Counts this thread's remote frees that wait in batches. */
static void count_remote(uint64_t count[CLASSES]) {
  if (!current_thread) return;
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active) {
    for (unsigned i = 0; i < p->store->remote.count; i++) {
      const struct run *run = pages_run_of(p->store->remote_blocks[i]);
      if (run && run->kind == RUN_SLAB) count[run->class]++; /* otherwise it was freed twice */
    }
    if (TSLAB_HARDENED) quarantine_count_remote(p, count);
  }
}

/* A block that a slab handed out is live, on a list, in a magazine, or lost. This counts the lost ones. */
void heap_count_leaked(void) {
  uint64_t used[CLASSES] = {0}, had[CLASSES] = {0};
  bins_count_used(used);
  count_remote(had);
  uint64_t blocks = 0, bytes = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct class_totals totals = {0};
    for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
      heap_totals(p, class, &totals);
    heap_epoch_totals(class, &totals);
    had[class] += totals.allocations - totals.frees - unowned_frees_of(class) + totals.cached;
    if (used[class] <= had[class]) continue;
    blocks += used[class] - had[class];
    bytes += (used[class] - had[class]) * class_size(class);
  }
  atomic_store_explicit(&leaked.blocks, blocks, memory_order_relaxed);
  atomic_store_explicit(&leaked.bytes, bytes, memory_order_relaxed);
}

void heap_freeze(bool knows_its_thread) {
  freeze_all(knows_its_thread);
  leaked.frozen = pages_freeze(knows_its_thread && locks_held == 0); /* otherwise a signal handler forked in a change */
}
