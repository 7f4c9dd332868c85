/* slab: the blocks of one size class inside one run of granules.                                    floor: slab
 *
 *   [ gap | block | block | ... | block | rest ]      block i lies on a multiple of the class's size
 *
 * A free block is on exactly one list: a thread's (heap/heap.h), a magazine, or its slab's. Its first word links to the
 * next block. Its second word holds block_key(block), which shows a second free. The slab's own list lives in one
 * atomic word. Any thread pushes to it, but a thread takes the list only as a whole, so it has no ABA problem:
 *
 *   word = head 16 | count 16 | linked 16 | flags        head: offset in units of 16 bytes, plus 1; 0 = none
 *
 * A unit is a page, or more, so that a slab has at most 64 units. The blocks of a unit are linked when a thread first
 * needs them, and leave the lists again when the unit is purged.
 *
 * Invariant: count <= linked <= capacity; linked - count blocks are live or cached; epoch never changes.
 * Threads:   any thread pushes (release). The lock of run->heap protects take, link and flags; take acquires, which
 * pairs with push. The thread that sets PENDING must relist the slab (heap/bins.c); until then no thread can retire it.
 * docs/decisions/0003 says why this is one word and not a bitmap. */
#ifndef TSLAB_SLAB_SLAB_H
#define TSLAB_SLAB_SLAB_H

#include "os/os.h"
#include "pages/pages.h"
#include "slab/classes.h"
#include "slab/secret.h"

#define SLAB_PENDING ((uint64_t)1 << 48) /* a thread is on its way to relist it */
#define SLAB_LISTED  ((uint64_t)1 << 49) /* its heap lists it for the class */
#define SLAB_REMOTE  ((uint64_t)1 << 50) /* some of its free blocks were freed by other heaps' threads */
#define SLAB_QUIET   ((uint64_t)1 << 51) /* the scavenger no longer looks at it: the next push relists it */

/* A chain of free blocks. The last one links to CHAIN_END, which reads like a block without a key. So one compare of
 * malloc finds an empty list as well as a damaged block. */
struct chain {
  void *head;
  unsigned count;
};
struct chain_end {
  void *words[2];
};
HIDDEN extern const struct chain_end chain_end;
#define CHAIN_END   ((void *)&chain_end)
#define EMPTY_CHAIN ((struct chain){CHAIN_END, 0})

INLINE unsigned slab_count(uint64_t word) { return (word >> 16) & 0xffff; }
INLINE unsigned slab_linked(uint64_t word) { return (word >> 32) & 0xffff; }
INLINE bool slab_all_free(uint64_t word) { return slab_count(word) == slab_linked(word); }

/* One key serves all blocks; docs/decisions/0085 says why. The hardened library's keys are secret and depend on the
 * address, so that no block's key fits another block. */
INLINE uintptr_t block_key(const void *block) { return TSLAB_HARDENED ? secret_mix(block, secret.key) : pages.key; }
INLINE void **block_words(void *block) { return block; }
INLINE void block_mark(void *block, uintptr_t key) { block_words(block)[1] = (void *)key; }
INLINE void block_mark_free(void *block) { block_mark(block, block_key(block)); }
INLINE bool block_has_key(void *block) { return (uintptr_t)block_words(block)[1] == block_key(block); }

/* Marks a block as met, for walks over a chain. */
INLINE void block_mark_met(void *block) { block_mark(block, block_key(block) + 1); }

/* Marks a block of a list at which the heap profile stops a malloc (heap/cut.h). For the fast path the block has no
 * key. */
INLINE void block_mark_drawn(void *block) { block_mark(block, block_key(block) + 2); }
INLINE bool block_is_drawn(void *block) { return (uintptr_t)block_words(block)[1] == block_key(block) + 2; }

/* Returns the key of a block in quarantine (heap/quarantine.h), which is on no chain. */
INLINE uintptr_t block_waiting_key(const void *block) { return ~block_key(block); }

/* Returns the next block of a chain, or CHAIN_END. Hardened, it also returns CHAIN_END for a damaged link, so that no
 * thread follows it. */
INLINE void *block_next(void *block) {
  if (!TSLAB_HARDENED) return block_words(block)[0];
  void *next = link_decode(block, (uintptr_t)block_words(block)[0]);
  return LIKELY(next != NULL) ? next : CHAIN_END;
}
INLINE void block_link(void *block, void *next) {
  block_words(block)[0] = TSLAB_HARDENED ? (void *)(uintptr_t)link_encode(block, next) : next;
}

/* Returns true if a block of a chain shows no damage. */
INLINE bool block_is_intact(void *block) {
  if (!TSLAB_HARDENED) return block_has_key(block);
  return block_has_key(block) && link_decode(block, (uintptr_t)block_words(block)[0]) != NULL;
}

/* slab_unit_bytes returns the bytes of a unit, a power of two; slab_unit_of returns the number of the unit that p lies
 * in. */
#define SLAB_UNITS 64
INLINE size_t slab_unit_bytes(const struct run *slab) { return max_size(os_page_size, run_bytes(slab) / SLAB_UNITS); }
INLINE unsigned slab_unit_of(const struct run *slab, const void *p) { /* each remote free calls it: no division */
  return (unsigned)((size_t)((const char *)p - run_start(slab)) >> log2_floor(slab_unit_bytes(slab)));
}

/* Returns true if p starts a block of the slab that p lies in. */
INLINE bool slab_starts_block(const struct run *slab, const void *p) {
  bool fits = (const char *)p + class_size(slab->class) <= run_start(slab) + run_bytes(slab);
  return fits && class_starts_block((uintptr_t)p, class_inverse(slab->class));
}

/* Returns true if p, any address in a slab, is no block in use. Then p does not start a block, or holds its key, or
 * lies in an unlinked unit: one whose blocks were never handed out, or were all free and went to the kernel with their
 * keys. */
HIDDEN bool slab_refuses(void *p);
INLINE bool block_is_free(void *p) { return TSLAB_HARDENED ? slab_refuses(p) : block_has_key(p); }

/* Returns a new slab with every unit unlinked and no owner in the pagemap yet, or NULL without memory. */
HIDDEN struct run *slab_new(unsigned class, uint32_t epoch, struct pages_how *how);
HIDDEN size_t slab_bytes(unsigned class); /* bytes of a slab of this class */

/* Takes the keys out of a slab that is about to retire, unless its memory goes to the kernel: see slab/wipe.h. */
HIDDEN void slab_wipe(const struct run *slab);

/* Sets the pagemap's entries of its granules to `to`; 0: no owner. */
HIDDEN void slab_set_owner(struct run *slab, pagemap_entry to);

/* Details of a change to a slab's word. */
struct slab_how {
  unsigned retries; /* of the compare-and-swap */
  bool remote;      /* push: the caller's heap does not own the slab; take: some of the blocks were remote frees */
};

INLINE uint16_t slab_head_of(const char *start, const void *block) {
  return (uint16_t)((size_t)((const char *)block - start) / 16 + 1);
}
INLINE void *slab_block_at_head(char *start, uint64_t word) {
  size_t head = (uint16_t)word;
  return head ? start + head * 16 - 16 : CHAIN_END;
}

/* Returns true if the slab should be listed or retired once it has `total` free blocks, and its word was `old`. */
INLINE bool slab_is_worth_a_look(const struct run *slab, uint64_t old, unsigned total) {
  if (UNLIKELY(total == slab_linked(old) || (old & SLAB_QUIET))) return true;
  return UNLIKELY(!(old & SLAB_LISTED)) && total >= slab->threshold;
}

/* slab_push in one try; `remote` is SLAB_REMOTE or 0. SLAB_BUSY: another thread changed the word meanwhile, and the
 * slab does not have the blocks. */
enum slab_pushed { SLAB_PUSHED, SLAB_PUSHED_PENDING, SLAB_BUSY };
INLINE enum slab_pushed slab_try_push(struct run *slab, void *head, void *tail, unsigned count, uint64_t remote) {
  uint64_t old = atomic_load_explicit(&slab->word, memory_order_relaxed);
  char *start = run_start(slab);
  uint64_t new = ((old & ~(uint64_t)0xffff) + ((uint64_t)count << 16 | slab_head_of(start, head))) | remote;
  enum slab_pushed pushed = SLAB_PUSHED;
  block_link(tail, slab_block_at_head(start, old));
  if (slab_is_worth_a_look(slab, old, slab_count(new))) {
    new = (new & ~SLAB_QUIET) | SLAB_PENDING;
    if (!(old & SLAB_PENDING)) pushed = SLAB_PUSHED_PENDING;
  }
  bool done = atomic_compare_exchange_weak_explicit(&slab->word, &old, new, memory_order_release, memory_order_relaxed);
  return LIKELY(done) ? pushed : SLAB_BUSY;
}

/* Puts blocks head..tail (linked, marked free) on the slab's list. Returns true if it set PENDING, so the caller must
 * relist. */
HIDDEN bool slab_push(struct run *slab, void *head, void *tail, unsigned count, struct slab_how *how);

/* Takes all blocks of the slab's list; count 0 if it is empty. Sets or clears LISTED in the same step. */
HIDDEN struct chain slab_take(struct run *slab, bool stays_listed, struct slab_how *how);

/* Links the lowest unlinked units (random ones in a hardened build), at least one, until there are `wanted` blocks.
 * unlinked != 0. */
HIDDEN struct chain slab_link(struct run *slab, unsigned wanted);

/* Gives the pages that hold no block in use back to the kernel, and drops their free blocks from the list. The caller
 * has set PENDING and taken the slab off its heap's list. */
struct slab_purge {
  size_t bytes;
  unsigned kept; /* free blocks on other pages */
  void *damaged; /* no intact block, or one that the list has twice: lost with all that follow it. Or NULL. */
};
HIDDEN struct slab_purge slab_purge_holes(struct run *slab);

/* Returns the start of the block that p lies in, or NULL if p lies in none. */
HIDDEN void *slab_block_of(const struct run *slab, const void *p);

/* Calls `visit` for every block that is neither on the slab's list nor unlinked: it is in use, or on a thread's list.
 * No other thread may take from the slab or link units meanwhile. A block that is freed meanwhile may be visited. */
HIDDEN void slab_each_used(const struct run *slab, void (*visit)(void *block, size_t size, void *arg), void *arg);

/* Retires a slab in which no block is in use: clears its entries in the pagemap and leaves its run to the caller.
 * Returns true if every byte of the run reads as zero. */
HIDDEN bool slab_retire(struct run *slab);

/* A slab's `moved` describes its unlinked units: they may hold memory; they hold none; they hold none and count as
 * absent, because holes were purged. */
enum slab_memory { SLAB_MAY_HOLD, SLAB_HOLDS_NONE, SLAB_HAS_HOLES };

/* A look at a slab, which other threads may change meanwhile. `used` of its `linked` blocks are in use or on
 * threads' lists. */
struct slab_look {
  uint64_t unlinked;
  unsigned class, linked, used;
  enum slab_memory memory;
};

/* Returns about how many bytes of the slab are resident. A block at the end of a unit may reach into an unlinked unit,
 * which is resident if that block is in use: such a unit counts by the share of blocks that are. */
HIDDEN size_t slab_resident_bytes(const struct run *slab, const struct slab_look *look);

#endif
