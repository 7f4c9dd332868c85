/* chunk_cache: the chunk that came last comes out as new. A thread keeps as much as the setting allows, with its
 * spare together, whatever other threads keep. What stood still goes to the kernel. An epoch of several chunks that
 * is destroyed or reset lives on in them. */
#include "unit.h"

#include "base/options.h"
#include "epoch/ending.h"
#include "epoch/spare.h"
#include "front/front.h"
#include "heap/chunk_cache.h"

enum { MOST = MiB / GRANULE };

static struct notice notice;
static struct part_store store = {.notice = &notice};
static struct part part = {.plain = &part, .store = &store}, of_epoch = {.plain = &part};

static struct run *buried(void) {
  struct run *chunk = chunk_new(1, NULL);
  CHECK(chunk != NULL);
  chunk->capacity = 7;
  chunk->size = CHUNK_CAPACITY;
  chunk->gone = 3;
  chunk->class = CHUNK_HAS_GAPS;
  chunk->threshold = 1;
  atomic_store(&chunk->word, CHUNK_SEALED + 4);
  for (unsigned i = 1; i < CHUNK_WORDS; i++) chunk_set(&chunk_starts(chunk)[i].word, 1);
  bump_bury(chunk);
  return chunk;
}

static struct run *put_new(void) {
  struct run *chunk = buried();
  CHECK(chunk_cache_put(&part, chunk) && chunk->kind == RUN_RESERVED);
  return chunk;
}

/* So many that are ready for all, made before the first is put: else the second would be the first. */
static void put_ready(unsigned count) {
  struct run *chunks[MOST];
  for (unsigned i = 0; i < count; i++) chunks[i] = buried();
  for (unsigned i = 0; i < count; i++) CHECK(reserve_put(chunks[i]));
}

static void order(void) {
  struct run *one = put_new(), *two = put_new();
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE);
  CHECK(chunk_cache_take(&part) == two);
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE); /* the most at a time */
  CHECK(two->kind == RUN_CHUNK && two->word == 0 && two->gone == 0 && two->size == 0 && two->capacity == 0);
  CHECK(two->class == 0 && two->threshold == 0 && two->next == 0 && two->previous == 0 && !two->part);
  CHECK_COUNT(chunk_starts(two)->word, ==, 1);
  for (unsigned i = 1; i < CHUNK_WORDS; i++) CHECK_COUNT(chunk_starts(two)[i].word, ==, 0);
  CHECK(chunk_cache_take(&of_epoch) == one && chunk_cache_take(&part) == NULL); /* all parts of a thread share it */
  CHECK_COUNT(chunk_cache_flush(&part, false), ==, 0);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  bump_bury(one);
  bump_bury(two);
  pages_free(one, false);
  pages_free(two, false);
  pages_check();
}

static void limits(void) {
  for (unsigned i = 0; i < MOST - 1; i++) put_new(); /* one granule is the spare's */
  struct run *one_more = buried();
  CHECK(!chunk_cache_put(&part, one_more) && one_more->kind == RUN_CHUNK);
  CHECK_COUNT(chunk_cache_flush(&part, true), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  options.reserve_bytes = 3 * GRANULE;
  struct run *another = buried();
  put_new();
  put_ready(2);
  CHECK(chunk_cache_put(&part, another)); /* what lies ready makes room */
  CHECK_COUNT(reserve_ready_bytes(), ==, GRANULE);
  CHECK(!chunk_cache_put(&part, one_more));
  CHECK_COUNT(reserve_bytes(), ==, 3 * GRANULE);
  CHECK_COUNT(chunk_cache_flush(&part, true), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_empty(), ==, GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  options.reserve_bytes = MiB;
  pages_free(one_more, false);
  pages_check();
}

/* The spare and the chunks are one account: the oldest chunks make way for the spare, and it is never too little. */
static void with_a_spare(void) {
  for (unsigned i = 0; i < 5; i++) put_new();
  const size_t returned = pages_totals().returned;
  CHECK(chunk_cache_claim_spare(&part, 1, 1) && chunk_cache_has_claimed(&part, 1, 1));
  CHECK_COUNT(reserve_bytes(), ==, 6 * GRANULE);
  CHECK(chunk_cache_claim_spare(&part, 1, MOST - 2));
  CHECK_COUNT(pages_totals().returned - returned, ==, 3 * GRANULE);
  CHECK_COUNT(part.store->chunks.count, ==, 2);
  CHECK_COUNT(reserve_bytes(), ==, MiB);
  CHECK(!chunk_cache_claim_spare(&part, 2, MOST + 1) && chunk_cache_has_claimed(&part, 1, MOST - 2));
  CHECK(chunk_cache_claim_spare(&part, 2, 1) && !chunk_cache_has_claimed(&part, 1, 1));
  CHECK_COUNT(reserve_bytes(), ==, 3 * GRANULE);
  chunk_cache_drop_spare(&part, 1); /* it is another epoch's */
  CHECK_COUNT(reserve_bytes(), ==, 3 * GRANULE);
  chunk_cache_drop_spare(&part, 2);
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE);
  CHECK(chunk_cache_claim_spare(&part, 3, 1));
  chunk_cache_end(&part);
  CHECK_COUNT(part.store->chunks.count, ==, 0);
  CHECK_COUNT(reserve_ready_bytes(), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 2 * GRANULE);
  CHECK_COUNT(reserve_empty(), ==, 2 * GRANULE);
  pages_check();
}

/* With the spares of 64 threads held, one more keeps as much as one alone, and the reserve serves all. */
static void among_many(void) {
  enum { THREADS = 64 };
  static struct part others[THREADS];
  static struct part_store stores[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    others[i].plain = &others[i];
    stores[i].notice = &notice;
    others[i].store = &stores[i];
    CHECK(chunk_cache_claim_spare(&others[i], 10 + i, 1));
  }
  CHECK(chunk_cache_claim_spare(&part, 1, 1));
  for (unsigned i = 0; i < MOST - 1; i++) put_new();
  put_ready(MOST);
  CHECK_COUNT(reserve_bytes(), ==, 2 * MiB + THREADS * GRANULE);
  CHECK_COUNT(reserve_bytes(), <=, (THREADS + 1) * MiB);
  for (uint32_t i = 0; i < THREADS; i++) chunk_cache_drop_spare(&others[i], 10 + i);
  CHECK_COUNT(reserve_bytes(), ==, MiB); /* one thread's: what lay ready made way */
  CHECK_COUNT(reserve_ready_bytes(), ==, 0);
  chunk_cache_end(&part);
  CHECK_COUNT(reserve_empty(), ==, (MOST - 1) * GRANULE);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  pages_check();
}

static void ageing(void) {
  struct run *old = put_new();
  put_new();
  CHECK_COUNT(chunk_cache_flush(&part, false), ==, 0); /* they came since the last look */
  struct run *taken = chunk_cache_take(&part);
  bump_bury(taken);
  CHECK(chunk_cache_put(&part, taken));
  CHECK_COUNT(chunk_cache_flush(&part, false), ==, GRANULE);
  CHECK(old->kind == RUN_FREE && taken->kind == RUN_RESERVED);
  CHECK_COUNT(reserve_bytes(), ==, GRANULE);
  CHECK_COUNT(chunk_cache_flush(&part, false), ==, GRANULE);
  CHECK_COUNT(chunk_cache_flush(&part, false), ==, 0);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  pages_check();
}

/* ---- of epochs --------------------------------------------------------------------------------------------------- */

enum { KEPT = 4, CHUNKS = KEPT + 1, BLOCKS = CHUNKS * GRANULE / 1024 - CHUNKS };

/* Fills so many chunks, one large block beside. */
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
  CHECK_COUNT(atomic_load(&e->lifetime.own), ==, GRANULE);
  CHECK_COUNT(atomic_load(&e->lifetime.charged), ==, GRANULE);
  CHECK_COUNT(current_thread->home->store->chunks.count, ==, KEPT);
  CHECK_COUNT(reserve_bytes(), <=, MiB);
}

static void destroyed(void) {
  uint64_t id = 0, locks = 0;
  struct epoch *e = NULL;
  for (int i = 0; i < 10; i++) {
    id = open_one();
    fill(id);
    e = epoch_slot(id);
    if (i > 1) CHECK_COUNT(atomic_load(&e->lifetime.own), >=, CHUNKS * GRANULE);
    locks = shared_locks();
    CHECK(tslab_epoch_destroy(id, NULL) == 0);
    if (i == 0) continue; /* the first of a label turns to slabs */
    CHECK(atomic_load(&current_thread->spare) == e);
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
  CHECK(tslab_epoch_destroy(id, &report) == 0); /* who asks for a report gets one of all */
  CHECK_COUNT(report.live_blocks, ==, BLOCKS + 1);
  CHECK_COUNT(report.bytes_recycled + report.bytes_returned, >=, CHUNKS * GRANULE + 100 * KiB);
  CHECK_COUNT(current_thread->home->store->chunks.count, >=, CHUNKS); /* as without one, and the first, too */
  front_purge();
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
  front_purge();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

int main(void) {
  options.scavenger = 0; /* it would age them too */
  CHECK(front_part() != NULL);
  options.reserve_bytes = MiB;
  order();
  limits();
  with_a_spare();
  among_many();
  ageing();
  destroyed();
  reset();
  pages_check();
  return 0;
}
