/* profiled: a program that knows what each of its call sites allocated and holds. profile.py compares.
 *
 * usage: profiled INTERVAL SEED [changes|forks]
 *
 * Each function that is named take_ is one call site. The first line of output says of each: its address, and what was
 * allocated and is held there, in bytes as asked for, with the variance that samples at INTERVAL bytes must have. The
 * library's figures follow.
 *
 *   changes   each thread changes the interval every few hundred blocks, to a quarter of INTERVAL, or to four times it;
 *             the variance follows the interval that holds for each block
 *   forks     all threads stop in the middle and the process forks; the child goes on where each of them was, with
 *             threads of its own, and tells at the end */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tslab/optional.h"

extern __typeof__(tslab_profile_interval) tslab_profile_interval __attribute__((weak));
extern __typeof__(tslab_stats_json) tslab_stats_json __attribute__((weak));

enum { SMALL, MEDIUM, BURST, PAIR, LARGE, REMOTE, GROWN, ZEROED, ALIGNED, IN_EPOCH, SITES };
enum { THREADS = 3, SLOTS = 3000, TURNS = 60000 };

struct truth {
  double blocks, bytes, variance;
};

struct block {
  void *at;
  size_t size;
  double usable, weight;
  int site;
};

/* Written by one thread each. */
static struct thread {
  struct truth allocated[SITES], freed[SITES];
  struct block slots[SLOTS], growing[8];
  uint64_t random;
  unsigned turn;
} threads[THREADS + 1];

static size_t first_interval;
static _Atomic double interval; /* that was set last */
static bool changes, forks;
static __thread struct thread *here;

static uint64_t next(void) {
  uint64_t x = here->random;
  x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
  return (here->random = x) * 2685821657736338717u >> 20;
}

static void count(struct truth *to, const struct block *b) {
  to->blocks += 1;
  to->bytes += (double)b->size;
  to->variance += (b->weight - 1) * (double)b->size * (double)b->size;
}

/* Returns the interval that holds for a block, in the mean, or more. A size class takes the one of its last visit of a
 * slow path, and a sample is a visit, so long intervals hold for longer. If only samples were visits, each would hold
 * for a share of the bytes that is in proportion to it. Large blocks are drawn one by one, an epoch begins with a draw,
 * and a burst has many visits. */
static double interval_of(int site, size_t size) {
  bool is_late = changes && size <= 32768 && site != IN_EPOCH && site != BURST;
  return is_late ? (double)first_interval * (1 / 16.0 + 1 + 16) / (1 / 4.0 + 1 + 4) : interval;
}

static struct block taken(int site, void *at, size_t size) {
  double usable = size > 32768 ? (double)size : (double)malloc_usable_size(at);
  struct block b = {at, size, usable, 1 / (1 - exp(-usable / interval_of(site, size))), site};
  if (!at) abort();
  *(volatile char *)at = 1;
  count(&here->allocated[site], &b);
  return b;
}

static void give(struct block *b) {
  if (!b->at) return;
  count(&here->freed[b->site], b);
  free(b->at);
  b->at = NULL;
}

/* ---- call sites: the barrier keeps each call from being the function's last, which would be a jump --------------- */

#define SITE __attribute__((noinline, aligned(1024)))
#define BARRIER(p) __asm__ volatile("" : "+r"(p))

SITE static void *take_small(size_t size) { void *p = malloc(size); BARRIER(p); return p; }
SITE static void *take_medium(size_t size) { void *p = malloc(size); BARRIER(p); return p; }
SITE static void *take_burst(size_t size) { void *p = malloc(size); BARRIER(p); return p; }
SITE static void *take_pair(size_t size) { void *p = malloc(size); BARRIER(p); return p; }
SITE static void *take_large(size_t size) { void *p = malloc(size); BARRIER(p); return p; }
SITE static void *take_remote(size_t size) { void *p = malloc(size); BARRIER(p); return p; }
SITE static void *take_grown(void *old, size_t size) { void *p = realloc(old, size); BARRIER(p); return p; }
SITE static void *take_zeroed(size_t size) { void *p = calloc(1, size); BARRIER(p); return p; }
SITE static void *take_aligned(size_t size) { void *p = aligned_alloc(64, size); BARRIER(p); return p; }
SITE static void *take_in_epoch(size_t size) { void *p = malloc(size); BARRIER(p); return p; }

static const struct {
  const char *name;
  const void *at;
} sites[SITES] = {
    {"take_small", take_small},   {"take_medium", take_medium}, {"take_burst", take_burst},
    {"take_pair", take_pair},     {"take_large", take_large},   {"take_remote", take_remote},
    {"take_grown", take_grown},   {"take_zeroed", take_zeroed}, {"take_aligned", take_aligned},
    {"take_in_epoch", take_in_epoch},
};

/* ---- what threads do --------------------------------------------------------------------------------------------- */

static struct {
  pthread_mutex_t lock;
  struct block blocks[1024];
  unsigned count;
} handed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hand_over(void) {
  struct block mine[64];
  unsigned count = 0;
  pthread_mutex_lock(&handed.lock);
  for (; count < 64 && handed.count > 512; count++) mine[count] = handed.blocks[--handed.count];
  pthread_mutex_unlock(&handed.lock);
  for (unsigned i = 0; i < count; i++) give(&mine[i]);
  for (count = 0; count < 48; count++) mine[count] = taken(REMOTE, take_remote(256), 256);
  pthread_mutex_lock(&handed.lock);
  for (; count > 0 && handed.count < 1024; count--) handed.blocks[handed.count++] = mine[count - 1];
  pthread_mutex_unlock(&handed.lock);
  while (count > 0) give(&mine[--count]);
}

static void burst(void) {
  struct block blocks[200];
  for (unsigned i = 0; i < 200; i++) blocks[i] = taken(BURST, take_burst(4000), 4000);
  for (unsigned i = 0; i < 200; i++)
    if (next() % 100 != 0) give(&blocks[i]);
}

/* To twice what the block could hold, so that no block serves as it is and keeps the size that it was asked for. */
static void grow(struct block *b) {
  size_t size = b->at ? (size_t)b->usable * 2 : 16 + next() % 64;
  if (size > 300000) {
    give(b);
    return;
  }
  struct block old = *b;
  void *at = take_grown(b->at, size);
  if (old.at) count(&here->freed[GROWN], &old);
  *b = taken(GROWN, at, size);
}

static void request(void) {
  tslab_epoch e = tslab_epoch_open("request");
  tslab_epoch_enter(e);
  struct block blocks[300];
  for (unsigned i = 0; i < 300; i++) {
    size_t size = 16 + next() % 300;
    blocks[i] = taken(IN_EPOCH, take_in_epoch(size), size);
  }
  tslab_epoch_leave(e);
  bool leaks = next() % 20 == 0;
  for (unsigned i = 0; i < 300; i++)
    if (!leaks || i % 3 != 0) give(&blocks[i]);
  tslab_epoch_close(e, NULL);
}

static void turn(void) {
  struct block *b = &here->slots[next() % SLOTS];
  unsigned what = (unsigned)(next() % 16);
  if (b->at) {
    give(b);
  } else if (what < 6) {
    *b = taken(SMALL, take_small(48), 48);
  } else if (what < 10) {
    size_t size = 600 + next() % 800;
    *b = taken(MEDIUM, take_medium(size), size);
  } else if (what == 10) {
    size_t size = 40000 + next() % 400000;
    *b = taken(LARGE, take_large(size), size);
  } else if (what == 11) {
    size_t size = 100 + next() % 3000;
    *b = taken(ZEROED, take_zeroed(size), size);
  } else if (what == 12) {
    size_t size = 64 * (1 + next() % 20);
    *b = taken(ALIGNED, take_aligned(size), size);
  } else {
    struct block pair = taken(PAIR, take_pair(128), 128);
    give(&pair);
  }
}

static void change(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  size_t to = first_interval / 4 << next() % 3 * 2;
  pthread_mutex_lock(&lock);
  if (tslab_profile_interval(to, NULL) != 0) abort();
  interval = (double)to;
  pthread_mutex_unlock(&lock);
}

static void *run(void *argument);

static pthread_t thread[THREADS];
static void begin_threads(void) {
  for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, run, &threads[i]);
}

/* All threads meet. The main thread forks, and only its child goes on. */
static pthread_barrier_t meeting;
static void part(void) {
  pthread_barrier_wait(&meeting);
  while (here != &threads[THREADS]) pause();
  pid_t child = fork();
  int status = 1;
  if (child != 0) {
    waitpid(child, &status, 0);
    _exit(status != 0);
  }
  forks = false;
  begin_threads();
}

static void *run(void *argument) {
  here = argument;
  for (; here->turn < TURNS; here->turn++) {
    unsigned i = here->turn;
    if (forks && i == TURNS / 2) part();
    if (changes && i % 128 == 0) change();
    turn();
    if (i % 16 == 0) grow(&here->growing[next() % 8]);
    if (i % 256 == 0) hand_over();
    if (i % 1024 == 0) burst();
    if (i % 128 == 0) request();
  }
  return NULL;
}

static void tell(int site) {
  struct truth all = {0}, live = {0};
  for (int i = 0; i <= THREADS; i++) {
    const struct truth *a = &threads[i].allocated[site], *f = &threads[i].freed[site];
    all.blocks += a->blocks, all.bytes += a->bytes, all.variance += a->variance;
    live.blocks += a->blocks - f->blocks, live.bytes += a->bytes - f->bytes, live.variance += a->variance - f->variance;
  }
  printf("%s{\"name\":\"%s\",\"address\":%ju,\"allocated_bytes\":%.0f,\"allocated_variance\":%.0f,"
         "\"live_blocks\":%.0f,\"live_bytes\":%.0f,\"live_variance\":%.0f}",
         site ? "," : "", sites[site].name, (uintmax_t)(uintptr_t)sites[site].at, all.bytes, all.variance, live.blocks,
         live.bytes, live.variance);
}

static int write_piece(const char *piece, size_t length, void *to) { return fwrite(piece, 1, length, to) != length; }

int main(int count, char **arguments) {
  if (count != 3 && count != 4) return 2;
  first_interval = strtoull(arguments[1], NULL, 10);
  interval = (double)first_interval;
  changes = count == 4 && strcmp(arguments[3], "changes") == 0;
  forks = count == 4 && strcmp(arguments[3], "forks") == 0;
  uint64_t seed = strtoull(arguments[2], NULL, 10) * 1000003;
  for (int i = 0; i <= THREADS; i++) threads[i].random = seed + (uint64_t)i * 7919 + 1;
  pthread_barrier_init(&meeting, NULL, THREADS + 1);
  begin_threads();
  run(&threads[THREADS]);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  printf("[");
  for (int i = 0; i < SITES; i++) tell(i);
  printf("]\n");
  if (tslab_stats_json) tslab_stats_json(write_piece, stdout);
  fflush(stdout);
  if (getenv("PROFILED_WAITS")) getchar();
  return 0;
}
