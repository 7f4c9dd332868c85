/* attach: see attach.h.                                                                              floor: epoch */
#include "epoch/attach.h"

#include "heap/bump.h"
#include "heap/fast.h"
#include "heap/registry.h"
#include "heap/teardown.h"
#include "os/os.h"
#include <string.h>

struct lock threads_lock;

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* Tables smaller than a granule are pieces of one. Each size has a chain of the pieces that threads gave up. */
#define PIECE_LOGS 12
static struct {
  struct attachment *free[PIECE_LOGS]; /* linked through entry 0's heap */
  struct cuttings cuttings;
} state;

static size_t bytes_of(uint32_t log) { return sizeof(struct attachment) << log; }
_Static_assert(sizeof(struct attachment) << PIECE_LOGS == GRANULE, "larger ones are granules");

static struct attachment *take_piece(uint32_t log) {
  lock_take(&threads_lock);
  struct attachment *piece = state.free[log];
  if (piece) state.free[log] = (struct attachment *)(void *)piece->heap;
  else piece = pages_cut(&state.cuttings, bytes_of(log));
  lock_release(&threads_lock);
  return piece ? memset(piece, 0, bytes_of(log)) : NULL;
}

static struct attachment *take_run(uint32_t log) {
  bool zero = false;
  struct run *run = pages_alloc(bytes_of(log) / GRANULE, GRANULE, RUN_META, &zero, NULL);
  if (!run) return NULL;
  return zero ? (void *)run_start(run) : memset(run_start(run), 0, bytes_of(log));
}

static void give_up(struct attachment *entries, uint32_t log) {
  if (log == ATTACH_FIRST_LOG) return;
  if (log >= PIECE_LOGS) {
    bool clean = os_purge(entries, bytes_of(log)); /* the thread may never again have so many epochs */
    pages_count_purge(bytes_of(log), clean);
    pages_free(pages_run_of(entries), clean);
    return;
  }
  lock_take(&threads_lock);
  entries->heap = (struct heap *)(void *)state.free[log];
  state.free[log] = entries;
  lock_release(&threads_lock);
}

void attach_start(struct attachments *table) {
  for (size_t i = 0; i < sizeof table->first / sizeof *table->first; i++) {
    table->first[i] = (struct attachment){NULL, 0};
    __asm__ volatile("" ::: "memory"); /* no memset: a program's sanitizer watches memset, but not our locks */
  }
  table->entries = table->first;
  table->log = ATTACH_FIRST_LOG;
  table->used = 0;
}

void attach_end(struct attachments *table) {
  give_up(table->entries, table->log);
  attach_start(table);
}

void attach_put(struct attachments *table, uint32_t slot, struct heap *heap) {
  uint32_t mask = ((uint32_t)1 << table->log) - 1, i = attach_place(table, slot);
  while (table->entries[i].slot != 0 && table->entries[i].slot != slot) i = (i + 1) & mask;
  table->used += table->entries[i].slot == 0;
  table->entries[i] = (struct attachment){heap, slot};
}

static bool is_stale(const struct attachment *entry, const struct thread *thread) {
  return entry->slot == 0 || !attach_is_valid(entry->heap, thread, epoch_at(entry->slot));
}

static void build(struct attachments *table, const struct thread *thread, const struct attachment *from,
                  uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (!is_stale(&from[i], thread)) attach_put(table, from[i].slot, from[i].heap);
}

/* Returns the log of twice the length that the valid entries need, so that as many more fit before the next rebuild. */
static uint32_t log_for(const struct attachments *table, const struct thread *thread) {
  uint32_t valid = 0, log = ATTACH_FIRST_LOG;
  for (uint32_t i = 0; i < (uint32_t)1 << table->log; i++) valid += !is_stale(&table->entries[i], thread);
  while ((uint64_t)1 << log < 2 * ((uint64_t)valid + 1)) log++;
  return log;
}

bool attach_make_room(struct attachments *table, const struct thread *thread) {
  if (LIKELY(table->used < (uint64_t)3 << table->log >> 2)) return true;
  struct attachment first[1 << ATTACH_FIRST_LOG];
  struct attachment *before = table->entries, *entries = table->first;
  uint32_t log_before = table->log, log = log_for(table, thread);
  if (log > ATTACH_FIRST_LOG) entries = log < PIECE_LOGS ? take_piece(log) : take_run(log);
  if (!entries) return false;
  memcpy(first, table->first, sizeof first); /* table->first may hold the old entries as well as the new ones */
  if (log_before == ATTACH_FIRST_LOG) before = first;
  memset(table->first, 0, sizeof table->first);
  table->entries = entries;
  table->log = log;
  table->used = 0;
  build(table, thread, before, (uint32_t)1 << log_before);
  give_up(before, log_before);
  return true;
}

/* ---- heaps ------------------------------------------------------------------------------------------------------- */

static void unlink_heap(struct epoch *e, struct heap *heap) {
  if (e->heaps == heap) {
    STORE_RACING(e->heaps, heap->next_of_epoch);
    return;
  }
  struct heap *before = e->heaps;
  while (before->next_of_epoch != heap) before = before->next_of_epoch;
  before->next_of_epoch = heap->next_of_epoch;
}

/* Links the heap as the first one, so that the slot leads its thread to it, unless the slot already leads another
 * thread to its heap. */
static void link_heap(struct epoch *e, struct heap *heap) {
  if (atomic_load_explicit(&e->owner, memory_order_relaxed)) {
    heap->next_of_epoch = e->heaps->next_of_epoch;
    e->heaps->next_of_epoch = heap;
    return;
  }
  heap->next_of_epoch = e->heaps;
  STORE_RACING(e->heaps, heap);
  atomic_store_explicit(&e->owner, heap->thread, memory_order_relaxed); /* only that thread finds itself here */
}

/* Returns a heap that another thread left, so that the epoch fills its slabs before it makes new ones. */
static struct heap *waiting_heap(struct epoch *e) {
  for (struct heap *p = e->heaps; p; p = p->next_of_epoch) {
    if (p->thread) continue;
    lock_take(&p->lock); /* a thread that flushes a waiting heap holds this lock */
    p->live = true;
    STORE_RACING(p->thread, current_thread);
    p->counters = current_heap->counters;
    p->plain = current_heap->plain;
    lock_release(&p->lock);
    unlink_heap(e, p);
    return p;
  }
  return NULL;
}

/* Counts the heaps of epochs that serve the thread. Atomic, because any thread that ends an epoch may count one
 * down. */
static void count_attached(const struct heap *heap, unsigned by) {
  atomic_fetch_add_explicit(&heap->plain->store->chunks.attached, by, memory_order_relaxed);
}

struct heap *attach_heap(struct thread *thread, struct epoch *e) {
  struct heap *heap = waiting_heap(e);
  if (!heap) {
    heap = heap_take_blank(&e->arena);
    if (!heap) return NULL;
    bump_start(heap);
  }
  link_heap(e, heap);
  count_attached(heap, 1);
  attach_put(&thread->attached, e->arena.index, heap);
  return heap;
}

void attach_drop(struct epoch *e, struct heap *heap) {
  if (heap_has_slabs(heap) && heap->thread == current_thread && !heap->closing) heap_rest(heap);
  bump_leave(heap, true);
  if (heap->thread) count_attached(heap, -1u);
  if (e->heaps == heap) atomic_store_explicit(&e->owner, NULL, memory_order_relaxed);
  if (heap_has_slabs(heap)) {
    lock_take(&heap->lock);
    heap->live = false;
    STORE_RACING(heap->thread, NULL);
    lock_release(&heap->lock);
    return;
  }
  STORE_RACING(e->allocations, e->allocations + tcache_handed_out(heap) - heap->before);
  unlink_heap(e, heap);
  heap_give_back(heap);
}

/* ---- in a fork child --------------------------------------------------------------------------------------------- */

void attach_freeze(void) {
  memset(state.free, 0, sizeof state.free);
  state.cuttings = (struct cuttings){NULL, NULL};
}
