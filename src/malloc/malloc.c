/* malloc: the slow paths of malloc.                                                                 floor: malloc
 *
 *   inline_malloc             takes the first block of the class's list; nearly every call ends here
 *     slow_malloc_direct      bumps the current chunk of an epoch
 *       malloc_otherwise
 *         by_size             a plain heap, or an epoch that uses slabs
 *           miss              the list is empty, or was detached to time this call
 *             refill          fills the list: heap_refill asks magazines, slabs, dead threads' slabs, pages
 *           large             a run of granules of its own: heap_large_alloc
 *         malloc_in_scope     an epoch: bump_refill begins the next chunk, or by_size serves
 *           malloc_diverted   the epoch is closing: epoch 0 serves
 *
 * One test tells a plain heap from an epoch's: a plain heap has no chunk, so bump_take refuses, as it does for a full
 * chunk. So an epoch's malloc takes only the branch that it needs anyway.
 *
 * A thread without a heap has empty_heap, whose lists are empty. So its first call reaches refill, which gives it a
 * heap. */
#include "heap/borrow.h"
#include "heap/bump.h"
#include "heap/guard.h"
#include "heap/large_cache.h"
#include "heap/misuse.h"
#include "heap/profile.h"
#include "heap/refill.h"
#include "heap/sample.h"
#include "heap/sampled.h"
#include "heap/timing.h"
#include "malloc/malloc_inline.h"
#include "malloc/slow.h"
#include "os/os.h"
#include "process/limits.h"
#include "process/process.h"
#include "runtime/scavenger.h"
#include "runtime/thread.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <string.h>

/* Gives up a list whose head failed the check of the fast path: the program freed that block twice, or wrote to it
 * after its free. */
static COLD void give_up_list(unsigned class) {
  void *bad = heap_take_bad_list(current_heap, class);
  if (!bad) return;
  counters_stage(counters_here(), PATH_DAMAGED);
  misuse_freed(bad);
}

static bool is_closing(const struct heap *heap) { return heap->arena && arena_is_closing(heap->arena); }

/* Returns true if the epoch is the reason of a failure: it is closing, or its budget is used up, which this counts. */
static bool epoch_refuses(struct heap *heap, size_t bytes) {
  if (is_closing(heap)) return true;
  for (const struct arena *l = heap->arena; l; l = l->parent) {
    if (atomic_load_explicit(&l->charged, memory_order_relaxed) + bytes <= l->budget) continue;
    atomic_fetch_add_explicit(&heap->arena->refused, 1, memory_order_relaxed);
    return true;
  }
  return false;
}

/* The last resort. An epoch has none, because it shares no slab. */
static COLD void *take_anywhere(unsigned class, size_t size) {
  void *block = current_heap->arena ? NULL : borrow_anywhere(current_heap, class);
  if (!block) limits_note_failure(size, slab_bytes(class));
  return block;
}

static void *refill_again(unsigned class, size_t size) {
  struct heap *heap = current_heap;
  void *block = heap_refill(heap, class);
  if (LIKELY(block != NULL) || epoch_refuses(heap, slab_bytes(class))) return block;
  /* Other size classes may keep enough free memory. */
  counters_stage(counters_here(), PATH_PURGE);
  if (scavenger_reclaim(heap->arena ? SIZE_MAX : slab_bytes(class))) block = heap_refill(heap, class);
  if (!block && pages_make_room(slab_bytes(class))) block = heap_refill(heap, class);
  return LIKELY(block != NULL) ? block : take_anywhere(class, size);
}

/* Returns a sample, or a block of a list, for a thread that just got its heap. */
static COLD void *first_block(struct heap *heap, unsigned class, size_t size) {
  void *block = profile_is_on() ? sampled_malloc(heap, class, size) : NULL;
  return block ? block : fast_pop(heap, class, pages.key);
}

/* Gives a heap to a thread without one, perhaps with a dead thread's lists. Without memory for a heap, the thread takes
 * a block without one. In other threads the list is empty or damaged. */
static void *refill(unsigned class, size_t size) {
  struct timing timing;
  bool is_born = UNLIKELY(current_heap == &empty_heap);
  uint64_t start = is_born ? ticks_now() : 0;
  if (is_born && !thread_own_heap()) return process_has_started() ? take_anywhere(class, size) : NULL;
  timing_begin(&timing);
  if (UNLIKELY(is_born)) {
    timing.start = start;
    counters_stage(counters_here(), PATH_BIRTH);
  }
  void *block = UNLIKELY(is_born) ? first_block(current_heap, class, size) : NULL;
  if (LIKELY(!block)) {
    if (UNLIKELY(current_heap->list[class] != CHAIN_END)) give_up_list(class);
    block = refill_again(class, size);
  }
  if (block) scavenger_notice_malloc(current_heap);
  timing_end(&timing, size, block ? class_size(class) : 0);
  if (UNLIKELY(is_born)) thread_end_call();
  return block;
}

/* Serves a call that is timed. It needs no refill, so now and then it notifies the scavenger instead. */
static NOINLINE void *take_detached(struct heap *heap, unsigned class, size_t size) {
  void *block = sample_detached(heap, class, size);
  if (UNLIKELY(heap->sampling.timings == TIMED)) scavenger_notice_malloc(heap);
  return block;
}

/* Serves a call whose list is empty, damaged, or detached to time this call. */
INLINE void *miss(unsigned class, size_t size) {
  struct heap *heap = current_heap;
  if (profile_is_on()) {
    void *drawn = sampled_malloc(heap, class, size);
    if (drawn) return drawn;
  }
  void *block = LIKELY(sample_is_due(heap, class)) ? take_detached(heap, class, size) : NULL; /* rare, yet quick */
  return LIKELY(block != NULL) ? block : refill(class, size);
}

/* Returns the block that the program gets. In this file `zero` is as in heap_large_alloc. */
static COLD void *draw_large(struct heap *heap, void *block, size_t size, bool *zero) {
  uint32_t interval = profile_large(heap, block, size);
  void *given = interval ? guard_sample(heap, block, size, size, interval) : block;
  if (given != block && zero) *zero = false;
  return given;
}

static void *large(size_t size, size_t alignment, bool *zero) {
  struct timing timing;
  bool is_born = UNLIKELY(current_heap == &empty_heap);
  if (!process_start() || size > pages_most() || alignment > pages_most() || !thread_own_heap()) return NULL;
  struct heap *heap = current_heap;
  timing_begin(&timing);
  void *block = heap_large_alloc(heap, size, alignment, zero);
  if (UNLIKELY(!block) && !epoch_refuses(heap, large_run_bytes(size))) {
    counters_stage(counters_here(), PATH_PURGE);
    if (scavenger_reclaim(heap->arena ? SIZE_MAX : large_run_bytes(size)))
      block = heap_large_alloc(heap, size, alignment, zero);
    if (!block && pages_make_room(large_run_bytes(size))) block = heap_large_alloc(heap, size, alignment, zero);
    if (!block) limits_note_failure(size, large_run_bytes(size));
  }
  if (block && profile_is_on()) block = draw_large(heap, block, size, zero); /* before the scavenger starts */
  if (block) scavenger_notice_malloc(heap);
  timing_end(&timing, size, block ? large_run_bytes(size) : 0);
  if (UNLIKELY(is_born)) thread_end_call();
  return block;
}

static void *small(unsigned class, size_t size) {
  if (UNLIKELY(current_heap == &empty_heap)) return refill(class, size);
  void *block = fast_pop(current_heap, class, pages.key);
  return LIKELY(block != NULL) ? block : miss(class, size);
}

/* Starts the process first: until then the class tables are empty. */
INLINE unsigned class_for(size_t size) {
  return LIKELY(current_heap != &empty_heap) || process_start() ? class_of(size) : 0;
}

/* Serves the call from a class or as a large block. */
INLINE void *by_size(size_t size, bool *zero) {
  if (LIKELY(size <= DIRECT_MAX)) return miss(class_for(size), size); /* the caller tried the list */
  return size <= SMALL_MAX ? small(class_for(size), size) : large(size, GRANULE, zero);
}

/* Serves a call whose chunk is full or missing, or that was drawn as a sample. */
static void *bump_timed(size_t size) {
  struct timing timing;
  timing_begin(&timing);
  void *block = bump_refill(current_heap, size);
  if (!block) return NULL;
  scavenger_notice_malloc(current_heap);
  timing_end(&timing, size, round_up(max_size(size, 1), CHUNK_UNIT));
  return block;
}

/* Lets epoch 0 serve a call inside the scope of a closing epoch, and counts it. Returns the epoch's heap. Returns NULL
 * for a call that names the epoch, which must fail. */
static struct heap *divert(void) {
  struct heap *heap = current_heap;
  struct epoch *e = (struct epoch *)(void *)heap->arena;
  if (current_thread->visiting) return NULL;
  atomic_fetch_add_explicit(&e->diverted, 1, memory_order_relaxed);
  current_heap = current_thread->plain;
  return heap;
}

static COLD void *malloc_diverted(size_t size) {
  struct timing timing;
  struct heap *heap = divert();
  if (!heap) return NULL;
  timing_begin_path(&timing);
  void *block = inline_malloc(size);
  timing_end_path(&timing, PATH_DIVERTED);
  current_heap = heap;
  return block;
}

static COLD void *aligned_diverted(size_t alignment, size_t size) {
  struct timing timing;
  struct heap *heap = divert();
  if (!heap) return NULL;
  timing_begin_path(&timing);
  void *block = slow_aligned(alignment, size);
  timing_end_path(&timing, PATH_DIVERTED);
  current_heap = heap;
  return block;
}

/* Serves a call in the scope of an epoch whose chunk is full or missing. */
static NOINLINE void *malloc_in_scope(size_t size, bool *zero) {
  void *block = bump_timed(size);
  if (!block && !is_closing(current_heap)) block = by_size(size, zero);
  return block || !is_closing(current_heap) ? block : malloc_diverted(size);
}

static NOINLINE void *malloc_otherwise(size_t size) {
  counters_note_caller(__builtin_frame_address(0));
  void *block = UNLIKELY(current_heap->arena) ? malloc_in_scope(size, NULL) : by_size(size, NULL);
  return LIKELY(block != NULL) ? block : no_memory();
}

static NOINLINE void *calloc_otherwise(size_t size) {
  bool zero = false;
  counters_note_caller(__builtin_frame_address(0));
  void *block = UNLIKELY(current_heap->arena) ? malloc_in_scope(size, &zero) : by_size(size, &zero);
  if (UNLIKELY(!block)) return no_memory();
  return zero ? block : memset(block, 0, size);
}

/* Every malloc of an epoch that fills chunks passes here, so this saves and restores nothing. */
HOT void *slow_malloc_direct(size_t size, struct heap *heap) {
  void *block = bump_take(heap, size);
  return LIKELY(block != NULL) ? block : malloc_otherwise(size);
}

HOT void *slow_malloc(size_t size) {
  void *block = size <= BUMP_MOST ? bump_take(current_heap, size) : NULL;
  return LIKELY(block != NULL) ? block : malloc_otherwise(size);
}

HOT void *slow_calloc(size_t size) {
  void *block = size <= BUMP_MOST ? bump_take(current_heap, size) : NULL;
  return LIKELY(block != NULL) ? memset(block, 0, size) : calloc_otherwise(size);
}

static void *aligned(size_t alignment, size_t size) {
  unsigned class = class_of_aligned(size, alignment);
  return class < CLASSES ? small(class, size) : large(max_size(size, 1), alignment, NULL);
}

static void *aligned_in_scope(size_t alignment, size_t size) {
  struct heap *heap = current_heap;
  void *block = bump_aligned(heap, alignment, size);
  if (!block && !is_closing(heap)) block = aligned(alignment, size);
  return block || !is_closing(heap) ? block : aligned_diverted(alignment, size);
}

void *slow_aligned(size_t alignment, size_t size) {
  bool is_born = current_heap == &empty_heap;
  if (!process_start()) return no_memory();
  thread_own_heap(); /* without one, small blocks may be had still */
  counters_note_caller(__builtin_frame_address(0));
  profile_note_alignment(alignment);
  void *block = current_heap->arena ? aligned_in_scope(alignment, size) : aligned(alignment, size);
  profile_note_alignment(0);
  if (is_born) thread_end_call();
  return block ? block : no_memory();
}

HOT void *tslab_malloc(size_t size) { return inline_malloc(size); }
void *tslab_calloc(size_t count, size_t size) { return inline_calloc(count, size); }
