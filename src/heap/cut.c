/* cut: see cut.h.                                                                                   floor: heap */
#include "heap/cut.h"

#include "heap/profile.h"
#include <limits.h>

static struct draw *draw_of(const struct heap *heap, unsigned class) { return &heap->store->draws[class]; }

/* Sets the room to at most `most` and withholds the rest. Both numbers of the count change by the same amount, so the
 * calls between them stay the same. */
static void set_room(struct heap *heap, unsigned class, struct draw *draw, unsigned most) {
  struct count *count = &heap->count[class], whole = count_look(count);
  unsigned room = count_room(whole.now), all = room + draw->withheld, next = (unsigned)min_size(all, most);
  if (next == room) return;
  draw->withheld = all - next;
  whole.now += (next - room) * ROOM_ONE;
  whole.then += (next - room) * ROOM_ONE;
  heap_begin_one_store(heap);
  __atomic_store(count, &whole, __ATOMIC_RELEASE);
  heap_end_change(heap);
}

/* ---- the mark ---------------------------------------------------------------------------------------------------- */

void cut_unmark(struct draw *draw) {
  if (!draw->marked) return;
  if (block_is_drawn(draw->marked)) block_mark_free(draw->marked); /* else it was freed twice, or overwritten */
  draw->marked = NULL;
}

/* Marks the block that has `depth` others above it. Returns how many mallocs the list then serves: fewer if it is
 * shorter, or damaged. */
static unsigned mark(struct heap *heap, unsigned class, struct draw *draw, unsigned depth) {
  void *block = heap->list[class];
  unsigned at = 0;
  for (; at < depth && block_is_intact(block); at++) block = block_next(block);
  if (!block_is_intact(block)) return at;
  block_mark_drawn(block);
  draw->marked = block;
  draw->below = tcache_length(heap, class) - at;
  return at;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

void cut_again(struct heap *heap, unsigned class, enum cut_share share) {
  struct draw *draw = draw_of(heap, class);
  unsigned length = count_length(heap->count[class].now), waiting = quarantine_of(heap, class);
  unsigned left = cut_left(heap, draw, class);
  if (length + count_room(heap->count[class].now) + draw->withheld <= left) {
    set_room(heap, class, draw, UINT_MAX);
    return;
  }
  unsigned depth = mark(heap, class, draw, (unsigned)min_size(left / share + 1, left)) + waiting;
  set_room(heap, class, draw, left > depth ? left - depth : 0);
}

void cut_undo(struct heap *heap, unsigned class) {
  struct draw *draw = draw_of(heap, class);
  cut_unmark(draw);
  set_room(heap, class, draw, UINT_MAX);
}

void cut_draw(struct heap *heap, unsigned class) {
  struct draw *draw = draw_of(heap, class);
  struct count seen = count_look(&heap->count[class]);
  draw->interval = profile_interval_now();
  draw->due = (uint32_t)heap->bins[class].allocations + count_passed(seen.then, seen.now).mallocs +
              profile_draw(class, draw->interval);
}

/* Follows a change of the interval. The time of this visit depends on the draw, because a list that is cut has fewer
 * visits: it is not timed. So a class that drew anew here would drop far points more often than near ones. If the point
 * may fall within the calls that the list serves uncut, it stays. Otherwise it lies beyond these calls, and the class
 * draws anew from there, as an exponential draw has no memory. */
static void follow_interval(struct heap *heap, unsigned class, struct draw *draw) {
  uint32_t now = heap->count[class].now;
  int longest = (int)(count_length(now) + count_room(now)) + 1;
  if (draw->withheld || draw->marked || cut_left_then(heap, draw, class) < longest) return;
  cut_draw(heap, class);
  draw->due += (uint32_t)longest;
}

static bool is_paused(uint32_t interval) { return interval == 0 || interval == PROFILE_PAUSED; }

void cut_list_slow(struct heap *heap, unsigned class) {
  struct draw *draw = draw_of(heap, class);
  uint32_t interval = profile_interval_now();
  if (is_paused(draw->interval) || is_paused(interval)) cut_draw(heap, class);
  else if (draw->interval != interval) follow_interval(heap, class, draw);
  cut_unmark(draw);
  cut_again(heap, class, CUT_FEW_BLOCKS);
}

/* ---- visits ------------------------------------------------------------------------------------------------------ */

void cut_begin_pass(struct heap *heap, unsigned class) {
  struct draw *draw = draw_of(heap, class);
  struct count *count = &heap->count[class], whole = {.now = count->now + ROOM_ONE, .then = count->then + ROOM_ONE};
  draw->withheld--;
  heap_begin_one_store(heap);
  __atomic_store(count, &whole, __ATOMIC_RELEASE);
  heap_end_change(heap);
}

void cut_end_pass(struct heap *heap, unsigned class) {
  struct draw *draw = draw_of(heap, class);
  unsigned left = cut_left(heap, draw, class), depth = tcache_length(heap, class) - (draw->marked ? draw->below : 0);
  if (!TSLAB_HARDENED && left > 0 && depth <= left / 4) {
    set_room(heap, class, draw, left - depth);
    return;
  }
  cut_unmark(draw);
  cut_again(heap, class, CUT_FEW_BLOCKS);
}
