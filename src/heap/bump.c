/* bump: see bump.h.                                                                                 floor: heap */
#include "heap/bump.h"

#include "base/options.h"
#include "heap/chunk_cache.h"
#include "heap/draw.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "heap/span.h"
#include "heap/timing.h"
#include "os/os.h"
#include "slab/quarter.h"

static uint32_t epochs_of_thread(const struct heap *heap) {
  return atomic_load_explicit(&heap->plain->store->chunks.attached, memory_order_relaxed);
}
static bool is_one_of_many(const struct heap *heap) { return epochs_of_thread(heap) > BUMP_WHOLE_CHUNKS; }

static size_t used_of(const struct bump *bump) { return (size_t)(bump->at - chunk_start(bump->chunk)); }

static bool has_hole(const struct bump *bump) { return bump->chunk && bump->chunk->class == CHUNK_HAS_HOLE; }

/* The place of the next block never reaches the last unit of the chunk, or of the hole: behind that a block starts. */
static char *chunk_end(const struct bump *bump) {
  return bump->start + (has_hole(bump) ? bump->chunk->next : bump->bytes) - CHUNK_UNIT;
}

/* Release: a thread that finds no heap here then reads the chunk's room. */
static void set_heap(struct run *chunk, struct heap *heap) {
  atomic_store_explicit(&chunk->heap, heap, memory_order_release);
}

#define TURNS_MOST 1024 /* so a heap comes by to count as often as a list does */
/* When a heap has taken back so many blocks in scopes, and others live in its chunk, slabs serve it better: their fast
 * path is shorter. A call that names its epoch gains nothing by them, nor does a thread that goes round many epochs. */
#define BUMP_BUSY 4096
/* `last` of a chunk that has no block, or whose last block nobody looked for yet. */
#define LAST_UNKNOWN ((uintptr_t)1)

/* How many blocks the heap may take back until it counts them: at most the mallocs until one is to be timed. With a
 * heap profile each is looked at. */
static uint32_t turns_of(const struct counters *counters) {
  if (profile_is_on_in_chunks()) return 1;
  int64_t until = options.sample ? counters->bump_countdown : TURNS_MOST;
  return until <= 1 ? 1 : (uint32_t)min_size((size_t)until, TURNS_MOST);
}

/* Gives the heap so many turns. Blocks that it took back so far stay uncounted. */
static void give_turns(struct bump *bump, uint32_t turns) {
  uint32_t taken_back = bump_taken_back(bump);
  STORE_RACING(bump->turns, turns);
  STORE_RACING(bump->given, taken_back + turns);
}

/* Returns where the fast path must stop: at the next point of the heap profile, so that the sampled block does not fit,
 * or at the chunk's end. */
static char *end_of(const struct bump *bump) {
  return bump->drawn ? bump->start + (bump->drawn - 1) * (size_t)CHUNK_UNIT : chunk_end(bump);
}

static void draw_point(struct bump *bump) {
  bump->interval = profile_chunk_interval_now();
  size_t rest = (size_t)(chunk_end(bump) - bump->at), bytes = profile_draw_bytes(rest, bump->interval);
  bump->drawn = bytes == rest ? 0 : (uint16_t)((size_t)(bump->at - bump->start + bytes) / CHUNK_UNIT + 1);
  give_turns(bump, 1);
}
_Static_assert(CHUNK_CAPACITY / CHUNK_UNIT < UINT16_MAX, "a point is the number of its unit, plus 1");

/* Sets the end for the fast path. If a malloc should be timed, the end is a random place in the next `within` bytes, so
 * that each block that probably follows is equally likely. */
INLINE void set_end(struct bump *bump, const struct counters *counters, uint32_t within) {
  char *end = end_of(bump);
  bump->armed = options.sample && counters->bump_countdown <= 0;
  if (UNLIKELY(bump->armed)) {
    size_t most = min_size(draw_below(within), (size_t)(end - bump->at));
    end = bump->at + round_down(most, CHUNK_UNIT);
  }
  __atomic_store_n(&bump->end, end, __ATOMIC_RELAXED);
}

/* Blocks end there from now on, if the heap is not halted. */
static void replace_end(struct bump *bump, char *end) {
  char *before = __atomic_load_n(&bump->end, __ATOMIC_RELAXED);
  if (before) __atomic_compare_exchange_n(&bump->end, &before, end, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Makes the chunk's end, or the point, the end again, unless the chunk is halted. */
static void disarm(struct bump *bump) {
  bump->armed = false;
  if (bump->chunk) replace_end(bump, end_of(bump));
}

static void make_current(struct heap *heap, struct run *chunk, size_t used) {
  struct bump *bump = &heap->bump;
  STORE_RACING(bump->chunk, chunk);
  uintptr_t words = (uintptr_t)chunk_start(chunk) / (64 * CHUNK_UNIT);
  bump->starts = (uintptr_t)chunk_starts(chunk) - words * sizeof(struct chunk_starts);
  bump->freed = (uintptr_t)chunk_freed(chunk) - words * sizeof(struct chunk_freed);
  bump->start = chunk_start(chunk);
  STORE_RACING(bump->bytes, (uint32_t)run_bytes(chunk));
  bump->at = chunk_start(chunk) + used;
  STORE_RACING(bump->last, LAST_UNKNOWN);
  give_turns(bump, turns_of(heap->counters));
  bump->unwound = bump->gone;
  bump->reused = 0;
  bump->kept = LOAD_RACING(chunk->moved) ? (uint16_t)(used / CHUNK_UNIT) : 0;
  bump->drawn = 0;
  if (profile_is_on_in_chunks()) draw_point(bump);
  set_end(bump, heap->counters, heap->counters->bump_used);
}

static void stop(struct bump *bump) {
  bump->armed = false;
  STORE_RACING(bump->chunk, NULL);
  bump->start = bump->at = NULL;
  STORE_RACING(bump->last, LAST_UNKNOWN);
  STORE_RACING(bump->bytes, 0);
  __atomic_store_n(&bump->end, NULL, __ATOMIC_RELAXED);
}

void bump_start(struct heap *heap) {
  struct bump *bump = &heap->bump;
  stop(bump);
  STORE_RACING(bump->count, 0);
  STORE_RACING(bump->given, bump->turns);
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
  return bump->chunk && bump_held(bump) != bump->gone + freed_elsewhere(bump->chunk);
}

/* Adds so many of the mallocs that the current chunk served to those that are counted. The heap has counted what it
 * took back, too. */
INLINE void hand_over(struct heap *heap, uint32_t mallocs) {
  struct bump *bump = &heap->bump;
  heap_begin_chunk_change(heap);
  __atomic_store_n(&bump->allocations, bump->allocations + mallocs, __ATOMIC_RELEASE);
  __atomic_store_n(&bump->count, bump->count - mallocs, __ATOMIC_RELEASE);
  __atomic_store_n(&bump->given, bump->turns, __ATOMIC_RELEASE);
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
  bump->kept = 0;
  draw_point(bump);
}

void bump_empty(struct heap *heap) {
  struct bump *bump = &heap->bump;
  struct counters *counters = heap->counters;
  struct chunk_starts *starts = bump_starts(bump->starts, (uintptr_t)bump->start);
  size_t used = (size_t)(bump->at - bump->start);
  if (UNLIKELY(has_hole(bump))) {
    chunk_close_hole(bump->chunk, bump->at);
    used = bump->chunk->size;
  }
  chunk_clear_starts(starts, used);
  chunk_begin(starts);
  bool others_freed = freed_elsewhere(bump->chunk) != 0;
  if (bump->gone != 0 || others_freed || bump->chunk->class) chunk_clear_freed(chunk_freed(bump->chunk), used);
  if (others_freed) atomic_store_explicit(&bump->chunk->word, 0, memory_order_relaxed);
  counters->bump_countdown -= bump->count;
  hand_over(heap, bump->count);
  bump->gone = bump->unwound = 0;
  bump->quarters = 0;
  bump->reused = 0;
  counters->bump_used = (uint32_t)used;
  bump->at = bump->start;
  STORE_RACING(bump->last, LAST_UNKNOWN);
  if (profile_is_on_in_chunks()) begin_anew(bump);
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
  return current ? bump_held(&heap->bump) : LOAD_RACING(chunk->capacity);
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
  uint32_t held = bump_held(bump);
  STORE_RACING(chunk->capacity, (uint16_t)held);
  if (has_hole(bump)) chunk_close_hole(chunk, bump->at);
  else chunk->size = used_of(bump);
  counters_here()->bump_used = (uint32_t)chunk->size;
  chunk->gone = bump->gone;
  count_blocks(heap->arena, held, bump->gone + freed_elsewhere(chunk));
  uint64_t added = CHUNK_SEALED + held - bump->gone;
  counters_here()->bump_countdown -= bump->count;
  hand_over(heap, bump->count);
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
  uint64_t allocations = bump->allocations - chunk->capacity; /* it may wrap, in a sum */
  __atomic_store_n(&bump->allocations, allocations, __ATOMIC_RELEASE);
  __atomic_store_n(&bump->count, chunk->capacity, __ATOMIC_RELEASE);
  heap_end_change(heap);
  bump->gone = (uint16_t)chunk->gone;
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

/* ---- holes ------------------------------------------------------------------------------------------------------- */

/* An epoch of a thread in many, that reuses memory and holds no more than this, fills the holes between the live blocks
 * of its chunks. Slabs would take a page or more for each class of which it has a block, and lists. */
#define HOLES_MOST   (64 * KiB)
#define HOLES_EPOCHS (TSLAB_CHECK_LEVEL >= 2 ? 2 : 256)
#define HOLE_LEAST   (4 * CHUNK_UNIT)

static size_t hole_for(size_t size) { return max_size(round_up(size, CHUNK_UNIT) + CHUNK_UNIT, HOLE_LEAST); }

/* Takes blocks that were freed off the current chunk's counts: they are no blocks any more, but gaps. */
static void forget_blocks(struct heap *heap, uint32_t blocks) {
  struct bump *bump = &heap->bump;
  counters_here()->bump_countdown -= blocks;
  heap_begin_chunk_change(heap);
  __atomic_store_n(&bump->allocations, bump->allocations + blocks, __ATOMIC_RELEASE);
  __atomic_store_n(&bump->count, bump->count - blocks, __ATOMIC_RELEASE);
  heap_end_change(heap);
}

static void open_hole(struct heap *heap, struct run *chunk, struct chunk_hole hole) {
  uint32_t by_others = chunk_open_hole(chunk, hole);
  if (UNLIKELY(by_others != 0)) forget_blocks(heap, by_others);
}

/* Goes on in the next hole of the current chunk. */
static bool next_hole(struct heap *heap, size_t size) {
  struct bump *bump = &heap->bump;
  struct run *chunk = bump->chunk;
  struct chunk_hole hole;
  if (!has_hole(bump) || profile_is_on_in_chunks()) return false;
  if (!chunk_find_hole(chunk, chunk->next, hole_for(size), &hole)) return false;
  chunk_close_hole(chunk, bump->at);
  open_hole(heap, chunk, hole);
  bump->at = bump->start + hole.from;
  STORE_RACING(bump->last, LAST_UNKNOWN);
  set_end(bump, heap->counters, 0);
  return true;
}

/* Returns how many of the blocks of a sealed chunk of the heap are free; 0 if it is no chunk to fill again. */
static unsigned holes_of(const struct heap *heap, struct run *run) {
  if (run->kind != RUN_CHUNK || atomic_load_explicit(&run->heap, memory_order_relaxed) != heap || run->moved) return 0;
  uint64_t word = atomic_load_explicit(&run->word, memory_order_relaxed);
  if (word <= CHUNK_SEALED || (int64_t)word < 0) return 0;
  unsigned live = (unsigned)(word - CHUNK_SEALED), freed = run->capacity - live;
  return freed * 4 >= run->capacity ? freed : 0;
}

/* Finds the chunk with the most free blocks among those of which a quarter is free and that have a hole for `size`.
 * HOLES_MOST bounds the runs that this looks at. Caller holds the arena's lock. */
static struct run *find_chunk(const struct heap *heap, size_t size, struct chunk_hole *hole) {
  struct run *best = NULL;
  unsigned most = 0, steps = 0;
  for (struct run *run = arena_first(heap->arena); run; run = arena_next(run)) {
    struct chunk_hole first;
    unsigned free = holes_of(heap, run);
    steps += free > most ? ARENA_CHUNK_STEPS : 1;
    if (free <= most || !chunk_find_hole(run, 0, hole_for(size), &first)) continue;
    best = run;
    most = free;
    *hole = first;
  }
  lock_count_steps(steps);
  return best;
}

/* Unseals a chunk to fill it again, and forgets the blocks that this thread freed. */
static bool unseal_to_fill(struct heap *heap, struct run *chunk) {
  struct bump *bump = &heap->bump;
  if (!unseal(heap, chunk)) return false;
  forget_blocks(heap, bump->gone);
  bump->gone = 0;
  count_blocks(heap->arena, -(uint64_t)bump->count, 0); /* the seal counts them again */
  chunk->threshold = 0; /* no page of it is known to be purged */
  chunk->previous = 0;
  return true;
}

/* Fills holes of one of the heap's sealed chunks. The arena's lock keeps the scavenger from purging it meanwhile. */
static bool fill_again(struct heap *heap, size_t size) {
  struct chunk_hole hole;
  arena_lock(heap->arena);
  struct run *chunk = find_chunk(heap, size, &hole);
  if (chunk && !unseal_to_fill(heap, chunk)) chunk = NULL;
  if (chunk) open_hole(heap, chunk, hole); /* before it is the current chunk: for a fork child */
  arena_unlock(heap->arena);
  if (!chunk) return false;
  make_current(heap, chunk, hole.from);
  return true;
}

/* Returns true if the epoch may fill holes instead of slabs. In a hardened library no pointer to a freed block leads to
 * another. */
static bool may_fill_holes(const struct heap *heap) {
  return !TSLAB_HARDENED && !profile_is_on_in_chunks() && epochs_of_thread(heap) > HOLES_EPOCHS &&
         atomic_load_explicit(&heap->arena->own, memory_order_relaxed) <= HOLES_MOST;
}

/* ---- new chunks -------------------------------------------------------------------------------------------------- */

/* Returns true if the heap should take a quarter. A thread with many open epochs may leave a nearly empty chunk in
 * each, so the first granule's worth of each comes in quarters. */
static bool takes_quarters(const struct heap *heap, size_t size) {
  return is_one_of_many(heap) && heap->bump.quarters < QUARTERS && size <= BUMP_QUARTER_MOST && quarters_are_allowed();
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
  bool is_busy = bump->reused == BUMP_BUSY;
  if (!is_busy && next_hole(heap, size)) return true;
  bool is_new = full->class != CHUNK_HAS_HOLE; /* it was not filled before */
  bool is_small = run_is_quarter(full) && (bump->quarters += is_new) < QUARTERS;
  bool drained = seal(heap);
  stop(bump);
  if (drained) release(full);
  bool is_reused = reuses(heap->arena), fills_holes = !is_busy && may_fill_holes(heap);
  if (is_reused && fills_holes && fill_again(heap, size)) return true;
  bump->off = is_busy || (!is_small && !fills_holes && (heap->arena->first_of_label || is_reused));
  return !bump->off && new_chunk(heap, round_up(size, CHUNK_UNIT));
}

static bool has_room(const struct bump *bump, size_t size) {
  char *end = LOAD_RACING(bump->end);
  return bump->chunk && end >= bump->at && size <= (size_t)(end - bump->at);
}

static void *take_timed(struct heap *heap, size_t size) {
  uint64_t start = ticks_begin();
  void *block = bump_take(heap, size);
  uint64_t ticks = ticks_end() - start;
  if (!block) return NULL;
  counters_stage(heap->counters, PATH_FAST);
  struct timed timed = timing_of(start, ticks, size, round_up(size, CHUNK_UNIT));
  timing_count_fast(heap, &timed, 1);
  return block;
}
_Static_assert(BUMP_MOST <= UINT16_MAX, "sizes of what is timed");

/* Times the malloc for which the heap is armed. Returns NULL if the block does not fit. */
static void *take_sample(struct heap *heap, size_t size) {
  struct counters *counters = counters_here();
  disarm(&heap->bump);
  void *block = take_timed(heap, size);
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

/* Records a drawn block as a sample. It stays where it is until the chunk is emptied, and so does all before it.
 * Returns the block that the program gets, perhaps a guarded one. */
static void *sample(struct heap *heap, void *block, size_t size, uint32_t interval) {
  struct bump *bump = &heap->bump;
  bump->kept = (uint16_t)((size_t)(bump->at - bump->start) / CHUNK_UNIT);
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
  uint32_t interval = profile_chunk_interval_now();
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
  else if (alignment > CHUNK_UNIT) chunk_note_gaps(bump->chunk); /* tslab_epoch_move asks for them */
  bump->at = at;
  STORE_RACING(bump->last, LAST_UNKNOWN); /* not the block before, should there be none now */
  void *block = bump_take(heap, max_size(size, 1));
  if (profile_is_on_in_chunks()) block = draw_aligned(heap, block, size);
  return unless_halted(heap, block);
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

/* Returns where the block or gap starts that ends at `at`, in a chunk that has one. */
static uintptr_t start_before(const struct bump *bump, uintptr_t at) {
  uint64_t word = bump_starts(bump->starts, at)->word & (chunk_bit(at) - 1);
  at = round_down(at, 64 * CHUNK_UNIT);
  while (!word) {
    at -= 64 * CHUNK_UNIT;
    word = bump_starts(bump->starts, at)->word;
  }
  return at + log2_floor(word) * CHUNK_UNIT;
}

static bool is_kept(const struct bump *bump, uintptr_t p) {
  return p < (uintptr_t)bump->start + bump->kept * (size_t)CHUNK_UNIT;
}

/* Blocks of one word of bits, all right before `at`, which this thread freed: they are taken back. */
static void take_back_freed(struct bump *bump, uintptr_t first, uint64_t freed) {
  uint32_t count = (uint32_t)__builtin_popcountll(freed);
  struct chunk_starts *starts = bump_starts(bump->starts, first);
  bump_take_back(bump, first);
  chunk_unset(&starts->word, freed & ~chunk_bit(first));
  chunk_unset(&bump_freed(bump->freed, first)->local, freed);
  STORE_RACING(bump->given, bump->given + count);
  bump->gone -= count;
}

/* A block was taken back: so are those before it that its thread freed before. Those that another thread freed are
 * counted in the chunk's word, and a gap is not told from a block: there it ends. */
static void unwind(struct bump *bump) {
  uintptr_t start = (uintptr_t)bump->start, kept = start + bump->kept * (size_t)CHUNK_UNIT;
  for (uintptr_t at = (uintptr_t)bump->at; at > start && !LOAD_RACING(bump->chunk->class);) {
    uintptr_t word_start = round_down(at - CHUNK_UNIT, 64 * CHUNK_UNIT);
    uint64_t starts = bump_starts(bump->starts, word_start)->word;
    if (at - word_start < 64 * CHUNK_UNIT) starts &= chunk_bit(at) - 1;
    uint64_t freed = starts & bump_freed(bump->freed, word_start)->local, others = starts & ~freed;
    if (kept > word_start) others |= kept - word_start < 64 * CHUNK_UNIT ? chunk_bit(kept) - 1 : UINT64_MAX;
    if (others) freed &= ~(UINT64_MAX >> (63 - log2_floor(others)));
    if (freed) take_back_freed(bump, word_start + lowest_bit(freed) * CHUNK_UNIT, freed);
    if (others) break;
    at = word_start;
  }
  bump->unwound = bump->gone;
}

/* The last block that lived was taken back: with it goes whatever lies in the chunk. */
static void take_back_all(struct bump *bump) {
  size_t used = (size_t)(bump->at - bump->start);
  struct chunk_starts *starts = bump_starts(bump->starts, (uintptr_t)bump->start);
  chunk_clear_starts(starts, used);
  chunk_begin(starts);
  chunk_clear_freed(bump_freed(bump->freed, (uintptr_t)bump->start), used);
  bump->at = bump->start;
  STORE_RACING(bump->given, bump->given + bump->gone);
  bump->gone = bump->unwound = 0;
}

/* The next malloc finds no room, for it to be sampled if `armed`; unless one that halts this heap came first. */
static void end_here(struct bump *bump, bool armed) {
  bump->armed = armed;
  replace_end(bump, bump->at);
}

/* The turns are used up: counts, and gives new ones. */
static void count_turns(struct heap *heap) {
  struct bump *bump = &heap->bump;
  struct counters *counters = heap->counters;
  uint32_t taken_back = bump_taken_back(bump);
  counters->bump_countdown -= taken_back;
  hand_over(heap, taken_back);
  give_turns(bump, turns_of(counters));
  bool may_turn = heap == current_heap && !is_one_of_many(heap);
  if (may_turn) bump->reused = (uint16_t)min_size(bump->reused + taken_back, BUMP_BUSY);
  bool is_due = options.sample && counters->bump_countdown <= 0;
  if (is_due || bump->reused == BUMP_BUSY) end_here(bump, is_due);
}

/* With a heap profile: the point of the next sample is as far from where blocks end as it was before. */
static void draw_again(struct bump *bump) {
  draw_point(bump);
  if (!bump->armed || LOAD_RACING(bump->end) > end_of(bump)) replace_end(bump, end_of(bump));
}

static bool free_last(struct heap *heap, const void *p) {
  struct bump *bump = &heap->bump;
  uintptr_t at = (uintptr_t)p;
  const struct chunk_freed *freed = bump_freed(bump->freed, at);
  if ((freed->local | __atomic_load_n(&freed->remote, __ATOMIC_RELAXED)) & chunk_bit(at)) return false;
  if (is_kept(bump, at)) return bump_free_within(bump, p);
  bump_take_back(bump, at);
  bool is_over = bump->turns == 1;
  if (is_over) STORE_RACING(bump->given, bump->given + 1);
  else STORE_RACING(bump->turns, bump->turns - 1);
  bool is_alone = bump_held(bump) == bump->gone && freed_elsewhere(bump->chunk) == 0 && bump->kept == 0;
  if (is_alone && bump->gone && !has_hole(bump)) take_back_all(bump);
  else if (bump->gone != bump->unwound) unwind(bump);
  if (is_over) count_turns(heap);
  if (profile_is_on_in_chunks()) draw_again(bump);
  return true;
}

/* A gap, such as a hole's neighbour, is no last block. */
static void find_last(struct bump *bump) {
  uintptr_t last = start_before(bump, (uintptr_t)bump->at);
  const struct chunk_freed *freed = bump_freed(bump->freed, last);
  bool is_gap = (freed->local | __atomic_load_n(&freed->remote, __ATOMIC_RELAXED)) & chunk_bit(last);
  if (!is_gap) STORE_RACING(bump->last, last);
}

/* Returns true if p starts a live block behind the hole that the heap fills. */
static bool is_behind_hole(const struct bump *bump, const void *p) {
  return has_hole(bump) && (size_t)((const char *)p - bump->start) < bump->bytes &&
         chunk_place_of(bump->chunk, p) == CHUNK_LIVE;
}

bool bump_free_current(struct heap *heap, const void *p) {
  struct bump *bump = &heap->bump;
  uintptr_t at = (uintptr_t)p;
  if (at >= (uintptr_t)bump->at) return is_behind_hole(bump, p) && bump_free_within(bump, p);
  if (at < (uintptr_t)bump->start || at % CHUNK_UNIT != 0) return false;
  if (TSLAB_HARDENED) return bump_free_within(bump, p);
  if (bump->last % CHUNK_UNIT != 0) find_last(bump);
  return at == bump->last ? free_last(heap, p) : bump_free_within(bump, p);
}

bool bump_resize(struct heap *heap, const void *p, size_t size) {
  struct bump *bump = &heap->bump;
  uintptr_t at = (uintptr_t)p, end = (uintptr_t)bump->at, next = at + round_up(size, CHUNK_UNIT);
  if (at >= end || at < (uintptr_t)bump->start || start_before(bump, end) != at || size > BUMP_MOST) return false;
  bool has_room = next <= (uintptr_t)LOAD_RACING(bump->end);
  if (!has_room || profile_is_on_in_chunks() || (TSLAB_HARDENED && next < end)) return false;
  if (next < end) bump->at = (char *)next; /* first, so that a fork child does not take the rest for a block */
  atomic_signal_fence(memory_order_seq_cst);
  chunk_set(&bump_starts(bump->starts, next)->word, chunk_bit(next));
  if (next != end) chunk_unset(&bump_starts(bump->starts, end)->word, chunk_bit(end));
  bump->at = (char *)next;
  STORE_RACING(bump->last, at);
  return true;
}

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

/* Seals a chunk whose thread does not exist in this fork child. Its counts may be torn, so the bits say which blocks
 * there are. The word says how many of them others freed: a thread that a signal handler interrupted may be about to
 * count one. No thread continues the chunk. Returns true if no block lives. */
static bool seal_orphan(struct run *chunk, const char *at) {
  unsigned kept;
  chunk->capacity = (uint16_t)chunk_settle(chunk, at, &kept);
  chunk->class = CHUNK_HAS_GAPS;
  chunk->next = chunk->previous = 0;
  chunk->size = chunk_capacity(chunk);
  int64_t live = (int64_t)kept - (int64_t)freed_elsewhere(chunk); /* below 0: blocks wait to be counted freed */
  if (live < 0) live = 0;
  atomic_store_explicit(&chunk->word, CHUNK_SEALED + (uint64_t)live, memory_order_relaxed);
  return live == 0;
}

static bool is_sealed(const struct run *chunk) {
  int64_t word = (int64_t)atomic_load_explicit(&chunk->word, memory_order_relaxed);
  return word >= (int64_t)CHUNK_SEALED;
}

void bump_seal_orphans(struct arena *arena) {
  struct arena_walk walk;
  for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, 1)) {
    const struct heap *heap = atomic_load_explicit(&run->heap, memory_order_relaxed);
    if (run->kind != RUN_CHUNK || !heap || heap->thread || is_sealed(run)) continue;
    bool drained = seal_orphan(run, heap->bump.chunk == run ? heap->bump.at : NULL);
    set_heap(run, NULL);
    if (drained && !pages_is_frozen(run)) release(run);
  }
}

void bump_orphan(struct heap *heap) {
  if (heap->bump.chunk) hand_over(heap, heap->bump.count);
  bump_start(heap);
}

void bump_halt(struct heap *heap) { __atomic_store_n(&heap->bump.end, NULL, __ATOMIC_RELAXED); }

void bump_leave(struct heap *heap, bool to_continue) {
  struct bump *bump = &heap->bump;
  struct run *current = bump->chunk;
  /* Makes it look full, so that no thread continues it. This comes before the seal, after which the thread that frees
   * its last block releases it. */
  if (current && !to_continue && !has_hole(bump)) {
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
