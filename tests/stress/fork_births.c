/* fork_births: children are born in every way while eight threads allocate, one ends threads, one ends epochs and the
 * scavenger purges; two threads give birth, now and then inside an epoch. Each child counts what it has, allocates,
 * frees its own blocks and its parent's, also those of threads that are gone, goes on in its scope, ends epochs, makes
 * a thread, and some give birth themselves. Nothing hangs: a child that does not end is shown, with where it stands.
 *
 * The live blocks in a child's statistics are those in the tables below, give or take the one call that each of its
 * parent's threads was in. If the parent's threads all waited, the numbers are exact.
 *
 *  fork_births [COUNT]    births in all; else TEST_BIRTHS of the environment */
#include "../check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;
extern pid_t _Fork(void) __attribute__((weak)); /* glibc 2.34 */

enum { ALLOCATORS = 8, FORKERS = 2, SLOTS = 64, OWN = 32, PIECES = 16, PATIENCE_S = 240 };
/* Threads that may be in the middle of a call, those that come and go among them. */
enum { OTHERS = ALLOCATORS + FORKERS + 3 };

#ifdef TEST_LIBC
enum { LIBC_TOO = 1 }; /* its own blocks count, too */
#else
enum { LIBC_TOO = 0 };
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MAKES_THREADS = 0 }; /* their runtimes cannot, in a child of a process with threads */
#else
enum { MAKES_THREADS = 1 };
#endif

static void *_Atomic slots[ALLOCATORS + 1][SLOTS]; /* each thread's blocks; the last row is of ended threads */
static _Atomic bool stop;
/* Held by who allocates; alone by who wants quiet. */
#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
static pthread_rwlock_t pace = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
#else /* musl has one kind */
static pthread_rwlock_t pace = PTHREAD_RWLOCK_INITIALIZER;
#endif
static pthread_mutex_t libc_quiet = PTHREAD_MUTEX_INITIALIZER; /* held by who makes threads, under libc's own locks */

/* ---- births ------------------------------------------------------------------------------------------------------ */

enum kind { BY_FORK, BY_BARE_FORK, BY_CLONE, BY_VFORK, BY_CLONE_VM, BY_SPAWN, BY_SYSTEM, KINDS };
static const char *const kind_names[KINDS] = {"fork",     "_Fork", "clone", "vfork", "clone with CLONE_VM",
                                              "posix_spawn", "system"};

/* Where a child stands, for who waits for it. */
enum phase { BORN, COUNTS, FREES_INHERITED, IN_SCOPE, ENDS_EPOCHS, MAKES_THREAD, FORKS, PURGES, ENDS, PHASES };
static const char *const phase_names[PHASES] = {"is born",        "counts",  "frees what it inherited",
                                                "is in a scope",  "ends epochs", "makes a thread",
                                                "forks",          "purges",  "ends"};

static struct birth { /* in memory that children share */
  _Atomic pid_t child;
  _Atomic int64_t since;
  _Atomic int phase, kind;
} *births;

static struct counters {
  _Atomic unsigned frozen, exact, kinds[KINDS];
} *counters; /* shared too */

static _Thread_local struct birth *here;
static void phase(enum phase now) { here->phase = (int)now; }

static int64_t seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

static void show(pid_t child, const char *file) {
  char path[64], text[256] = "";
  snprintf(path, sizeof path, "/proc/%d/%s", (int)child, file);
  const int from = open(path, O_RDONLY);
  const ssize_t got = from < 0 ? 0 : read(from, text, sizeof text - 1);
  dprintf(2, "  %s: %.*s\n", path, (int)(got > 0 ? got : 0), text);
  if (from >= 0) close(from);
}

static void *watch(void *unused) {
  while (!stop) {
    for (int i = 0; i < FORKERS; i++) {
      const struct birth *const b = &births[i];
      const int64_t since = b->since; /* read once: it may end now */
      if (since == 0 || seconds() - since < PATIENCE_S) continue;
      dprintf(2, "a child born by %s does not end; it %s\n", kind_names[b->kind], phase_names[b->phase]);
      if (b->child > 0) show(b->child, "syscall"), show(b->child, "wchan"), show(b->child, "status");
      if (b->child > 0) kill(b->child, SIGKILL);
      _exit(1);
    }
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
  return unused;
}

/* ---- what goes on meanwhile -------------------------------------------------------------------------------------- */

static size_t a_size(uint64_t *random) {
  const uint64_t r = check_random(random);
  return r % 256 == 0 ? r % 80000 : r % 32 == 0 ? r % 9000 : r % 400;
}

static void churn(void *_Atomic *row, uint64_t *random, int rounds) {
  for (int i = 0; i < rounds; i++) {
    void *_Atomic *const slot = &row[check_random(random) % SLOTS];
    tslab_free(atomic_exchange(slot, NULL));
    if (i % 3 == 0) continue;
    void *const block = tslab_malloc(a_size(random));
    CHECK(block != NULL);
    tslab_free(atomic_exchange(slot, block));
  }
}

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void *allocate(void *number) {
  uint64_t random = (uintptr_t)number + 1;
  while (!stop) {
    pthread_rwlock_rdlock(&pace);
    /* Mostly its own row; the blocks in a neighbour's row are another heap's. */
    churn(slots[((uintptr_t)number + (check_random(&random) % 4 == 0)) % ALLOCATORS], &random, 200);
    pthread_rwlock_unlock(&pace);
    rest();
  }
  return NULL;
}

static void *leave_blocks(void *seed) {
  uint64_t random = (uintptr_t)seed;
  churn(slots[ALLOCATORS], &random, 100);
  return NULL;
}

static void *threads_come_and_go(void *unused) {
  for (uintptr_t i = 1; !stop; i++) {
    pthread_t thread;
    pthread_rwlock_rdlock(&pace);
    pthread_mutex_lock(&libc_quiet);
    CHECK(pthread_create(&thread, NULL, leave_blocks, (void *)i) == 0 && pthread_join(thread, NULL) == 0);
    pthread_mutex_unlock(&libc_quiet);
    pthread_rwlock_unlock(&pace);
    rest();
  }
  return unused;
}

/* Mostly small ones, with a child each; now and then 100 MiB. */
static void *epochs_come_and_go(void *unused) {
  const tslab_epoch_options plain = {.struct_size = sizeof plain, .label = "ends"};
  for (unsigned i = 0; !stop; i++) {
    pthread_rwlock_rdlock(&pace);
    const tslab_epoch e = tslab_epoch_open_with(&plain);
    tslab_epoch_options below = plain;
    below.parent = e;
    const tslab_epoch child = tslab_epoch_open_with(&below);
    CHECK(e != 0 && child != 0 && tslab_epoch_enter(e) == 0);
    const size_t bytes = i % 1000 == 0 ? 100 << 20 : 128 << 10;
    char *blocks[PIECES];
    for (int b = 0; b < PIECES; b++) {
      CHECK((blocks[b] = tslab_malloc(bytes / PIECES)) != NULL);
      for (size_t at = 0; at < bytes / PIECES; at += 4096) blocks[b][at] = 1;
      void *const small = tslab_epoch_malloc(child, 100);
      CHECK(small != NULL);
      tslab_free(small);
    }
    CHECK(tslab_epoch_leave(e) == 0);
    for (int b = 0; b < PIECES; b++) tslab_free(blocks[b]);
    CHECK(tslab_epoch_close(e, NULL) == 0);
    pthread_rwlock_unlock(&pace);
    rest();
  }
  return unused;
}

/* ---- a child ----------------------------------------------------------------------------------------------------- */

static tslab_stats_global stats(void) {
  tslab_stats_global now;
  CHECK(tslab_stats(&now, sizeof now) == 0);
  return now;
}

static uint64_t blocks_in_tables(void) {
  uint64_t known = 0;
  for (int row = 0; row <= ALLOCATORS; row++)
    for (int i = 0; i < SLOTS; i++) known += slots[row][i] != NULL;
  return known;
}

/* `more`: blocks that this thread has besides. libc's own are not in the tables. */
static void check_counts(bool quiet, uint64_t more) {
  const tslab_stats_global now = stats();
  const uint64_t known = blocks_in_tables() + more;
  CHECK_COUNT(now.allocations - now.frees, ==, now.live_blocks);
  if (LIBC_TOO) {
    CHECK_COUNT(now.live_blocks + OTHERS, >=, known);
    return;
  }
  if (quiet) {
    CHECK_COUNT(now.live_blocks, ==, known);
    atomic_fetch_add(&counters->exact, 1);
    return;
  }
  CHECK_COUNT(now.live_blocks + OTHERS, >=, known);
  /* Those of the other forker, and of the epoch that is being ended, are in no table. */
  CHECK_COUNT(now.live_blocks, <=, known + OTHERS + OWN + PIECES + 2);
}

static void use_heap(uint64_t seed) {
  void *own[OWN] = {NULL};
  uint64_t random = seed;
  for (int i = 0; i < 4 * OWN; i++) {
    void **const slot = &own[check_random(&random) % OWN];
    const size_t size = a_size(&random);
    *slot = tslab_realloc(*slot, size + 1);
    CHECK(*slot != NULL);
    memset(*slot, 0x44, size + 1);
  }
  for (int i = 0; i < OWN; i++) tslab_free(own[i]);
}

static void free_inherited(int step) {
  for (int row = 0; row <= ALLOCATORS; row++)
    for (int i = 0; i < SLOTS; i += step) tslab_free(atomic_exchange(&slots[row][i], NULL));
}

static void *live_as_thread(void *seed) {
  use_heap((uintptr_t)seed);
  free_inherited(3);
  return NULL;
}

static void make_thread(uint64_t seed) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, live_as_thread, (void *)(uintptr_t)seed) == 0);
  use_heap(seed + 1);
  CHECK(pthread_join(thread, NULL) == 0);
}

struct scope {
  tslab_epoch epoch; /* 0: outside */
  void *block;       /* in it */
};

static struct scope begin_scope(bool wanted) {
  struct scope scope = {0, NULL};
  if (!wanted) return scope;
  scope.epoch = tslab_epoch_open_with(
      &(tslab_epoch_options){.struct_size = sizeof(tslab_epoch_options), .flags = TSLAB_EPOCH_DESTROYABLE});
  CHECK(scope.epoch != 0 && tslab_epoch_enter(scope.epoch) == 0);
  scope.block = tslab_malloc(100);
  CHECK(scope.block != NULL && tslab_epoch_of(scope.block) == scope.epoch);
  return scope;
}

/* In a child that had to freeze what it inherited, epochs are closing for ever, and what is allocated in their scopes
 * is of epoch 0. */
static void end_scope(struct scope scope, bool frozen, bool destroys) {
  if (scope.epoch == 0) return;
  phase(IN_SCOPE);
  CHECK(tslab_epoch_current() == scope.epoch && tslab_scope_depth() == 1);
  use_heap(7);
  tslab_free(scope.block);
  CHECK(tslab_epoch_leave(scope.epoch) == 0 && tslab_scope_depth() == 0);
  phase(ENDS_EPOCHS);
  const int error = destroys ? tslab_epoch_destroy(scope.epoch, NULL) : tslab_epoch_close(scope.epoch, NULL);
  CHECK(error == (frozen ? ESHUTDOWN : 0));
  const tslab_epoch other = tslab_epoch_open("begins");
  CHECK(other != 0 && tslab_epoch_enter(other) == 0);
  use_heap(8);
  CHECK(tslab_epoch_leave(other) == 0 && tslab_epoch_close(other, NULL) == 0);
}

static pid_t bare_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); }

static pid_t give_birth(enum kind kind) {
  if (kind == BY_BARE_FORK && _Fork) return _Fork();
  return kind == BY_FORK ? fork() : bare_clone();
}

static void wait_for(pid_t child, const char *kind) {
  int status;
  CHECK(child > 0);
  while (waitpid(child, &status, 0) != child) CHECK(errno == EINTR);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  dprintf(2, "a child born by %s ended, status %#x, as it %s\n", kind, (unsigned)status, phase_names[here->phase]);
  _exit(1);
}

static void live_as_child(enum kind kind, uint64_t number, struct scope scope, bool quiet) {
  phase(COUNTS);
  check_counts(quiet, scope.epoch != 0);
  use_heap(number + 1);
  const tslab_stats_global before = stats();
  const bool frozen = before.frozen_bytes != 0;
  CHECK(!frozen || kind != BY_FORK);
  atomic_fetch_add(&counters->frozen, frozen);
  phase(FREES_INHERITED);
  free_inherited(2);
  end_scope(scope, frozen, number % 2);
  phase(MAKES_THREAD);
  if (MAKES_THREADS) make_thread(number);
  if (number % 8 == 0) {
    phase(FORKS);
    const pid_t grandchild = give_birth(kind); /* fork would wait for libc's locks, where no handler saw the child */
    if (grandchild == 0) {
      free_inherited(1);
      use_heap(number + 2);
      if (MAKES_THREADS) make_thread(number);
      _exit(0);
    }
    wait_for(grandchild, "a child");
  }
  free_inherited(1);
  phase(PURGES);
  if (number % 16 == 1) tslab_malloc_trim(0);
  check_counts(quiet, 0);
  phase(ENDS);
  _exit(0);
}

/* ---- births ------------------------------------------------------------------------------------------------------ */

static int use_parents_heap(void *seed) {
  use_heap((uintptr_t)seed);
  return 0;
}

static pid_t by_vfork(uint64_t number) {
  const pid_t child = vfork();
  if (child == 0) {
    use_heap(number + 1);
    _exit(0);
  }
  return child;
}

static pid_t by_clone_vm(uint64_t number) {
  static _Thread_local char stack[64 << 10] __attribute__((aligned(16)));
  return clone(use_parents_heap, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(uintptr_t)number);
}

static pid_t by_spawn(void) {
  pid_t child;
  char *const arguments[] = {"true", NULL};
  CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
  return child;
}

static enum kind kind_of(uint64_t number) {
  const unsigned r = number % 64;
  if (r < 32) return BY_FORK;
  if (r < 46) return BY_BARE_FORK;
  if (r < 58) return BY_CLONE;
  return r < 60 ? BY_VFORK : r < 62 ? BY_CLONE_VM : r < 63 ? BY_SPAWN : BY_SYSTEM;
}

/* Where a child would find libc's own locks held, its malloc's among them. */
static bool needs_quiet_libc(enum kind kind) {
  return kind == BY_BARE_FORK || kind == BY_CLONE || (!LIBC_TOO && (kind == BY_FORK || kind >= BY_SPAWN));
}

static void be_parent(uint64_t number) {
  const enum kind kind = kind_of(number);
  const bool quiet = number % 10 == 3, libc_too = needs_quiet_libc(kind);
  if (quiet) pthread_rwlock_wrlock(&pace);
  else pthread_rwlock_rdlock(&pace);
  const struct scope scope = begin_scope(kind <= BY_CLONE && number % 5 < 2);
  here->child = 0;
  here->kind = (int)kind;
  here->since = seconds();
  phase(BORN);
  pid_t child = 0;
  if (libc_too) pthread_mutex_lock(&libc_quiet);
  if (kind <= BY_CLONE) {
    child = give_birth(kind);
    if (child == 0) live_as_child(kind, number, scope, quiet);
  }
  if (kind == BY_VFORK) child = by_vfork(number);
  if (kind == BY_CLONE_VM) child = by_clone_vm(number);
  if (kind == BY_SPAWN) child = by_spawn();
  if (kind == BY_SYSTEM) CHECK(system("true") == 0);
  if (libc_too) pthread_mutex_unlock(&libc_quiet);
  here->child = child;
  end_scope(scope, false, number % 2);
  pthread_rwlock_unlock(&pace);
  if (kind != BY_SYSTEM) wait_for(child, kind_names[kind]);
  here->since = 0;
  atomic_fetch_add(&counters->kinds[kind], 1);
}

struct forker {
  struct birth *birth;
  uint64_t first, count;
};

static void *give_births(void *forker) {
  const struct forker *const f = forker;
  here = f->birth;
  for (uint64_t i = 0; i < f->count; i++) be_parent(f->first + i * FORKERS);
  return NULL;
}

int main(int argc, char **argv) {
  const char *const few = getenv("TEST_BIRTHS");
  const uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : few ? strtoull(few, NULL, 10) : 200;
  void *(*const meanwhile[])(void *) = {threads_come_and_go, epochs_come_and_go, watch};
  enum { MEANWHILE = 3 };
  pthread_t threads[ALLOCATORS + MEANWHILE], forkers[FORKERS];
  births = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(births != MAP_FAILED && counters != MAP_FAILED);
  for (uintptr_t i = 0; i < ALLOCATORS; i++) CHECK(pthread_create(&threads[i], NULL, allocate, (void *)i) == 0);
  for (int i = 0; i < MEANWHILE; i++) CHECK(pthread_create(&threads[ALLOCATORS + i], NULL, meanwhile[i], NULL) == 0);
  struct forker f[FORKERS];
  for (uint64_t i = 0; i < FORKERS; i++) {
    f[i] = (struct forker){&births[i], i, (count + FORKERS - 1 - i) / FORKERS};
    if (i > 0) CHECK(pthread_create(&forkers[i], NULL, give_births, &f[i]) == 0);
  }
  give_births(&f[0]);
  for (uint64_t i = 1; i < FORKERS; i++) CHECK(pthread_join(forkers[i], NULL) == 0);
  stop = true;
  for (int i = 0; i < ALLOCATORS + MEANWHILE; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  free_inherited(1);
  const tslab_stats_global now = stats();
  if (!LIBC_TOO) CHECK_COUNT(now.live_blocks + now.live_bytes, ==, 0);
  CHECK_COUNT(now.epochs_open + now.epochs_closing, ==, 0);
  CHECK_COUNT(now.leaked_at_fork + now.leaked_blocks + now.frozen_bytes, ==, 0);
  for (int k = 0; k < KINDS; k++) printf("%s: %u\n", kind_names[k], counters->kinds[k]);
  printf("froze: %u; counted exactly: %u\n", counters->frozen, counters->exact);
  return 0;
}
