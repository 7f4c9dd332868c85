/* depot: see depot.h.                                                                                floor: heap */
#include "heap/depot.h"

#include "base/options.h"

/* While a thread only frees, its list comes by in pieces this small, which are joined to whole batches. */
#define JOIN_MOST 32

static uint16_t take_record(struct part *part) {
  uint16_t index = part->free_batch;
  if (index) part->free_batch = part->batches[index].older;
  else if (part->unused_batch < BATCHES) index = part->unused_batch++;
  return index;
}

static void account(struct part *part, unsigned class, int blocks) {
  struct bin *bin = &part->bins[class];
  STORE_RACING(bin->depot_blocks, bin->depot_blocks + (uint32_t)blocks);
  if (bin->depot_least > bin->depot_blocks) bin->depot_least = bin->depot_blocks;
  size_t bytes = part->depot_bytes + (size_t)blocks * class_size(class);
  /* Atomic for those who only want to know whether it is much. */
  __atomic_store_n(&part->depot_bytes, bytes, __ATOMIC_RELAXED);
}

static bool join(struct part *part, unsigned class, struct chain chain) {
  const struct bin *bin = &part->bins[class];
  struct batch *newest = &part->batches[bin->newest];
  unsigned most = list_cap(bin, class) + JOIN_MOST;
  if (!bin->newest || chain.count > JOIN_MOST || newest->count + chain.count > most) return false;
  void *tail = chain.head;
  for (unsigned i = 1; i < chain.count && block_next(tail) != CHAIN_END; i++) tail = block_next(tail);
  /* A ring, of a block freed twice, or one that was written to: told by who takes the batch apart. */
  if (block_next(tail) != CHAIN_END || (TSLAB_HARDENED && !block_is_intact(tail))) return false;
  block_link(tail, newest->head);
  newest->head = chain.head;
  newest->count = (uint16_t)(newest->count + chain.count);
  return true;
}

bool depot_is_full(const struct part *part, unsigned class, unsigned count) {
  size_t bytes = __atomic_load_n(&part->depot_bytes, __ATOMIC_RELAXED);
  return bytes + count * class_size(class) > options.cache_bytes;
}

bool depot_put(struct part *part, unsigned class, struct chain chain) {
  struct bin *bin = &part->bins[class];
  if (depot_is_full(part, class, chain.count)) return false;
  part_notice(part);
  if (!join(part, class, chain)) {
    uint16_t index = take_record(part);
    if (!index) return false;
    part->batches[index] = (struct batch){chain.head, (uint16_t)chain.count, 0, bin->newest, (uint16_t)class};
    if (bin->newest) part->batches[bin->newest].newer = index;
    else bin->oldest = index;
    bin->newest = index;
  }
  account(part, class, (int)chain.count);
  return true;
}

static struct chain remove_batch(struct part *part, unsigned class, uint16_t index) {
  struct bin *bin = &part->bins[class];
  struct batch *batch = &part->batches[index];
  struct chain chain = {batch->head, batch->count};
  if (batch->newer) part->batches[batch->newer].older = batch->older;
  else bin->newest = batch->older;
  if (batch->older) part->batches[batch->older].newer = batch->newer;
  else bin->oldest = batch->newer;
  batch->older = part->free_batch;
  part->free_batch = index;
  account(part, class, -(int)chain.count);
  return chain;
}

struct chain depot_take(struct part *part, unsigned class) {
  uint16_t index = part->bins[class].newest;
  return index ? remove_batch(part, class, index) : EMPTY_CHAIN;
}

struct chain depot_take_oldest(struct part *part, unsigned class, unsigned most) {
  uint16_t index = part->bins[class].oldest;
  return index && part->batches[index].count <= most ? remove_batch(part, class, index) : EMPTY_CHAIN;
}

struct chain depot_take_some(struct part *part, unsigned class, unsigned most, struct chain behind,
                             struct chain *astray) {
  uint16_t index = part->bins[class].oldest;
  struct batch *batch = &part->batches[index];
  unsigned count = index ? (unsigned)min_size(most, batch->count) : 0;
  if (count == 0) return behind;
  void *head = batch->head, *last = head;
  for (unsigned i = 1; i < count && block_is_intact(last); i++) last = block_next(last);
  if (UNLIKELY(!block_is_intact(last))) {
    *astray = remove_batch(part, class, index);
    return behind;
  }
  if (count < batch->count) {
    batch->head = block_next(last);
    batch->count = (uint16_t)(batch->count - count);
    account(part, class, -(int)count);
  } else {
    remove_batch(part, class, index);
  }
  block_link(last, behind.head);
  return (struct chain){head, count + behind.count};
}

unsigned depot_stale(struct part *part, unsigned class) {
  struct bin *bin = &part->bins[class];
  unsigned stale = bin->depot_least;
  bin->depot_least = bin->depot_blocks;
  return stale;
}
