/* heap: a heap begins with empty lists; the calls between two counts follow from the counts alone; a reader notices a
 * change during its look; and a heap gives its notice once. */
#include "unit.h"

#include "heap/heap.h"

static void begin(void) {
  static struct heap heap;
  heap_init(&heap, true);
  CHECK(heap.of_epochs && heap.index != 0 && heap.plain == &heap && heap.unused_magazine == 1);
  CHECK(!heap_has_store(&heap) && heap_bin(&heap, 3) == &no_bin && !heap_has_slabs(&heap));
  for (unsigned class = 0; class < CLASSES; class++) {
    CHECK(heap.list[class] == CHAIN_END && heap.count[class].now == 0);
    CHECK_COUNT(heap_class_of(&heap, heap_entry(&heap, class)), ==, class);
    CHECK_COUNT(heap_class_of(&empty_heap, heap_entry(&heap, class)), >=, CLASSES);
  }
  CHECK(empty_heap.list[0] == CHAIN_END && current_heap == &empty_heap && counters_here() == &shared_counters);
}

/* As the fast path counts: a malloc takes one from the length; a free adds one and takes one from the room. */
static void counts(void) {
  uint64_t random = 7;
  for (int round = 0; round < 10000; round++) {
    unsigned length = (unsigned)(check_random(&random) % 1000), room = 100 + (unsigned)(check_random(&random) % 900);
    const uint32_t then = count_of(room, length);
    uint32_t now = then;
    unsigned mallocs = 0, frees = 0;
    for (unsigned calls = (unsigned)(check_random(&random) % 300); calls > 0; calls--) {
      if (check_random(&random) % 2 && count_length(now) > 0) now--, mallocs++;
      else if (count_room(now) > 0) now -= ROOM_ONE - 1, frees++;
    }
    const struct passed passed = count_passed(then, now);
    CHECK_COUNT(passed.mallocs, ==, mallocs);
    CHECK_COUNT(passed.frees, ==, frees);
    CHECK_COUNT(count_length(now), ==, length + frees - mallocs);
    CHECK_COUNT(count_room(now), ==, room - frees);
  }
}

static void looks(void) {
  static struct heap heap;
  heap_init(&heap, true);
  const uint32_t quiet = heap_begin_look(&heap);
  CHECK(heap_end_look(&heap, quiet));
  heap_begin_one_store(&heap);
  CHECK(!heap_end_look(&heap, quiet) && !heap_end_look(&heap, heap_begin_look(&heap)));
  heap_end_change(&heap);
  CHECK(!heap_end_look(&heap, quiet) && heap_end_look(&heap, heap_begin_look(&heap)));
}

static void notices_are_given_once(void) {
  static struct notice one, two;
  heap_notice_first(&one);
  heap_notice_first(&two);
  heap_notice_first(&one);
  CHECK(atomic_load(&notices) == &two && two.next == &one && one.next == NULL);
}

int main(void) {
  start_floors();
  begin();
  counts();
  looks();
  notices_are_given_once();
  return 0;
}
