/* chunk: blocks of any size, one after the other in a granule, for an epoch that reuses none.       floor: slab
 * Or in a quarter of a granule (slab/quarter.h); offsets count from where the chunk starts.
 *
 *   [ block | block | block | ............ | 16 B ]      a block ends where the next one starts
 *           bump moves on ->
 *
 * One bit for each 16 bytes, outside the pages, says where a block starts, and two say that it was freed: one written
 * by the thread that allocates here, so that it needs no atomic instruction, one by all others. The place where the
 * next block would start has its start bit already, so every block has an end; it never reaches the last 16 bytes.
 *
 *   word, while its heap allocates here:  - (blocks that others freed)
 *   word, once sealed:                    SEALED | blocks that are live
 *
 * Who brings a sealed chunk's live count to 0 releases it (heap/bump.c).
 *
 * Invariant: starts = blocks + 1; freed bits are set only where a start bit is; all bits of a granule that is no chunk
 * are 0.
 * Threads: starts, here and gone belong to the heap's thread; elsewhere and word to anyone (atomic). */
#ifndef TSLAB_SLAB_CHUNK_H
#define TSLAB_SLAB_CHUNK_H

#include "pages/pages.h"

#define CHUNK_UNIT     16
#define CHUNK_WORDS    (GRANULE / CHUNK_UNIT / 64)
#define CHUNK_CAPACITY (GRANULE - CHUNK_UNIT) /* bytes, of a whole granule */
#define CHUNK_SEALED   ((uint64_t)1 << 32)
/* run->class: blocks counted do not cover all that was handed out or marked as freed, or some were to be aligned */
#define CHUNK_HAS_GAPS 1

/* The bits of 64 units. Start bits are a table of their own: an epoch that frees nothing touches no other. */
struct chunk_starts {
  uint64_t word;
};
struct chunk_freed {
  uint64_t local, remote;
};
_Static_assert(CHUNK_WORDS * sizeof(struct chunk_starts) == CHUNK_STARTS_BYTES &&
               CHUNK_WORDS * sizeof(struct chunk_freed) == CHUNK_FREED_BYTES, "what pages reserves for each granule");

/* Quarters of granules from base on; a whole granule is four. */
INLINE size_t chunk_quarter(const struct run *run) {
  return run_is_quarter(run) ? run_index(run) - pages.first_quarter : run_index(run) * QUARTERS;
}
INLINE char *chunk_start(const struct run *run) { return pages.base + chunk_quarter(run) * QUARTER; }
INLINE size_t chunk_capacity(const struct run *run) { return run_bytes(run) - CHUNK_UNIT; }

/* A chunk's, CHUNK_WORDS of each, or a quarter of that. */
INLINE struct chunk_starts *chunk_starts(const struct run *run) {
  return (struct chunk_starts *)(void *)(pages.chunk_starts + chunk_quarter(run) * (CHUNK_STARTS_BYTES / QUARTERS));
}
INLINE struct chunk_freed *chunk_freed(const struct run *run) {
  return (struct chunk_freed *)(void *)(pages.chunk_freed + chunk_quarter(run) * (CHUNK_FREED_BYTES / QUARTERS));
}

/* Where the bits of an offset are, and which. */
INLINE size_t chunk_word(uintptr_t offset) { return (offset & (GRANULE - 1)) / (64 * CHUNK_UNIT); }
INLINE unsigned chunk_shift(uintptr_t p) { return p / CHUNK_UNIT % 64; }
INLINE uint64_t chunk_bit(uintptr_t p) { return (uint64_t)1 << chunk_shift(p); }

/* One thread writes such a word; others may read it. */
INLINE void chunk_set(uint64_t *word, uint64_t bit) {
  __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) | bit, __ATOMIC_RELAXED);
}
INLINE void chunk_unset(uint64_t *word, uint64_t bit) {
  __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) & ~bit, __ATOMIC_RELAXED);
}

/* An empty chunk for the arena of that index, leading to no owner. NULL without memory. */
HIDDEN struct run *chunk_new(uint32_t epoch, struct pages_how *how);
/* Begins a chunk whose bits are writable and 0. */
INLINE void chunk_begin(struct chunk_starts *starts) { __atomic_store_n(&starts->word, 1, __ATOMIC_RELAXED); }

enum chunk_place { CHUNK_LIVE, CHUNK_FREED, CHUNK_INTERIOR, CHUNK_NOWHERE };

/* Returns what p is, which may be any address in the chunk. */
HIDDEN enum chunk_place chunk_place_of(const struct run *run, const void *p);
HIDDEN size_t chunk_size_of(const struct run *run, const void *p); /* of the block that starts at p */
HIDDEN void *chunk_block_of(const struct run *run, const void *p); /* the start of what p lies in; NULL past the last */

/* Marks p freed, by a thread other than the heap's, or in a sealed chunk. Returns false if p was freed already. */
HIDDEN bool chunk_mark_freed(struct run *run, const void *p);

/* The next block will start at `to` and not at `from`: what lies between is as if freed. By the heap's thread. */
HIDDEN void chunk_skip(struct run *run, const char *from, const char *to);

/* Returns true for a sealed chunk no block of which was freed: its freed bits are 0. */
INLINE bool chunk_is_full_of_live(const struct run *run) {
  return atomic_load_explicit(&run->word, memory_order_acquire) == CHUNK_SEALED + LOAD_RACING(run->capacity) &&
         !LOAD_RACING(run->class);
}

/* Live blocks and their bytes. */
struct chunk_live {
  uint64_t blocks, bytes;
};
HIDDEN struct chunk_live chunk_live(const struct run *run);
HIDDEN struct chunk_live chunk_live_of_first(const struct run *run, unsigned most); /* of its first blocks */

/* Calls `visit` for each live block, in the order of addresses. */
HIDDEN void chunk_each_live(const struct run *run, void (*visit)(void *block, size_t size, void *argument),
                            void *argument);

/* All start bits 0 again; `used`: bytes from the start that blocks may have covered. Eight words at a time: most
 * requests then take one round, where a round for each word would be a branch that nobody can predict. Written out, or
 * compilers make a string instruction of it, which costs more than a hundred others. */
INLINE void chunk_clear_eight(uint64_t *words) { /* status may be looking */
  STORE_RACING(words[0], 0), STORE_RACING(words[1], 0), STORE_RACING(words[2], 0), STORE_RACING(words[3], 0);
  STORE_RACING(words[4], 0), STORE_RACING(words[5], 0), STORE_RACING(words[6], 0), STORE_RACING(words[7], 0);
}
INLINE void chunk_clear_starts(struct chunk_starts *starts, size_t used) {
  for (size_t word = 0; word <= chunk_word(used); word += 8) chunk_clear_eight(&starts[word].word);
}

/* The same for the freed bits. */
INLINE void chunk_clear_freed(struct chunk_freed *freed, size_t used) {
  for (size_t word = 0; word <= chunk_word(used); word += 4) chunk_clear_eight(&freed[word].local);
}

/* The same where few may be set: a page of the table without a set bit stays untouched. */
INLINE void chunk_clear_few_freed(struct chunk_freed *freed, size_t used) {
  for (size_t word = 0; word <= chunk_word(used); word++) {
    if (LIKELY((LOAD_RACING(freed[word].local) | LOAD_RACING(freed[word].remote)) == 0)) continue;
    STORE_RACING(freed[word].local, 0);
    STORE_RACING(freed[word].remote, 0);
  }
}
_Static_assert(CHUNK_WORDS / QUARTERS % 8 == 0 && sizeof(struct chunk_freed) == 2 * sizeof(uint64_t),
               "no round reaches beyond");

#endif
