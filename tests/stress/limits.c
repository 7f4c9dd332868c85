/* limits: a hard limit of 256 MiB stops a program that leaks at the limit, by any call, and lets one that frees go on;
 * a soft limit bounds resident memory. Each case is a child of its own with an empty heap. */
#include "memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define MIB   ((size_t)1 << 20)
#define LIMIT ((TEST_SCALE > 4 ? 64 : 256 / TEST_SCALE) * MIB)

enum { THREADS = 4 };

/* A sanitizer keeps memory of its own for each byte, so there only what the library holds is compared. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static size_t resident_before;

static tslab_stats_global stats(void) {
  tslab_stats_global out;
  CHECK(tslab_stats(&out, sizeof out) == 0);
  return out;
}

/* At most two parts of a hundred above, and the program's own pages. */
static void stays_below(size_t limit, size_t hundredths) {
  CHECK_COUNT(stats().limit_held, <=, limit + limit / 100 * hundredths);
  if (!SANITIZED) CHECK_COUNT(resident_bytes(), <=, resident_before + limit + limit / 100 * hundredths);
}

static void as_child(const char *name, void (*run)(size_t), size_t argument) {
  const pid_t child = fork();
  int status;
  CHECK(child >= 0);
  if (child == 0) {
    resident_before = resident_bytes();
    run(argument);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) dprintf(2, "%s of %zu\n", name, argument);
  CHECK(status == 0);
}

/* ---- leaks ------------------------------------------------------------------------------------------------------- */

static tslab_epoch epoch;

static void *by_malloc(size_t size) { return tslab_malloc(size); }
static void *by_calloc(size_t size) { return tslab_calloc(1, size); }
static void *by_aligned(size_t size) { return tslab_aligned_alloc(4096, size); }
static void *by_epoch(size_t size) { return tslab_epoch_malloc(epoch, size); }
static void *by_realloc(size_t size) {
  void *block = tslab_malloc(size / 4);
  void *grown = block ? tslab_realloc(block, size) : NULL;
  if (!grown) tslab_free(block);
  return grown;
}

static void *(*ask)(size_t);
static size_t asked;

static void *leak(void *unused) {
  for (size_t sum = 0; sum < 2 * LIMIT; sum += asked) {
    errno = 0;
    char *block = ask(asked);
    if (!block) {
      CHECK(errno == ENOMEM);
      return unused;
    }
    memset(block, 1, asked);
  }
  CHECK(!"a leak ends");
  return unused;
}

/* Checks that the program holds within 2 % of the limit when malloc fails. */
static void leak_ends(size_t threads) {
  pthread_t thread[THREADS];
  CHECK(tslab_memory_limit(LIMIT, 0) == 0);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_create(&thread[i], NULL, leak, NULL) == 0);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
  CHECK_COUNT(stats().limit_refusals, >=, threads);
  CHECK_COUNT(stats().limit_held, >=, LIMIT - LIMIT / 50 - asked);
  stays_below(LIMIT, 2);
}

static void leaks_end(void) {
  static void *(*const ways[])(size_t) = {by_malloc, by_calloc, by_aligned, by_epoch, by_realloc};
  static const size_t sizes[] = {64, 4096, 20000, 1 << 20};
  for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
      ask = ways[way];
      asked = sizes[size];
      as_child("leak of one thread", leak_ends, 1);
      if (way == 0) as_child("leak of several threads", leak_ends, THREADS);
    }
}

/* ---- programs that free ------------------------------------------------------------------------------------------ */

enum { BLOCKS = 1 << 17 }; /* of a thread, at most */
struct block {
  char *at;
  size_t size;
};
static size_t live_most; /* bytes of each thread */
static size_t most_seen, most_held;

/* Sizes from 16 bytes to 16 KiB, each doubling as likely as the others; later on some of the smaller ones alone, so
 * that memory has to go from classes to others. */
static size_t draw_size(uint64_t *random, bool is_early) {
  const uint64_t drawn = check_random(random);
  if (!is_early) return 800 + (drawn >> 8) % 1600;
  return 16 + (size_t)(drawn >> 8) % ((size_t)16 << (drawn % 11));
}

/* Not of the heap, and not counted as the program's growth. */
static void *own_pages(size_t bytes) {
  void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  CHECK(pages != MAP_FAILED);
  return pages;
}

/* A thread holds its own for each step. The kernel reads page after page, so without a stop it would count memory twice
 * that moved on meanwhile. */
static pthread_mutex_t moves[THREADS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                         PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static _Atomic size_t churning;

static void see_while_all_stop(void) {
  for (size_t i = 0; i < THREADS; i++) pthread_mutex_lock(&moves[i]);
  const size_t now = resident_bytes(), held = stats().limit_held;
  if (most_seen < now) most_seen = now;
  if (most_held < held) most_held = held;
  for (size_t i = 0; i < THREADS; i++) pthread_mutex_unlock(&moves[i]);
}

static void *churn(void *seed) {
  enum { STEPS = 200000 / TEST_SCALE };
  uint64_t random = (uintptr_t)seed;
  pthread_mutex_t *const move = &moves[atomic_fetch_add(&churning, 1)];
  struct block *block = own_pages(BLOCKS * sizeof *block);
  size_t live = 0, used = 0;
  for (int i = 0; i < STEPS; i++) {
    const size_t size = draw_size(&random, i < STEPS / 2);
    pthread_mutex_lock(move);
    while (used > 0 && (live + size > live_most || used == BLOCKS)) {
      const size_t out = (size_t)check_random(&random) % used;
      tslab_free(block[out].at);
      live -= block[out].size;
      block[out] = block[--used];
    }
    char *at = tslab_malloc(size);
    CHECK(at != NULL);
    memset(at, 2, size);
    block[used].at = at;
    block[used++].size = size;
    live += size;
    pthread_mutex_unlock(move);
    if (i % 20000 == 0) see_while_all_stop();
  }
  return NULL;
}

static void churn_in_threads(size_t threads) {
  pthread_t thread[THREADS];
  resident_before += threads * BLOCKS * sizeof(struct block);
  for (size_t i = 0; i < threads; i++)
    CHECK(pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)(88172645463325252ull + i)) == 0);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

static void frees_run_on(size_t threads) {
  live_most = LIMIT * 7 / 10 / threads;
  CHECK(tslab_memory_limit(LIMIT, 0) == 0);
  churn_in_threads(threads);
  CHECK_COUNT(stats().limit_refusals, ==, 0);
  CHECK_COUNT(most_held, <=, LIMIT + LIMIT / 50);
  if (!SANITIZED) CHECK_COUNT(most_seen, <=, resident_before + LIMIT + LIMIT / 50);
}

static void soft_limit_holds(size_t threads) {
  live_most = LIMIT * 8 / 10 / threads;
  CHECK(tslab_memory_limit(0, LIMIT) == 0);
  churn_in_threads(threads);
  CHECK_COUNT(stats().limit_refusals, ==, 0);
  if (!SANITIZED) CHECK_COUNT(most_seen, <=, resident_before + LIMIT + LIMIT / 20);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void what_is_freed_serves_again(size_t rounds) {
  CHECK(tslab_memory_limit(LIMIT, 0) == 0);
  for (size_t i = 0; i < rounds; i++) {
    const size_t size = i % 2 ? 3000 : 300000;
    void *list = NULL, **block;
    size_t sum = 0;
    while ((block = (void **)tslab_malloc(size)) != NULL) {
      *block = list;
      list = block;
      sum += size;
    }
    CHECK_COUNT(sum, >=, LIMIT / 10 * 8);
    stays_below(LIMIT, 2);
    while (list) {
      void *const next = *(void **)list;
      tslab_free(list);
      list = next;
    }
  }
}

/* At the limit no new page may be touched. Slabs whose pages went back come first in their list, and the free blocks of
 * the slabs behind them must serve all the same. */
static void blocks_behind_holes_serve(size_t page) {
  enum { SLABS = 40, SLAB = 1 << 16, SIZE = 64, COUNT = SLABS * (SLAB / SIZE), FRONT = 10 };
  static char *blocks[COUNT];
  static const size_t rest[] = {1000000, 130000, 64000};
  size_t there = 0;
  CHECK(tslab_memory_limit(32 * MIB, 0) == 0);
  for (size_t i = 0; i < COUNT; i++) CHECK((blocks[i] = memset(tslab_malloc(SIZE), 1, SIZE)) != NULL);
  for (size_t i = 0; i < COUNT / SLABS * FRONT; i += 2, there++) tslab_free(blocks[i]);
  tslab_purge();
  for (size_t i = COUNT / SLABS * (FRONT + 1); i < COUNT; i++)
    if ((uintptr_t)blocks[i] / page % 2) tslab_free(blocks[i]);
  tslab_purge();
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
    while (tslab_malloc(rest[i]) != NULL) {}
  for (size_t i = 0; i < there; i++) CHECK(tslab_malloc(SIZE) != NULL);
}

/* The block's pages move, so there need not be room for it twice. */
static void a_large_block_grows(size_t unused) {
  (void)unused;
  CHECK(tslab_memory_limit(LIMIT, 0) == 0);
  char *block = tslab_malloc(LIMIT / 10 * 5), *behind = tslab_malloc(MIB);
  CHECK(block && behind);
  memset(block, 3, LIMIT / 10 * 5);
  block = tslab_realloc(block, LIMIT / 10 * 8);
  CHECK(block != NULL && block[0] == 3 && block[LIMIT / 10 * 5 - 1] == 3);
  memset(block, 4, LIMIT / 10 * 8);
  stays_below(LIMIT, 2);
  CHECK(tslab_realloc(block, LIMIT / 10 * 11) == NULL && errno == ENOMEM);
  CHECK(block[LIMIT / 10 * 8 - 1] == 4);
  tslab_free(behind);
}

/* ---- what epochs leave ------------------------------------------------------------------------------------------- */

enum { MANY = 400, HELD = 10 };

/* Each epoch uses slabs and lists, for which its heap needs memory of the library's own. */
static void use_epoch(tslab_epoch id, void *held[HELD]) {
  CHECK(tslab_epoch_enter(id) == 0);
  for (size_t i = 0; i < 30 * HELD; i++) {
    tslab_free(held[i % HELD]);
    held[i % HELD] = tslab_malloc(16 + i * 37 % 600); /* NULL at the limit */
  }
  CHECK(tslab_epoch_leave(id) == 0);
}

static void *use_many_epochs(void *unused) {
  static _Thread_local void *held[MANY][HELD];
  static _Thread_local tslab_epoch ids[MANY];
  for (int i = 0; i < MANY; i++) {
    ids[i] = tslab_epoch_open("many");
    if (ids[i] != 0) use_epoch(ids[i], held[i]);
  }
  for (int i = 0; i < MANY; i++) {
    for (int k = 0; k < HELD; k++) tslab_free(held[i][k]);
    if (ids[i] != 0) CHECK(tslab_epoch_close(ids[i], NULL) == 0);
  }
  return unused;
}

/* The heaps of ended epochs and threads have given their memory back, so they do not count. */
static void ended_epochs_do_not_count(size_t threads) {
  pthread_t made[THREADS];
  CHECK(tslab_memory_limit(16 * MIB, 0) == 0);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_create(&made[i], NULL, use_many_epochs, NULL) == 0);
  for (size_t i = 0; i < threads; i++) CHECK(pthread_join(made[i], NULL) == 0);
  tslab_purge();
  CHECK_COUNT(stats().limit_held, <, 8 * MIB);
  void *const block = tslab_malloc(4 * MIB);
  CHECK(block != NULL);
  tslab_free(block);
}

static void limits_can_be_changed(size_t unused) {
  (void)unused;
  CHECK(tslab_memory_limit(1000, 0) == EINVAL && tslab_memory_limit(0, 1000) == EINVAL);
  CHECK(tslab_memory_limit(16 * MIB, 8 * MIB) == 0 && tslab_memory_limit(TSLAB_LIMIT_KEEP, 4 * MIB) == 0);
  CHECK(stats().limit_hard == 16 * MIB && stats().limit_soft == 4 * MIB);
  CHECK(tslab_malloc(32 * MIB) == NULL && errno == ENOMEM);
  CHECK_COUNT(stats().limit_refusals, ==, 1);
  CHECK(tslab_memory_limit(64 * MIB, 0) == 0);
  char *block = tslab_malloc(32 * MIB);
  CHECK(block != NULL);
  CHECK(tslab_memory_limit(16 * MIB, 0) == 0); /* below what is held */
  CHECK(tslab_malloc(MIB) == NULL);
  tslab_free(block);
  CHECK((block = tslab_malloc(MIB)) != NULL);
  tslab_free(block);
  CHECK(tslab_memory_limit(0, 0) == 0 && stats().limit_hard == 0);
  CHECK((block = tslab_malloc(64 * MIB)) != NULL);
}

static void settings_are_taken(void) {
  CHECK_COUNT(stats().limit_hard, ==, 3ull << 30);
  CHECK_COUNT(stats().limit_soft, ==, 2048 * MIB);
  const tslab_epoch e = tslab_epoch_open("request");
  tslab_epoch_status status;
  CHECK(tslab_epoch_info(e, &status) == 0);
  CHECK_COUNT(status.budget_bytes, ==, 64 * MIB);
  const tslab_epoch own = tslab_epoch_open_with(
      &(tslab_epoch_options){.struct_size = sizeof(tslab_epoch_options), .label = "request", .budget_bytes = MIB});
  CHECK(tslab_epoch_info(own, &status) == 0);
  CHECK_COUNT(status.budget_bytes, ==, MIB);
  const tslab_epoch other = tslab_epoch_open("requests");
  CHECK(tslab_epoch_info(other, &status) == 0);
  CHECK_COUNT(status.budget_bytes, ==, 0);
  CHECK(tslab_epoch_malloc(e, 65 * MIB) == NULL && errno == ENOMEM);
}

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) {
    settings_are_taken();
    return 0;
  }
  epoch = tslab_epoch_open("leaks");
  leaks_end();
  as_child("freeing", frees_run_on, 1);
  as_child("freeing", frees_run_on, THREADS);
  as_child("soft limit", soft_limit_holds, 1);
  as_child("soft limit", soft_limit_holds, THREADS);
  as_child("filling again", what_is_freed_serves_again, 4);
  as_child("ended epochs", ended_epochs_do_not_count, THREADS);
  as_child("changing", limits_can_be_changed, 0);
  as_child("holes", blocks_behind_holes_serve, (size_t)sysconf(_SC_PAGESIZE));
  if (!SANITIZED && !TSLAB_HARDENED) as_child("growing", a_large_block_grows, 0); /* there pages do not move */
  return 0;
}
