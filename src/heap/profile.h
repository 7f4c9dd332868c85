/* profile: tells by samples which call sites hold how much memory.                                  floor: heap
 *
 * With TSLAB_PROFILE=BYTES each block is a sample with the probability 1 - e^(-its size / BYTES), independently of
 * other blocks. Points fall on the bytes that are handed out, BYTES apart in the mean, and a block with a point is a
 * sample. It stands for 1 / probability blocks like it. The mean of such sums is right for all sizes.
 *
 *   blocks of classes   heap/cut.h brings the drawn malloc here; its block comes from slabs of sampled_heap, which are
 *                       owner to no thread, so that its free comes to the slow path by the branch that is there
 *   blocks of chunks    the chunk ends, for the fast path, where the next point lies (heap/bump.c)
 *   large blocks        are drawn one by one on their slow path
 *
 * A sample of an epoch that uses slabs is a large block (heap/sampled.h).
 *
 *   sites:     stacks, by hash           [ frames in one array | allocated since the start ]
 *   samples:   blocks that live, by granule     [ block | site | size | weight | epoch | thread | birth ]
 *   lifespans: of one site in one class of plain malloc       [ live now, at most | freed | ages at the free ]
 *
 * With TSLAB_GUARD some samples get a block in front of theirs (heap/guard.h), which is the one that the program has.
 *
 * The profile takes its memory at the start; only the used part becomes resident. If all samples are in use, a new one
 * counts as lost. If all sites are in use, it belongs to the first site, whose stack is unknown, and counts as
 * stackless. If all lifespans are in use, none counts the sample.
 *
 * If a thread frees a sample of its current chunk, the profile notices that when the thread empties or leaves the
 * chunk, or when a reader looks at all samples.
 *
 * Threads: profile_lock, the innermost of all locks, protects all tables. */
#ifndef TSLAB_HEAP_PROFILE_H
#define TSLAB_HEAP_PROFILE_H

#include "heap/timing.h" /* TSLAB_TELEMETRY */
#include "heap/stack.h"

#define PROFILE_LEAST_BYTES (4 * KiB) /* the least TSLAB_PROFILE, so that few samples lie in one granule */
#define PROFILE_SITES       8192
#define PROFILE_SAMPLES     32768
#define PROFILE_LIFESPANS   4096
#define PROFILE_WEIGHT_ONE  256 /* a weight of 1 */

struct profile_site {
  unsigned __int128 allocated_squares; /* of the errors of its samples */
  uint64_t hash;
  uint64_t allocated_samples, allocated_blocks, allocated_bytes; /* blocks and bytes are weighted */
  uint32_t next;                                                 /* in its bucket; 0: none */
  uint32_t frames, depth;                                        /* the first in tables.frames, and how many */
  uint32_t lifespans;                                            /* its first lifespan; 0: none */
};

/* Samples of one site in one class of plain malloc. Bytes are weighted bytes of blocks, so they are shares of slabs.
 * An ebb is a fall of the live samples from half of the most that there were to an eighth of that, of blocks that die
 * together: while few samples of the class are born, or over a time in which such blocks live many times. */
#define LIFESPAN_AGES     24 /* ages[i] counts frees at an age below LIFESPAN_FIRST_NS << i; the last one all others */
#define LIFESPAN_FIRST_NS ((uint64_t)1 << 20)
struct profile_lifespan {
  uint64_t live, peak, freed;
  uint64_t high_ns;     /* when the live samples were last at half of their peak */
  uint32_t high_births; /* samples of the class born until then */
  uint32_t live_samples, peak_samples, freed_samples, ebbs;
  uint32_t site, next; /* next: of the same site; 0: none */
  uint32_t ages[LIFESPAN_AGES];
  uint8_t class;
  bool high; /* it was at half of its peak since the last ebb */
};

struct profile_sample {
  const void *block; /* of a dead sample: the one that it had */
  uint64_t size;     /* that the caller asked for */
  uint64_t weight;   /* PROFILE_WEIGHT_ONE for 1; 0: dead */
  uint64_t born_ns;  /* on the coarse clock */
  uint32_t next;     /* in its bucket, or of the dead ones, first the one that died first; 0: none */
  uint32_t site;
  uint32_t epoch;    /* index of its arena; 0: epoch 0 */
  uint32_t label;
  uint32_t thread_id;
  uint32_t usable;   /* 0 if it equals the size */
  uint32_t lifespan; /* that counts it; 0: none */
};

/* Returns the square of the sample's error, which is weight * (weight - 1) * size^2, in units of
 * 1 / PROFILE_WEIGHT_ONE^2: the variance of a sum of samples is the sum of these. */
INLINE unsigned __int128 profile_square(const struct profile_sample *sample) {
  uint64_t weight = sample->weight;
  return (unsigned __int128)(weight * sample->size) * ((weight - PROFILE_WEIGHT_ONE) * sample->size);
}

#define PROFILE_MOST_BYTES (1024 * MiB)
#define PROFILE_PAUSED     UINT32_MAX /* as an interval: takes no new samples, but follows the old ones */

HIDDEN extern _Atomic uint32_t profile_interval; /* BYTES; 0: the profile never started */
HIDDEN extern _Atomic uint32_t profile_chunk_interval; /* of blocks in chunks; 0: none of them was ever sampled */
HIDDEN extern struct lock profile_lock;

struct profile_totals {
  uint64_t samples, frees, lost; /* since the start; `lost` found no room */
  uint64_t stackless;            /* samples since the start; their stacks found no room */
  uint64_t live;
  uint64_t sites, bytes; /* `bytes`: used memory of the profile */
  uint64_t began_ns;     /* on the coarse clock */
};

#if TSLAB_TELEMETRY

/* A caller that draws and weighs reads this once for both. */
INLINE uint32_t profile_interval_now(void) { return atomic_load_explicit(&profile_interval, memory_order_relaxed); }
INLINE bool profile_is_on(void) { return UNLIKELY(profile_interval_now() != 0); }

INLINE uint32_t profile_chunk_interval_now(void) {
  return atomic_load_explicit(&profile_chunk_interval, memory_order_relaxed);
}

/* Returns true if blocks of chunks are samples, or were. Each free of a chunk's last block then takes the slow path,
 * because the next point moves with it. */
INLINE bool profile_is_on_in_chunks(void) {
  return UNLIKELY(profile_chunk_interval_now() != 0);
}

/* Starts the profile, or changes its interval. If not `in_chunks`, no more blocks of chunks become samples.
 * sampled_start calls this after it has begun sampled_heap. */
HIDDEN bool profile_start(uint32_t interval, bool in_chunks);

/* Notes the alignment that the call asks for; 0 after the call. */
INLINE void profile_note_alignment(size_t alignment) {
  if (profile_is_on() && current_heap->counters != &shared_counters) current_heap->counters->alignment = alignment;
}

/* Writes the return addresses above the call that runs, as a sample has them: at most STACK_MOST. Returns how many. */
HIDDEN unsigned profile_stack(const struct heap *heap, uintptr_t *out);

/* Writes the places of the call that allocated the block, as stack_text does. Returns false if the block is no sample
 * in use, or its stack is not known. */
HIDDEN bool profile_places_of(const void *block, char *out, size_t capacity);

/* Writes which thread allocated the block, and where, if it is a sample in use, or the last sample that had its
 * address. Returns false if the profile knows none. The thread may hold any lock but profile_lock. */
HIDDEN COLD bool profile_origin(const void *block, char *out, size_t capacity);

/* Returns how many mallocs of the class pass until the next sample. */
HIDDEN uint32_t profile_draw(unsigned class, uint32_t interval);

/* Records a block as a sample: `usable` bytes, of which the program asked for `size`. */
HIDDEN void profile_record(const struct heap *heap, void *block, size_t size, size_t usable, uint64_t weight);

/* Draws if a large block is a sample, and records it then. Returns the interval of the draw, 0 if it is none. */
HIDDEN uint32_t profile_large(const struct heap *heap, void *block, size_t size);

/* profile_draw_bytes returns how many bytes of a chunk pass until the next point, or `most` if that is not before.
 * profile_chunk records a block of a chunk. */
HIDDEN size_t profile_draw_bytes(size_t most, uint32_t interval);
HIDDEN void profile_chunk(const struct heap *heap, void *block, size_t size, uint32_t interval);

/* A slow path frees a live block of the run, which may be a sample. */
HIDDEN void profile_freed(struct run *run, const void *block);
/* Drops the sample of this block. */
HIDDEN void profile_forget(const void *block);
/* Drops all samples of a chunk in which no block is live any more. */
HIDDEN void profile_chunk_ends(struct run *chunk);

/* Returns the weight of a sample of `bytes` that was drawn by the interval. */
HIDDEN uint64_t profile_weight(size_t bytes, uint32_t interval);

/* For readers of the tables, which hold profile_lock. Sites and samples count from 1; the first site has the unknown
 * stacks. profile_sample_at returns NULL for a dead sample. */
HIDDEN uint32_t profile_sites(void);
HIDDEN const struct profile_site *profile_site_at(uint32_t index);
HIDDEN const uintptr_t *profile_frames(const struct profile_site *site);
HIDDEN uint32_t profile_samples_most(void);
HIDDEN const struct profile_sample *profile_sample_at(uint32_t index);
/* Returns true if no earlier sample of the same site and epoch lies in the same run. */
HIDDEN bool profile_is_first_in_run(uint32_t index);
HIDDEN uint32_t profile_lifespans(void); /* how many; they count from 1 */
HIDDEN const struct profile_lifespan *profile_lifespan_at(uint32_t index);
HIDDEN struct profile_totals profile_totals(void);

INLINE void profile_visit_lock(void (*visit)(struct lock *)) { visit(&profile_lock); }

/* For a fork child that froze: takes no samples any more. */
HIDDEN void profile_freeze(void);
HIDDEN bool profile_is_frozen(void);

#else

INLINE uint32_t profile_interval_now(void) { return PROFILE_PAUSED; }
INLINE bool profile_is_on(void) { return false; }
INLINE bool profile_is_on_in_chunks(void) { return false; }
INLINE uint32_t profile_chunk_interval_now(void) { return PROFILE_PAUSED; }
INLINE void profile_note_alignment(size_t alignment) { (void)alignment; }
INLINE bool profile_places_of(const void *block, char *out, size_t capacity) {
  return (void)block, (void)out, (void)capacity, false;
}
INLINE bool profile_origin(const void *block, char *out, size_t capacity) {
  return (void)block, (void)out, (void)capacity, false;
}
INLINE uint32_t profile_large(const struct heap *heap, void *block, size_t size) {
  return (void)heap, (void)block, (void)size, 0;
}
INLINE size_t profile_draw_bytes(size_t most, uint32_t interval) { return (void)interval, most; }
INLINE void profile_chunk(const struct heap *heap, void *block, size_t size, uint32_t interval) {
  (void)heap, (void)block, (void)size, (void)interval;
}
INLINE void profile_freed(struct run *run, const void *block) { (void)run, (void)block; }
INLINE void profile_forget(const void *block) { (void)block; }
INLINE void profile_chunk_ends(struct run *chunk) { (void)chunk; }
INLINE void profile_visit_lock(void (*visit)(struct lock *)) { (void)visit; }
INLINE void profile_freeze(void) {}

#endif

#endif
