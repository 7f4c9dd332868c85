/* totals: the counts of two heaps in a class are exact at any moment, also between visits of the slow path. */
#include "two_heaps.h"

#include "heap/flush.h"

int main(void) {
  enum { BLOCKS = 500 };
  static void *blocks[BLOCKS];
  start_two_heaps();
  for (unsigned class = 0; class < CLASSES; class += 7) {
    for (int i = 0; i < BLOCKS; i++) {
      be((unsigned)i % 2);
      CHECK((blocks[i] = allocate(class)) != NULL);
      check_totals(class);
    }
    for (int i = 0; i < BLOCKS; i++) {
      be((unsigned)i % 3 == 0); /* some of the other heap */
      release(blocks[i], class);
      if (!TSLAB_HARDENED) check_totals(class); /* there a free counts when it leaves quarantine */
    }
  }
  for (unsigned i = 0; i < 2; i++) {
    be(i);
    heap_flush_lists(heaps[i]);
  }
  for (unsigned class = 0; class < CLASSES; class += 7) check_totals(class);
  return 0;
}
