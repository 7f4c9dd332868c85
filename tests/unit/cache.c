/* cached epoch: a thread's next epoch takes over heap and chunk of the one that it ended empty. Only plain epochs are
 * kept, and an unused one goes after a second. A label gets slabs if its epochs free each block, and loses them if one
 * does not. */
#include "unit.h"

#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/close.h"
#include "epoch/destroy.h"
#include "epoch/open.h"
#include "heap/bump.h"
#include "heap/chunk_cache.h"
#include "runtime/scavenger.h"
#include "runtime/thread.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

static struct epoch *kept(void) { return atomic_load(&current_thread->cached_epoch); }

static uint64_t open_with(tslab_epoch_options wanted) {
  int error;
  const uint64_t id = epoch_open(&wanted, &error);
  CHECK(id != 0);
  return id;
}

/* One block is allocated in the epoch and freed. */
static void use(uint64_t id) {
  CHECK(scope_enter(current_thread, id) == 0);
  tslab_free(tslab_malloc(100));
  CHECK(scope_leave(current_thread, id) == 0);
}

static uint64_t end_one(void) {
  const uint64_t id = open_with((tslab_epoch_options){.label = "one"});
  use(id);
  CHECK(epoch_close(id, NULL) == 0 && kept() == epoch_slot(id));
  return id;
}

static void reused(void) {
  const size_t before = reserve_bytes();
  const uint64_t first = end_one();
  struct epoch *const e = kept();
  struct heap *const heap = e->heaps;
  struct run *const chunk = heap->bump.chunk;
  CHECK(chunk != NULL && epoch_state(e) == EPOCH_CACHED && epoch_error(e, first) == ESTALE);
  CHECK(heap->thread == current_thread && scope_enter(current_thread, first) == ESTALE);
  CHECK_COUNT(epoch_caches_reserve_bytes() - before, ==, GRANULE);
  const uint64_t next = epoch_cache_open(current_thread, "two", TSLAB_EPOCH_DESTROYABLE);
  CHECK(epoch_slot(next) == e && next != first && kept() == NULL && epoch_error(e, next) == 0);
  CHECK(strcmp(e->label, "two") == 0 && e->flags == TSLAB_EPOCH_DESTROYABLE && e->heaps == heap);
  CHECK(epoch_cache_open(current_thread, "three", 0) == 0);
  CHECK(scope_enter(current_thread, next) == 0 && current_heap == heap && heap->bump.chunk == chunk);
  CHECK(tslab_malloc(100) == run_start(chunk)); /* as if new */
  CHECK(scope_leave(current_thread, next) == 0);

  /* The epoch is destroyed with a live block. A second epoch that ends now is not kept. */
  const uint64_t other = open_with((tslab_epoch_options){.label = "other"});
  use(other);
  CHECK(epoch_destroy(next, NULL) == 0 && kept() == e);
  CHECK(epoch_close(other, NULL) == 0 && kept() == e);
  epoch_cache_give_up(current_thread, false);
  CHECK(kept() == NULL && epoch_state(e) == EPOCH_ENDED && e->heaps == NULL && e->arena.own == 0);
  reserve_empty();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

/* The heap and chunk that the next incarnation would inherit. */
static void not_kept(void) {
  const uint64_t parent = open_with((tslab_epoch_options){.label = "parent"});
  const tslab_epoch_options others[] = {{.parent = parent}, {.budget_bytes = GRANULE}, {.prefault_bytes = 2 * GRANULE}};
  for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
    const uint64_t id = open_with(others[i]);
    use(id);
    CHECK(epoch_close(id, NULL) == 0 && kept() == NULL);
  }
  const uint64_t child = open_with(others[0]);
  use(parent);
  CHECK(!epoch_cache_may_keep(current_thread, epoch_slot(parent)));
  CHECK(epoch_close(child, NULL) == 0 && epoch_cache_may_keep(current_thread, epoch_slot(parent)));
  options.reserve_bytes = 0;
  CHECK(epoch_close(parent, NULL) == 0 && kept() == NULL);
  options.reserve_bytes = MiB;
}

static void ageing(void) {
  end_one();
  for (int tick = 0; tick < 4; tick++) {
    epoch_caches_age(false);
    CHECK(kept() != NULL);
  }
  epoch_caches_age(false);
  CHECK(kept() == NULL);
  end_one();
  epoch_caches_age(true);
  CHECK(kept() == NULL);
}

/* ---- what counts as reserve -------------------------------------------------------------------------------------- */

/* An epoch that was opened from a cached epoch is in use: its memory is no reserve. The claim for it ends when it
 * stays. */
/* A thread that takes its cached epoch keeps it, whoever else wants to end it. */
static void taken_meanwhile(void) {
  end_one();
  struct epoch *const e = kept();
  atomic_store(&current_thread->takes_cached, true);
  epoch_caches_age(true);
  CHECK(kept() == e && !atomic_load(&current_thread->cached_is_claimed));
  atomic_store(&current_thread->takes_cached, false);
  epoch_caches_age(true);
  CHECK(kept() == NULL && epoch_state(e) == EPOCH_ENDED);
}

static void *claim_ends(void *thread) {
  usleep(20000);
  atomic_store(&((struct thread *)thread)->cached_is_claimed, false);
  return NULL;
}

/* A thread waits for one that claims its cached epoch. */
static void claimed_meanwhile(void) {
  pthread_t claimer;
  end_one();
  const struct epoch *const e = kept();
  atomic_store(&current_thread->cached_is_claimed, true);
  CHECK(pthread_create(&claimer, NULL, claim_ends, current_thread) == 0);
  const uint64_t id = epoch_cache_open(current_thread, "one", 0);
  CHECK(!atomic_load(&current_thread->cached_is_claimed) && epoch_slot(id) == e);
  CHECK(pthread_join(claimer, NULL) == 0);
  CHECK(epoch_close(id, NULL) == 0);
  epoch_cache_give_up(current_thread, false);
}

static void open_is_not_counted(void) {
  struct heap *const plain = current_thread->plain;
  end_one();
  CHECK_COUNT(epoch_caches_reserve_bytes(), ==, GRANULE);
  const uint64_t stays = epoch_cache_open(current_thread, "one", 0);
  CHECK(stays != 0);
  CHECK_COUNT(epoch_caches_reserve_bytes(), ==, 0);
  CHECK_COUNT(reserve_bytes(), ==, GRANULE); /* it may be the cached epoch again soon */
  epoch_cache_update_claim(plain);
  CHECK_COUNT(reserve_bytes(), ==, GRANULE);
  epoch_cache_update_claim(plain);
  CHECK_COUNT(reserve_bytes(), ==, 0);
  use(stays);
  CHECK(epoch_close(stays, NULL) == 0 && kept() == epoch_slot(stays));
  CHECK_COUNT(epoch_caches_reserve_bytes(), ==, GRANULE);
  for (int look = 0; look < 3; look++) epoch_cache_update_claim(plain); /* of a cached epoch */
  CHECK_COUNT(reserve_bytes(), ==, GRANULE);
  epoch_caches_age(true);
  CHECK_COUNT(reserve_bytes(), ==, 0); /* memory without use for so long is not kept for another second */
}

enum { LONG = 200 };

/* With any number of open epochs that began as cached epochs, the next ones are served as before. */
static void long_ones_leave_room(void) {
  static uint64_t stay[LONG];
  for (int i = 0; i < LONG; i++) {
    end_one();
    stay[i] = epoch_cache_open(current_thread, "one", 0);
    CHECK(stay[i] != 0);
    CHECK_COUNT(epoch_caches_reserve_bytes(), <=, GRANULE); /* the rest of one that was split */
    CHECK_COUNT(reserve_bytes(), <=, 2 * GRANULE);
  }
  for (int round = 0; round < 3; round++) {
    const uint64_t id = open_with((tslab_epoch_options){.label = "batch", .flags = TSLAB_EPOCH_DESTROYABLE});
    CHECK(scope_enter(current_thread, id) == 0);
    for (int i = 0; i < 10 * (int)(GRANULE / 8192); i++) CHECK(tslab_malloc(8000) != NULL);
    CHECK(scope_leave(current_thread, id) == 0);
    tslab_epoch_report report;
    CHECK(epoch_destroy(id, &report) == 0);
    CHECK_COUNT(report.bytes_recycled, >=, 10 * GRANULE);
    CHECK_COUNT(report.bytes_returned, ==, 0);
    CHECK_COUNT(reserve_bytes(), <=, MiB);
  }
  for (int i = 0; i < LONG; i++) CHECK(epoch_close(stay[i], NULL) == 0);
  epoch_caches_age(true);
  scavenger_purge();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

enum { THREADS = 8, REQUESTS = 300, SMALL_RESERVE = 4 * GRANULE };
static atomic_uint running;

static void one_request(uint64_t id, unsigned blocks, bool destroys) {
  CHECK(tslab_epoch_enter(id) == 0);
  void *last = NULL;
  for (unsigned i = 0; i < blocks; i++) {
    if (last && !destroys) tslab_free(last);
    CHECK((last = tslab_malloc(4000)) != NULL);
  }
  if (last && !destroys) tslab_free(last);
  CHECK(tslab_epoch_leave(id) == 0);
  CHECK((destroys ? tslab_epoch_destroy : tslab_epoch_close)(id, NULL) == 0);
}

/* Requests of up to seven chunks, some of which stay open beside the next ones. */
static void *requests(void *unused) {
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "r", .flags = TSLAB_EPOCH_DESTROYABLE};
  uint64_t open[4] = {0};
  for (unsigned i = 0; i < REQUESTS; i++) {
    uint64_t *const slot = &open[i * i % 4];
    if (*slot) one_request(*slot, i % 7 * (GRANULE / 4096), i % 5 != 0);
    CHECK((*slot = tslab_epoch_open_with(&wanted)) != 0);
    one_request(tslab_epoch_open_with(&wanted), i % 11 * (GRANULE / 8192), i % 3 != 0);
  }
  for (int i = 0; i < 4; i++)
    if (open[i]) CHECK(tslab_epoch_close(open[i], NULL) == 0);
  atomic_fetch_sub(&running, 1);
  return unused;
}

/* The reserve is within its bound at every look, and empty when no thread is left. */
static void within_its_bound(void) {
  pthread_t threads[THREADS];
  options.reserve_bytes = SMALL_RESERVE;
  atomic_store(&running, THREADS);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, requests, NULL) == 0);
  for (unsigned look = 0; atomic_load(&running) != 0; look++) {
    CHECK_COUNT(epoch_caches_reserve_bytes(), <=, THREADS * SMALL_RESERVE);
    CHECK_COUNT(reserve_ready_bytes(), <=, SMALL_RESERVE);
    if (look % 64 == 0) epoch_caches_age(false);
    if (look % 64 == 32)
      for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) {
        chunk_cache_flush(p, false);
        if (!p->of_epochs) epoch_cache_update_claim(p);
      }
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(reserve_bytes(), ==, epoch_caches_reserve_bytes());
  CHECK_COUNT(reserve_bytes(), <=, SMALL_RESERVE); /* of threads that are gone */
  reserve_empty();
  CHECK_COUNT(reserve_bytes(), ==, 0);
  options.reserve_bytes = MiB;
}

/* ---- with slabs -------------------------------------------------------------------------------------------------- */

enum { TAKEN = 40 };
static unsigned drains; /* in a row, before a label gets slabs */
static void *taken[TAKEN];

static uint64_t open_label(const char *label) {
  const uint64_t epoch_cache = epoch_cache_open(current_thread, label, TSLAB_EPOCH_DESTROYABLE);
  return epoch_cache ? epoch_cache : open_with((tslab_epoch_options){.label = label, .flags = TSLAB_EPOCH_DESTROYABLE});
}

static uint64_t begin(const char *label) {
  const uint64_t id = open_label(label);
  CHECK(scope_enter(current_thread, id) == 0);
  for (unsigned i = 0; i < TAKEN; i++) {
    taken[i] = tslab_malloc(16 + i % 4 * 100);
    memset(taken[i], 1, 16 + i % 4 * 100);
  }
  return id;
}

static void free_from(unsigned first) {
  for (unsigned i = first; i < TAKEN; i++) tslab_free(taken[i]);
}

static bool by_slabs(void) { return pages_run_of(taken[0])->kind == RUN_SLAB; }

static tslab_epoch_status status_of_epoch(uint64_t id) {
  tslab_epoch_status status;
  CHECK(tslab_epoch_info(id, &status) == 0);
  return status;
}

/* Runs one request that frees its blocks. Returns true if it filled slabs. */
static bool request(const char *label) {
  const uint64_t id = begin(label);
  const bool slabs = by_slabs();
  CHECK_COUNT(status_of_epoch(id).allocations, ==, TAKEN);
  CHECK_COUNT(status_of_epoch(id).live_blocks, ==, TAKEN);
  free_from(0);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_close(id, NULL) == 0);
  return slabs;
}

/* Runs requests until one fills slabs. Returns the number of those that did not. */
static unsigned learn(const char *label) {
  unsigned count = 0;
  while (!request(label)) CHECK(count++ < 100000);
  return count;
}

static void check_nothing_left(struct epoch *e) {
  epoch_cache_give_up(current_thread, false);
  CHECK(kept() == NULL && epoch_state(e) == EPOCH_ENDED && e->heaps == NULL && e->arena.own == 0);
  CHECK_COUNT(e->kept_granules, ==, 0);
  reserve_empty();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

static uint64_t live_blocks(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.allocations - stats.frees, ==, stats.live_blocks);
  return stats.live_blocks;
}

static void slabs_are_kept(void) {
  const uint64_t live = live_blocks();
  drains = learn("slabs");
  CHECK(drains == 64 || drains == 2); /* the latter where invariants are checked */
  struct epoch *const e = kept();
  const size_t own = e->arena.own;
  CHECK(own >= 4 * GRANULE && e->arena.by_slabs);
  CHECK_COUNT(reserve_bytes(), >=, GRANULE); /* the touched granule */
  if (!TSLAB_HARDENED) CHECK_COUNT(e->kept_granules, ==, 1);
  for (int i = 0; i < 1000; i++) {
    CHECK(request("slabs") && kept() == e);
    if (!TSLAB_HARDENED) CHECK_COUNT(e->arena.own, ==, own); /* freed blocks wait in quarantine there */
  }
  CHECK_COUNT(live_blocks(), ==, live);
  check_nothing_left(e);
  CHECK_COUNT(live_blocks(), ==, live);
  CHECK(request("slabs") && kept() == e); /* the slot remembers */
  check_nothing_left(e);
}

static void *free_one(void *block) {
  tslab_free(block);
  return NULL;
}

static void free_elsewhere(void *block) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, free_one, block) == 0 && pthread_join(thread, NULL) == 0);
}

enum otherwise { DESTROYED, RESET_ONCE, SURVIVED, SURVIVED_LARGE, FREED_ELSEWHERE, CLOSED_INSIDE, WAYS };

/* Only the last block differs. */
static void end_otherwise(uint64_t id, enum otherwise how) {
  void *last = how == SURVIVED_LARGE ? tslab_malloc(100000) : taken[0];
  free_from(1);
  if (last != taken[0]) tslab_free(taken[0]);
  if (how == RESET_ONCE) CHECK(epoch_reset(id, NULL) == 0);
  if (how == FREED_ELSEWHERE) free_elsewhere(last);
  if (how == CLOSED_INSIDE) tslab_free(last);
  if (how != CLOSED_INSIDE) CHECK(scope_leave(current_thread, id) == 0);
  CHECK((how == DESTROYED || how == RESET_ONCE ? epoch_destroy : epoch_close)(id, NULL) == 0);
  if (how == SURVIVED || how == SURVIVED_LARGE) {
    CHECK_COUNT(status_of_epoch(id).state, ==, TSLAB_EPOCH_CLOSING);
    CHECK_COUNT(status_of_epoch(id).live_blocks, ==, 1);
    tslab_free(last);
  }
  if (how == CLOSED_INSIDE) CHECK(scope_leave(current_thread, id) == 0);
}

/* Each request of another kind doubles the number of requests before the label gets slabs again, up to a limit. */
static void unlearned(void) {
  const unsigned most = drains == 2 ? 4 : 64 << WAYS;
  unsigned needed = drains;
  for (enum otherwise how = 0; how < WAYS; how++) {
    CHECK_COUNT(learn("doubted"), ==, needed);
    struct epoch *const e = kept();
    const uint64_t live = live_blocks(), id = begin("doubted");
    CHECK(by_slabs() && epoch_slot(id) == e);
    end_otherwise(id, how);
    CHECK(epoch_error(e, id) == ESTALE);
    CHECK_COUNT(live_blocks(), ==, live);
    if (needed < most) needed *= 2;
    if (kept()) check_nothing_left(kept());
  }
}

/* An epoch of another label that takes kept slabs is served from them, and returns them. */
static void relabelled(void) {
  CHECK_COUNT(learn("before"), ==, drains);
  struct epoch *const e = kept();
  const tslab_epoch_options with_budget = {.label = "before", .budget_bytes = MiB};
  const uint64_t id = begin("before"), budgeted = open_with(with_budget);
  CHECK(by_slabs() && !epoch_slot(budgeted)->arena.by_slabs); /* such an epoch could not be kept */
  CHECK(epoch_close(budgeted, NULL) == 0);
  free_from(0);
  tslab_purge(); /* its slabs may go meanwhile */
  CHECK(scope_leave(current_thread, id) == 0 && epoch_close(id, NULL) == 0 && kept() == e);
  CHECK(e->kept_granules <= 1);
  CHECK(request("before"));
  CHECK(request("after") && kept() == NULL && epoch_state(e) == EPOCH_ENDED);
  CHECK(!request("after") && kept() == e);
  CHECK_COUNT(e->kept_granules, ==, drains > 2); /* its chunk; where two ends are enough, it gets slabs next */
  check_nothing_left(e);
}

/* One block is freed twice and another is not seen as drained: the kept memory then stays as it is, and the end of the
   epoch reports it. */
static void free_twice(void) {
  const uint64_t id = begin("twice");
  free_from(2);
  tslab_free(taken[0]);
  tslab_free(taken[0]);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_close(id, NULL) == 0 && kept() == epoch_slot(id));
  options.on_misuse = MISUSE_REPORT;
  epoch_cache_give_up(current_thread, false);
  for (size_t i = 0; i < 116; i++) CHECK(((char *)taken[1])[i] == 1);
  CHECK(tslab_epoch_of(taken[1]) == id);
}

static void freed_twice(void) {
  char text[500];
  if (TSLAB_HARDENED) return; /* which refuses the second free */
  CHECK_COUNT(learn("twice"), ==, drains);
  CHECK_COUNT(hear(free_twice, text, sizeof text), ==, 1);
  CHECK(strstr(text, "tslab: double free of ") == text);
}

/* In a child, an epoch that another thread was inside is reset, and the blocks on its lists are lost; later epochs must
   not count these as freed blocks. */
static sem_t inside, over;
static uint64_t shared;

static void *stay_inside(void *unused) {
  CHECK(tslab_epoch_enter(shared) == 0);
  void *const block = tslab_malloc(20000), *const other = tslab_malloc(20000);
  CHECK(block != NULL && other != NULL);
  tslab_free(block);
  sem_post(&inside);
  sem_wait(&over);
  return unused;
}

static unsigned survivors;
static void reset_in_child(void) {
  CHECK(tslab_epoch_enter(shared) == 0 && tslab_epoch_leave(shared) == 0);
  CHECK(tslab_epoch_reset(shared, NULL) == 0 && tslab_epoch_close(shared, NULL) == 0);
  uint64_t id;
  while (id = begin("child"), !by_slabs()) {
    free_from(0);
    CHECK(scope_leave(current_thread, id) == 0 && tslab_epoch_close(id, NULL) == 0);
  }
  free_from(survivors);
  CHECK(scope_leave(current_thread, id) == 0 && tslab_epoch_close(id, NULL) == 0);
  CHECK_COUNT(status_of_epoch(id).live_blocks, ==, survivors);
}

static void lost_in_child(void) {
  const tslab_epoch_options wanted = {
      .struct_size = sizeof wanted, .label = "child", .flags = TSLAB_EPOCH_DESTROYABLE};
  pthread_t thread;
  shared = tslab_epoch_open_with(&wanted);
  CHECK(sem_init(&inside, 0, 0) == 0 && sem_init(&over, 0, 0) == 0);
  CHECK(pthread_create(&thread, NULL, stay_inside, NULL) == 0);
  sem_wait(&inside);
  for (survivors = 1; survivors <= 12; survivors++) CHECK_COUNT(in_child(reset_in_child), ==, 0);
  sem_post(&over);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* The same where a request is larger than a chunk, so that no epoch becomes a cached epoch before it has slabs. */
static bool long_request(void) {
  static void *blocks[1000];
  const uint64_t id = begin("long");
  for (unsigned i = 0; i < 1000; i++) CHECK((blocks[i] = tslab_malloc(96 + i * 7 % 385)) != NULL);
  const bool slabs = by_slabs();
  for (unsigned i = 0; i < 1000; i++) tslab_free(blocks[i]);
  free_from(0);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_close(id, NULL) == 0);
  return slabs;
}

static void long_ones_too(void) {
  unsigned count = 0;
  while (!long_request()) CHECK(count++ < drains + 4);
  struct epoch *const e = kept();
  CHECK(e != NULL && e->arena.by_slabs);
  for (int i = 0; i < 100; i++) CHECK(long_request() && kept() == e);
  CHECK_COUNT(reserve_bytes(), <=, MiB);
  check_nothing_left(e);
}

/* The same where a request lives long enough to turn to slabs by itself, with few blocks at a time. */
static bool turning_request(void) {
  const uint64_t id = begin("turning");
  const bool slabs = by_slabs();
  for (unsigned turn = 0; turn < 1000; turn++) {
    const unsigned i = turn % TAKEN;
    tslab_free(taken[i]);
    CHECK((taken[i] = tslab_malloc(96 + turn * 7 % 385)) != NULL);
  }
  CHECK(heap_has_slabs(epoch_slot(id)->heaps));
  free_from(0);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_close(id, NULL) == 0);
  return slabs;
}

static void turning_ones_too(void) {
  unsigned count = 0;
  while (!turning_request()) CHECK(count++ < drains + 4);
  struct epoch *const e = kept();
  CHECK(e != NULL && e->arena.by_slabs);
  for (int i = 0; i < 100; i++) CHECK(turning_request() && kept() == e);
  CHECK_COUNT(reserve_bytes(), <=, MiB);
  check_nothing_left(e);
}

/* More than the reserve may hold is not kept. */
static void too_much(void) {
  CHECK_COUNT(learn("much"), ==, drains);
  struct epoch *const e = kept();
  const uint64_t id = begin("much");
  static void *blocks[2000];
  for (unsigned i = 0; i < 2000; i++) CHECK((blocks[i] = tslab_malloc(1000)) != NULL);
  for (unsigned i = 0; i < 2000; i++) tslab_free(blocks[i]);
  free_from(0);
  CHECK(scope_leave(current_thread, id) == 0 && epoch_close(id, NULL) == 0);
  CHECK(kept() == NULL && epoch_error(e, id) == ESTALE);
  CHECK_COUNT(reserve_bytes(), <=, MiB);
  reserve_empty();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

int main(void) {
  CHECK(thread_own_heap() != NULL);
  options.scavenger = 0; /* it would age them too */
  options.reserve_bytes = MiB;
  reused();
  not_kept();
  ageing();
  taken_meanwhile();
  claimed_meanwhile();
  open_is_not_counted();
  long_ones_leave_room();
  within_its_bound();
  slabs_are_kept();
  unlearned();
  relabelled();
  long_ones_too();
  turning_ones_too();
  too_much();
  lost_in_child();
  pages_check();
  freed_twice();
  return 0;
}
