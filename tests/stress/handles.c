/* handles: 8 threads allocate, get and free by handle, against ground truth.
 *
 *   shared   a board of handles that any thread may free at any time, several at once: exactly one call succeeds
 *   own      what only this thread frees: the block is returned until then, with its content, and never after
 *   doomed   the same, of epochs that their threads destroy, reset and close meanwhile: at most one succeeds
 *   reuse    one slot over and over: no value comes twice
 *   forged   random values, neighbours and flipped bits of live and of freed handles: refused
 * A failure names the thread, the handle, the block and the epoch.                                   handles [long] */
#include "shadow.h"

#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, BOARD = 2048, OWN = 512, STALE = 1024, MOST = 600 };

struct owned {
  tslab_handle handle;
  unsigned char *block;
  size_t usable;
  tslab_epoch epoch;
};

/* A cell of the board. `handle` is set to 0 by whoever freed it: two who did so cannot both succeed in that. */
struct shared {
  _Atomic tslab_handle handle;
  _Atomic(void *) block;
};
static struct shared board[BOARD];
static struct shared doomed[BOARD];

/* A few stale values of each thread, for all to try. */
static _Atomic tslab_handle stale[STALE];

static struct worker {
  pthread_t thread;
  unsigned index;
  uint64_t random, steps;
  tslab_epoch own_epoch; /* destroyable, this thread's alone */
  struct owned own[OWN];
  uint64_t issued, freed, lost, refused, got; /* lost: with their epoch */
} workers[THREADS + 1];

static tslab_epoch session; /* open all the time */

__attribute__((noreturn)) static void fail(int line, const struct worker *w, tslab_handle handle, const void *block,
                                           tslab_epoch epoch, const char *condition, const char *expected) {
  dprintf(2,
          "%s:%d: does not hold: %s (errno %d)\n  expected: %s\n  thread %u (its epoch %#llx), handle %#llx, block %p, "
          "epoch %#llx; get says %p\n",
          __FILE__, line, condition, errno, expected, w->index, (unsigned long long)w->own_epoch,
          (unsigned long long)handle, block, (unsigned long long)epoch, tslab_handle_get(handle));
  _exit(1);
}

#define EXPECT(w, handle, block, epoch, condition, expected)                                                           \
  do {                                                                                                                 \
    if (!(condition)) fail(__LINE__, w, handle, block, epoch, #condition, expected);                                   \
  } while (0)

static uint64_t draw(struct worker *w, uint64_t bound) { return check_random(&w->random) % bound; }

static tslab_epoch new_epoch(void) {
  const tslab_epoch_options options = {
      .struct_size = sizeof options, .label = "handles", .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch epoch = tslab_epoch_open_with(&options);
  CHECK(epoch != 0);
  return epoch;
}

static void *allocate(struct worker *w, tslab_epoch epoch, size_t size, tslab_handle *handle) {
  void *block = NULL;
  *handle = tslab_handle_alloc(epoch, size, &block);
  EXPECT(w, *handle, block, epoch, *handle != 0 && block != NULL, "a handle and its block");
  EXPECT(w, *handle, block, epoch, (uintptr_t)block % 16 == 0 && tslab_malloc_usable_size(block) >= size, "a block");
  EXPECT(w, *handle, block, epoch, tslab_epoch_of(block) == epoch, "a block of that epoch");
  w->issued++;
  return block;
}

static void remember_stale(struct worker *w, tslab_handle handle) {
  atomic_store_explicit(&stale[draw(w, STALE)], handle, memory_order_relaxed);
}

static void check_stale(struct worker *w, tslab_handle handle, tslab_epoch epoch) {
  EXPECT(w, handle, NULL, epoch, tslab_handle_get(handle) == NULL, "NULL: the handle is stale");
  EXPECT(w, handle, NULL, epoch, !tslab_handle_free(handle), "false: the handle is stale");
  w->refused++;
}

/* ---- own --------------------------------------------------------------------------------------------------------- */

static uint64_t canary(tslab_handle handle, size_t word) { return handle * UINT64_C(0x9E3779B97F4A7C15) + word; }

static void check_own(struct worker *w, const struct owned *o) {
  EXPECT(w, o->handle, o->block, o->epoch, tslab_handle_get(o->handle) == o->block, "the live block");
  for (size_t i = 0; i < o->usable / 8; i++)
    EXPECT(w, o->handle, o->block, o->epoch, ((uint64_t *)(void *)o->block)[i] == canary(o->handle, i), "its content");
  w->got++;
}

/* Returns the shadow's name of an epoch. */
static uint64_t tag(tslab_epoch epoch) { return epoch * UINT64_C(0x9E3779B97F4A7C15) >> 20; }

static void take_own(struct worker *w, struct owned *o) {
  const uint64_t where = draw(w, 4);
  const size_t size = draw(w, 64) ? draw(w, MOST) : draw(w, 50000);
  o->epoch = where == 0 ? 0 : where == 1 ? session : w->own_epoch;
  o->block = allocate(w, o->epoch, size, &o->handle);
  o->usable = tslab_malloc_usable_size(o->block);
  EXPECT(w, o->handle, o->block, o->epoch, shadow_claim_in(o->block, o->usable, tag(o->epoch)),
         "nobody else's memory, granules of no other epoch");
  for (size_t i = 0; i < o->usable / 8; i++) ((uint64_t *)(void *)o->block)[i] = canary(o->handle, i);
}

static void disclaim(struct worker *w, const struct owned *o) {
  EXPECT(w, o->handle, o->block, o->epoch, shadow_release_in(o->block, o->usable, tag(o->epoch)), "its shadow");
}

static void free_own(struct worker *w, struct owned *o) {
  check_own(w, o);
  disclaim(w, o);
  EXPECT(w, o->handle, o->block, o->epoch, tslab_handle_free(o->handle), "true: the handle is live");
  w->freed++;
  check_stale(w, o->handle, o->epoch);
  remember_stale(w, o->handle);
  o->handle = 0;
}

/* ---- shared by all ----------------------------------------------------------------------------------------------- */

/* Checks that a stale handle was freed. The thread that freed it is about to take it off the board. */
static void check_gone(struct worker *w, struct shared *cell, tslab_handle handle) {
  for (unsigned i = 0; atomic_load_explicit(&cell->handle, memory_order_relaxed) == handle; i++) {
    EXPECT(w, handle, cell->block, 0, i < 1 << 22,
           "a live handle: no free of it and no end of its epoch has succeeded");
    sched_yield();
  }
}

/* Frees what the cell holds, as others do at this moment. That both of two succeeded shows here, or, when the handle's
 * epoch ended meanwhile, in the sums at the end. */
static void free_shared(struct worker *w, struct shared *cell, bool is_doomed) {
  const tslab_handle handle = atomic_load_explicit(&cell->handle, memory_order_acquire);
  tslab_handle expected = handle;
  if (handle == 0) return;
  if (!tslab_handle_free(handle)) {
    check_gone(w, cell, handle);
    return;
  }
  w->freed++;
  const bool first =
      atomic_compare_exchange_strong_explicit(&cell->handle, &expected, 0, memory_order_relaxed, memory_order_relaxed);
  EXPECT(w, handle, NULL, 0, first || is_doomed, "one success: another thread has freed this handle too");
  check_stale(w, handle, 0);
  remember_stale(w, handle);
}

/* A block that may be freed at any moment: only its address can be compared. A cell's block changes only while its
 * handle is 0, so both fit when the handle has stayed. */
static void get_shared(struct worker *w, struct shared *cell) {
  const tslab_handle handle = atomic_load_explicit(&cell->handle, memory_order_acquire);
  void *const block = atomic_load_explicit(&cell->block, memory_order_acquire);
  if (handle == 0 || handle != atomic_load_explicit(&cell->handle, memory_order_relaxed)) return;
  void *const got = tslab_handle_get(handle);
  EXPECT(w, handle, block, 0, got == block || got == NULL, "this block or NULL");
  if (!got) check_gone(w, cell, handle);
  w->got++;
}

/* Fills a cell of the board. Each thread fills its own cells. */
static void share(struct worker *w, struct shared *cells, tslab_epoch epoch) {
  struct shared *const cell = &cells[draw(w, BOARD / THREADS) * THREADS + w->index];
  const size_t size = 1 + draw(w, MOST);
  tslab_handle handle;
  if (atomic_load_explicit(&cell->handle, memory_order_relaxed) != 0) return;
  void *const block = allocate(w, epoch, size, &handle);
  memset(block, 0x5a, size);
  atomic_store_explicit(&cell->block, block, memory_order_relaxed);
  atomic_store_explicit(&cell->handle, handle, memory_order_release);
}

/* ---- epochs that end --------------------------------------------------------------------------------------------- */

/* This thread's epoch ends with all that it holds, while others free what is on the board of the doomed. */
static void end_epoch(struct worker *w) {
  const tslab_epoch old = w->own_epoch;
  const uint64_t how = draw(w, 3); /* 0 destroy, 1 reset, 2 close */
  tslab_epoch_report r = {0};
  uint64_t own = 0, most = 0;
  if (how != 2)
    for (unsigned i = 0; i < OWN; i++)
      if (w->own[i].handle && w->own[i].epoch == old) {
        check_own(w, &w->own[i]);
        disclaim(w, &w->own[i]);
        own++;
      }
  for (unsigned i = w->index; i < BOARD; i += THREADS) most += atomic_load(&doomed[i].handle) != 0;
  const int rc = how == 0   ? tslab_epoch_destroy(old, &r)
                 : how == 1 ? tslab_epoch_reset(old, &r)
                            : tslab_epoch_close(old, &r);
  EXPECT(w, 0, NULL, old, rc == 0, how == 0 ? "destroy: 0" : how == 1 ? "reset: 0" : "close: 0");
  if (how != 1) w->own_epoch = new_epoch();
  if (how == 2) { /* the blocks stay valid until they are freed */
    for (unsigned i = 0; i < OWN; i++)
      if (w->own[i].handle && w->own[i].epoch == old) free_own(w, &w->own[i]);
    for (unsigned i = w->index; i < BOARD; i += THREADS) {
      free_shared(w, &doomed[i], true);
    }
    tslab_epoch_status s;
    EXPECT(w, 0, NULL, old, tslab_epoch_info(old, &s) == ESTALE, "ESTALE: closed, and the last block is freed");
    return;
  }
  if (r.live_blocks < own || r.live_blocks > own + most)
    dprintf(2, "%s: %llu live blocks; %llu that nobody else frees, and at most %llu that others free now\n",
            how == 0 ? "destroy" : "reset", (unsigned long long)r.live_blocks, (unsigned long long)own,
            (unsigned long long)most);
  EXPECT(w, 0, NULL, old, r.live_blocks >= own && r.live_blocks <= own + most, "a report of the blocks that were live");
  for (unsigned i = 0; i < OWN; i++)
    if (w->own[i].handle && w->own[i].epoch == old) {
      check_stale(w, w->own[i].handle, old);
      remember_stale(w, w->own[i].handle);
      w->own[i].handle = 0;
    }
  for (unsigned i = w->index; i < BOARD; i += THREADS) {
    const tslab_handle handle = atomic_load(&doomed[i].handle);
    if (handle) check_stale(w, handle, old);
  }
  w->lost += r.live_blocks;
  for (unsigned i = w->index; i < BOARD; i += THREADS) atomic_store(&doomed[i].handle, 0);
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void step(struct worker *w) {
  const uint64_t what = draw(w, 10000);
  struct owned *const o = &w->own[draw(w, OWN)];
  struct shared *const cell = &board[draw(w, BOARD)], *const doom = &doomed[draw(w, BOARD)];
  if (what < 2500) {
    if (!o->handle) take_own(w, o);
    else if (what < 1200) free_own(w, o);
    else check_own(w, o);
  } else if (what < 4500) {
    share(w, board, draw(w, 2) ? 0 : session);
  } else if (what < 6500) free_shared(w, cell, false);
  else if (what < 7500) get_shared(w, cell);
  else if (what < 8200) share(w, doomed, w->own_epoch);
  else if (what < 8600) free_shared(w, doom, true);
  else if (what < 8990) get_shared(w, doom);
  else if (what < 9990) {
    const tslab_handle handle = atomic_load_explicit(&stale[draw(w, STALE)], memory_order_relaxed);
    if (handle) check_stale(w, handle, 0);
  } else end_epoch(w);
}

static void *work(void *argument) {
  struct worker *const w = argument;
  for (uint64_t i = 0; i < w->steps; i++) step(w);
  return NULL;
}

/* One slot over and over: no value comes twice, whatever its generation does. */
static void reuse(struct worker *w, uint64_t times) {
  tslab_handle first, handle, before = 0;
  allocate(w, session, 40, &first);
  EXPECT(w, first, NULL, session, tslab_handle_free(first), "true: the handle is live");
  for (uint64_t i = 0; i < times; i++) {
    allocate(w, session, 40, &handle);
    EXPECT(w, handle, NULL, session, handle != first && handle != before, "a new value");
    if (i % 64 == 0) {
      check_stale(w, first, session);
      if (before) check_stale(w, before, session);
    }
    EXPECT(w, handle, NULL, session, tslab_handle_free(handle), "true: the handle is live");
    before = handle;
  }
  w->freed += times + 1;
}

/* ---- forged values ----------------------------------------------------------------------------------------------- */

enum { FORGED_LIVE = 20000, SET = 1 << 17 };
static struct owned set[SET]; /* the handles that are live now */

static struct owned *find(tslab_handle handle) {
  struct owned *o = &set[handle * UINT64_C(0x9E3779B97F4A7C15) >> 47];
  while (o->handle && o->handle != handle) o = o == set + SET - 1 ? set : o + 1;
  return o;
}

static tslab_handle forge(struct worker *w, const tslab_handle *live, const tslab_handle *freed) {
  const tslab_handle a = (draw(w, 2) ? live : freed)[draw(w, FORGED_LIVE)];
  const tslab_handle b = (draw(w, 2) ? live : freed)[draw(w, FORGED_LIVE)];
  const uint64_t low = (UINT64_C(1) << (1 + draw(w, 63))) - 1;
  switch (draw(w, 8)) {
  case 0: return check_random(&w->random);
  case 1: return check_random(&w->random) >> draw(w, 64);
  case 2: return a + 1 + draw(w, 2);
  case 3: return a - 1 - draw(w, 2);
  case 4: return a ^ UINT64_C(1) << draw(w, 64);
  case 5: return a ^ UINT64_C(1) << draw(w, 64) ^ UINT64_C(1) << draw(w, 64);
  case 6: return (a & low) | (b & ~low); /* the slot of one, the generation of another */
  default: return a + (low + 1);
  }
}

static void forged(struct worker *w) {
  static tslab_handle live[FORGED_LIVE], freed[FORGED_LIVE];
  uint64_t met = 0;
  for (unsigned i = 0; i < FORGED_LIVE; i++) {
    struct owned o;
    take_own(w, &o);
    freed[i] = o.handle;
    free_own(w, &o);
    take_own(w, &o);
    live[i] = o.handle;
    EXPECT(w, o.handle, o.block, o.epoch, find(o.handle)->handle == 0, "a value that no live handle has");
    *find(o.handle) = o;
  }
  for (unsigned i = 0; i < BOARD; i++)
    for (int kind = 0; kind < 2; kind++) {
      const struct shared *const cell = kind ? &doomed[i] : &board[i];
      if (cell->handle) *find(cell->handle) = (struct owned){cell->handle, cell->block, 0, 0};
    }
  for (unsigned i = 0; i < THREADS; i++)
    for (unsigned j = 0; j < OWN; j++)
      if (workers[i].own[j].handle) *find(workers[i].own[j].handle) = workers[i].own[j];
  for (unsigned i = 0; i < 1000000; i++) {
    const tslab_handle handle = forge(w, live, freed);
    const struct owned *const o = find(handle);
    if (handle != 0 && o->handle == handle) {
      EXPECT(w, handle, o->block, o->epoch, tslab_handle_get(handle) == o->block,
             "this block: the value met a live handle");
      met++;
    } else check_stale(w, handle, 0);
  }
  printf("1000000 forged values, of which %llu met a live handle\n", (unsigned long long)met);
  for (unsigned i = 0; i < FORGED_LIVE; i++) {
    struct owned o = *find(live[i]);
    free_own(w, &o);
  }
}

static int count_visits(const tslab_epoch_status *s, void *argument) {
  dprintf(2, "still there: epoch %#llx, %llu live blocks\n", (unsigned long long)s->epoch,
          (unsigned long long)s->live_blocks);
  ++*(unsigned *)argument;
  return 0;
}

int main(int argc, char **argv) {
  const bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
  const uint64_t steps = is_long ? 100000000 : 2000000 / TEST_SCALE;
  struct worker *const last = &workers[THREADS];
  tslab_stats_global before, after;
  uint64_t issued = 0, freed = 0, lost = 0, refused = 0, got = 0;
  unsigned visits = 0;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  CHECK((session = tslab_epoch_open("session")) != 0);
  for (unsigned i = 0; i <= THREADS; i++) {
    workers[i] = (struct worker){.index = i, .random = i + 1, .steps = steps / THREADS};
    workers[i].own_epoch = new_epoch();
  }
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(workers[i].thread, NULL) == 0);
  reuse(last, is_long ? 40000000 : 400000 / TEST_SCALE);
  forged(last);

  for (unsigned i = 0; i < THREADS; i++)
    for (unsigned j = 0; j < OWN; j++)
      if (workers[i].own[j].handle) free_own(&workers[i], &workers[i].own[j]);
  for (unsigned i = 0; i < BOARD; i++) {
    free_shared(last, &board[i], false);
    free_shared(last, &doomed[i], true);
  }
  for (unsigned i = 0; i <= THREADS; i++) {
    CHECK(tslab_epoch_close(workers[i].own_epoch, NULL) == 0);
    issued += workers[i].issued;
    freed += workers[i].freed;
    lost += workers[i].lost;
    refused += workers[i].refused;
    got += workers[i].got;
  }
  CHECK(tslab_epoch_close(session, NULL) == 0);
  printf("%llu handles, %llu freed, %llu ended with their epoch, %llu stale ones refused, %llu blocks asked for\n",
         (unsigned long long)issued, (unsigned long long)freed, (unsigned long long)lost, (unsigned long long)refused,
         (unsigned long long)got);
  CHECK_COUNT(freed + lost, ==, issued); /* each exactly once */
  CHECK(lost > 0 && refused > 0 && got > 0);
  CHECK(tslab_epoch_each(count_visits, &visits) == 0);
  CHECK_COUNT(visits, ==, 0);
  tslab_purge();
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.live_blocks, ==, before.live_blocks);
  CHECK_COUNT(after.live_bytes, ==, before.live_bytes);
  /* Memory for handles grows with those that are live at a time, not with all that ever were. */
  CHECK_COUNT(after.in_use_bytes, <=, before.in_use_bytes + (8 << 20));
  return 0;
}
