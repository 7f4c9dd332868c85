/* fast: malloc and free in the usual case; the only hot file.                                       floor: heap
 *
 * Every line here is a part of the 37 instructions that tests/golden counts. The caller instantiates these functions
 * and leaves by a tail call into its own slow path, so the compiler saves and restores no register.
 *
 * The order suits the processor. One read-modify-write updates the packed count, and the sign of its result decides if
 * free visits the slow path. The check that p starts a block comes last, where it may overwrite p's register. */
#ifndef TSLAB_HEAP_FAST_H
#define TSLAB_HEAP_FAST_H

#include "heap/quarantine.h"

#if defined(__x86_64__)

/* heap->count[class].now--, in one instruction; gcc would first compute the address by another one. */
INLINE void fast_count_pop(struct heap *heap, size_t class) {
  __asm__("subl $1, %c3(%1, %2, 8)"
          : "+m"(heap->count)
          : "r"(heap), "r"(class), "i"(offsetof(struct heap, count))
          : "cc");
}

/* Counts one block more and room for one less. Returns true if the room was used up. */
INLINE bool fast_count_push(struct heap *heap, size_t class) {
  bool full;
  __asm__("subl %5, %c4(%2, %3, 8)"
          : "+m"(heap->count), "=@ccs"(full)
          : "r"(heap), "r"(class), "i"(offsetof(struct heap, count)), "i"(ROOM_ONE - 1));
  return full;
}

/* class_starts_block with both operands in memory, which overwrites p's register: two instructions less than compilers
 * find. */
INLINE bool fast_starts_block(uintptr_t p, size_t class, uintptr_t key) {
  bool below;
  __asm__("imulq %c4(%2, %3, 8), %0\n\tcmpq %c4(%2, %3, 8), %0"
          : "+&r"(p), "=@ccb"(below) /* p is overwritten before key and class are read again */
          : "r"(key), "r"(class), "i"(offsetof(struct class_tables, inverse) + KEY_BELOW_BASE),
            "m"(class_tables_by_key(key)->inverse));
  return below;
}

#else

INLINE void fast_count_pop(struct heap *heap, size_t class) { heap->count[class].now--; }

INLINE bool fast_count_push(struct heap *heap, size_t class) {
  heap->count[class].now -= ROOM_ONE - 1;
  return (int32_t)heap->count[class].now < 0;
}

INLINE bool fast_starts_block(uintptr_t p, size_t class, uintptr_t key) {
  return class_starts_block(p, class_tables_by_key(key)->inverse[class]);
}

#endif

/* Returns a block of the class, or NULL if the list is empty or its head has lost its key. A lost key means that the
 * program freed the block twice, and malloc returned it once already, or wrote to it after its free. `key` is
 * pages.key. It also fetches the line of the next block, which may be cold, while the program uses this one. */
INLINE void *fast_pop(struct heap *heap, unsigned class, uintptr_t key) {
  void **block = heap->list[class];
  KEEP_FOR_RETURN(block);
  if (UNLIKELY(TSLAB_HARDENED ? !block_is_intact(block) : (uintptr_t)block[1] != key)) return NULL;
  void **next = block_next(block);
  __builtin_prefetch(next, 1);
  heap->list[class] = next;
  atomic_signal_fence(memory_order_seq_cst); /* for a handler that calls exit: never more blocks than the count says */
  fast_count_pop(heap, class);
  if (TSLAB_HARDENED) block[0] = NULL; /* hides from readers how links are made */
  block[1] = NULL; /* a block in use never holds its key */
  return block;
}

/* Stores a word. p may be no block, and so not aligned. */
INLINE void fast_store(void *p, size_t offset, uintptr_t word) {
  __builtin_memcpy((char *)p + offset, &word, sizeof word);
}

/* fast_push's findings, for the slow paths. */
struct fast_seen {
  struct heap *heap;   /* current_heap; unless UNCLEAR */
  unsigned class;      /* unless UNCLEAR or NOT_HERE */
  pagemap_entry owner; /* NOT_HERE: the granule's entry */
};

/* The hardened free. It checks the block before it changes anything. For a pointer to no block, or a free block, it
 * returns UNCLEAR, and slow_free_unclear reports the misuse. */
INLINE enum fast_free fast_push_hardened(struct heap *heap, unsigned class, void *p) {
  if (UNLIKELY(!class_starts_block((uintptr_t)p, class_inverse(class)) || block_is_free(p))) return UNCLEAR;
  if (UNLIKELY(fast_count_push(heap, class))) return LIST_FULL;
  quarantine_enter(heap, class, p);
  return FREED;
}

/* Frees p. FREED: done. UNCLEAR: p is not below the frontier, or a hardened library found no live block. NOT_HERE: the
 * thread's heap does not own p's granule. LIST_FULL: the list has no room, and only its count has changed, by this
 * free. NOT_A_BLOCK: p starts no block, but is now the head of the class's list; the caller must not use the list. */
INLINE enum fast_free fast_push(void *p, struct fast_seen *seen) {
  uintptr_t key = pages.key;
  size_t granule = ((uintptr_t)p - key) >> GRANULE_SHIFT;
  if (UNLIKELY(granule >= LOAD_RACING(pages.count))) return UNCLEAR;
  struct heap *heap = seen->heap = current_heap;
  pagemap_entry entry = LOAD_RACING(((pagemap_entry *)(key + KEY_BELOW_BASE + PAGEMAP_OFFSET))[granule]);
  KEEP_FOR_RETURN(entry); /* otherwise compilers copy it there */
  uintptr_t class = heap_class_of(heap, entry);
  if (UNLIKELY(class >= CLASSES)) {
    FORGET(class); /* otherwise compilers copy the entry before they know that they need it */
    seen->owner = class ^ (uintptr_t)heap;
    return NOT_HERE;
  }
  seen->class = (unsigned)class;
  if (TSLAB_HARDENED) return fast_push_hardened(heap, (unsigned)class, p);
  if (UNLIKELY(fast_count_push(heap, class))) return LIST_FULL;
  /* These only write the block: a read would wait for a line that may be cold. */
  fast_store(p, sizeof(void *), key);
  fast_store(p, 0, (uintptr_t)heap->list[class]);
  heap->list[class] = p;
  if (UNLIKELY(!fast_starts_block((uintptr_t)p, class, key))) return NOT_A_BLOCK;
  return FREED;
}

#endif
