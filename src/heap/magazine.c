/* magazine: see magazine.h.                                                                         floor: heap */
#include "heap/magazine.h"

#include "base/options.h"

/* While a thread only frees, its list comes in pieces this small, which join the newest magazine. A magazine of large
 * blocks stays small, because a refill takes magazines whole: docs/decisions/0075. */
#define JOIN_MOST  32
#define JOIN_BYTES (16 * KiB)

static uint16_t take_record(struct heap *heap) {
  uint16_t index = heap->free_magazine;
  if (index) heap->free_magazine = heap->magazines[index].older;
  else if (heap->unused_magazine < MAGAZINES) index = heap->unused_magazine++;
  return index;
}

static void account(struct heap *heap, unsigned class, int blocks) {
  struct bin *bin = &heap->bins[class];
  STORE_RACING(bin->magazine_blocks, bin->magazine_blocks + (uint32_t)blocks);
  size_t bytes = heap->magazine_bytes + (size_t)blocks * class_size(class);
  /* Atomic, because other threads read it without the lock. */
  __atomic_store_n(&heap->magazine_bytes, bytes, __ATOMIC_RELAXED);
}

static bool join(struct heap *heap, unsigned class, struct chain chain) {
  const struct bin *bin = &heap->bins[class];
  struct magazine *newest = &heap->magazines[bin->newest];
  unsigned most = tcache_cap(heap, class) + blocks_in(class, JOIN_BYTES, JOIN_MOST);
  if (!bin->newest || chain.count > JOIN_MOST || newest->count + chain.count > most) return false;
  void *tail = chain.head;
  for (unsigned i = 1; i < chain.count && block_is_intact(tail) && block_next(tail) != CHAIN_END; i++)
    tail = block_next(tail);
  /* A double free makes a ring, and a write damages a link. The thread that takes the magazine apart reports it. */
  if (!block_is_intact(tail) || block_next(tail) != CHAIN_END) return false;
  block_link(tail, newest->head);
  newest->head = chain.head;
  newest->count = (uint16_t)(newest->count + chain.count);
  return true;
}

bool magazines_are_full(const struct heap *heap, unsigned class, unsigned count) {
  size_t bytes = __atomic_load_n(&heap->magazine_bytes, __ATOMIC_RELAXED);
  return bytes + count * class_size(class) > options.cache_bytes;
}

bool magazine_put(struct heap *heap, unsigned class, struct chain chain) {
  struct bin *bin = &heap->bins[class];
  if (magazines_are_full(heap, class, chain.count)) return false;
  heap_notice(heap);
  if (!join(heap, class, chain)) {
    uint16_t index = take_record(heap);
    if (!index) return false;
    heap->magazines[index] = (struct magazine){chain.head, (uint16_t)chain.count, 0, bin->newest, (uint16_t)class};
    uint16_t older = bin->newest;
    bin->newest = index;
    FENCE_ALL(); /* for a handler that calls exit: no record that it removes stays `newest` */
    if (older) heap->magazines[older].newer = index;
    else bin->oldest = index;
  }
  account(heap, class, (int)chain.count);
  return true;
}

static struct chain remove_magazine(struct heap *heap, unsigned class, uint16_t index) {
  struct bin *bin = &heap->bins[class];
  struct magazine *magazine = &heap->magazines[index];
  struct chain chain = {magazine->head, magazine->count};
  if (magazine->newer) heap->magazines[magazine->newer].older = magazine->older;
  else bin->newest = magazine->older;
  if (magazine->older) heap->magazines[magazine->older].newer = magazine->newer;
  else bin->oldest = magazine->newer;
  magazine->older = heap->free_magazine;
  heap->free_magazine = index;
  account(heap, class, -(int)chain.count);
  return chain;
}

struct chain magazine_take(struct heap *heap, unsigned class) {
  uint16_t index = heap->bins[class].newest;
  return index ? remove_magazine(heap, class, index) : EMPTY_CHAIN;
}

struct chain magazine_take_oldest(struct heap *heap, unsigned class) {
  uint16_t index = heap->bins[class].oldest;
  return index ? remove_magazine(heap, class, index) : EMPTY_CHAIN;
}

struct chain magazine_take_some(struct heap *heap, unsigned class, unsigned most, struct chain behind,
                             struct chain *astray) {
  uint16_t index = heap->bins[class].oldest;
  struct magazine *magazine = &heap->magazines[index];
  unsigned count = index ? (unsigned)min_size(most, magazine->count) : 0;
  if (count == 0) return behind;
  void *head = magazine->head, *last = head;
  for (unsigned i = 1; i < count && block_is_intact(last); i++) last = block_next(last);
  if (UNLIKELY(!block_is_intact(last))) {
    *astray = remove_magazine(heap, class, index);
    return behind;
  }
  if (count < magazine->count) {
    magazine->head = block_next(last);
    magazine->count = (uint16_t)(magazine->count - count);
    account(heap, class, -(int)count);
  } else {
    remove_magazine(heap, class, index);
  }
  block_link(last, behind.head);
  return (struct chain){head, count + behind.count};
}
