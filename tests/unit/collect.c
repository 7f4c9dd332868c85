/* collect: no statistic is a constant. After all events of the test, every counter and gauge of every table must have
 * shown two values, in one row if rows keep their places, and calls must have taken every path. One list names the
 * statistics that the test cannot change, with the reasons. */
#include "unit.h"

#include "base/options.h"
#include "epoch/epoch.h"
#include "heap/bins.h"
#include "heap/fast.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "heap/registry.h"
#include "heap/sampled.h"
#include "heap/timing.h"
#include "stats/tables.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { BLOCKS = 4000, FIELDS_MOST = 64, TRIES = 4000 };

static const struct excuse {
  const char *table, *field, *why;
  enum { ANYWHERE, WITHOUT_REFUSALS, EMULATED, HARDENED } where;
} excuses[] = {
    {"process", "huge_moved_bytes", "takes seconds of a heap of 32 MiB: see huge.c", ANYWHERE},
    {"process", "reserved_bytes", "one reservation of address space lasts a process of this size", ANYWHERE},
    {"class", "object_size", "says which class the row is of", ANYWHERE},
    {"process", "purge_failures", "a sanitizer's runtime needs what the filter forbids", WITHOUT_REFUSALS},
    {"thread", "repair_reason_purge", "nor a limit on what it may map", WITHOUT_REFUSALS},
    {"process", "frozen_bytes", "an emulator says that it will wipe a word in children, and does not", EMULATED},
    {"profile", "interval_bytes", "the setting of a process", ANYWHERE},
    {"profile", "automatic", "the setting of a process: see pace.c", ANYWHERE},
    {"profile", "began_ns", "a profile begins once in a process", ANYWHERE},
    {"profile", "lost", "takes 32,768 live samples: see profile.c", ANYWHERE},
    {"profile", "stackless", "takes a full table of stacks: see tests/stress/profile_stacks.c", ANYWHERE},
    {"process", "large_cached_bytes", "there a large block has a guard of its own, and is not kept", HARDENED},
    {"class", "from_magazine", "there freed blocks wait in quarantine, and few come to a magazine", HARDENED},
};

/* Statistics that had two values. Fork children, which cause some of the events, share this table. */
static struct {
  bool field[TABLES][FIELDS_MOST];
  bool path[PATHS];
} *moved;

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static struct {
  char *first, *now; /* rows: as first seen, and now */
  size_t seen;       /* the number of entries of `first` */
} rows[TABLES];

static bool rows_keep_their_places(enum table table) {
  return table != TABLE_THREAD && table != TABLE_EPOCH && table != TABLE_SAMPLE && table != TABLE_SITE &&
         table != TABLE_HOLDER && table != TABLE_LIFESPAN && table != TABLE_SPREAD;
}

static void compare(enum table which, const char *row, const char *with) {
  for (size_t i = 0; i < tables[which].count; i++) {
    const struct statistic *const f = &tables[which].fields[i];
    if (f->kind != TEXT && memcmp(row + f->offset, with + f->offset, f->count * sizeof(uint64_t)) != 0)
      moved->field[which][i] = true;
  }
}

static void look_at(enum table which) {
  const size_t bytes = tables[which].row_bytes, count = tables[which].collect(rows[which].now, tables[which].most);
  if (which == TABLE_PROCESS) CHECK(tslab_stats((void *)rows[which].now, bytes) == 0); /* rows of this test alone */
  for (size_t i = 0; i < count; i++) {
    char *const now = rows[which].now + i * bytes, *const first = rows[which].first + i * bytes;
    if (!rows_keep_their_places(which)) {
      if (rows[which].seen++ == 0) memcpy(rows[which].first, now, bytes);
      compare(which, now, rows[which].first);
    } else if (i >= rows[which].seen) {
      memcpy(first, now, bytes);
      rows[which].seen = i + 1;
    } else {
      compare(which, now, first);
    }
  }
}

static void look(void) {
  for (enum table i = 0; i < TABLES; i++) look_at(i);
  const tslab_path_stats *const paths = (const void *)rows[TABLE_PATH].now;
  for (enum path path = 0; path < PATHS; path++) moved->path[path] |= paths[path].entries != 0;
}

static void begin_looking(void) {
  moved = mmap(NULL, sizeof *moved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(moved != MAP_FAILED);
  for (enum table i = 0; i < TABLES; i++) {
    CHECK_COUNT(tables[i].count, <=, FIELDS_MOST);
    rows[i].first = calloc(tables[i].most, tables[i].row_bytes);
    rows[i].now = calloc(tables[i].most, tables[i].row_bytes);
    CHECK(rows[i].first && rows[i].now);
  }
  look();
}

static bool has_moved(enum table which, const char *field) {
  for (size_t i = 0; i < tables[which].count; i++)
    if (strcmp(tables[which].fields[i].name, field) == 0) return moved->field[which][i];
  dprintf(2, "no field \"%s\"\n", field);
  _exit(1);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void *blocks[BLOCKS];
static size_t block_size;

static void fill(unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) {
    if (blocks[i]) continue;
    CHECK((blocks[i] = tslab_malloc(block_size)) != NULL);
    *(char *)blocks[i] = 1;
  }
}

static void drain(unsigned from, unsigned to, unsigned step) {
  for (unsigned i = from; i < to; i += step) {
    tslab_free(blocks[i]);
    blocks[i] = NULL;
  }
}

static void *fill_all(void *unused) { return fill(0, BLOCKS), unused; }
static void *drain_all(void *unused) { return drain(0, BLOCKS, 1), unused; }
static void *drain_every_second(void *unused) { return drain(0, BLOCKS, 2), unused; }

static void in_thread(void *(*body)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void classes_and_large(void) {
  static const size_t sizes[] = {16, 100, 100, 1000, 5000, 30000, 100000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    block_size = sizes[i];
    const unsigned count = block_size > SMALL_MAX ? 20 : BLOCKS;
    fill(0, count);
    look();
    drain(0, count, 2);
    fill(0, count);
    drain(0, count, 1);
    look();
  }
}

static void given_back(void) {
  CHECK(tslab_purge() > 0);
  look();
  block_size = 100;
  fill(0, BLOCKS);
  drain(0, BLOCKS - 10, 1);
  tslab_purge(); /* pages between blocks in use, which are touched again */
  look();
  fill(0, BLOCKS - 10);
  drain(0, BLOCKS, 1);
  look();
}

/* Other threads' frees, and the blocks that these threads leave when they end. */
static void between_threads(void) {
  for (block_size = 200; block_size < 600; block_size += 100) {
    fill(0, BLOCKS);
    in_thread(drain_all);
    fill(0, BLOCKS);
    drain(0, BLOCKS, 1);
    tslab_purge();
    in_thread(fill_all);
    in_thread(drain_every_second);
    tslab_purge(); /* the dead thread's list goes to its slabs */
    look();
    fill(0, BLOCKS); /* out of the slabs that the dead thread left, among others */
    drain(0, BLOCKS, 1);
    look();
  }
}

/* Blocks that travel from the thread that allocates to two threads that free. */
static _Atomic(void *) handed[16];
static _Atomic bool over;

static void *free_what_comes(void *argument) {
  for (unsigned i = (unsigned)(uintptr_t)argument; !atomic_load_explicit(&over, memory_order_relaxed); i++)
    tslab_free(atomic_exchange_explicit(&handed[i % 16], NULL, memory_order_acq_rel));
  return NULL;
}

static bool cas_failed(void) {
  return has_moved(TABLE_CLASS, "slab_take_cas_retries") && has_moved(TABLE_CLASS, "slab_push_cas_retries") &&
         has_moved(TABLE_LABEL, "slab_take_cas_retries") && has_moved(TABLE_LABEL, "slab_push_cas_retries");
}

/* One thread takes from slabs what two others push to them, block by block: so large that no list or batch keeps any. A
   thread that loses a race tries its CAS again; chance decides when, so the threads go on until one did. */
static void cas_that_fail(void) {
  pthread_t threads[2];
  const tslab_epoch e = tslab_epoch_open("contended");
  for (uintptr_t i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, free_what_comes, (void *)(i * 8)) == 0);
  for (int try = 0; try < TRIES && !cas_failed(); try++) {
    CHECK(tslab_epoch_enter(try % 2 ? e : 0) == 0);
    for (unsigned i = 0; i < 16000; i++) {
      void *const block = tslab_malloc(28000);
      CHECK(block != NULL);
      tslab_free(atomic_exchange_explicit(&handed[i % 16], block, memory_order_acq_rel));
    }
    CHECK(tslab_epoch_leave(try % 2 ? e : 0) == 0);
    look();
  }
  atomic_store(&over, true);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < 16; i++) tslab_free(handed[i]);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  look();
}

/* Another thread holds the lock of the heap that a thread is about to need. */
static struct heap *held;
static _Atomic bool is_held;

static void *hold(void *unused) {
  lock_take(&held->lock);
  atomic_store(&is_held, true);
  usleep(20000);
  lock_release(&held->lock);
  return unused;
}

static void wait_for_lock(void) {
  pthread_t thread;
  block_size = 17000; /* a list keeps few of these, so that one of the next calls needs a slab, and so the lock */
  fill(0, 40);
  in_thread(drain_all); /* the refill repairs the slabs with the blocks that came back to them */
  held = current_heap;
  atomic_store(&is_held, false);
  CHECK(pthread_create(&thread, NULL, hold, NULL) == 0);
  while (!atomic_load(&is_held)) usleep(1000);
  fill(0, 40);
  CHECK(pthread_join(thread, NULL) == 0);
  drain(0, 40, 1);
  look();
}

/* The statistic moves only if the waiting call is a sample and comes while the lock is held. */
static bool waits_moved(void) {
  return has_moved(TABLE_LABEL, "lock_contended") && has_moved(TABLE_LABEL, "wait_ns_sum") &&
         has_moved(TABLE_THREAD, "repair_wait_ns_sum") && has_moved(TABLE_THREAD, "repair_wait_ns_max");
}

static void locks(void) {
  wait_for_lock();
  for (int try = 0; try < TRIES && !waits_moved(); try++) {
    const tslab_epoch e = tslab_epoch_open("waits");
    CHECK(tslab_epoch_enter(e) == 0);
    wait_for_lock();
    CHECK(tslab_epoch_leave(e) == 0 && tslab_epoch_close(e, NULL) == 0);
  }
}

enum { EXTRA = 4000 };

/* A heap with a slab in the pool, as a thread leaves one before the scavenger visits it. */
static void leave_a_heap(unsigned class) {
  struct heap *const dying = heap_acquire();
  lock_take(&dying->lock);
  const struct chain chain = bins_take(dying, class, 1);
  lock_release(&dying->lock);
  bins_return(&dying->lock, chain);
  options.scavenger = 1;
  heap_release(dying);
  options.scavenger = 0;
}

/* A try to adopt fails while another thread has the lock of the part of the thread that died last. */
static void adopt_in_vain(void) {
  static void *extra[EXTRA];
  pthread_t thread;
  unsigned count = 0;
  block_size = 700;
  in_thread(fill_all);
  in_thread(drain_every_second);
  drain(1, BLOCKS, 2);
  while (LOAD_RACING(common_heap.bins[class_of(700)].first) && count < EXTRA / 2) extra[count++] = tslab_malloc(700);
  leave_a_heap(class_of(700));
  held = atomic_load(&last_dead_heap);
  atomic_store(&is_held, false);
  CHECK(pthread_create(&thread, NULL, hold, NULL) == 0);
  while (!atomic_load(&is_held)) usleep(1000);
  while (count < EXTRA) extra[count++] = tslab_malloc(700);
  CHECK(pthread_join(thread, NULL) == 0);
  while (count > 0) tslab_free(extra[--count]);
  look();
}

static void adoptions(void) {
  for (int try = 0; try < TRIES && !has_moved(TABLE_CLASS, "slab_adopt_failures"); try++) adopt_in_vain();
}

static void epochs(void) {
  const tslab_epoch_options options_of_parent = {.struct_size = sizeof options_of_parent, .label = "parent",
                                                 .budget_bytes = 4 * MiB, .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch parent = tslab_epoch_open_with(&options_of_parent);
  const tslab_epoch_options options_of_child = {.struct_size = sizeof options_of_child, .label = "child",
                                                .flags = TSLAB_EPOCH_DESTROYABLE, .parent = parent};
  const tslab_epoch child = tslab_epoch_open_with(&options_of_child);
  CHECK(parent != 0 && child != 0);
  look();
  CHECK(tslab_epoch_enter(child) == 0);
  void *const kept = tslab_malloc(5000);
  for (block_size = 24; block_size < 30000; block_size *= 3) {
    fill(0, 30);
    look();
    drain(0, 30, 1);
  }
  CHECK(tslab_malloc(8 * MiB) == NULL && errno == ENOMEM); /* above the parent's budget */
  look();
  CHECK(tslab_epoch_enter(0) == 0);
  void *const exempt = tslab_malloc(5000);
  CHECK(tslab_epoch_leave(0) == 0);
  look();
  tslab_free(exempt);
  CHECK(tslab_epoch_leave(child) == 0 && tslab_epoch_reset(child, NULL) == 0);
  (void)kept;
  CHECK(tslab_epoch_enter(child) == 0);
  void *const survivor = tslab_malloc(5000);
  CHECK(tslab_epoch_close(child, NULL) == 0);
  void *diverted[200];
  for (int i = 0; i < 200; i++) CHECK((diverted[i] = tslab_malloc(64)) != NULL); /* epoch 0 serves */
  look();
  CHECK(tslab_epoch_leave(child) == 0);
  tslab_free(survivor);
  for (int i = 0; i < 200; i++) tslab_free(diverted[i]);
  CHECK(tslab_epoch_destroy(parent, NULL) == 0);
  look();
  for (int i = 0; i < 4; i++) { /* epochs that end fill the reserve, and epochs that begin take from it */
    const tslab_epoch e = tslab_epoch_open("recycled");
    CHECK(tslab_epoch_enter(e) == 0);
    block_size = 100;
    for (int round = 0; round < 3; round++) { /* it reuses memory, and so turns to slabs */
      fill(0, BLOCKS);
      drain(0, BLOCKS, 2);
    }
    drain(0, BLOCKS, 1);
    CHECK(tslab_epoch_leave(e) == 0 && tslab_epoch_close(e, NULL) == 0);
    look();
  }
}

static void misuse_once(void) {
  enum { COUNT = TSLAB_HARDENED ? 1200 : 4 }; /* hardened: the first blocks are on the list while others wait */
  static void **spoilt[COUNT];
  for (int i = 0; i < COUNT; i++) CHECK((spoilt[i] = tslab_malloc(48)) != NULL);
  for (int i = 0; i < COUNT; i++) tslab_free(spoilt[i]);
  tslab_free(spoilt[COUNT - 1]);
  if (TSLAB_HARDENED) spoilt[0][1] = NULL; /* there the second free was not taken */
  for (int i = 0; i < COUNT; i++) CHECK(tslab_malloc(48) != NULL); /* the next thread to take it finds the damage */
  look();
}

static void misuses(void) {
  CHECK(tslab_epoch_leave(1) == EINVAL); /* this thread is in no scope */
  static char heard[65536];
  hear(misuse_once, heard, sizeof heard);
  CHECK(strstr(heard, "double free") != NULL);
}

static pthread_barrier_t barrier;

/* A fork child gives up the lists of threads that it does not have. */
static void *keep_a_list(void *unused) {
  tslab_free(tslab_malloc(100));
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return unused;
}

/* A fork that no handler sees, while a thread holds a lock, leaves inherited memory as it is. */
static void freezes(void) {
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  int status;
  CHECK(child >= 0);
  if (child == 0) {
    look();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void forked(void) {
  pthread_t thread;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, keep_a_list, NULL) == 0);
  pthread_barrier_wait(&barrier);
  look();
  CHECK(in_child(look) == 0);
  if (!emulated()) { /* no mark tells an emulator's child that it is a child: it would wait for that lock for ever */
    lock_take(&pages_lock);
    freezes();
    lock_release(&pages_lock);
  }
  pthread_barrier_wait(&barrier);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* Returns true if the kernel can be made to refuse a call: a sanitizer's runtime fails then, and an emulator does not
   pass the request on. */
static bool refusals(void) { return !SANITIZED && !emulated(); }

/* The kernel refuses memory: free memory of other sizes goes back and serves the call; without any, the call returns
   NULL. */
static void without_memory(void) {
  const struct rlimit none = {1, 1};
  void *list = NULL;
  block_size = 30000;
  CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
  for (void **block; (block = tslab_malloc(block_size)) != NULL; list = block) *block = list;
  for (void **block = list, **next; block; block = next) {
    next = *block;
    tslab_free(block);
  }
  for (void **block; (block = tslab_malloc(100000)) != NULL; list = block) *block = list;
  look();
}

/* The kernel refuses to take memory back. */
static void without_purge(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  block_size = 100000;
  fill(0, 100);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  drain(0, 100, 1);
  tslab_purge();
  look();
}

static void limited(void) {
  look();
  CHECK(tslab_memory_limit(64 * MiB, 32 * MiB) == 0);
  void *const block = tslab_malloc(8 * MiB);
  memset(block, 1, 8 * MiB);
  tslab_free(block);
  void *const larger = tslab_malloc(30 * MiB);
  CHECK(larger != NULL && tslab_malloc(80 * MiB) == NULL);
  look();
  tslab_free(larger);
  CHECK(tslab_memory_limit(0, 0) == 0);
}

/* In a process of its own, because a profile does not end. */
static void profiled(void) {
  CHECK(sampled_start(PROFILE_LEAST_BYTES, true) && guard_start(PROFILE_LEAST_BYTES));
  look();
  block_size = 1000;
  fill(0, BLOCKS / 2);
  look();
  drain(0, BLOCKS / 2, 2);
  look();
  drain(0, BLOCKS / 2, 1);
  look();
  for (unsigned i = 0; i < BLOCKS / 2; i++) CHECK((blocks[i] = tslab_malloc(3000)) != NULL); /* another call site */
  look();
  drain(0, BLOCKS / 2, 1);
  for (int i = 0; i < 20; i++) os_rest(); /* a coarse clock dates births */
  const tslab_epoch e = tslab_epoch_open("profiled");
  CHECK(e != 0 && tslab_epoch_enter(e) == 0);
  void *const kept = tslab_malloc(300000);
  for (int i = 0; i < 50; i++) CHECK(tslab_malloc(500) != NULL);
  CHECK(kept != NULL && tslab_epoch_leave(e) == 0);
  look();
  CHECK(tslab_epoch_close(e, NULL) == 0);
  look();
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static bool excused(const char *table, const char *field) {
  const bool applies[] = {[ANYWHERE] = true, [WITHOUT_REFUSALS] = !refusals(), [EMULATED] = emulated(),
                          [HARDENED] = TSLAB_HARDENED};
  for (size_t i = 0; i < sizeof excuses / sizeof *excuses; i++)
    if (strcmp(excuses[i].table, table) == 0 && strcmp(excuses[i].field, field) == 0) return applies[excuses[i].where];
  return false;
}

static bool everything_moved(void) {
  bool all = true;
  for (enum table i = 0; i < TABLES; i++)
    for (size_t j = 0; j < tables[i].count; j++) {
      const struct statistic *const f = &tables[i].fields[j];
      if (f->kind == TEXT || moved->field[i][j] || excused(tables[i].name, f->name)) continue;
      dprintf(2, "%s.%s never moved: %s\n", tables[i].name, f->name, f->help);
      all = false;
    }
  for (enum path path = 0; path < PATHS; path++) {
    if (moved->path[path] || (!refusals() && path == PATH_PURGE) || (TSLAB_HARDENED && path == PATH_MAGAZINE)) continue;
    dprintf(2, "no call took the path \"%s\"\n", path_names[path]);
    all = false;
  }
  return all;
}

int main(void) {
  options.sample = options.sample_cpu = 1;
  options.scavenger = 0; /* only these events return memory */
  lock_times = true;
  begin_looking();
  classes_and_large();
  given_back();
  between_threads();
  epochs();
  locks();
  adoptions();
  cas_that_fail();
  options.on_misuse = MISUSE_REPORT;
  misuses();
  forked();
  limited();
  if (TSLAB_TELEMETRY) CHECK(in_child(profiled) == 0);
  if (refusals()) {
    CHECK(in_child(without_memory) == 0);
    CHECK(in_child(without_purge) == 0);
  }
  CHECK(everything_moved());
  return 0;
}
