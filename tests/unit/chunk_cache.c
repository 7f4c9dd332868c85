/* chunk_cache: the newest chunk comes out as new. A thread keeps as much as the setting allows, together with its
 * cached epoch, independently of other threads. Chunks that stood still go to the kernel. The next epoch uses the
 * chunks of one that was destroyed or reset. */
#include "unit.h"

#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/close.h"
#include "heap/bump.h"
#include "heap/chunk_cache.h"
#include "runtime/scavenger.h"
#include "runtime/thread.h"
#include "slab/quarter.h"

enum { MOST = MiB / GRANULE };

static struct notice notice;
static struct heap_store store = {.notice = &notice};
static struct heap heap = {.plain = &heap, .store = &store}, of_epoch = {.plain = &heap};

static struct run *retired(void) {
  struct run *chunk = chunk_new(1, NULL);
  CHECK(chunk != NULL);
  chunk->capacity = 7;
  chunk->size = CHUNK_CAPACITY;
  chunk->gone = 3;
  chunk->class = CHUNK_HAS_GAPS;
  chunk->threshold = 1;
  atomic_store(&chunk->word, CHUNK_SEALED + 4);
  for (unsigned i = 1; i < CHUNK_WORDS; i++) chunk_set(&chunk_starts(chunk)[i].word, 1);
  bump_retire(chunk);
  return chunk;
}

static struct run *put_new(void) {
  struct run *chunk = retired();
  CHECK(chunk_cache_put(&heap, chunk) && chunk->kind == RUN_RESERVED);
  return chunk;
}

/* Makes as many chunks that are ready for all, before the first is put: otherwise the second would be the first. */
static void put_ready(unsigned count) {
  struct run *chunks[MOST];
  for (unsigned i = 0; i < count; i++) chunks[i] = retired();
  for (unsigned i = 0; i < count; i++) CHECK(reserve_put(chunks[i]));
}

static void order(void) {
  struct run *one = put_new(), *two = put_new();
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE);
  CHECK(chunk_cache_take(&heap) == two);
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE); /* the most at a time */
  CHECK(two->kind == RUN_CHUNK && two->word == 0 && two->gone == 0 && two->size == 0 && two->capacity == 0);
  CHECK(two->class == 0 && two->threshold == 0 && two->next == 0 && two->previous == 0 && !two->heap);
  CHECK_COUNT(chunk_starts(two)->word, ==, 1);
  for (unsigned i = 1; i < CHUNK_WORDS; i++) CHECK_COUNT(chunk_starts(two)[i].word, ==, 0);
  CHECK(chunk_cache_take(&of_epoch) == one && chunk_cache_take(&heap) == NULL); /* all heaps of a thread share it */
  CHECK_COUNT(chunk_cache_flush(&heap, false), ==, 0);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  bump_retire(one);
  bump_retire(two);
  pages_free(one, false);
  pages_free(two, false);
  pages_check();
}

static void limits(void) {
  for (unsigned i = 0; i < MOST - 1; i++) put_new(); /* one granule is the cached epoch's */
  struct run *one_more = retired();
  CHECK(!chunk_cache_put(&heap, one_more) && one_more->kind == RUN_CHUNK);
  CHECK_COUNT(chunk_cache_flush(&heap, true), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  options.reserve_bytes = 3 * GRANULE;
  struct run *another = retired();
  put_new();
  put_ready(2);
  CHECK(chunk_cache_put(&heap, another)); /* the ready chunk makes room */
  CHECK_COUNT(reserve_ready_bytes(), ==, GRANULE);
  CHECK(!chunk_cache_put(&heap, one_more));
  CHECK_COUNT(reserve_bytes(), ==, 3 * GRANULE);
  CHECK_COUNT(chunk_cache_flush(&heap, true), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_empty(), ==, GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  options.reserve_bytes = MiB;
  pages_free(one_more, false);
  pages_check();
}

/* The cached epoch and the chunks share one bound: the oldest chunks leave for the cached epoch, and the bound always
   has room for it. */
static void with_a_cached_epoch(void) {
  for (unsigned i = 0; i < 5; i++) put_new();
  const size_t returned = pages_totals().returned;
  CHECK(chunk_cache_claim_epoch(&heap, 1, 1) && chunk_cache_has_claimed(&heap, 1, 1));
  CHECK_COUNT(reserve_bytes(), ==, 6 * GRANULE);
  CHECK(chunk_cache_claim_epoch(&heap, 1, MOST - 2));
  CHECK_COUNT(pages_totals().returned - returned, ==, 3 * GRANULE);
  CHECK_COUNT(heap.store->chunks.whole.count, ==, 2);
  CHECK_COUNT(reserve_bytes(), ==, MiB);
  CHECK(!chunk_cache_claim_epoch(&heap, 2, MOST + 1) && chunk_cache_has_claimed(&heap, 1, MOST - 2));
  CHECK(chunk_cache_claim_epoch(&heap, 2, 1) && !chunk_cache_has_claimed(&heap, 1, 1));
  CHECK_COUNT(reserve_bytes(), ==, 3 * GRANULE);
  chunk_cache_drop_epoch(&heap, 1); /* it is another epoch's */
  CHECK_COUNT(reserve_bytes(), ==, 3 * GRANULE);
  chunk_cache_drop_epoch(&heap, 2);
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE);
  CHECK(chunk_cache_claim_epoch(&heap, 3, 1));
  chunk_cache_end(&heap);
  CHECK_COUNT(heap.store->chunks.whole.count, ==, 0);
  CHECK_COUNT(reserve_ready_bytes(), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_empty(), ==, 2 * GRANULE);
  pages_check();
}

/* With the cached epochs of 64 threads held, one more keeps as much as one alone, and the reserve serves all. */
static void among_many(void) {
  enum { THREADS = 64 };
  static struct heap others[THREADS];
  static struct heap_store stores[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    others[i].plain = &others[i];
    stores[i].notice = &notice;
    others[i].store = &stores[i];
    CHECK(chunk_cache_claim_epoch(&others[i], 10 + i, 1));
  }
  CHECK(chunk_cache_claim_epoch(&heap, 1, 1));
  for (unsigned i = 0; i < MOST - 1; i++) put_new();
  put_ready(MOST);
  CHECK_COUNT(reserve_bytes(), ==, 2 * MiB + THREADS * GRANULE);
  CHECK_COUNT(reserve_bytes(), <=, (THREADS + 1) * MiB);
  for (uint32_t i = 0; i < THREADS; i++) chunk_cache_drop_epoch(&others[i], 10 + i);
  CHECK_COUNT(reserve_bytes(), ==, MiB); /* the claim of one thread: ready chunks left for it */
  CHECK_COUNT(reserve_ready_bytes(), ==, 0);
  chunk_cache_end(&heap);
  CHECK_COUNT(reserve_empty(), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  pages_check();
}

static void ageing(void) {
  struct run *old = put_new();
  put_new();
  CHECK_COUNT(chunk_cache_flush(&heap, false), ==, 0); /* the chunks were put since the last look */
  struct run *taken = chunk_cache_take(&heap);
  bump_retire(taken);
  CHECK(chunk_cache_put(&heap, taken));
  CHECK_COUNT(chunk_cache_flush(&heap, false), ==, GRANULE);
  CHECK(old->kind == RUN_FREE && taken->kind == RUN_RESERVED);
  CHECK_COUNT(reserve_bytes(), ==, GRANULE);
  CHECK_COUNT(chunk_cache_flush(&heap, false), ==, GRANULE);
  CHECK_COUNT(chunk_cache_flush(&heap, false), ==, 0);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  pages_check();
}

/* As many quarters stay as the thread has epochs, and of those that come, the ones at the lowest addresses. */
static void quarters_of_many_epochs(void) {
  enum { GRANULES = 3, ALL = GRANULES * QUARTERS, EPOCHS = 5 };
  struct run *chunks[GRANULES], *quarters[ALL];
  for (unsigned i = 0; i < GRANULES; i++) {
    chunks[i] = chunk_new(1, NULL);
    CHECK(chunks[i] != NULL);
    chunk_clear_starts(chunk_starts(chunks[i]), 0);
    unsigned at = i;
    for (; at > 0 && quarters[(at - 1) * QUARTERS] > quarter_at(run_index(chunks[i]), 0); at--)
      for (unsigned k = 0; k < QUARTERS; k++) quarters[at * QUARTERS + k] = quarters[(at - 1) * QUARTERS + k];
    struct run *first = quarter_split(chunks[i]);
    CHECK(first != NULL);
    for (unsigned k = 0; k < QUARTERS; k++) quarters[at * QUARTERS + k] = first + k;
  }
  const struct chunk_list *const kept = &heap.store->chunks.quarters;
  heap.store->chunks.attached = EPOCHS;
  options.reserve_bytes = 2 * MiB; /* somebody asked for more to stay */
  for (unsigned i = 0; i < ALL; i++) CHECK(chunk_cache_put(&heap, quarters[i]));
  CHECK_COUNT(kept->count, ==, ALL);
  for (unsigned i = ALL; i-- > 0;) CHECK(chunk_cache_take_quarter(&of_epoch, NULL) == quarters[i]);
  for (unsigned i = 0; i < ALL; i++) bump_retire(quarters[i]);
  options.reserve_bytes = MiB;
  for (unsigned i = ALL; i-- > 0;) CHECK(chunk_cache_put(&heap, quarters[i]));
  CHECK_COUNT(kept->count, ==, EPOCHS);
  for (unsigned i = 0; i < EPOCHS; i++) CHECK(quarters[i]->kind == RUN_RESERVED);
  CHECK(quarters[EPOCHS]->kind == RUN_FREE);
  struct run *lowest = chunk_cache_take_quarter(&of_epoch, NULL);
  CHECK(lowest == quarters[0]);
  heap.store->chunks.attached = 1; /* the others have ended: the next that comes takes four away */
  bump_retire(lowest);
  CHECK(chunk_cache_put(&heap, lowest));
  CHECK_COUNT(kept->count, ==, 1);
  CHECK(chunk_cache_take_quarter(&of_epoch, NULL) == lowest);
  bump_retire(lowest);
  heap.store->chunks.attached = 0;
  CHECK(!chunk_cache_put(&heap, lowest) && lowest->kind == RUN_CHUNK);
  quarters_give(quarter_granule(lowest), 1u << quarter_number(lowest), 1);
  CHECK_COUNT(chunk_cache_flush(&heap, true), ==, 0);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  pages_check();
}

static struct run *split(void) {
  struct run *const whole = chunk_new(1, NULL);
  CHECK(whole != NULL);
  chunk_clear_starts(chunk_starts(whole), 0);
  struct run *const first = quarter_split(whole);
  CHECK(first != NULL);
  return first;
}

/* A thread in twice as many epochs keeps twice as much in quarters, and no more whole chunks. When they end it gives a
   few quarters away with each that comes. */
static void reserve_of_many_epochs(void) {
  enum { KEEPS = 2 * MOST - 1, ALL = KEEPS * QUARTERS };
  const struct chunk_list *const kept = &heap.store->chunks.quarters;
  heap.store->chunks.attached = 2 * RESERVE_EPOCHS;
  for (unsigned i = 0; i < KEEPS; i++) {
    struct run *const first = split();
    for (unsigned k = 0; k < QUARTERS; k++) CHECK(chunk_cache_put(&heap, first + k));
  }
  CHECK_COUNT(kept->count, ==, ALL);
  CHECK_COUNT(reserve_bytes(), ==, KEEPS * GRANULE);
  struct run *const whole = retired();
  CHECK(!chunk_cache_put(&heap, whole));
  pages_free(whole, false);
  CHECK(chunk_cache_claim_epoch(&heap, 1, 1));
  CHECK_COUNT(kept->count, ==, ALL);
  heap.store->chunks.attached = QUARTERS;
  CHECK(chunk_cache_claim_epoch(&heap, 2, 2));
  CHECK_COUNT(kept->count, ==, ALL - 2 * QUARTERS);
  for (unsigned left = ALL - 2 * QUARTERS; left > QUARTERS;) {
    struct run *const one = chunk_cache_take_quarter(&of_epoch, NULL);
    bump_retire(one);
    if (!chunk_cache_put(&heap, one)) quarters_give(quarter_granule(one), 1u << quarter_number(one), 1);
    CHECK_COUNT(kept->count, <, left);
    CHECK_COUNT(kept->count + QUARTERS, >=, left - 1);
    left = kept->count;
  }
  heap.store->chunks.attached = 0;
  chunk_cache_end(&heap);
  reserve_empty();
  CHECK_COUNT(reserve_bytes(), ==, 0);
  pages_check();
}

/* ---- of epochs --------------------------------------------------------------------------------------------------- */

enum { KEPT = 4, CHUNKS = KEPT + 1, BLOCKS = CHUNKS * GRANULE / 1024 - CHUNKS };

/* Fills `chunks` chunks, with one large block beside them. */
static void fill(uint64_t id) {
  CHECK(scope_enter(current_thread, id) == 0);
  for (unsigned i = 0; i < BLOCKS; i++) {
    char *block = tslab_malloc(1024);
    memset(block, 1, 1024);
    CHECK(tslab_epoch_of(block) == id);
  }
  CHECK(tslab_malloc(100 * KiB) != NULL);
  CHECK(scope_leave(current_thread, id) == 0);
}

static uint64_t shared_locks(void) {
  return pages_lock.taken + reserve_lock.taken;
}

static uint64_t open_one(void) {
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "several",
                                      .flags = TSLAB_EPOCH_DESTROYABLE};
  const uint64_t id = tslab_epoch_open_with(&wanted);
  CHECK(id != 0);
  return id;
}

static void check_kept(struct epoch *e) {
  CHECK_COUNT(atomic_load(&e->arena.own), ==, GRANULE);
  CHECK_COUNT(atomic_load(&e->arena.charged), ==, GRANULE);
  CHECK_COUNT(current_thread->plain->store->chunks.whole.count, ==, KEPT);
  CHECK_COUNT(reserve_bytes(), <=, MiB);
}

static void destroyed(void) {
  uint64_t id = 0, locks = 0;
  struct epoch *e = NULL;
  for (int i = 0; i < 10; i++) {
    id = open_one();
    fill(id);
    e = epoch_slot(id);
    if (i > 1) CHECK_COUNT(atomic_load(&e->arena.own), >=, CHUNKS * GRANULE);
    locks = shared_locks();
    CHECK(tslab_epoch_destroy(id, NULL) == 0);
    if (i == 0) continue; /* the first of a label turns to slabs */
    CHECK(atomic_load(&current_thread->cached_epoch) == e);
    check_kept(e);
  }
  locks = shared_locks() - locks;
  CHECK_COUNT(locks, <=, 4); /* the large block's, none for a chunk */
  tslab_epoch_status status;
  id = open_one();
  CHECK(tslab_epoch_info(id, &status) == 0);
  CHECK_COUNT(status.live_blocks, ==, 0);
  CHECK_COUNT(status.allocations, ==, 0);
  fill(id);
  tslab_epoch_report report;
  CHECK(tslab_epoch_destroy(id, &report) == 0); /* a caller that asks for a report gets one of all memory */
  CHECK_COUNT(report.live_blocks, ==, BLOCKS + 1);
  CHECK_COUNT(report.bytes_recycled + report.bytes_returned, >=, CHUNKS * GRANULE + 100 * KiB);
  CHECK_COUNT(current_thread->plain->store->chunks.whole.count, >=, CHUNKS); /* as without a report */
  scavenger_purge();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

static void reset(void) {
  const uint64_t id = open_one();
  struct epoch *e = epoch_slot(id);
  for (int i = 0; i < 10; i++) {
    fill(id);
    CHECK(tslab_epoch_reset(id, NULL) == 0);
    if (i > 1) check_kept(e);
  }
  CHECK(tslab_epoch_close(id, NULL) == 0);
  scavenger_purge();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

int main(void) {
  options.scavenger = 0; /* it would age them too */
  CHECK(thread_own_heap() != NULL);
  options.reserve_bytes = MiB;
  order();
  limits();
  with_a_cached_epoch();
  among_many();
  ageing();
  quarters_of_many_epochs();
  reserve_of_many_epochs();
  destroyed();
  reset();
  pages_check();
  return 0;
}
