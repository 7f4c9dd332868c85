/* bump: see bump.h.                                                                                 floor: heap */
#include "heap/bump.h"

#include "base/options.h"
#include "heap/chunk_cache.h"
#include "heap/draw.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "heap/sample.h"
#include "heap/span.h"
#include "os/os.h"
#include "slab/quarter.h"

static size_t used_of(const struct bump *bump) { return (size_t)(bump->at - chunk_start(bump->chunk)); }

static char *chunk_end(const struct bump *bump) { return bump->start + bump->bytes - CHUNK_UNIT; }

/* Release: a thread that finds no heap here then reads the chunk's room. */
static void set_heap(struct run *chunk, struct heap *heap) {
  atomic_store_explicit(&chunk->heap, heap, memory_order_release);
}

/* Returns where the fast path must stop: at the next point of the heap profile, so that the sampled block does not fit,
 * or at the chunk's end. */
static char *end_of(const struct bump *bump) {
  return bump->drawn ? bump->start + (bump->drawn - 1) * (size_t)CHUNK_UNIT : chunk_end(bump);
}

static void draw_point(struct bump *bump) {
  bump->interval = profile_interval_now();
  size_t rest = (size_t)(chunk_end(bump) - bump->at), bytes = profile_draw_bytes(rest, bump->interval);
  bump->drawn = bytes == rest ? 0 : (uint16_t)((size_t)(bump->at - bump->start + bytes) / CHUNK_UNIT + 1);
}
_Static_assert(CHUNK_CAPACITY / CHUNK_UNIT < UINT16_MAX, "a point is the number of its unit, plus 1");

/* Sets the end for the fast path. If a malloc should be timed, the end is a random place in the next `within` bytes, so
 * that each block that probably follows is equally likely. */
static void set_end(struct bump *bump, const struct counters *counters, uint32_t within) {
  char *end = end_of(bump);
  bump->armed = options.sample && counters->bump_countdown <= 0;
  if (UNLIKELY(bump->armed)) {
    size_t most = min_size(draw_below(within), (size_t)(end - bump->at));
    end = bump->at + round_down(most, CHUNK_UNIT);
  }
  __atomic_store_n(&bump->end, end, __ATOMIC_RELAXED);
}

/* Makes the chunk's end, or the point, the end again, unless the chunk is halted. */
static void disarm(struct bump *bump) {
  char *armed = __atomic_load_n(&bump->end, __ATOMIC_RELAXED);
  bump->armed = false;
  if (armed)
    __atomic_compare_exchange_n(&bump->end, &armed, end_of(bump), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void make_current(struct heap *heap, struct run *chunk, size_t used) {
  struct bump *bump = &heap->bump;
  STORE_RACING(bump->chunk, chunk);
  uintptr_t words = (uintptr_t)chunk_start(chunk) / (64 * CHUNK_UNIT);
  bump->starts = (uintptr_t)chunk_starts(chunk) - words * sizeof(struct chunk_starts);
  bump->freed = (uintptr_t)chunk_freed(chunk) - words * sizeof(struct chunk_freed);
  bump->start = chunk_start(chunk);
  bump->bytes = (uint32_t)run_bytes(chunk);
  bump->at = chunk_start(chunk) + used;
  bump->drawn = 0;
  if (profile_is_on()) draw_point(bump);
  set_end(bump, heap->counters, heap->counters->bump_used);
}

static void stop(struct bump *bump) {
  bump->armed = false;
  STORE_RACING(bump->chunk, NULL);
  bump->start = bump->at = NULL;
  bump->bytes = 0;
  __atomic_store_n(&bump->end, NULL, __ATOMIC_RELAXED);
}

void bump_start(struct heap *heap) {
  struct bump *bump = &heap->bump;
  stop(bump);
  STORE_RACING(bump->count, 0);
  bump->gone = 0;
  bump->quarters = 0;
  bump->off = heap->arena && heap->arena->by_slabs;
}

/* ---- emptying ---------------------------------------------------------------------------------------------------- */

/* Returns how many blocks other threads freed in a chunk that is not sealed. */
static uint64_t freed_elsewhere(struct run *chunk) {
  return -atomic_load_explicit(&chunk->word, memory_order_acquire); /* pairs with the last of these frees */
}

bool bump_has_live(const struct heap *heap) {
  const struct bump *bump = &heap->bump;
  return bump->chunk && bump->count != bump->gone + freed_elsewhere(bump->chunk);
}

/* Adds the blocks that the current chunk handed out to *to. */
INLINE void hand_over(struct heap *heap, uint64_t *to) {
  heap_begin_chunk_change(heap);
  __atomic_store_n(to, *to + heap->bump.count, __ATOMIC_RELEASE);
  __atomic_store_n(&heap->bump.count, 0, __ATOMIC_RELEASE);
  heap_end_change(heap);
}

/* Drops the chunk's samples, of which none is live. */
static NOINLINE void end_samples(struct run *chunk) {
  profile_chunk_ends(chunk);
  if (guard_is_on()) guard_ends(chunk_start(chunk), run_bytes(chunk));
}

/* Drops the chunk's samples and draws a new point. */
static NOINLINE void begin_anew(struct bump *bump) {
  if (bump->chunk->moved) end_samples(bump->chunk);
  draw_point(bump);
}

void bump_empty(struct heap *heap) {
  struct bump *bump = &heap->bump;
  struct counters *counters = heap->counters;
  struct chunk_starts *starts = bump_starts(bump->starts, (uintptr_t)bump->start);
  size_t used = (size_t)(bump->at - bump->start);
  chunk_clear_starts(starts, used);
  chunk_begin(starts);
  bool others_freed = freed_elsewhere(bump->chunk) != 0;
  if (bump->gone != 0 || others_freed || bump->chunk->class == CHUNK_HAS_GAPS)
    chunk_clear_freed(chunk_freed(bump->chunk), used);
  if (others_freed) atomic_store_explicit(&bump->chunk->word, 0, memory_order_relaxed);
  counters->bump_countdown -= bump->count;
  hand_over(heap, &bump->allocations);
  bump->gone = 0;
  bump->quarters = 0;
  counters->bump_used = (uint32_t)used;
  bump->at = bump->start;
  if (profile_is_on()) begin_anew(bump);
  set_end(bump, counters, (uint32_t)used);
}

void bump_retire(struct run *chunk) {
  if (UNLIKELY(chunk->moved)) end_samples(chunk);
  set_heap(chunk, NULL);
  chunk_clear_starts(chunk_starts(chunk), chunk->size);
  if (!chunk_is_full_of_live(chunk)) chunk_clear_few_freed(chunk_freed(chunk), chunk->size);
  chunk->was = CHUNK_WAS;
}

/* Gives a quarter to the thread's cache, or to the kernel. */
static void release_quarter(struct arena *arena, struct run *chunk) {
  if (UNLIKELY(pages_is_frozen(chunk))) return;
  arena_unlist(arena, chunk);
  bool is_wanted = atomic_load_explicit(&arena->release_target, memory_order_relaxed) != RELEASE_UNUSED_TO_KERNEL;
  if (is_wanted && chunk_cache_put(current_heap, chunk))
    atomic_fetch_add_explicit(&arena->recycled, QUARTER, memory_order_relaxed);
  else arena_return(arena, chunk);
  arena_finish_release(arena, QUARTER);
}

static void release(struct run *chunk) {
  struct arena *arena = arena_at(chunk->epoch);
  atomic_fetch_add_explicit(&arena->freed, 1, memory_order_relaxed);
  bump_retire(chunk);
  if (run_is_quarter(chunk)) release_quarter(arena, chunk);
  else arena_release(arena, chunk, false);
}

unsigned bump_blocks(const struct run *chunk) {
  const struct heap *heap = atomic_load_explicit(&chunk->heap, memory_order_relaxed);
  bool current = heap && __atomic_load_n(&heap->bump.chunk, __ATOMIC_RELAXED) == chunk;
  return current ? LOAD_RACING(heap->bump.count) : LOAD_RACING(chunk->capacity);
}

/* Looks only at the blocks that were handed out. */
struct chunk_live bump_live(const struct run *chunk) { return chunk_live_of_first(chunk, bump_blocks(chunk)); }

uint64_t bump_allocations(void) {
  lock_take(&walk_lock);
  uint64_t sum = heaps_folded_bumped;
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) sum += heap_bumped(p);
  lock_release(&walk_lock);
  return sum;
}

/* ---- chunks come and go ------------------------------------------------------------------------------------------ */

static void count_blocks(struct arena *arena, uint64_t bumped, uint64_t freed) {
  atomic_fetch_add_explicit(&arena->bumped, bumped, memory_order_relaxed);
  atomic_fetch_add_explicit(&arena->freed, freed, memory_order_relaxed);
}

/* Seals the current chunk: its word counts its live blocks from now on. Returns true if there are none; then no free
 * will release it. */
static bool seal(struct heap *heap) {
  struct bump *bump = &heap->bump;
  struct run *chunk = bump->chunk;
  STORE_RACING(chunk->capacity, (uint16_t)bump->count);
  chunk->size = used_of(bump);
  counters_here()->bump_used = (uint32_t)chunk->size;
  chunk->gone = bump->gone;
  count_blocks(heap->arena, bump->count, bump->gone + freed_elsewhere(chunk));
  uint64_t added = CHUNK_SEALED + bump->count - bump->gone;
  counters_here()->bump_countdown -= bump->count;
  hand_over(heap, &bump->sealed);
  bump->gone = 0;
  return atomic_fetch_add_explicit(&chunk->word, added, memory_order_acq_rel) + added == CHUNK_SEALED;
}

/* Makes a sealed chunk with room the current one again. Returns false if its last block was freed meanwhile, so that
 * another thread releases it, or if a fork left it with torn counts. */
static bool unseal(struct heap *heap, struct run *chunk) {
  struct bump *bump = &heap->bump;
  uint64_t word = atomic_load_explicit(&chunk->word, memory_order_relaxed), handed_out = chunk->capacity - chunk->gone;
  do {
    if (word <= CHUNK_SEALED || (int64_t)word < 0) return false;
  } while (!atomic_compare_exchange_weak_explicit(&chunk->word, &word, word - CHUNK_SEALED - handed_out,
                                                  memory_order_acq_rel, memory_order_relaxed));
  counters_here()->bump_countdown += chunk->capacity;
  heap_begin_chunk_change(heap);
  __atomic_store_n(&bump->sealed, bump->sealed - chunk->capacity, __ATOMIC_RELEASE); /* it may wrap */
  __atomic_store_n(&bump->count, chunk->capacity, __ATOMIC_RELEASE);
  heap_end_change(heap);
  bump->gone = (uint32_t)chunk->gone;
  STORE_RACING(chunk->class, CHUNK_HAS_GAPS); /* in a fork child it may have gaps: heap/fork.c */
  return true;
}

#define CONTINUE_LEAST (4 * KiB) /* less room is not worth it */
#define CONTINUE_LOOK  8         /* looks at the newest runs */

/* Continues a chunk with room that another thread of the epoch left. */
static bool continue_one(struct heap *heap, size_t size) {
  bool done = false;
  unsigned looked = 0;
  arena_lock(heap->arena);
  for (struct run *run = arena_first(heap->arena); run && !done && looked++ < CONTINUE_LOOK;
       run = arena_next(run)) {
    if (run->kind != RUN_CHUNK || atomic_load_explicit(&run->heap, memory_order_acquire)) continue;
    if (run->size + max_size(size, CONTINUE_LEAST) > chunk_capacity(run) || !unseal(heap, run)) continue;
    make_current(heap, run, run->size);
    set_heap(run, heap);
    done = true;
  }
  arena_unlock(heap->arena);
  return done;
}

/* Returns true if the heap should take a quarter. A thread with many open epochs may leave a nearly empty chunk in
 * each, so the first granule's worth of each comes in quarters. */
static bool takes_quarters(const struct heap *heap, size_t size) {
  return atomic_load_explicit(&heap->plain->store->chunks.attached, memory_order_relaxed) > BUMP_WHOLE_CHUNKS &&
         heap->bump.quarters < QUARTERS && size <= BUMP_QUARTER_MOST && quarters_are_allowed();
}

static struct run *take_whole(struct heap *heap, struct pages_how *how) {
  struct run *chunk = chunk_cache_take(heap);
  if (!chunk) return chunk_new(0, how);
  how->ready = true;
  return chunk;
}

/* Returns a charged chunk, or NULL without memory or budget. */
static struct run *take_charged(struct heap *heap, size_t size) {
  struct pages_how how = {0};
  bool quarter = takes_quarters(heap, size);
  size_t bytes = quarter ? QUARTER : GRANULE;
  if (!arena_charge(heap->arena, bytes)) return NULL;
  struct run *chunk = quarter ? chunk_cache_take_quarter(heap, &how) : take_whole(heap, &how);
  counters_stage(heap->counters, how.mapped ? PATH_MAP : how.ready ? PATH_RESERVE : PATH_RUN);
  counters_wait(heap->counters, how.waited);
  if (chunk) chunk->epoch = heap->arena->index;
  else arena_discharge(heap->arena, bytes);
  return chunk;
}

static bool new_chunk(struct heap *heap, size_t size) {
  struct arena *arena = heap->arena;
  counters_stage(heap->counters, PATH_SLAB); /* unless a later stage costs more */
  /* A heap that fills quarter after quarter does not read the lines of each again. */
  bool may_be_left = atomic_load_explicit(&arena->own, memory_order_relaxed) != 0 && heap->bump.quarters == 0;
  if (may_be_left && continue_one(heap, size)) return true;
  struct run *chunk = arena_take_ready(arena, RUN_CHUNK);
  if (chunk) chunk_begin(chunk_starts(chunk));
  else chunk = take_charged(heap, size);
  if (!chunk) return false;
  set_heap(chunk, heap); /* before other threads find it and take it for one that was left */
  arena_add(arena, chunk);
  make_current(heap, chunk, 0);
  return true;
}

/* Returns true if the epoch reuses memory: over a quarter of the blocks of full chunks are free. */
static bool reuses(const struct arena *arena) {
  return atomic_load_explicit(&arena->freed, memory_order_relaxed) * 4 >
         atomic_load_explicit(&arena->bumped, memory_order_relaxed);
}

/* Makes room for a block of `size` bytes. Returns false if it cannot. */
static bool refill(struct heap *heap, size_t size) {
  struct bump *bump = &heap->bump;
  if (!heap->arena || bump->off || size > BUMP_MOST || arena_is_closing(heap->arena)) return false;
  if (!bump->chunk) return new_chunk(heap, round_up(size, CHUNK_UNIT));
  struct run *full = bump->chunk;
  if (!bump_has_live(heap)) {
    bump_empty(heap);
    return true;
  }
  bool drained = seal(heap), is_small = run_is_quarter(full) && ++bump->quarters < QUARTERS;
  stop(bump);
  if (drained) release(full);
  bump->off = !is_small && (heap->arena->first_of_label || reuses(heap->arena));
  return !bump->off && new_chunk(heap, round_up(size, CHUNK_UNIT));
}

static bool has_room(const struct bump *bump, size_t size) {
  char *end = LOAD_RACING(bump->end);
  return bump->chunk && end >= bump->at && size <= (size_t)(end - bump->at);
}

/* Times the malloc for which the heap is armed. Returns NULL if the block does not fit. */
static void *take_sample(struct heap *heap, size_t size) {
  struct counters *counters = counters_here();
  disarm(&heap->bump);
  void *block = sample_bump(heap, size);
  if (!block) return NULL;
  counters->bump_countdown += draw_mallocs(heap);
  if (counters->bump_countdown <= 0) set_end(&heap->bump, counters, 0);
  return block;
}

/* Returns true if a block of so many bytes would contain the profile's point and fit into the chunk. */
static bool meets_point(const struct bump *bump, size_t size) {
  if (LIKELY(!bump->drawn) || !LOAD_RACING(bump->end)) return false;
  size_t used = (size_t)(bump->at - bump->start), after = used + round_up(size, CHUNK_UNIT);
  return after + CHUNK_UNIT <= bump->bytes && after > (bump->drawn - 1) * (size_t)CHUNK_UNIT;
}

/* Records a drawn block as a sample. Returns the block that the program gets, perhaps a guarded one. */
static void *sample(struct heap *heap, void *block, size_t size, uint32_t interval) {
  profile_chunk(heap, block, size, interval);
  return guard_sample(heap, block, size, round_up(size, CHUNK_UNIT), interval);
}

static NOINLINE void *take_drawn(struct heap *heap, size_t size) {
  struct bump *bump = &heap->bump;
  bump->drawn = 0;
  disarm(bump);
  void *block = bump_take(heap, size);
  if (LIKELY(block != NULL)) block = sample(heap, block, size, bump->interval);
  draw_point(bump);
  disarm(bump);
  return block;
}

/* A slow call is never timed as a fast one. If the heap is armed here, the next call is the sample. */
static void *take_after_refill(struct heap *heap, size_t size) {
  void *block = bump_take(heap, size);
  if (LIKELY(block != NULL) || !heap->bump.armed) return block;
  disarm(&heap->bump);
  block = bump_take(heap, size);
  set_end(&heap->bump, heap->counters, 0);
  return block;
}

/* A store to `end` by this call may have overwritten a halt. The fence pairs with arena->closing, which the close sets
 * before bump_halt: either this sees it, or the halt comes last. */
static void *unless_halted(struct heap *heap, void *block) {
  FENCE_ALL();
  if (UNLIKELY(arena_is_closing(heap->arena))) bump_halt(heap);
  return block;
}

void *bump_refill(struct heap *heap, size_t size) {
  size = max_size(size, 1);
  if (size > BUMP_MOST) return NULL;
  if (meets_point(&heap->bump, size)) return unless_halted(heap, take_drawn(heap, size));
  if (UNLIKELY(heap->bump.armed)) {
    void *block = take_sample(heap, size);
    if (block) return unless_halted(heap, block);
  }
  if (!has_room(&heap->bump, round_up(size, CHUNK_UNIT)) && !refill(heap, size)) return NULL;
  if (meets_point(&heap->bump, size)) return unless_halted(heap, take_drawn(heap, size));
  return unless_halted(heap, take_after_refill(heap, size));
}

/* Draws for a block with a gap before it, whose size the earlier point could not foresee. The chance to be a sample is
 * the same. */
static NOINLINE void *draw_aligned(struct heap *heap, void *block, size_t size) {
  size_t bytes = round_up(max_size(size, 1), CHUNK_UNIT);
  uint32_t interval = profile_interval_now();
  if (block && profile_draw_bytes(bytes, interval) < bytes) block = sample(heap, block, size, interval);
  draw_point(&heap->bump);
  disarm(&heap->bump);
  return block;
}

void *bump_aligned(struct heap *heap, size_t alignment, size_t size) {
  struct bump *bump = &heap->bump;
  if (size > BUMP_MOST || alignment > BUMP_MOST) return NULL;
  size_t most = max_size(size, 1) + alignment;
  bump->drawn = 0;
  disarm(bump);
  if (!has_room(bump, round_up(most, CHUNK_UNIT)) && !refill(heap, most)) return NULL;
  bump->drawn = 0;
  disarm(bump);
  char *at = (char *)round_up((uintptr_t)bump->at, alignment);
  if (at != bump->at) chunk_skip(bump->chunk, bump->at, at);
  else if (alignment > CHUNK_UNIT) STORE_RACING(bump->chunk->class, CHUNK_HAS_GAPS); /* tslab_epoch_move reads it */
  bump->at = at;
  void *block = bump_take(heap, max_size(size, 1));
  if (profile_is_on()) block = draw_aligned(heap, block, size);
  return unless_halted(heap, block);
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

static void forget_one(struct run *chunk) {
  struct arena *arena = arena_at(chunk->epoch);
  uint64_t before = atomic_fetch_sub_explicit(&chunk->word, 1, memory_order_acq_rel);
  if ((int64_t)before <= 0) return; /* the seal will count it */
  if (before == CHUNK_SEALED + 1) release(chunk);
  else atomic_fetch_add_explicit(&arena->freed, 1, memory_order_relaxed);
}

bool bump_free(struct run *chunk, void *p) {
  if (chunk_place_of(chunk, p) != CHUNK_LIVE || !chunk_mark_freed(chunk, p)) return false;
  if (UNLIKELY(LOAD_RACING(chunk->moved))) profile_forget(p);
  forget_one(chunk);
  return true;
}

/* ---- dead pages -------------------------------------------------------------------------------------------------- */

_Static_assert(GRANULE / 4096 <= 16, "the pages of a chunk fit into run->threshold, one bit each");

static uint32_t pages_of(size_t from, size_t to) { /* the pages that [from, to) touches */
  size_t first = from / os_page_size, last = (to - 1) / os_page_size;
  return (uint32_t)((((uint64_t)2 << last) - 1) & ~(((uint64_t)1 << first) - 1));
}

struct live_pages {
  const char *start;
  uint32_t mask;
};

static void mark_live(void *block, size_t size, void *pages_found) {
  struct live_pages *live = pages_found;
  size_t offset = (size_t)((const char *)block - live->start);
  live->mask |= pages_of(offset, offset + size);
}

/* Purges dead pages. If the kernel refuses some, a later call tries these again. */
static size_t purge_pages(struct run *chunk, uint32_t mask) {
  size_t purged = 0;
  while (mask) {
    unsigned from = lowest_bit(mask), length = lowest_bit(~(mask >> from));
    size_t bytes = length * os_page_size;
    bool done = os_purge(chunk_start(chunk) + from * os_page_size, bytes);
    pages_count_purge(bytes, done);
    uint32_t piece = (((uint32_t)1 << length) - 1) << from;
    if (done) {
      purged += bytes;
      chunk->threshold = (uint16_t)(chunk->threshold | piece);
    }
    mask &= ~piece;
  }
  return purged;
}

/* Returns true if it is time to purge the chunk. A full chunk hands out no block again, so a page without a live block
 * is dead for good. run->previous is how many blocks lived at the last purge, run->next at the last look. It is time if
 * an eighth more are free, or if some are free and none was freed since the last look. */
static bool is_time(struct run *chunk) {
  uint64_t word = atomic_load_explicit(&chunk->word, memory_order_acquire); /* pairs with seal */
  if (word <= CHUNK_SEALED || (int64_t)word < 0 || chunk->size + CONTINUE_LEAST <= chunk_capacity(chunk)) return false;
  uint32_t live = (uint32_t)(word - CHUNK_SEALED), looked = chunk->next, purged = chunk->previous;
  if (purged == 0) purged = chunk->capacity;
  chunk->next = live;
  if (live == purged || (live + chunk->capacity / 8u > purged && live != looked)) return false;
  chunk->previous = live;
  return true;
}

size_t bump_purge_dead(struct arena *arena, unsigned most) {
  size_t purged = 0;
  struct arena_walk walk;
  unsigned steps = 0;
  /* A chunk stays a chunk while it is in the list, even if its last block is freed meanwhile. */
  for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, steps)) {
    if (most == 0) {
      arena_walk_end(&walk);
      break;
    }
    steps = 1;
    if (run->kind != RUN_CHUNK || !is_time(run)) continue;
    steps = ARENA_CALLS_STEPS;
    struct live_pages live = {chunk_start(run), 0};
    chunk_each_live(run, mark_live, &live);
    uint32_t dead = pages_of(0, run_bytes(run)) & ~live.mask & ~run->threshold;
    purged += purge_pages(run, dead);
    most--;
  }
  return purged;
}

void bump_orphan(struct heap *heap) {
  struct run *chunk = heap_chunk(heap);
  if (chunk) {
    if (heap->bump.count) chunk->capacity = (uint16_t)heap->bump.count;
    hand_over(heap, &heap->bump.sealed);
    chunk->size = chunk_capacity(chunk);
    chunk->class = CHUNK_HAS_GAPS;
    set_heap(chunk, NULL);
  }
  bump_start(heap);
}

void bump_halt(struct heap *heap) { __atomic_store_n(&heap->bump.end, NULL, __ATOMIC_RELAXED); }

void bump_leave(struct heap *heap, bool to_continue) {
  struct bump *bump = &heap->bump;
  struct run *current = bump->chunk;
  /* Makes it look full, so that no thread continues it. This comes before the seal, after which the thread that frees
   * its last block releases it. */
  if (current && !to_continue) {
    bump->at = end_of(bump);
    STORE_RACING(current->class, CHUNK_HAS_GAPS);
  }
  bool drained = current && seal(heap);
  stop(bump);
  struct arena_walk walk;
  for (struct run *run = arena_walk(&walk, heap->arena); run; run = arena_walk_on(&walk, 1))
    if (run->kind == RUN_CHUNK && atomic_load_explicit(&run->heap, memory_order_relaxed) == heap) set_heap(run, NULL);
  if (drained) release(current);
}
