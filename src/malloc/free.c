/* free: the slow paths of free.                                                                     floor: malloc
 *
 *   inline_free               puts the block on the list of its class, if its slab belongs to the thread's heap
 *     slow_free_full          the list has no room: heap_overflow moves it to the magazines or the slabs
 *     slow_free               the current heap does not own the granule
 *       bump_free_at_once     a block of the current chunk of this thread's epoch
 *       free_in_chunk         the same where it takes more
 *       heap_keep_remote      a block of another thread's slab goes onto this thread's list, or waits in a batch
 *       free_named            a block of an epoch that the thread was in: its own heap of that epoch takes it
 *         free_looking        does so for an epoch that the thread did not name lately
 *     slow_free_unclear       checks all others: large blocks, other threads' chunks, pointers to no block
 *       free_remote
 *     slow_free_interior      the pointer does not start a block: reports the misuse */
#include "epoch/finish.h"
#include "heap/bump.h"
#include "heap/cut.h"
#include "heap/guard.h"
#include "heap/large_cache.h"
#include "heap/misuse.h"
#include "heap/profile.h"
#include "heap/refill.h"
#include "heap/remote.h"
#include "heap/timing.h"
#include "malloc/malloc_inline.h"
#include "malloc/slow.h"
#include "process/process.h"
#include "runtime/scavenger.h"
#include "runtime/thread.h"
#include "tslab/tslab.h"

struct run *run_of_live_block(const char *call, void *p) {
  struct run *run = process_has_started() ? pages_run_of(p) : NULL;
  if (run && run->kind == RUN_LARGE && run_start(run) == p) return run;
  if (run && run->kind == RUN_SLAB && !slab_refuses(p)) return run;
  if (run && run->kind == RUN_CHUNK && chunk_place_of(run, p) == CHUNK_LIVE) return run;
  if (run && run->kind == RUN_GUARDED && guard_starts_live(p)) return run;
  if (run && run->kind == RUN_GUARDED) guard_refuse(call, p);
  else misuse(call, p);
  return NULL;
}

size_t block_usable_size(const struct run *run, const void *p) {
  if (run->kind == RUN_CHUNK) return chunk_size_of(run, p);
  if (run->kind == RUN_GUARDED) return guard_size(p);
  return run->kind == RUN_LARGE ? run->size : class_size(run->class);
}

/* Frees, inside a scope, a block of the thread's own heap of epoch 0. No other thread touches that heap's lists. */
static void free_to_own_slab(struct heap *own, void *p) {
  struct heap *heap = current_heap;
  current_heap = own;
  inline_free(p);
  current_heap = heap;
}

static void free_large(struct heap *own, struct run *run) {
  struct timing timing;
  if (heap_large_keep(own, run)) return;
  timing_begin_path(&timing);
  heap_large_free(own, run);
  timing_end_path(&timing, PATH_LARGE_FREE);
}

static bool is_owned_by(const struct heap *heap, const void *p) {
  return heap_class_of(heap, LOAD_RACING(pages_pagemap()[granule_of(p)])) < CLASSES;
}

static void free_remote(struct run *run, void *p) {
  struct heap *own = current_thread ? current_thread->plain : &empty_heap;
  if (own == &empty_heap && run->kind == RUN_SLAB) own = thread_heap_to_free();
  uint32_t epoch = run->epoch;
  if (run->kind == RUN_LARGE) free_large(own, run);
  else if (run->kind == RUN_SLAB && own != current_heap && is_owned_by(own, p))
    free_to_own_slab(own, p);
  else if (run->kind == RUN_SLAB) heap_free_remote(own, run, p);
  else if (!bump_free(run, p)) misuse("free", p);
  if (epoch) epoch_after_free(epoch);
}

/* Frees a guarded block, and then the block behind it as if the program had that one. */
static COLD void free_guarded(void *p) {
  void *behind = guard_free(p, __builtin_frame_address(0));
  if (behind) inline_free(behind);
}

NOINLINE void slow_free_unclear(void *p) {
  if (!p) return;
  struct run *run = run_of_live_block("free", p);
  if (!run) return;
  if (UNLIKELY(run->kind == RUN_GUARDED)) {
    free_guarded(p);
    return;
  }
  if (profile_is_on()) profile_freed(run, p);
  free_remote(run, p);
  scavenger_notice(current_heap);
}

/* Returns true if p starts a block of the heap's slabs that is not free. A list would take any pointer, and malloc
 * would notice a bad one only later. This check reports a double free from outside the epoch at once. */
static bool is_live_of(const struct heap *heap, void *p) {
  uintptr_t class = heap_class_of(heap, LOAD_RACING(pages_pagemap()[granule_of(p)]));
  return class < CLASSES && class_starts_block((uintptr_t)p, class_inverse((unsigned)class)) && !block_has_key(p);
}

/* Returns the index of the epoch of p, a block in use. A split granule may belong to several epochs. */
INLINE uint32_t epoch_holding(const void *p) {
  uint32_t index = pages_run_holding(p)->epoch;
  return LIKELY(index != SPLIT_EPOCH) ? index : quarter_of(p)->epoch;
}

/* Frees a block of the thread's own heap of another epoch than the current one, without an atomic instruction. */
static NOINLINE void free_looking(void *p) {
  struct thread *thread = current_thread;
  uint32_t index = epoch_holding(p);
  struct epoch *e = LIKELY(index != 0) ? epoch_at(index) : NULL;
  uint64_t id = e ? atomic_load_explicit(&e->open_id, memory_order_relaxed) : 0;
  if (UNLIKELY(id == 0)) {
    slow_free_unclear(p);
    return;
  }
  struct heap *heap = scope_look(thread, e, id), *before = current_heap;
  if (LIKELY(heap != NULL)) scope_learn(thread, e, id, heap);
  if (LIKELY(heap != NULL) && heap != before && is_live_of(heap, p)) {
    scope_stay(thread, heap); /* inline_free may take locks */
    current_heap = heap;
    inline_free(p);
    current_heap = before;
    scope_let_go(heap, id);
    return;
  }
  bool freed = LIKELY(heap != NULL) && bump_free_current(heap, p);
  scope_look_away(thread, e, id);
  if (UNLIKELY(!freed)) slow_free_unclear(p);
}

static COLD void free_seen(const struct named *named, void *p, bool freed) {
  scope_was_seen(named->epoch, named->id);
  if (!freed) slow_free_unclear(p);
}

/* Frees a block in a slab of this thread's heap of an epoch that it named before. */
static NOINLINE void free_named_to_list(struct thread *thread, const struct named *named, void *p) {
  struct heap *heap = named->heap, *before = current_heap;
  struct fast_seen seen;
  if (TSLAB_HARDENED) { /* the quarantine may take locks */
    free_looking(p);
    return;
  }
  if (UNLIKELY(!is_live_of(heap, p))) {
    slow_free_unclear(p);
    return;
  }
  if (UNLIKELY(!scope_look_named(thread, named))) {
    scope_set_looking(thread, 0);
    free_seen(named, p, false);
    return;
  }
  current_heap = heap;
  enum fast_free done = fast_push(p, &seen);
  if (UNLIKELY(done == LIST_FULL)) { /* slow_free_full takes locks */
    scope_stay(thread, heap);
    slow_free_full(p);
    current_heap = before;
    scope_let_go(heap, named->id);
    return;
  }
  current_heap = before;
  if (UNLIKELY(!scope_look_away_named(thread, named))) free_seen(named, p, true);
}

/* Frees a block in the current chunk of such a heap. */
HOT static NOINLINE void free_named(void *p) {
  struct thread *thread = current_thread;
  if (UNLIKELY(!thread)) {
    slow_free_unclear(p);
    return;
  }
  size_t granule = granule_of(p);
  uint32_t index = pages.runs[granule].epoch;
  const struct named *named = scope_named(thread, index);
  FORGET(named); /* otherwise the compiler also keeps its index */
  if (UNLIKELY(named->slot != index)) {
    free_looking(p);
    return;
  }
  if (UNLIKELY(heap_class_of(named->heap, LOAD_RACING(pages_pagemap()[granule])) < CLASSES)) {
    free_named_to_list(thread, named, p);
    return;
  }
  bool freed = LIKELY(scope_look_named(thread, named)) && bump_free_at_once(named->heap, p) == BUMP_FREED;
  if (UNLIKELY(!scope_look_away_named(thread, named))) {
    free_seen(named, p, freed);
    return;
  }
  if (UNLIKELY(!freed)) free_looking(p);
}

static NOINLINE void free_in_chunk(void *p, struct heap *heap) {
  if (!bump_free_current(heap, p)) slow_free_unclear(p);
}

static void free_in_chunk_or_named(void *p, struct heap *heap) {
  enum bump_free done = bump_free_at_once(heap, p);
  if (UNLIKELY(done == BUMP_UNSURE)) free_in_chunk(p, heap);
  else if (done == BUMP_ELSEWHERE) free_named(p);
}

HOT void slow_free(void *p, struct heap *heap, pagemap_entry owner) {
  if (owner == 0) {
    free_in_chunk_or_named(p, heap);
    return;
  }
  switch (heap_keep_remote(heap, owner, p)) {
  case FREED: return;
  case LIST_FULL: slow_free_full(p); return;
  default: free_named(p); return;
  }
}

void slow_free_full(void *p) {
  struct timing timing;
  timing_begin_path(&timing);
  unsigned class = pages_run_holding(p)->class; /* the slab may have another owner by now: heap/borrow.h */
  if (!class_starts_block((uintptr_t)p, class_inverse(class))) misuse_interior("free", p);
  if (profile_is_on() && cut_withholds(current_heap, class)) {
    heap_pass_cut(current_heap, class, p);
    return;
  }
  bool emptied = heap_overflow(current_heap, class, p);
  scavenger_notice(current_heap);
  if (emptied) timing_end_path(&timing, PATH_LIST_FULL);
}

void slow_free_interior(unsigned class) { misuse_interior("free", current_heap->list[class]); }

HOT void tslab_free(void *p) { inline_free(p); }
