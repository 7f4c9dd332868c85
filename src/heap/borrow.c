/* borrow: see borrow.h.                                                                             floor: heap */
#include "heap/borrow.h"

#include "heap/bins.h"
#include "heap/fast.h"
#include "heap/registry.h"
#include "heap/tcache.h"

void *borrow_from(struct heap *nobodys, const struct heap *heap, unsigned class) {
  nobodys->counters = heap->counters; /* the thread counts what this takes */
  if (nobodys->list[class] == CHAIN_END) {
    tcache_fold(nobodys, class);
    tcache_set(nobodys, class, bins_take(nobodys, class, 1));
  }
  void *block = fast_pop(nobodys, class, pages.key);
  nobodys->counters = &shared_counters;
  heap_notice(nobodys);
  return block;
}

/* Caller holds common_heap.lock. */
static void *borrow_common(const struct heap *heap, unsigned class) {
  void *block = borrow_from(&common_heap, heap, class);
  tcache_fold(&common_heap, class); /* bins_take_shared expects it */
  return block;
}

static bool has_listed(const struct heap *heap, unsigned class) {
  return __atomic_load_n(&heap_bin(heap, class)->first, __ATOMIC_RELAXED) != 0;
}

/* Returns the classes, one bit each, whose blocks have the size and the alignment of a block of `wanted`. */
static uint64_t classes_that_serve(unsigned wanted) {
  uint64_t classes = 0;
  for (unsigned class = wanted; class < CLASSES; class++)
    if (class_size(class) % class_size(wanted) == 0) classes |= (uint64_t)1 << class;
  return classes;
}

static void *take_common(const struct heap *heap, uint64_t classes) {
  void *block = NULL;
  lock_take(&common_heap.lock);
  for (; classes && !block; classes &= classes - 1) {
    unsigned class = lowest_bit(classes);
    if (common_heap.list[class] != CHAIN_END || has_listed(&common_heap, class)) block = borrow_common(heap, class);
  }
  lock_release(&common_heap.lock);
  return block;
}

/* Makes a slab of `owner` common, and takes a block of it before another thread adopts it. */
static void *share(struct heap *owner, const struct heap *heap, unsigned class) {
  lock_take(&owner->lock);
  lock_take(&common_heap.lock);
  void *block = bins_share(owner, class) ? borrow_common(heap, class) : NULL;
  lock_release(&common_heap.lock);
  lock_release(&owner->lock);
  return block;
}

/* Caller holds heaps_lock, so that `owner` is not folded meanwhile. */
static void *take_from(struct heap *owner, const struct heap *heap, uint64_t classes) {
  void *block = NULL;
  for (; classes && !block && !owner->folded; classes &= classes - 1)
    if (has_listed(owner, lowest_bit(classes))) block = share(owner, heap, lowest_bit(classes));
  return block;
}

/* A program at its limit may fail often. After a look at all heaps found nothing, a call looks at so many heaps, and
 * the next call goes on there. heaps_lock protects these. */
#define LOOKS 64
static struct heap *next_owner; /* of all_heaps; NULL: the newest */
static bool found_none;

static void *take_from_any(const struct heap *heap, uint64_t classes) {
  struct heap *newest = atomic_load_explicit(&all_heaps, memory_order_acquire);
  struct heap *const start = next_owner ? next_owner : newest, *owner = start;
  void *block = NULL;
  for (unsigned left = found_none ? LOOKS : UINT32_MAX; owner && left > 0; left--) {
    block = take_from(owner, heap, classes);
    if (block) break;
    owner = owner->next_heap ? owner->next_heap : newest;
    if (owner == start) break;
  }
  next_owner = owner;
  found_none = !block;
  return block;
}

void *borrow_anywhere(const struct heap *heap, unsigned class) {
  uint64_t classes = classes_that_serve(class);
  if (locks_held != 0) return NULL; /* this would wait for a lock of this thread */
  heap_begin_common();
  void *block = take_common(heap, classes);
  if (block) return block;
  lock_take(&heaps_lock);
  block = take_from_any(heap, classes);
  lock_release(&heaps_lock);
  return block;
}
