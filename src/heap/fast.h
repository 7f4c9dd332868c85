/* fast: malloc and free when nothing is in the way; the only hot file.                              floor: heap
 *
 * Every line here is some of the 38 instructions that tests/golden counts. The caller instantiates these and leaves by
 * a tail call into its own slow path, so that nothing is saved or restored on the way.
 *
 * Written in the order the processor wants it: the packed count is updated with one read-modify-write whose sign says
 * whether to visit the slow path, and the check that p starts a block comes last, where p's register is free to be
 * lost. */
#ifndef TSLAB_HEAP_FAST_H
#define TSLAB_HEAP_FAST_H

#include "heap/quarantine.h"

#if defined(__x86_64__)

/* heap->count[class].now--, in one instruction on the element where it lies; gcc would first compute the address
 * apart. */
INLINE void fast_count_pop(struct heap *heap, size_t class) {
  __asm__("subl $1, %c3(%1, %2, 8)"
          : "+m"(heap->count)
          : "r"(heap), "r"(class), "i"(offsetof(struct heap, count))
          : "cc");
}

/* One more block, room for one less; whether the room was used up. */
INLINE bool fast_count_push(struct heap *heap, size_t class) {
  bool full;
  __asm__("subl %5, %c4(%2, %3, 8)"
          : "+m"(heap->count), "=@ccs"(full)
          : "r"(heap), "r"(class), "i"(offsetof(struct heap, count)), "i"(ROOM_ONE - 1));
  return full;
}

/* class_starts_block with both operands in memory and p's register lost: two instructions less than compilers find. */
INLINE bool fast_starts_block(uintptr_t p, size_t class, uintptr_t base) {
  bool below;
  __asm__("imulq %c4(%2, %3, 8), %0\n\tcmpq %c4(%2, %3, 8), %0"
          : "+&r"(p), "=@ccb"(below) /* p is lost before base and class are read again */
          : "r"(base), "r"(class), "i"(offsetof(struct class_tables, inverse)),
            "m"(((const struct class_tables *)base)->inverse));
  return below;
}

#else

INLINE void fast_count_pop(struct heap *heap, size_t class) { heap->count[class].now--; }

INLINE bool fast_count_push(struct heap *heap, size_t class) {
  heap->count[class].now -= ROOM_ONE - 1;
  return (int32_t)heap->count[class].now < 0;
}

INLINE bool fast_starts_block(uintptr_t p, size_t class, uintptr_t base) {
  return class_starts_block(p, ((const struct class_tables *)base)->inverse[class]);
}

#endif

/* A block of the class. NULL when the list is empty, and when its head does not hold its key: then it was freed twice,
 * and popped once already, or written to since. */
INLINE void *fast_pop(struct heap *heap, unsigned class, uintptr_t base) {
  void **block = heap->list[class];
  KEEP_FOR_RETURN(block);
  if (UNLIKELY(TSLAB_HARDENED ? !block_is_intact(block) : (uintptr_t)block[1] != (uintptr_t)block + base)) return NULL;
  fast_count_pop(heap, class);
  heap->list[class] = block_next(block);
  if (TSLAB_HARDENED) block[0] = NULL; /* nobody learns from it how links are made */
  block[1] = NULL; /* a block in use never holds its key */
  return block;
}

/* A word of what may not be a block, so not aligned either. */
INLINE void fast_store(void *p, size_t offset, uintptr_t word) {
  __builtin_memcpy((char *)p + offset, &word, sizeof word);
}

enum fast_free { FREED, UNCLEAR, NOT_HERE, LIST_FULL, NOT_A_BLOCK };

/* Looks at the block before anything happens to it. What is none, or free already, is named where all that is not here
 * goes. */
INLINE enum fast_free fast_push_hardened(struct heap *heap, unsigned class, void *p) {
  if (UNLIKELY(!class_starts_block((uintptr_t)p, class_inverse(class)) || block_is_free(p))) return UNCLEAR;
  if (UNLIKELY(fast_count_push(heap, class))) return LIST_FULL;
  quarantine_enter(heap, class, p);
  return FREED;
}

/* FREED; UNCLEAR: p is not below the frontier, or a hardened library found no live block; NOT_HERE: its granule is not
 * owner to *here, the thread's heap; LIST_FULL: the count ran out of room by one, and nothing else happened;
 * NOT_A_BLOCK: p, which starts no block, is on the list of *in and must come off it. */
INLINE enum fast_free fast_push(void *p, unsigned *in, struct heap **here) {
  uintptr_t base = (uintptr_t)pages.base;
  size_t granule = ((uintptr_t)p - base) >> GRANULE_SHIFT;
  if (UNLIKELY(granule >= LOAD_RACING(pages.count))) return UNCLEAR;
  struct heap *heap = *here = current_heap;
  pagemap_entry entry = LOAD_RACING(((pagemap_entry *)(base + PAGEMAP_OFFSET))[granule]);
  KEEP_FOR_RETURN(entry); /* else compilers copy it there */
  uintptr_t class = heap_class_of(heap, entry);
  if (UNLIKELY(class >= CLASSES)) return NOT_HERE;
  *in = (unsigned)class;
  if (TSLAB_HARDENED) return fast_push_hardened(heap, (unsigned)class, p);
  if (UNLIKELY(fast_count_push(heap, class))) return LIST_FULL;
  /* Only written: to read it would be to wait for a line that may be cold. */
  fast_store(p, sizeof(void *), (uintptr_t)p + base);
  fast_store(p, 0, (uintptr_t)heap->list[class]);
  heap->list[class] = p;
  if (UNLIKELY(!fast_starts_block((uintptr_t)p, class, base))) return NOT_A_BLOCK;
  return FREED;
}

#endif
