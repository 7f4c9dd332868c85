/* classes: finds the size class that serves a request.                                              floor: slab
 *
 * Sizes rise by 16 bytes up to 256, then in eight steps for each doubling up to 1,024 (so at most an eighth is waste),
 * then in four steps up to 32 KiB, where the unused tail of a block is mostly untouched pages. All blocks of a class
 * lie on multiples of its size. So a class whose size is a multiple of an alignment serves that alignment, and one
 * multiplication tells if a pointer starts a block: p * inverse < inverse, where inverse = 2^64 / size rounded up, for
 * p below 2^48 (Lemire, Kaser, Kurz 2019). arm64 gives larger addresses only to programs that ask for them. */
#ifndef TSLAB_SLAB_CLASSES_H
#define TSLAB_SLAB_CLASSES_H

#include "pages/pages.h"

#define CLASSES 52
#define SMALL_MAX (32 * KiB) /* a larger request gets granules of its own */

/* Up to this size a table has one byte per size. This saves the fast path a shift and an addition. Programs often ask
 * for 1 KiB plus a header, and 1,280 is the first class above that. */
#define DIRECT_MAX 1280

HIDDEN extern const uint16_t class_sizes[CLASSES];

/* These lie in the page at pages.base, because malloc and free need that address, or the key, in a register anyway. */
struct class_tables {
  uint8_t direct[DIRECT_MAX + 1];       /* by size */
  uint8_t coarse[(SMALL_MAX >> 8) + 1]; /* by (size + 255) / 256, from DIRECT_MAX + 1 on */
  uint64_t inverse[CLASSES];
  uint16_t lines[CLASSES];              /* bytes of a block, at least a cache line */
};
_Static_assert(sizeof(struct class_tables) <= PAGEMAP_OFFSET, "the tables fit into the page before the pagemap");

/* Fills the tables; called after pages_start. */
HIDDEN void classes_start(void);

INLINE size_t class_size(unsigned class) { return class_sizes[class]; }
INLINE struct class_tables *class_tables(void) { return (struct class_tables *)(void *)pages.base; }
/* For malloc and free, which have the key in a register and not the base. */
INLINE const struct class_tables *class_tables_by_key(uintptr_t key) { return (const void *)(key + KEY_BELOW_BASE); }

/* size <= SMALL_MAX */
INLINE unsigned class_of(size_t size) {
  return size <= DIRECT_MAX ? class_tables()->direct[size] : class_tables()->coarse[(size + 255) >> 8];
}

/* Returns the smallest class of at least `size` bytes whose blocks lie on multiples of `alignment`, or CLASSES if there
 * is none. */
HIDDEN unsigned class_of_aligned(size_t size, size_t alignment);

INLINE uint64_t class_inverse(unsigned class) { return class_tables()->inverse[class]; }
INLINE bool class_starts_block(uintptr_t p, uint64_t inverse) { return p * inverse < inverse; }

#endif
