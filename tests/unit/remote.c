/* remote: frees of another heap's blocks go onto the thread's own list or wait until their batch is complete, and a
 * thread without a heap returns each at once. */
#include "two_heaps.h"

#include "base/options.h"
#include "heap/check.h"
#include "heap/misuse.h"
#include "heap/quarantine.h"

static unsigned free_in(struct run *slab) { return slab_count(atomic_load(&slab->word)); }

static void remote_frees_wait_for_their_batch(void) {
  enum { CLASS = 2 };
  void *blocks[REMOTE_MOST];
  be(0);
  for (int i = 0; i < REMOTE_MOST; i++) blocks[i] = allocate(CLASS);
  struct run *const slab = pages_run_of(blocks[0]);
  const unsigned before = free_in(slab);
  be(1);
  for (int i = 0; i < REMOTE_MOST - 1; i++) release(blocks[i], CLASS);
  CHECK_COUNT(free_in(slab), ==, before);
  release(blocks[REMOTE_MOST - 1], CLASS);
  if (TSLAB_HARDENED) quarantine_empty(heaps[1]);
  CHECK_COUNT(free_in(slab), ==, before + REMOTE_MOST);

  be(0);
  void *const last = allocate(CLASS);
  const unsigned now = free_in(pages_run_of(last));
  current_heap = &empty_heap; /* a thread that never allocated, or is at its end */
  heap_free_remote(&empty_heap, pages_run_of(last), last);
  CHECK_COUNT(free_in(pages_run_of(last)), ==, now + 1);
  CHECK_COUNT(unowned_frees_of(CLASS), ==, 1);
}

/* A second free in one batch is reported when the batch leaves, and the count of the call is corrected. */
static void free_twice_in_a_batch(void) {
  enum { CLASS = 3 };
  be(0);
  void *const block = allocate(CLASS), *const other = allocate(CLASS);
  be(1);
  release(block, CLASS);
  release(other, CLASS);
  release(block, CLASS);
  options.on_misuse = MISUSE_REPORT;
  CHECK(heap_find_double(heaps[1]) == block);
  heap_flush_remote(heaps[1]);
  options.on_misuse = MISUSE_ABORT;
  CHECK_COUNT(misuse_count(), ==, 1);
  frees[CLASS]--, remote[CLASS]--;
  check_totals(CLASS);
  CHECK_COUNT(heaps[1]->store->remote.count, ==, 0);
}

/* A block of a class that the thread uses goes onto its list, and its next malloc returns it. Blocks that may share a
   cache line with another thread's do not, and neither do blocks that the list has no room for. */
static void what_the_thread_uses_is_kept(void) {
  enum { CLASS = 5, TINY = 1, MANY = 200 };
  void *blocks[MANY];
  be(0);
  for (int i = 0; i < MANY; i++) blocks[i] = allocate(CLASS);
  void *const tiny = allocate(TINY);
  be(1);
  void *const own = allocate(CLASS), *const own_tiny = allocate(TINY);
  const unsigned waiting = heaps[1]->store->remote.count;
  release(blocks[0], CLASS);
  CHECK_COUNT(heaps[1]->store->remote.count, ==, waiting);
  CHECK(allocate(CLASS) == blocks[0]);
  release(tiny, TINY);
  CHECK_COUNT(heaps[1]->store->remote.count, ==, waiting + 1);
  for (int i = 0; i < MANY; i++) release(blocks[i], CLASS);
  CHECK_COUNT(tcache_length(heaps[1], CLASS), <=, 2 * heaps[1]->bins[CLASS].cap);
  CHECK_COUNT(heaps[1]->bins[CLASS].kept_frees, >, 1);
  CHECK_COUNT(heaps[1]->bins[CLASS].remote_frees, >, 0);
  release(own, CLASS);
  release(own_tiny, TINY);
  check_totals(CLASS);
  check_totals(TINY);
  heap_check(heaps[1]);
}

/* A thread that allocates and frees twice as much keeps every block, although its list fills up again and again. */
static void a_full_list_makes_room_for_a_thread_that_allocates(void) {
  enum { CLASS = 6, ROUNDS = 600 };
  void *own[ROUNDS];
  const uint64_t before = heaps[1]->bins[CLASS].remote_frees;
  for (int i = 0; i < ROUNDS; i++) {
    be(0);
    void *const first = allocate(CLASS), *const second = allocate(CLASS);
    be(1);
    own[i] = allocate(CLASS);
    release(first, CLASS);
    release(second, CLASS);
  }
  CHECK_COUNT(heaps[1]->bins[CLASS].overflows, >, 1);
  CHECK_COUNT(heaps[1]->bins[CLASS].remote_frees, ==, before);
  for (int i = 0; i < ROUNDS; i++) release(own[i], CLASS);
  CHECK_COUNT(heaps[1]->bins[CLASS].remote_frees, >, before); /* now it only frees */
  check_totals(CLASS);
  heap_check(heaps[1]);
}

int main(void) {
  start_two_heaps();
  CHECK_COUNT(class_size(REMOTE_CLASS), ==, CACHE_LINE);
  remote_frees_wait_for_their_batch();
  if (TSLAB_HARDENED) return 0; /* the call checks there, and quarantine takes the block, which is not this test's */
  free_twice_in_a_batch();
  what_the_thread_uses_is_kept();
  a_full_list_makes_room_for_a_thread_that_allocates();
  return 0;
}
