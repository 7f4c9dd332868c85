/* chunk: a granule that an epoch fills with blocks of any size, one after the other.                floor: slab
 * It may also be a quarter of a granule (slab/quarter.h). Offsets count from the chunk's start.
 *
 *   [ block | block | block | ............ | 16 B ]      a block ends where the next one starts
 *           bump moves on ->
 *
 * Each 16 bytes have three bits, which lie outside the pages. One says that a block starts there. Two say that the
 * block was freed: the thread that allocates here sets `local`, so it needs no atomic instruction; all other threads
 * set `remote`. The place where the next block would start has its start bit already, so every block has an end. That
 * place never reaches the last 16 bytes.
 *
 *   word, while its heap allocates here:  - (blocks that others freed, and whose place was not filled again)
 *   word, once sealed:                    SEALED | blocks that are live
 *
 * The thread that brings a sealed chunk's live count to 0 releases the chunk (heap/bump.c). The chunk's heap may unseal
 * it and fill the holes that freed blocks left: docs/decisions/0081.
 *
 * Invariant: starts = blocks + 1; freed bits are set only where a start bit is; all bits of a granule that is no chunk
 * are 0.
 * Threads: only the heap's thread writes starts, `local` and run->gone; any thread writes `remote` and the word, by
 * atomic instructions. */
#ifndef TSLAB_SLAB_CHUNK_H
#define TSLAB_SLAB_CHUNK_H

#include "pages/pages.h"

#define CHUNK_UNIT     16
#define CHUNK_WORDS    (GRANULE / CHUNK_UNIT / 64)
#define CHUNK_CAPACITY (GRANULE - CHUNK_UNIT) /* bytes, of a whole granule */
#define CHUNK_SEALED   ((uint64_t)1 << 32)
/* run->class: not every start bit is a counted block, because the chunk has gaps before aligned blocks */
#define CHUNK_HAS_GAPS 1
/* run->class: the same, and the chunk's heap fills a hole of freed blocks. The hole ends run->next bytes from the
 * chunk's start. No block ends there, so the last "block" before that is the hole's rest. */
#define CHUNK_HAS_HOLE 2

/* The bits of 64 units. Start bits are a table of their own: an epoch that frees nothing touches no other. */
struct chunk_starts {
  uint64_t word;
};
struct chunk_freed {
  uint64_t local, remote;
};
_Static_assert(CHUNK_WORDS * sizeof(struct chunk_starts) == CHUNK_STARTS_BYTES &&
               CHUNK_WORDS * sizeof(struct chunk_freed) == CHUNK_FREED_BYTES, "pages reserves as much a granule");

/* Returns how many quarters of granules lie between base and the chunk; a whole granule is four. */
INLINE size_t chunk_quarter(const struct run *run) {
  return run_is_quarter(run) ? run_index(run) - pages.first_quarter : run_index(run) * QUARTERS;
}
INLINE char *chunk_start(const struct run *run) { return pages.base + chunk_quarter(run) * QUARTER; }
INLINE size_t chunk_capacity(const struct run *run) { return run_bytes(run) - CHUNK_UNIT; }

/* The bits of a chunk: CHUNK_WORDS of each kind, or a quarter of that. */
INLINE struct chunk_starts *chunk_starts(const struct run *run) {
  return (struct chunk_starts *)(void *)(pages.chunk_starts + chunk_quarter(run) * (CHUNK_STARTS_BYTES / QUARTERS));
}
INLINE struct chunk_freed *chunk_freed(const struct run *run) {
  return (struct chunk_freed *)(void *)(pages.chunk_freed + chunk_quarter(run) * (CHUNK_FREED_BYTES / QUARTERS));
}

/* Return the word of an offset's bits, and the bit in it. */
INLINE size_t chunk_word(uintptr_t offset) { return (offset & (GRANULE - 1)) / (64 * CHUNK_UNIT); }
INLINE unsigned chunk_shift(uintptr_t p) { return p / CHUNK_UNIT % 64; }
INLINE uint64_t chunk_bit(uintptr_t p) { return (uint64_t)1 << chunk_shift(p); }

/* For a word that only one thread writes, and others may read. */
INLINE void chunk_set(uint64_t *word, uint64_t bit) {
  __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) | bit, __ATOMIC_RELAXED);
}
INLINE void chunk_unset(uint64_t *word, uint64_t bit) {
  __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) & ~bit, __ATOMIC_RELAXED);
}

/* Returns an empty chunk for the arena of that index, with no owner in the pagemap, or NULL without memory. */
HIDDEN struct run *chunk_new(uint32_t epoch, struct pages_how *how);
/* Says that not every start bit is a counted block. */
INLINE void chunk_note_gaps(struct run *run) {
  if (run->class == 0) STORE_RACING(run->class, CHUNK_HAS_GAPS);
}
/* Begins a chunk whose bits are writable and 0. */
INLINE void chunk_begin(struct chunk_starts *starts) { __atomic_store_n(&starts->word, 1, __ATOMIC_RELAXED); }

enum chunk_place { CHUNK_LIVE, CHUNK_FREED, CHUNK_INTERIOR, CHUNK_NOWHERE };

/* Says what lies at p, any address in the chunk. */
HIDDEN enum chunk_place chunk_place_of(const struct run *run, const void *p);
HIDDEN size_t chunk_size_of(const struct run *run, const void *p); /* bytes of the block that starts at p */
HIDDEN void *chunk_block_of(const struct run *run, const void *p); /* the block around p; NULL past the last block */

/* Marks the block p freed. Thread: any but the heap's, or any if the chunk is sealed. Returns false if p was freed
 * already. */
HIDDEN bool chunk_mark_freed(struct run *run, const void *p);

/* Lets the next block start at `to` instead of `from`. The gap between them looks like a freed block. Thread: the
 * heap's. */
HIDDEN void chunk_skip(struct run *run, const char *from, const char *to);

/* Finds freed blocks that follow each other and have `least` bytes together, at or after the offset `from`, where a
 * block starts. Sets *hole to their offsets. Returns false if there are none. */
struct chunk_hole {
  size_t from, to;
};
HIDDEN bool chunk_find_hole(const struct run *run, size_t from, size_t least, struct chunk_hole *hole);

/* Makes them a hole of a chunk that is not sealed: blocks may start there again, the first one at hole.from. Returns
 * how many of them other threads freed; the word does not count these any more. chunk_close_hole makes the rest of the
 * hole, which begins at `at`, a gap. Thread: the heap's. */
HIDDEN uint32_t chunk_open_hole(struct run *run, struct chunk_hole hole);
HIDDEN void chunk_close_hole(struct run *run, const char *at);

/* For a fork child, whose copy of a chunk may be of the middle of a change by its heap's thread, at any instruction.
 * Makes the bits those of whole blocks. `at`, where that thread would have put the next block, may be wrong, or NULL. A
 * block that no malloc had returned yet may stay. Gaps count as freed blocks. Returns the blocks, freed ones as well,
 * and in *kept how many of them that thread has not freed. */
HIDDEN unsigned chunk_settle(struct run *run, const char *at, unsigned *kept);

/* Returns true for a sealed chunk of which no block was freed, so all its freed bits are 0. */
INLINE bool chunk_is_full_of_live(const struct run *run) {
  return atomic_load_explicit(&run->word, memory_order_acquire) == CHUNK_SEALED + LOAD_RACING(run->capacity) &&
         !LOAD_RACING(run->class);
}

/* Live blocks and their bytes. */
struct chunk_live {
  uint64_t blocks, bytes;
};
HIDDEN struct chunk_live chunk_live(const struct run *run);
HIDDEN struct chunk_live chunk_live_of_first(const struct run *run, unsigned most); /* of its first blocks only */

/* Calls `visit` for each live block, by ascending address. */
HIDDEN void chunk_each_live(const struct run *run, void (*visit)(void *block, size_t size, void *argument),
                            void *argument);

/* Clears all start bits; `used`: bytes from the start that blocks may have covered. It clears eight words at a time, so
 * that most requests take one round; a round for each word would be a branch that no processor predicts. The eight
 * stores are written out, because compilers make a loop a string instruction, which costs more than a hundred
 * others. */
INLINE void chunk_clear_eight(uint64_t *words) { /* tslab_epoch_status may read them */
  STORE_RACING(words[0], 0), STORE_RACING(words[1], 0), STORE_RACING(words[2], 0), STORE_RACING(words[3], 0);
  STORE_RACING(words[4], 0), STORE_RACING(words[5], 0), STORE_RACING(words[6], 0), STORE_RACING(words[7], 0);
}
INLINE void chunk_clear_starts(struct chunk_starts *starts, size_t used) {
  for (size_t word = 0; word <= chunk_word(used); word += 8) chunk_clear_eight(&starts[word].word);
}

/* Clears all freed bits, in the same way. */
INLINE void chunk_clear_freed(struct chunk_freed *freed, size_t used) {
  for (size_t word = 0; word <= chunk_word(used); word += 4) chunk_clear_eight(&freed[word].local);
}

/* Clears freed bits of which few are set. It writes to no page of the table without a set bit. */
INLINE void chunk_clear_few_freed(struct chunk_freed *freed, size_t used) {
  for (size_t word = 0; word <= chunk_word(used); word++) {
    if (LIKELY((LOAD_RACING(freed[word].local) | LOAD_RACING(freed[word].remote)) == 0)) continue;
    STORE_RACING(freed[word].local, 0);
    STORE_RACING(freed[word].remote, 0);
  }
}
_Static_assert(CHUNK_WORDS / QUARTERS % 8 == 0 && sizeof(struct chunk_freed) == 2 * sizeof(uint64_t),
               "no round reaches beyond a quarter's bits");

#endif
