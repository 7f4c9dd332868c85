/* large: see large.h.                                                                               floor: slab */
#include "slab/large.h"

#include "os/os.h"
#include "slab/classes.h"
#include <string.h>

/* Below this, copying costs less than the kernel's page table work and its TLB shoot-down. */
#define MOVE_LEAST (256 * KiB)
/* Below this a copy into resident memory costs less than a move. A move loses the target's resident pages, and the next
 * user of the source takes a fault for each page that moved away. */
#define MOVE_ALWAYS (8 * MiB)
/* A larger block gets no room behind it, because its window would be 128 MiB. */
#define ROOM_MOST ((16 * MiB) >> GRANULE_SHIFT)

size_t large_granules(size_t size) { return divide_up(size, GRANULE); }
/* A block of a small size may be large for its alignment, or because it is a sample. Its epoch counts the bytes that it
 * would have in a chunk, and not a page. */
#define SMALL_UNIT 16
static size_t usable(size_t size) { return round_up(size, size > SMALL_MAX ? os_page_size : SMALL_UNIT); }

/* Release: a reader that sees the free also sees the allocation, which was counted earlier. */
static void count(const struct large_counts *counts, uint64_t *counter, uint64_t by) {
  if (UNLIKELY(!counts->is_own)) __atomic_fetch_add(counter, by, __ATOMIC_RELEASE);
  else __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + by, __ATOMIC_RELEASE);
}

static void count_allocated(struct large_counts *counts, const struct run *run) {
  count(counts, &counts->allocations, 1);
  count(counts, &counts->allocated_bytes, run->size);
}

static void count_freed(struct large_counts *counts, const struct run *run) {
  count(counts, &counts->frees, 1);
  count(counts, &counts->freed_bytes, run->size);
}

static struct run *alloc_run(size_t size, size_t alignment, bool *zero, struct pages_how *how) {
  size_t guard = TSLAB_HARDENED && pages_wants_guard(false) ? 1 : 0;
  struct run *run = pages_alloc(large_granules(size) + guard, max_size(alignment, GRANULE), RUN_LARGE, zero, how);
  if (!run) return NULL;
  if (guard) pages_guard(run, size);
  run->size = usable(size);
  return run;
}

/* Returns a run for a block that grows, in a window of four to eight times its granules, so that it can go on growing
 * in place. NULL: no window; in a hardened build a guard stands where the room would be. */
static struct run *alloc_with_room(size_t size, bool *zero) {
  size_t granules = large_granules(size);
  if (TSLAB_HARDENED || granules > ROOM_MOST) return NULL;
  struct run *run = pages_alloc_in_window(granules, (size_t)1 << log2_floor(8 * granules), RUN_LARGE, zero);
  if (run) run->size = usable(size);
  return run;
}

void *large_alloc(size_t size, size_t alignment, struct pages_how *how, struct large_counts *counts) {
  bool zero;
  struct run *run = alloc_run(size, alignment, &zero, how);
  if (!run) return NULL;
  count_allocated(counts, run);
  return run_start(run);
}

void *large_again(struct run *run, size_t size, struct large_counts *counts) {
  run->size = usable(size);
  STORE_RACING(run->kind, RUN_LARGE);
  count_allocated(counts, run);
  return run_start(run);
}

void large_retire(struct run *run, struct large_counts *counts) {
  count_freed(counts, run);
  run->was = LARGE_WAS;
  if (TSLAB_HARDENED) pages_free_guard(run);
}

/* A block without room may move again soon, so the resident memory of its target is worth keeping. A block with room
 * will not move soon. */
static bool is_copied(size_t bytes, bool target_is_resident, bool has_room) {
  return bytes < MOVE_LEAST || (target_is_resident && !has_room && bytes < MOVE_ALWAYS);
}

/* At the memory limit there may be no place for both blocks. There is one for a target that gets its pages from the
 * source. */
static struct run *alloc_to_move_in(const struct run *run, size_t size, bool *zero) {
  struct pages_how how = {.moves_in = run->granules};
  if (TSLAB_HARDENED || run->size < MOVE_LEAST || size < run->size) return NULL;
  return alloc_run(size, GRANULE, zero, &how);
}

void large_copy(char *to, const char *from, size_t bytes) {
  size_t done = 0; /* copied, or the same in both places */
  for (size_t at = 0, piece; at < bytes; at += piece) {
    piece = min_size(os_page_size, bytes - at);
    if (piece < os_page_size || !is_zero(from + at, piece)) continue;
    memcpy(to + done, from + done, at - done);
    if (!is_zero(to + at, piece)) memset(to + at, 0, piece);
    done = at + piece;
  }
  memcpy(to + done, from + done, bytes - done);
}

static void *move(struct run *run, size_t size, struct large_counts *counts) {
  bool zero, must_move = false;
  struct run *target = size > run->size ? alloc_with_room(size, &zero) : NULL;
  bool has_room = target != NULL;
  if (!has_room) target = alloc_run(size, GRANULE, &zero, NULL);
  if (UNLIKELY(!target)) {
    target = alloc_to_move_in(run, size, &zero);
    must_move = true;
  }
  if (!target) return NULL;
  size_t used = min_size(run->size, target->size);
  size_t all = TSLAB_HARDENED ? used : min_size(run_bytes(run), run_bytes(target)); /* hardened: the rest is guarded */
  enum os_moved how = NOT_MOVED;
  bool is_moved = must_move || !is_copied(used, !zero, has_room);
  if (is_moved && !os_is_locked(run_start(target)) && pages_may_move(target, all))
    how = os_move(run_start(run), run_start(target), all); /* with the rest of its run, which is then clean */
  if (how == LOST) {
    if (run_bytes(target) > all) os_purge(run_start(target) + all, run_bytes(target) - all);
    pages_lose(target);
    return NULL;
  }
  if (UNLIKELY(must_move) && how == NOT_MOVED) {
    pages_free(target, false);
    return NULL;
  }
  if (how == NOT_MOVED) large_copy(run_start(target), run_start(run), used);
  count_allocated(counts, target);
  count_freed(counts, run);
  run->was = LARGE_WAS;
  if (TSLAB_HARDENED) pages_free_guard(run);
  if (how == MOVED) pages_may_move(run, run_bytes(run)); /* so the program's advice does not stay there */
  pages_free(run, how == MOVED && all == run_bytes(run));
  return run_start(target);
}

/* Needs addresses for the difference only, and moves the block to where none of it was. */
static void *move_away(struct run *run, size_t size, struct large_counts *counts) {
  size_t granules = large_granules(size), old = run->size;
  if (TSLAB_HARDENED || granules <= run->granules) return NULL;
  run->was = LARGE_WAS;
  struct run *target = pages_move_away(run, granules);
  if (!target && pages_make_room((granules - run->granules) << GRANULE_SHIFT)) target = pages_move_away(run, granules);
  if (!target) return NULL;
  target->size = usable(size);
  count(counts, &counts->allocated_bytes, target->size - old);
  return run_start(target);
}

static bool resize_in_place(struct run *run, size_t size) {
  size_t granules = large_granules(size);
  bool guarded = TSLAB_HARDENED && pages_has_guard(run);
  if (granules == run->granules && (!guarded || usable(size) == run->size)) return true;
  if (!guarded) return pages_resize(run, granules);
  if (!pages_unguard(run)) return false;
  bool done = pages_resize(run, granules + 1);
  pages_guard(run, done ? size : run->size);
  return done;
}

void *large_resize(struct run *run, size_t size, struct large_counts *counts) {
  size_t old = run->size;
  if (!resize_in_place(run, size)) {
    void *block = move(run, size, counts);
    return LIKELY(block != NULL) ? block : move_away(run, size, counts);
  }
  run->size = usable(size);
  if (run->size > old) count(counts, &counts->allocated_bytes, run->size - old);
  else count(counts, &counts->freed_bytes, old - run->size);
  return run_start(run);
}

void large_add_freed(struct large_counts *sum, const struct large_counts *counts) {
  sum->frees += __atomic_load_n(&counts->frees, __ATOMIC_ACQUIRE);
  sum->freed_bytes += __atomic_load_n(&counts->freed_bytes, __ATOMIC_ACQUIRE);
}

void large_add_allocated(struct large_counts *sum, const struct large_counts *counts) {
  sum->allocations += __atomic_load_n(&counts->allocations, __ATOMIC_RELAXED);
  sum->allocated_bytes += __atomic_load_n(&counts->allocated_bytes, __ATOMIC_RELAXED);
}
