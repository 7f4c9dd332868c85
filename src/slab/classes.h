/* classes: which size class serves a request.                                                       floor: slab
 *
 * Steps of 16 bytes to 256, then eight for each doubling to 1,024 (at most an eighth is waste), then four to 32 KiB,
 * where a block's unused tail is mostly pages that nobody touches. All blocks of a class lie on multiples of its size,
 * so a class whose size is a multiple of an alignment serves that alignment, and whether a pointer starts a block is
 * one multiplication: p * inverse < inverse, for p below 2^48, which is what arm64 gives who does not ask for more, and
 * inverse = 2^64 / size rounded up (Lemire, Kaser, Kurz 2019). */
#ifndef TSLAB_SLAB_CLASSES_H
#define TSLAB_SLAB_CLASSES_H

#include "pages/pages.h"

#define CLASSES 52
#define SMALL_MAX (32 * KiB) /* larger requests get granules of their own */

/* Below this, one byte per size gives the class: a shift and an addition less on the fast path. 1,280 is the first
 * class border above 1 KiB plus a header, which programs ask for often. */
#define DIRECT_MAX 1280

HIDDEN extern const uint16_t class_sizes[CLASSES];

/* In the page at pages.base, whose address malloc and free need in a register anyway. */
struct class_tables {
  uint8_t direct[DIRECT_MAX + 1];       /* by size */
  uint8_t coarse[(SMALL_MAX >> 8) + 1]; /* by (size + 255) / 256, from DIRECT_MAX + 1 on */
  uint64_t inverse[CLASSES];
};
_Static_assert(sizeof(struct class_tables) <= PAGEMAP_OFFSET, "in the page before the pagemap");

/* After pages_start. */
HIDDEN void classes_start(void);

INLINE size_t class_size(unsigned class) { return class_sizes[class]; }
INLINE struct class_tables *class_tables(void) { return (struct class_tables *)(void *)pages.base; }

/* size <= SMALL_MAX */
INLINE unsigned class_of(size_t size) {
  return size <= DIRECT_MAX ? class_tables()->direct[size] : class_tables()->coarse[(size + 255) >> 8];
}

/* The smallest class of at least `size` bytes whose blocks lie on multiples of `alignment`; CLASSES when there is
 * none. */
HIDDEN unsigned class_of_aligned(size_t size, size_t alignment);

INLINE uint64_t class_inverse(unsigned class) { return class_tables()->inverse[class]; }
INLINE bool class_starts_block(uintptr_t p, uint64_t inverse) { return p * inverse < inverse; }

#endif
