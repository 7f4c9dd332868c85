/* tcache: the packed count covers every malloc and free between two visits; room ends exactly; caps stay within the
   grant. */
#include "unit.h"

#include "base/options.h"

#include "heap/misuse.h"
#include "heap/quarantine.h"
#include "heap/tcache.h"
#include <pthread.h>
#include <sys/resource.h>

enum { CLASS = 5, MOST = 4096 };

static struct heap heap;
static struct notice notice;
static struct heap_store store;
static struct quarantine quarantine; /* no block ever waits in it */
static void *blocks[MOST][2];
static uint64_t random_state = 1;

/* The fast path's arithmetic: heap/fast.h. */
static void count_pop(unsigned class) { heap.count[class].now--; }
static bool count_push(unsigned class) { return (int32_t)(heap.count[class].now -= ROOM_ONE - 1) >= 0; }
static void undo_push(unsigned class) { heap.count[class].now += ROOM_ONE - 1; }

static struct chain chain_of(unsigned count) {
  for (unsigned i = 0; i < count; i++) block_link(blocks[i], i + 1 < count ? blocks[i + 1] : CHAIN_END);
  return (struct chain){count ? blocks[0] : CHAIN_END, count};
}

static void reset(void) {
  memset(&heap, 0, sizeof heap);
  memset(&store, 0, sizeof store);
  store.notice = &notice;
  heap.store = &store;
  heap.bins = store.bins;
  heap.magazines = store.magazines;
  heap.unused_magazine = 1;
  heap.quarantine = &quarantine;
}

static void check_totals(uint64_t allocations, uint64_t frees, uint64_t length) {
  const struct tcache_totals totals = tcache_totals(&heap, CLASS);
  CHECK_COUNT(totals.allocations, ==, allocations);
  CHECK_COUNT(totals.frees, ==, frees);
  CHECK_COUNT(totals.length, ==, length);
  CHECK_COUNT(tcache_handed_out(&heap), ==, allocations); /* no other class is used */
}

/* The totals are exact at any moment, and a visit does not change them. */
static void every_call_is_counted(void) {
  uint64_t allocations = 0, frees = 0, length = 20, mallocs = 0, visits = 0;
  reset();
  tcache_open(&heap, CLASS);
  tcache_set(&heap, CLASS, chain_of((unsigned)length));
  for (int i = 0; i < 200000; i++) {
    const uint64_t r = check_random(&random_state);
    if (r % 2 && length > 0) {
      count_pop(CLASS);
      allocations++, mallocs++, length--;
    } else if (length < MOST - 1) {
      if (count_push(CLASS)) frees++, length++;
      else undo_push(CLASS);
    }
    check_totals(allocations, frees, length);
    if (r % 61 != 0 && count_room(heap.count[CLASS].now) != 0) continue;
    CHECK_COUNT(tcache_fold(&heap, CLASS), ==, mallocs);
    CHECK_COUNT(heap.visits, ==, ++visits);
    mallocs = 0;
    CHECK_COUNT(heap.bins[CLASS].allocations, ==, allocations);
    CHECK_COUNT(heap.bins[CLASS].frees, ==, frees);
    if (r % 3 == 0) tcache_set(&heap, CLASS, tcache_chain(&heap, CLASS));
    else if (r % 3 == 1) tcache_set(&heap, CLASS, chain_of((unsigned)(length = r % 300)));
    check_totals(allocations, frees, length);
  }
}

/* The same at any moment at which the list is detached, with more frees or more mallocs since the last visit. */
static void what_is_detached_is_counted(void) {
  uint64_t allocations = 0, frees = 0, length = 0;
  unsigned longer = 0, shorter = 0;
  reset();
  tcache_open(&heap, CLASS);
  tcache_set(&heap, CLASS, EMPTY_CHAIN);
  for (int round = 0; round < 20000; round++) {
    if (round % 8 == 0) {
      tcache_fold(&heap, CLASS);
      tcache_set(&heap, CLASS, chain_of((unsigned)(length = check_random(&random_state) % 30 + 1)));
    }
    for (uint64_t i = check_random(&random_state) % 8; i > 0 && count_push(CLASS); i--) frees++, length++;
    if ((int32_t)heap.count[CLASS].now < 0) undo_push(CLASS);
    for (uint64_t i = check_random(&random_state) % 8; i > 0 && length > 1; i--) {
      count_pop(CLASS);
      allocations++, length--;
    }
    check_totals(allocations, frees, length);
    const uint32_t then = count_length(heap.count[CLASS].then);
    longer += length > then, shorter += length < then;
    heap.bins[CLASS].due = 1;
    heap.list[CLASS] = blocks[0];
    tcache_detach(&heap, CLASS, round % 4);
    CHECK(heap.sampling.detached == blocks[0] && heap.list[CLASS] == CHAIN_END);
    CHECK_COUNT(tcache_chain(&heap, CLASS).count, ==, 0);
    check_totals(allocations, frees, length);
    for (uint64_t i = check_random(&random_state) % 4; i > 0 && count_push(CLASS); i--) {
      count_pop(CLASS);
      frees++, allocations++;
      check_totals(allocations, frees, length);
    }
    if ((int32_t)heap.count[CLASS].now < 0) undo_push(CLASS);
    CHECK(tcache_attach(&heap) == blocks[0] && heap.sampling.detached == NULL);
    CHECK_COUNT(tcache_chain(&heap, CLASS).count, ==, length);
    check_totals(allocations, frees, length);
  }
  CHECK(longer > 1000 && shorter > 1000);
}

/* The same for any order of visits, with or without frees of the blocks that were allocated in a class. */
static void sums_are_of_all_classes(void) {
  static const unsigned used[] = {2, 3, 7, 30, CLASSES - 1};
  enum { USED = sizeof used / sizeof *used };
  uint64_t allocations = 0, frees = 0, live[USED] = {0};
  unsigned even = 0, uneven = 0;
  reset();
  for (unsigned i = 0; i < USED; i++) {
    tcache_open(&heap, used[i]);
    tcache_set(&heap, used[i], chain_of(200));
  }
  for (int i = 0; i < 200000; i++) {
    const uint64_t r = check_random(&random_state);
    const unsigned which = (unsigned)(r % USED), class = used[which];
    const bool drains = i / 100 % 2 != 0; /* so that it is even at times */
    if (!drains && (r >> 8) % 2 && live[which] < 100) {
      count_pop(class);
      allocations++, live[which]++;
    } else if (live[which] > 0) {
      if (count_push(class)) frees++, live[which]--;
      else undo_push(class);
    }
    if ((r >> 16) % 97 == 0 || count_room(heap.count[class].now) == 0) {
      tcache_fold(&heap, class);
      tcache_set(&heap, class, chain_of(200 - (unsigned)live[which]));
    }
    if ((r >> 24) % 7 != 0) continue;
    const uint64_t counted = heap.served + heap.freed;
    const struct tcache_sums sums = tcache_sums(&heap);
    CHECK_COUNT(sums.allocations, ==, allocations);
    CHECK_COUNT(sums.frees, ==, frees);
    if (heap.served + heap.freed == counted) even++;
    else uneven++;
  }
  CHECK_COUNT(even, >, 100);
  CHECK_COUNT(uneven, >, 100);
}

/* A list has room up to its cap, and for a quarter of it more when it is full already; then the next
 * free must visit. */
static void room_ends(void) {
  reset();
  tcache_open(&heap, CLASS);
  const unsigned cap = heap.bins[CLASS].cap;
  CHECK_COUNT(cap, ==, min_size(LIST_FIRST, LIST_FIRST_BYTES / class_size(CLASS)));
  for (unsigned length = 0; length < 2 * cap; length++) {
    const unsigned room = (unsigned)max_size(cap / 4u + 1, length < cap ? cap - length : 0);
    tcache_set(&heap, CLASS, chain_of(length));
    for (unsigned i = 0; i < room; i++) CHECK(count_push(CLASS));
    CHECK(!count_push(CLASS));
    undo_push(CLASS);
    CHECK_COUNT(tcache_chain(&heap, CLASS).count, ==, length + room);
    tcache_fold(&heap, CLASS);
  }
}

static void check_grant(void) {
  size_t bytes = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    const size_t cap = heap.bins[class].cap;
    CHECK_COUNT(cap, <=, LIST_MOST);
    CHECK(cap <= LIST_FULL_LEAST || cap * class_size(class) <= LIST_FULL_BYTES);
    bytes += cap * class_size(class);
  }
  CHECK_COUNT(heap.granted_bytes, ==, bytes);
  CHECK_COUNT(bytes, <=, options.list_bytes);
}

static void grow_fully(unsigned class, bool locked) {
  for (int i = 0; i < 20; i++) {
    tcache_fold(&heap, class);
    tcache_grow(&heap, class, locked);
    check_grant();
  }
}

/* Gives the class so many mallocs. The list of a class with few mallocs stays short. */
static void earn(unsigned class, uint64_t mallocs) { heap.bins[class].allocations = heap.bins[class].frees = mallocs; }

static void caps(void) {
  reset();
  for (unsigned class = 0; class < CLASSES; class++) tcache_open(&heap, class);
  const unsigned first = heap.bins[0].cap;
  earn(0, (uint64_t)first * 2 * LIST_EARNED - 1);
  grow_fully(0, false);
  CHECK_COUNT(heap.bins[0].cap, ==, first);
  earn(0, (uint64_t)first * 2 * LIST_EARNED);
  grow_fully(0, false);
  CHECK_COUNT(heap.bins[0].cap, ==, first * 2);
  for (unsigned class = 0; class < CLASSES; class++) earn(class, (uint64_t)LIST_MOST * LIST_EARNED);
  for (unsigned class = 0; class < CLASSES; class++) grow_fully(class, false);
  CHECK_COUNT(heap.bins[0].cap, ==, LIST_MOST);
  const unsigned last = CLASSES - 1, full = (unsigned)min_size(LIST_FULL_BYTES / class_size(CLASS), LIST_MOST);
  CHECK_COUNT(heap.bins[CLASS].cap, ==, full);
  CHECK_COUNT(heap.bins[last].cap, <, LIST_FULL_LEAST); /* other lists had the whole grant when it came */

  /* A thread at rest returns half of its grant, again and again, and the blocks of its list then go to the
     magazines. */
  tcache_set(&heap, CLASS, chain_of(full));
  for (unsigned class = CLASSES / 2; class < CLASSES; class++) {
    heap.visits += IDLE_VISITS;
    grow_fully(class, true);
  }
  for (int i = 0; i < 10; i++) {
    heap.visits += IDLE_VISITS;
    grow_fully(last, true);
  }
  CHECK_COUNT(heap.bins[last].cap, ==, LIST_FULL_LEAST);
  CHECK_COUNT(heap.bins[CLASS].cap, <, full);
  CHECK_COUNT(tcache_chain(&heap, CLASS).count, ==, 0);
  CHECK_COUNT(heap.bins[CLASS].magazine_blocks, ==, full);

  struct bin *const bin = &heap.bins[0];
  const unsigned cap = bin->cap;
  for (int i = 0; i < 20; i++) tcache_shrink(&heap, 0);
  const unsigned used[] = {1000, 44, 43, 4, 3, 0}, most[] = {LIST_DRAIN, LIST_DRAIN, 11, 2, 1, 1};
  for (int i = 0; i < 6; i++) {
    bin->allocations = bin->frees + used[i];
    CHECK_COUNT(tcache_cap(&heap, 0), ==, most[i]);
  }
  CHECK_COUNT(bin->cap, ==, cap);
  for (unsigned halvings = bin->halvings; halvings > 0; halvings--) tcache_grow(&heap, 0, false);
  CHECK_COUNT(tcache_cap(&heap, 0), ==, cap);
  for (int i = 0; i < 20; i++) tcache_shrink(&heap, last);
  CHECK_COUNT(tcache_cap(&heap, last), ==, 1);
  check_grant();
}

/* A reader must not need the processor all the time: the thread that makes the change may wait for it. */
static void *change_slowly(void *begun) {
  heap_begin_one_store(&heap);
  *(_Atomic bool *)begun = true;
  usleep(50000);
  heap_end_change(&heap);
  return NULL;
}

static long rests(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_nvcsw;
}

static void readers_rest(void) {
  for (int which = 0; which < 3; which++) {
    pthread_t thread;
    _Atomic bool begun = false;
    reset();
    CHECK(pthread_create(&thread, NULL, change_slowly, (void *)&begun) == 0);
    while (!begun) sched_yield();
    const long before = rests();
    if (which == 0) CHECK_COUNT(tcache_totals(&heap, CLASS).length, ==, 0);
    if (which == 1) CHECK_COUNT(tcache_served(&heap), ==, 0);
    if (which == 2) CHECK_COUNT(heap_bumped(&heap), ==, 0);
    CHECK_COUNT(rests(), >, before);
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

/* A double free lets a list hand out more blocks than were put onto it. A visit counts the calls, reports this, and
 * gives up the list. */
static void overdrawn_is_given_up(void) {
  enum { COUNTED = 3, TAKEN = 5, ROOM = 7 };
  const uint64_t reported = misuse_count();
  options.on_misuse = MISUSE_REPORT;
  reset();
  tcache_open(&heap, CLASS);
  tcache_set(&heap, CLASS, (struct chain){chain_of(TAKEN + 1).head, COUNTED});
  heap.count[CLASS].now = heap.count[CLASS].then = count_of(ROOM, COUNTED);
  for (int i = 0; i < TAKEN; i++) count_pop(CLASS);
  heap.list[CLASS] = blocks[TAKEN];
  CHECK_COUNT(tcache_fold(&heap, CLASS), ==, TAKEN);
  CHECK(heap.list[CLASS] == CHAIN_END);
  check_totals(TAKEN, 0, 0);
  CHECK_COUNT(count_room(heap.count[CLASS].now), ==, ROOM);
  CHECK_COUNT(misuse_count(), ==, reported + 1);
  CHECK_COUNT(tcache_fold(&heap, CLASS), ==, 0);
  CHECK_COUNT(misuse_count(), ==, reported + 1);
}

int main(void) {
  every_call_is_counted();
  what_is_detached_is_counted();
  overdrawn_is_given_up();
  sums_are_of_all_classes();
  room_ends();
  caps();
  readers_rest();
  return 0;
}
