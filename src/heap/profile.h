/* profile: which call sites hold how much memory, by samples.                                       floor: heap
 *
 * With TSLAB_PROFILE=BYTES each block is a sample with the probability 1 - e^(-its size / BYTES), whatever else is one:
 * points fall on the bytes that are handed out, BYTES apart in the mean, and a block that one falls on is a sample. It
 * stands for 1 / probability blocks like it. Sums of these are right in the mean, whatever the sizes.
 *
 *   blocks of classes   heap/cut.h brings the drawn malloc here; its block comes from slabs of sampled_heap, which are
 *                       owner to no thread, so that its free comes to the slow path by the branch that is there
 *   blocks of chunks    the chunk ends, for the fast path, where the next point lies (heap/bump.c)
 *   large blocks        are drawn one by one on their slow path
 *
 * No block is a sample yet in slabs of epochs.
 *
 *   sites:   stacks, by hash            [ frames in one array | allocated since the start ]
 *   samples: blocks that live, by granule      [ block | site | size | weight | epoch | thread | birth ]
 *
 * With TSLAB_GUARD some samples get a block in front of theirs (heap/guard.h), which is what the program has of them.
 *
 * Memory is had at once, at the start, and resident as far as it is used. When the samples are all in use a new one is
 * counted as lost; when the sites are, it belongs to site 0, whose stack is not known.
 *
 * A sample that its own thread frees in its current chunk is seen dead when the chunk is emptied or left, or by whoever
 * looks at all samples.
 *
 * Threads: all tables under profile_lock, the innermost of all locks. */
#ifndef TSLAB_HEAP_PROFILE_H
#define TSLAB_HEAP_PROFILE_H

#include "heap/timing.h" /* TSLAB_TELEMETRY */
#include "heap/stack.h"

#define PROFILE_LEAST_BYTES (4 * KiB) /* of TSLAB_PROFILE: then few samples lie in one granule */
#define PROFILE_SITES       8192
#define PROFILE_SAMPLES     32768
#define PROFILE_WEIGHT_ONE  256 /* a weight of 1 */

struct profile_site {
  uint64_t hash;
  uint64_t allocated_samples, allocated_blocks, allocated_bytes; /* the last two weighted */
  uint32_t next;                                                 /* of its bucket; 0: none */
  uint32_t frames, depth;                                        /* from this index of all frames on */
};

struct profile_sample {
  const void *block; /* NULL: free */
  uint64_t size;     /* as asked for */
  uint64_t weight;   /* PROFILE_WEIGHT_ONE for 1 */
  uint64_t born_ns;  /* on the coarse clock */
  uint32_t next;     /* of its bucket, or free; 0: none */
  uint32_t site;
  uint32_t epoch;    /* index of its arena; 0: epoch 0 */
  uint32_t label;
  uint32_t thread_id;
  uint32_t usable;   /* 0 where it is the size */
};

#define PROFILE_MOST_BYTES (1024 * MiB)
#define PROFILE_PAUSED     UINT32_MAX /* as an interval: nothing is sampled, and samples are followed */

HIDDEN extern _Atomic uint32_t profile_interval; /* BYTES; 0: no profile, and there was none yet */
HIDDEN extern struct lock profile_lock;

struct profile_totals {
  uint64_t samples, frees, lost; /* since the start; samples that found no room */
  uint64_t live;
  uint64_t sites, bytes; /* memory of the profile, as far as it is used */
};

#if TSLAB_TELEMETRY

/* Whoever draws and weighs does both by one look. */
INLINE uint32_t profile_interval_now(void) { return atomic_load_explicit(&profile_interval, memory_order_relaxed); }
INLINE bool profile_is_on(void) { return UNLIKELY(profile_interval_now() != 0); }

/* As sampled_start, which has begun sampled_heap. */
HIDDEN bool profile_start(uint32_t interval);

/* The call that runs was made by the caller of the function with this frame: stacks begin there. A thread that shares
 * shared_counters has no place to note it. */
INLINE void profile_note_caller(const void *frame) {
  if (profile_is_on() && current_heap->counters != &shared_counters) current_heap->counters->caller = frame;
}

/* The same for the alignment that the call asks for, until it is noted to be 0. */
INLINE void profile_note_alignment(size_t alignment) {
  if (profile_is_on() && current_heap->counters != &shared_counters) current_heap->counters->alignment = alignment;
}

/* The return addresses above the call that runs, as a sample has them: at most STACK_MOST. Returns how many. */
HIDDEN unsigned profile_stack(const struct heap *heap, uintptr_t *out);

/* Mallocs of the class that pass until the next sample. */
HIDDEN uint32_t profile_draw(unsigned class, uint32_t interval);

/* The block is a sample. `usable` bytes, of which the program asked for `size`. */
HIDDEN void profile_record(const struct heap *heap, void *block, size_t size, size_t usable, uint64_t weight);

/* A large block: draws whether it is a sample. Returns the interval by which it is; 0: it is none. */
HIDDEN uint32_t profile_large(const struct heap *heap, void *block, size_t size);

/* Bytes of a chunk that pass until the next point; at most `most`, where there is none. */
HIDDEN size_t profile_draw_bytes(size_t most, uint32_t interval);
HIDDEN void profile_chunk(const struct heap *heap, void *block, size_t size, uint32_t interval);

/* A live block of the run is freed by a slow path; it may be a sample. */
HIDDEN void profile_freed(struct run *run, const void *block);
/* The block of a sampled run is gone. */
HIDDEN void profile_forget(const void *block);
/* No block of the chunk, which has samples, lives any more. */
HIDDEN void profile_chunk_ends(struct run *chunk);

/* Weight of a sample of that many bytes that was drawn by the interval. */
HIDDEN uint64_t profile_weight(size_t bytes, uint32_t interval);

/* For who reads the tables, under profile_lock. Sites and samples count from 1; the first site is that of unknown
 * stacks. Of a sample that turns out to be dead, NULL. */
HIDDEN uint32_t profile_sites(void);
HIDDEN const struct profile_site *profile_site_at(uint32_t index);
HIDDEN const uintptr_t *profile_frames(const struct profile_site *site);
HIDDEN uint32_t profile_samples_most(void);
HIDDEN const struct profile_sample *profile_sample_at(uint32_t index);
/* Returns true if no sample before it of the same site and epoch lies in the same run. */
HIDDEN bool profile_is_first_in_run(uint32_t index);
HIDDEN struct profile_totals profile_totals(void);

INLINE void profile_visit_lock(void (*visit)(struct lock *)) { visit(&profile_lock); }

/* In a fork child that froze: nobody is sampled any more. */
HIDDEN void profile_freeze(void);
HIDDEN bool profile_is_frozen(void);

#else

INLINE uint32_t profile_interval_now(void) { return PROFILE_PAUSED; }
INLINE bool profile_is_on(void) { return false; }
INLINE void profile_note_caller(const void *frame) { (void)frame; }
INLINE void profile_note_alignment(size_t alignment) { (void)alignment; }
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
