/* cached epoch: see cache.h.                                                                         floor: epoch */
#include "epoch/cache.h"

#include "base/probe.h"
#include "epoch/finish.h"
#include "epoch/teardown.h"
#include "heap/bump.h"
#include "heap/chunk_cache.h"
#include "heap/flush.h"
#include "heap/teardown.h"
#include "os/os.h"

#define EPOCH_CACHE_TICKS 4 /* a second */

/* Returns true if all memory that the epoch took is in its list of runs. */
static bool is_whole(const struct epoch *e) {
  return e->arena.ready == 0 && atomic_load_explicit(&e->arena.spilled, memory_order_relaxed) == 0;
}

/* Returns the bytes of the slabs' blocks that were ever handed out, each slab rounded up to pages. */
static size_t touched_bytes(struct epoch *e) {
  size_t bytes = 0;
  struct arena_walk walk;
  for (struct run *run = arena_walk(&walk, &e->arena); run; run = arena_walk_on(&walk, 1)) {
    uint64_t word = atomic_load_explicit(&run->word, memory_order_relaxed);
    bytes += round_up(slab_linked(word) * class_size(run->class), os_page_size);
  }
  return bytes;
}

/* Returns true if the thread already claims the granules of its cached epoch, so that no shared count changes. */
static bool is_claimed(const struct thread *thread, const struct epoch *e) {
  return chunk_cache_has_claimed(thread->plain, e->arena.index, e->kept_granules);
}

/* Claims the slabs of an epoch. A new slab may lie in a granule of the reserve, which is resident as a whole, so this
 * gives its unused pages back. */
static NOINLINE bool claim_slabs(const struct thread *thread, struct epoch *e, struct heap *heap) {
  size_t granules = round_up(max_size(touched_bytes(e), 1), GRANULE) / GRANULE;
  if (!chunk_cache_claim_epoch(thread->plain, e->arena.index, granules)) return false;
  if (atomic_load_explicit(&heap->slab_granules, memory_order_relaxed) > e->slab_granules) {
    heap_trim(heap, true);
    arena_return_spilled(&e->arena, SIZE_MAX);
  }
  STORE_RACING(e->kept_granules, (uint16_t)granules);
  e->kept_at = (uint32_t)heap->visits;
  e->slab_granules = (uint16_t)min_size(atomic_load_explicit(&heap->slab_granules, memory_order_relaxed), UINT16_MAX);
  return true;
}
_Static_assert(((size_t)1024 * MiB) / GRANULE <= UINT16_MAX, "what TSLAB_RESERVE allows, in granules, can be stored");

/* Claims one chunk, or nothing. */
static void claim_chunk(const struct thread *thread, struct epoch *e, unsigned granules) {
  STORE_RACING(e->kept_granules, (uint16_t)granules);
  e->slab_granules = 0;
  if (granules != 0 && UNLIKELY(!is_claimed(thread, e)))
    chunk_cache_claim_epoch(thread->plain, e->arena.index, granules);
}

void epoch_cache_drop_claim(struct epoch *e, struct heap *plain) {
  STORE_RACING(e->kept_granules, 0);
  if (LIKELY(plain->store != NULL)) chunk_cache_drop_epoch(plain, e->arena.index);
}

bool epoch_cache_may_keep(const struct thread *thread, struct epoch *e) {
  if (!epoch_is_plain(e) || !is_whole(e)) return false;
  if (atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed)) return false;
  struct heap *heap = e->heaps;
  if (heap_has_slabs(heap)) {
    /* heap->visits is a count of slow paths. Only these touch more memory than was counted. */
    bool is_counted = e->kept_granules && e->kept_at == (uint32_t)heap->visits && is_claimed(thread, e);
    return e->arena.by_slabs && (LIKELY(is_counted) || claim_slabs(thread, e, heap));
  }
  return e->kept_granules || reserve_most() != 0;
}

/* Gives the chunk to the reserve if there is room. */
static NOINLINE void drop_chunk(struct epoch *e, struct heap *heap) {
  bump_leave(heap, false);
  arena_return_spilled(&e->arena, SIZE_MAX);
}

void epoch_cache_keep(struct thread *thread, struct epoch *e, uint64_t handed_out) {
  struct heap *heap = e->heaps;
  PROBE3("tslab", "epoch_close", epoch_id(e), (uintptr_t)e->label, epoch_own_bytes(e));
  epoch_count_allocations(e, heap, handed_out);
  STORE_RACING(e->recycled_here,
               e->recycled_here + atomic_load_explicit(&e->arena.own, memory_order_relaxed));
  heap->bump.off = epoch_has_learned(e); /* set it now: once the epoch is open, other threads may read it */
  unsigned chunks = heap->bump.chunk && !heap->bump.off;
  if (!heap_has_slabs(heap)) claim_chunk(thread, e, chunks);
  if (UNLIKELY(heap->bump.chunk && heap->bump.off)) drop_chunk(e, heap);
  atomic_store_explicit(&e->open_id, 0, memory_order_relaxed);
  atomic_store_explicit(&e->state, EPOCH_CACHED, memory_order_relaxed);
  /* A thread that takes the epoch from another one locks it, and so waits until it is whole. */
  atomic_store_explicit(&thread->cached_epoch, e, memory_order_relaxed);
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

INLINE void begin_to_take(struct thread *thread) {
  if (inside_is_one_sided()) atomic_store_explicit(&thread->takes_cached, true, memory_order_relaxed);
  else atomic_exchange_explicit(&thread->takes_cached, true, memory_order_seq_cst);
  atomic_signal_fence(memory_order_seq_cst);
}

static NOINLINE COLD void wait_for_claimer(struct thread *thread) {
  while (atomic_load_explicit(&thread->cached_is_claimed, memory_order_seq_cst)) {
    atomic_store_explicit(&thread->takes_cached, false, memory_order_release);
    os_rest();
    begin_to_take(thread);
  }
}

/* For the thread itself. If this or claim returns an epoch, the caller ends the change that began here. */
INLINE struct epoch *take(struct thread *thread) {
  lock_change_begins();
  begin_to_take(thread);
  if (UNLIKELY(atomic_load_explicit(&thread->cached_is_claimed, memory_order_seq_cst))) wait_for_claimer(thread);
  struct epoch *e = atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed);
  atomic_store_explicit(&thread->cached_epoch, NULL, memory_order_relaxed);
  atomic_store_explicit(&thread->takes_cached, false, memory_order_release);
  if (UNLIKELY(!e)) lock_change_ends();
  return e;
}

/* For any thread. Returns NULL, too, if the thread or another one takes the epoch now. */
static struct epoch *claim(struct thread *thread) {
  struct epoch *e = NULL;
  if (!atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed)) return NULL;
  lock_change_begins();
  if (!atomic_exchange_explicit(&thread->cached_is_claimed, true, memory_order_seq_cst)) {
    inside_barrier_of_one();
    /* Acquire: pairs with take, and reads what it stored to cached_epoch. */
    if (!atomic_load_explicit(&thread->takes_cached, memory_order_acquire)) {
      e = atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed);
      /* Without one, the thread may keep a next one now. */
      if (e) atomic_store_explicit(&thread->cached_epoch, NULL, memory_order_relaxed);
    }
    atomic_store_explicit(&thread->cached_is_claimed, false, memory_order_release);
  }
  if (!e) lock_change_ends();
  return e;
}

void epoch_cache_after_fork(struct thread *thread) {
  atomic_store_explicit(&thread->takes_cached, false, memory_order_relaxed);
  atomic_store_explicit(&thread->cached_is_claimed, false, memory_order_relaxed);
}

/* ---- opening and ending ------------------------------------------------------------------------------------------ */

uint64_t epoch_cache_open(struct thread *thread, const char *label, uint32_t flags) {
  lock_look(); /* takes no lock: a fork child that finds out later would freeze this epoch, too */
  struct epoch *e = take(thread);
  if (UNLIKELY(!e)) return 0;
  uint64_t id = epoch_begin(e, label, flags);
  lock_change_ends();
  return id;
}

/* Ends a cached epoch as a close does, so that blocks that misuse left alive in its slabs stay. */
static void end(struct epoch *e, bool lists_are_lost, enum release_target late) {
  struct lock *gate = epoch_take(e);
  struct heap *heap = e->heaps;
  atomic_store_explicit(&e->arena.closing, true, memory_order_relaxed);
  atomic_store_explicit(&e->arena.release_target, late, memory_order_relaxed);
  if (lists_are_lost && heap_has_slabs(heap)) {
    heap_forget(heap, true);
    teardown_all(e, NULL);
  }
  epoch_cache_drop_claim(e, heap->plain);
  heap_close(heap, UINT64_MAX);
  arena_return_spilled(&e->arena, SIZE_MAX);
  attach_drop(e, heap);
  e->closed_after = 0;
  atomic_store_explicit(&e->state, EPOCH_CLOSING, memory_order_seq_cst);
  bool ended = epoch_finish_locked(e);
  epoch_release(e, gate);
  if (ended) epoch_retire(e);
  lock_change_ends();
}

void epoch_cache_give_up(struct thread *thread, bool lists_are_lost) {
  struct epoch *e = take(thread);
  if (e) end(e, lists_are_lost, RELEASE_TO_KERNEL);
}

static void give_up_unused(struct thread *thread) {
  struct epoch *e = claim(thread);
  if (e) end(e, false, RELEASE_UNUSED_TO_KERNEL);
}

/* Returns true if the thread should give up its cached epoch. One that was not used since the last look has the same
 * id. */
static bool is_too_old(struct thread *thread, bool now) {
  const struct epoch *e = atomic_load_explicit(&thread->cached_epoch, memory_order_relaxed);
  uint64_t id = e ? epoch_id(e) : 0;
  uint8_t looks = LOAD_RACING(thread->cached_age);
  if (!now && id != LOAD_RACING(thread->cached_seen)) {
    STORE_RACING(thread->cached_seen, id);
    STORE_RACING(thread->cached_age, 0);
    return false;
  }
  if (id == 0) return false;
  if (looks < UINT8_MAX) STORE_RACING(thread->cached_age, looks + 1);
  return now || looks + 1 >= EPOCH_CACHE_TICKS;
}

/* Finds threads that should give up their cached epochs: not more than are given up between two looks at the list,
 * because ends of epochs take long. Returns how many. */
#define OLD_MOST 32
static unsigned find_old(struct thread *old[OLD_MOST], bool now) {
  unsigned count = 0;
  lock_take(&walk_lock);
  for (struct heap *p = heaps_first_of_threads(); p && count < OLD_MOST; p = heaps_next_of_threads(p))
    if (is_too_old(heap_room_for_thread(p), now)) old[count++] = heap_room_for_thread(p);
  lock_release(&walk_lock);
  return count;
}

/* A thread may end meanwhile, and the page of its record go back. Then it has no cached epoch. */
void epoch_caches_age(bool now) {
  struct thread *old[OLD_MOST];
  unsigned count, turns = now ? atomic_load_explicit(&live_heaps, memory_order_relaxed) / OLD_MOST + 1 : 1;
  do {
    count = find_old(old, now);
    for (unsigned i = 0; i < count; i++) give_up_unused(old[i]);
  } while (count == OLD_MOST && --turns > 0);
}

/* ---- what all threads keep --------------------------------------------------------------------------------------- */

void epoch_cache_update_claim(struct heap *plain) {
  uint32_t index = LOAD_RACING(plain->store->chunks.cached_epoch);
  if (index == 0) return;
  struct epoch *e = epoch_at(index);
  epoch_lock(e);
  uint64_t id = epoch_id(e);
  bool is_kept = epoch_state(e) == EPOCH_CACHED && e->heaps && e->heaps->plain == plain;
  if (is_kept) plain->store->chunks.cached_seen = 0;
  else if (id == plain->store->chunks.cached_seen) chunk_cache_drop_epoch(plain, index);
  else plain->store->chunks.cached_seen = id;
  epoch_unlock(e);
}

size_t epoch_caches_reserve_bytes(void) {
  size_t granules = 0, most = reserve_bytes();
  lock_take(&walk_lock);
  for (struct heap *p = heaps_first_of_threads(); p; p = heaps_next_of_threads(p)) {
    const struct thread *t = heap_room_for_thread(p);
    granules += chunk_cache_granules(&p->store->chunks);
    const struct epoch *e = atomic_load_explicit(&t->cached_epoch, memory_order_relaxed);
    if (e) granules += LOAD_RACING(e->kept_granules);
  }
  lock_release(&walk_lock);
  return min_size(reserve_ready_bytes() + granules * GRANULE, most);
}
