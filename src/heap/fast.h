/* fast: malloc and free when nothing is in the way; the only hot file.                               floor: heap
 *
 * Every line here is some of the 38 instructions that tests/golden counts. The caller instantiates these and leaves by a
 * tail call into its own slow path, so that nothing is saved or restored on the way.
 *
 * Written in the order the processor wants it: the packed count is updated with one read-modify-write whose sign says
 * whether to visit the slow path, and the check that p starts a block comes last, where p's register is free to be lost.  */
#ifndef TSLAB_HEAP_FAST_H
#define TSLAB_HEAP_FAST_H

#include "heap/part.h"

/* The pointer alone: 8 bytes of static TLS, so that dlopen finds room for it. */
extern HIDDEN __thread struct part *current_part __attribute__((tls_model("initial-exec")));

/* part->count[class].now--, in one instruction on the element where it lies; gcc would first compute the address apart. */
INLINE void fast_count_pop(struct part *part, size_t class) {
#if defined(__x86_64__)
  __asm__("subl $1, %c3(%1, %2, 8)"
          : "+m"(part->count)
          : "r"(part), "r"(class), "i"(offsetof(struct part, count))
          : "cc");
#else
  part->count[class].now--;
#endif
}

/* The block will be the caller's result: in its register from the start it needs no move at the end. */
INLINE void fast_keep_for_return(void ***block) {
#if defined(__x86_64__)
  __asm__("" : "+a"(*block));
#else
  (void)block;
#endif
}

/* Checks and clears a block's key in one instruction: a block in use never holds it. */
INLINE bool fast_unmark(uintptr_t *mark, uintptr_t key) {
#if defined(__x86_64__)
  bool was_key;
  __asm__("subq %2, %0" : "+m"(*mark), "=@ccz"(was_key) : "r"(key));
  return was_key;
#else
  return (*mark -= key) == 0;
#endif
}

/* A block of the class. NULL when the list is empty, and when its head does not hold its key, which is taken from it all the
 * same: then it was freed twice, and popped once already, or written to since. */
INLINE void *fast_pop(struct part *part, unsigned class, uintptr_t base) {
  void **block = part->list[class];
  fast_keep_for_return(&block);
  if (UNLIKELY(!block)) return NULL;
  if (UNLIKELY(!fast_unmark((uintptr_t *)&block[1], (uintptr_t)block + base))) return NULL;
  fast_count_pop(part, class);
  part->list[class] = block[0];
  return block;
}

/* class_starts_block with both operands in memory and p's register lost: two instructions less than the compilers find. */
INLINE bool fast_starts_block(uintptr_t p, const uint64_t *inverse) {
#if defined(__x86_64__)
  bool below;
  __asm__("imulq %2, %0\n\tcmpq %2, %0" : "+r"(p), "=@ccb"(below) : "m"(*inverse));
  return below;
#else
  return class_starts_block(p, *inverse);
#endif
}

/* What the array at `offset` of a part has for the class whose home this is. */
INLINE void *beside_home(home h, size_t offset) { return (char *)h + offset - offsetof(struct part, self); }

/* A word of what may not be a block, so not aligned either. */
INLINE void fast_store(void *p, size_t offset, uintptr_t word) { __builtin_memcpy((char *)p + offset, &word, sizeof word); }

enum fast_free { FREED, NOT_HERE, LIST_FULL, NOT_A_BLOCK };

/* FREED; NOT_HERE and LIST_FULL: nothing happened but that the count ran out of room by one in the latter;
 * NOT_A_BLOCK: p, which starts no block, is on the list of *at and must come off it. */
INLINE enum fast_free fast_push(void *p, home *at) {
  uintptr_t base = (uintptr_t)pages.base;
  size_t granule = ((uintptr_t)p - base) >> GRANULE_SHIFT;
  if (UNLIKELY(granule >= LOAD_RACING(pages.count))) return NOT_HERE;
  home h = LOAD_RACING(((home *)(base + HOMES_OFFSET))[granule]);
  if (UNLIKELY(*h != current_part)) return NOT_HERE;
  *at = h;
  struct count *count = beside_home(h, offsetof(struct part, count));
  count->now -= ROOM_ONE - 1; /* one more block, room for one less */
  if (UNLIKELY((int32_t)count->now < 0)) return LIST_FULL;
  void **list = beside_home(h, offsetof(struct part, list));
  fast_store(p, sizeof(void *), (uintptr_t)p + base); /* only written: to read it would be to wait for a line that may be cold */
  fast_store(p, 0, (uintptr_t)*list);
  *list = p;
  if (UNLIKELY(!fast_starts_block((uintptr_t)p, beside_home(h, offsetof(struct part, inverse)))))
    return NOT_A_BLOCK;
  return FREED;
}

#endif
