/* inherited: see inherited.h.                                                                       floor: heap */
#include "heap/inherited.h"

#include "heap/tcache.h"

struct leaked leaked;

static bool is_free_block_of(const struct heap *heap, unsigned class, void *p) {
  const struct run *run = pages_run_of(p);
  if (!run || run->kind != RUN_SLAB || run->class != class) return false;
  const struct heap *owner = atomic_load_explicit(&run->heap, memory_order_relaxed);
  bool is_kept = owner && !owner->of_epochs && !heap->of_epochs; /* a thread keeps blocks of others' slabs, too */
  return (owner == heap || is_kept) && class_starts_block((uintptr_t)p, class_inverse(class)) &&
         (block_is_intact(p) || block_is_drawn(p));
}

/* Returns the length of a list up to `stop`, as far as its blocks are what they should be, and sets *last. */
static unsigned whole_length(const struct heap *heap, unsigned class, void *list, const void *stop, void **last) {
  unsigned count = 0;
  *last = NULL;
  for (void *p = list; p != CHAIN_END && p != stop && is_free_block_of(heap, class, p); p = block_next(p)) {
    if (++count > INT16_MAX) return 0; /* a circle, by a double free */
    if (block_is_drawn(p)) block_mark_free(p); /* one of them at most */
    *last = p;
  }
  return count;
}

/* Writes only where a list is broken: the page is the parent's, too. */
static void end_with(void *last, void *next) {
  if (last && block_next(last) != next) block_link(last, next);
}

/* Returns what is whole of the class's list, and of its detached one. A thread that was detaching or attaching the list
 * may have left it at both places. */
struct chain heap_recover_list(const struct heap *heap, unsigned class) {
  void *list = heap->list[class], *last, *last_detached;
  void *detached = tcache_is_detached(heap, class) ? heap->sampling.detached : CHAIN_END;
  unsigned more = whole_length(heap, class, detached, CHAIN_END, &last_detached);
  unsigned count = whole_length(heap, class, list, detached, &last);
  if (more == 0) detached = CHAIN_END;
  if (more) end_with(last_detached, CHAIN_END);
  if (count) end_with(last, detached);
  return (struct chain){count ? list : detached, count + more};
}

void heap_leave_list(struct heap *heap, unsigned class, void *list) {
  heap->list[class] = list;
  if (list != CHAIN_END) heap->store->inherited |= (uint64_t)1 << class;
}

static void find_again(_Atomic uint64_t *leaked_ones, uint64_t found) {
  uint64_t before = atomic_load_explicit(leaked_ones, memory_order_relaxed), now;
  do now = before - min_size(before, found);
  while (!atomic_compare_exchange_weak_explicit(leaked_ones, &before, now, memory_order_relaxed, memory_order_relaxed));
}

/* Takes a class out of those with a list to inherit. Returns CLASSES if there is none. */
static unsigned next_class(struct heap_store *store) {
  if (!store->inherited) return CLASSES;
  unsigned class = lowest_bit(store->inherited);
  store->inherited &= store->inherited - 1;
  return class;
}

/* A signal handler may fork meanwhile: its child freezes, and this heap serves nobody else there. */
void heap_inherit_lists(struct heap *heap) {
  lock_change_begins();
  for (unsigned class; (class = next_class(heap->store)) < CLASSES;) {
    struct chain chain = heap_recover_list(heap, class);
    heap->list[class] = CHAIN_END;
    if (chain.count == 0) continue;
    find_again(&leaked.blocks, chain.count);
    find_again(&leaked.bytes, chain.count * class_size(class));
    tcache_set(heap, class, chain);
  }
  lock_change_ends();
}

void heap_disown_lists(struct heap *heap) {
  for (unsigned class; (class = next_class(heap->store)) < CLASSES;) heap->list[class] = CHAIN_END;
}
