/* scavenger: freed memory goes back while the program does nothing; the thread takes no signals, starts once, stops on
 * demand, starts again, and does not exist if the setting forbids it. */
#include "unit.h"

#include "../threads.h"
#include "base/options.h"
#include "heap/check.h"
#include "runtime/scavenger.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

enum { SMALL = 20000, LARGE = 8, KEEPERS = 10, KEPT = 8, DELAYS = 22 };

static void *blocks[SMALL], *larges[LARGE];

static void *must(size_t size) {
  void *const block = tslab_malloc(size);
  CHECK(block != NULL);
  return memset(block, 1, size);
}

static void burst(void) {
  for (int i = 0; i < SMALL; i++) blocks[i] = must(700);
  for (int i = 0; i < LARGE; i++) larges[i] = must(2 * MiB);
  for (int i = 0; i < SMALL; i++) tslab_free(blocks[i]);
  for (int i = 0; i < LARGE; i++) tslab_free(larges[i]);
}

static uint64_t held(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  return stats.in_use_bytes + stats.free_dirty_bytes;
}

/* The machine decides how long that takes; the test's own time limit ends a wait without end. */
static void wait_until_held_at_most(uint64_t bytes) {
  while (held() > bytes) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* Pages between live blocks go too: one block in each slab stays, or in four pages where that is more. */
static void holes(void) {
  const int apart = (int)max_size(80, 4 * os_page_size / 700);
  tslab_stats_global stats;
  for (int i = 0; i < SMALL; i++) blocks[i] = must(700);
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  const uint64_t enough = stats.returned_bytes + SMALL / 2 * 700;
  for (int i = 0; i < SMALL; i++)
    if (i % apart != 0) tslab_free(blocks[i]);
  while (stats.returned_bytes < enough) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    CHECK(tslab_stats(&stats, sizeof stats) == 0);
  }
  for (int i = 0; i < SMALL; i += apart) tslab_free(blocks[i]);
}

/* A thread that works in waves needs its magazines at every look of the scavenger. They become empty all the same, so
 * that the next blocks come from slabs; the test's own time limit ends a wait without end. */
enum { WAVE = 5000, WAVE_BLOCK = 128, LEARNED = 50 };

static uint64_t waves_from_slabs(int waves) {
  for (int wave = 0; wave < waves; wave++) {
    for (int i = 0; i < WAVE; i++) blocks[i] = must(WAVE_BLOCK);
    for (int i = 0; i < WAVE; i++) tslab_free(blocks[i]);
  }
  return current_heap->counters->refills[class_of(WAVE_BLOCK)].served[PATH_SLAB];
}

static void waves(void) {
  const uint64_t before = waves_from_slabs(LEARNED);
  while (waves_from_slabs(1) == before) continue;
}

static void *purges(void *stop) {
  while (!atomic_load((atomic_bool *)stop)) tslab_purge();
  return NULL;
}

enum { ROWS = 2000, ROW = 96, APART = 300 };

/* Of ROWS blocks, one in APART is in use. Returns the resident pages of blocks that share a page with none of these. */
static unsigned resident_holes(void) {
  unsigned count = 0;
  for (int i = 0; i < ROWS; i++) {
    const uintptr_t page = (uintptr_t)blocks[i] & -os_page_size;
    unsigned char is_resident;
    bool is_hole = true;
    for (int k = 0; k < ROWS; k += APART)
      is_hole &= (uintptr_t)blocks[k] + ROW <= page || (uintptr_t)blocks[k] >= page + os_page_size;
    CHECK(mincore((void *)page, os_page_size, &is_resident) == 0);
    count += is_hole && (is_resident & 1);
  }
  return count;
}

/* Of two threads that collect at a time, neither misses a heap that the other one visits. */
static void no_round_misses_another(void) {
  atomic_bool stop = false;
  pthread_t other;
  CHECK(pthread_create(&other, NULL, purges, &stop) == 0);
  for (int round = 0; round < 300; round++) {
    for (int i = 0; i < ROWS; i++) blocks[i] = must(ROW);
    for (int i = 0; i < ROWS; i++)
      if (i % APART != 0) tslab_free(blocks[i]);
    tslab_purge();
    CHECK_COUNT(resident_holes(), ==, 0);
    for (int i = 0; i < ROWS; i += APART) tslab_free(blocks[i]);
  }
  atomic_store(&stop, true);
  CHECK(pthread_join(other, NULL) == 0);
}

/* Where there is no scavenger, a thread folds its own heap as it ends, while another may be giving back pages of one of
   its slabs: the heap is not folded while that slab is in no list. */
enum { ENDS = 400, OF_EACH = 130 };

static void *ends_with_holes(void *kept) {
  void *some[OF_EACH];
  for (int i = 0; i < OF_EACH; i++) some[i] = must(450);
  for (int i = 1; i < OF_EACH; i++) tslab_free(some[i]);
  *(void **)kept = some[0];
  return NULL;
}

static void ends_beside_a_purge(void) {
  atomic_bool stop = false;
  pthread_t purger, thread[2];
  options.scavenger = 0;
  CHECK(pthread_create(&purger, NULL, purges, &stop) == 0);
  for (int round = 0; round < ENDS; round++) {
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, ends_with_holes, &blocks[2 * round + i]) == 0);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    if (round > 0) tslab_free(blocks[2 * round - 1]), tslab_free(blocks[2 * round - 2]);
  }
  atomic_store(&stop, true);
  CHECK(pthread_join(purger, NULL) == 0);
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap) {
    heap_check(p);
    for (unsigned class = 0; class < CLASSES; class++) CHECK(!p->folded || p->bins[class].listed == 0);
  }
  heap_check(&common_heap);
}

static atomic_bool is_created;

static int create_slowly(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  const int error = pthread_create(thread, attributes, start, argument);
  atomic_store(&is_created, true);
  nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL); /* the scavenger waits for its maker */
  return error;
}

static void *frees_much(void *unused) {
  burst();
  return unused;
}

/* At a limit of processes, a fork or a new thread of the program gets the scavenger's place also while another thread
 * makes the scavenger. */
static void dismissed_at_its_birth(void) {
  static const struct thread_calls slow = {create_slowly, pthread_join, pthread_detach};
  pthread_t maker;
  scavenger_use(&slow);
  CHECK(pthread_create(&maker, NULL, frees_much, NULL) == 0);
  while (!atomic_load(&is_created)) os_rest();
  CHECK(scavenger_dismiss(true));
  CHECK(pthread_join(maker, NULL) == 0);
  wait_until_held_at_most(4 * MiB); /* by the next scavenger */
}

static void grow_a_little(void) {
  for (size_t got = 0; got < MiB; got += 1000) must(1000);
  os_rest(); /* the scavenger's turn */
}

/* The scavenger makes memory resident for a heap that grows, and returns the part that no allocation took. */
static void ahead_of_growth(void) {
  for (unsigned size = 0; pages_totals().populated == 0; size++) {
    CHECK_COUNT(size, <, 1024); /* MiB */
    grow_a_little();
  }
  while (pages_free_dirty() != 0) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  pages_check();
}

static void nothing_ahead(void) {
  options.ahead = 0;
  for (size_t size = 0; size < 2 * AHEAD_LEAST_HEAP; size += MiB) grow_a_little();
  CHECK_COUNT(pages_totals().populated, ==, 0);
}

static bool kernel_populates(void) {
  char *const room = mmap(NULL, 2 * os_page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(room != MAP_FAILED);
  return os_populate((void *)round_up((uintptr_t)room, os_page_size), os_page_size);
}

static volatile sig_atomic_t handled;
static void handle(int unused) { (void)unused, handled = 1; }

static void signals_are_not_for_it(void) {
  sigset_t one, pending;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  signal(SIGUSR1, handle);
  sigprocmask(SIG_BLOCK, &one, NULL);
  kill(getpid(), SIGUSR1);
  burst();
  wait_until_held_at_most(4 * MiB); /* the thread ran meanwhile */
  CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) && !handled);
  sigprocmask(SIG_UNBLOCK, &one, NULL);
  CHECK(handled);
}

static void unwanted(void) {
  const unsigned before = threads();
  options.scavenger = 0;
  for (int i = 0; i < LARGE; i++) larges[i] = must(8 * MiB);
  for (int i = 0; i < LARGE; i++) tslab_free(larges[i]);
  CHECK_COUNT(threads(), ==, before);
  CHECK_COUNT(pages_free_dirty(), <=, 32 * MiB); /* slow paths purge */
  CHECK_COUNT(pages_totals().returned, >, 0);
}

/* Large blocks that sleeping threads keep go back as well, at any time after their free, and also without a
   scavenger. */
static pthread_barrier_t all_have, all_give, all_gave;

static void *keeps(void *unused) {
  void *kept[KEPT];
  for (int i = 0; i < KEPT; i++) kept[i] = must(100000);
  pthread_barrier_wait(&all_have);
  pthread_barrier_wait(&all_give);
  for (int i = 0; i < KEPT; i++) tslab_free(kept[i]);
  pthread_barrier_wait(&all_gave);
  pause();
  return unused;
}

static void start_keepers(unsigned keepers) {
  pthread_t thread;
  pthread_barrier_t *const barriers[] = {&all_have, &all_give, &all_gave};
  for (int i = 0; i < 3; i++) CHECK(pthread_barrier_init(barriers[i], NULL, keepers + 1) == 0);
  for (unsigned i = 0; i < keepers; i++) CHECK(pthread_create(&thread, NULL, keeps, NULL) == 0);
  pthread_barrier_wait(&all_have);
}

static void let_keepers_free(void) {
  pthread_barrier_wait(&all_give);
  pthread_barrier_wait(&all_gave);
}

/* Reads the kernel's figure: a call of the library would wake the scavenger. */
static size_t resident(void) {
  char text[64] = "";
  size_t count;
  const int file = open("/proc/self/statm", O_RDONLY);
  CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
  CHECK(sscanf(text, "%*u %zu", &count) == 1);
  return count * (size_t)sysconf(_SC_PAGESIZE); /* not os_page_size, which a test of other pages sets */
}

/* Side by side, so that some blocks are freed in the last tick before the scavenger, without other work, sleeps. */
static void sleepers(void) {
  pid_t children[DELAYS];
  for (int i = 0; i < DELAYS; i++) {
    children[i] = fork();
    if (children[i] != 0) continue;
    const size_t before = resident();
    start_keepers(KEEPERS);
    nanosleep(&(struct timespec){.tv_sec = (10 + i) / 20, .tv_nsec = (10 + i) % 20 * 50000000L}, NULL);
    let_keepers_free();
    while (resident() > before + KEEPERS * KEPT * (size_t)100000 / 2)
      nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    _exit(0);
  }
  for (int i = 0; i < DELAYS; i++) {
    int status;
    CHECK(children[i] > 0 && waitpid(children[i], &status, 0) == children[i] && status == 0);
  }
}

static void sleepers_unwanted(void) {
  options.scavenger = 0;
  start_keepers(4 * KEEPERS);
  let_keepers_free();
  tslab_free(must(100000)); /* a slow path returns the excess */
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.large_cached_bytes + stats.free_dirty_bytes, <=, 32 * MiB);
}

/* A refused allocation finds the memory that a sleeping thread keeps, also for an epoch. */
static void shortage(void) {
  const struct rlimit limit = {512 * MiB, 512 * MiB};
  options.scavenger = 0;
  start_keepers(1);
  CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
  tslab_stats_global stats;
  tslab_free(must(100000));
  CHECK(tslab_malloc(1024 * MiB) == NULL);
  tslab_free(must(100000)); /* the memory that threads keep would not be enough: they go on */
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  if (!TSLAB_HARDENED) CHECK_COUNT(stats.large_cached_bytes, >=, 100000);
  while (tslab_malloc(500000)) {}
  for (unsigned size = 60000; size >= 16; size /= 2)
    while (tslab_malloc(size)) {}
  while (tslab_epoch_open("fill")) {}
  let_keepers_free();
  CHECK(tslab_epoch_open("after") != TSLAB_EPOCH_DEFAULT);
  CHECK(tslab_malloc(100000) != NULL);
}

/* Returns how often the scavenger slept, by the kernel's figure: a call of the library would wake it. */
static long naps(const char *status) {
  static char text[4096];
  const int file = open(status, O_RDONLY);
  CHECK(file >= 0);
  const ssize_t length = read(file, text, sizeof text - 1);
  CHECK(length > 0 && close(file) == 0);
  text[length] = 0;
  const char *const found = strstr(text, "\nvoluntary_ctxt_switches:");
  CHECK(found != NULL);
  return strtol(found + strlen("\nvoluntary_ctxt_switches:"), NULL, 10);
}

static void find_scavenger(char *status, size_t room) {
  DIR *const tasks = opendir("/proc/self/task");
  long found = 0;
  CHECK(tasks != NULL);
  for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
    const long task = strtol(entry->d_name, NULL, 10);
    if (task != 0 && task != getpid()) found = task;
  }
  CHECK(closedir(tasks) == 0 && found != 0);
  snprintf(status, room, "/proc/self/task/%ld/status", found);
}

/* The scavenger does not wait for an epoch that was made of a cached epoch and stays open: it sleeps. */
static void sleeps_beside_an_open_epoch(void) {
  char status[64];
  tslab_epoch e = tslab_epoch_open("session");
  CHECK(tslab_epoch_enter(e) == 0);
  tslab_free(must(100));
  CHECK(tslab_epoch_leave(e) == 0 && tslab_epoch_close(e, NULL) == 0);
  e = tslab_epoch_open("session");
  CHECK(tslab_epoch_enter(e) == 0);
  must(100);
  CHECK(tslab_epoch_leave(e) == 0);
  burst();
  find_scavenger(status, sizeof status);
  for (long before = -1, now = 0; before != now;) { /* the scavenger never sleeps: the test's own limit ends this */
    before = naps(status);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* four ticks of a scavenger that is awake */
    now = naps(status);
  }
}

/* ---- the dead and the idle cost nothing -------------------------------------------------------------------------- */

enum { MANY = 300, FORKS = 5 };

static pthread_barrier_t all_used;
static atomic_bool may_end;

static void *uses_some(void *rests) {
  void *some[40];
  for (int i = 0; i < 40; i++) some[i] = must(16 + (size_t)i * 50);
  for (int i = 0; i < 40; i++) tslab_free(some[i]);
  pthread_barrier_wait(&all_used);
  while (rests && !atomic_load(&may_end)) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  return NULL;
}

/* Returns how often any thread took the lock of a heap that is not this thread's. */
static uint64_t locks_of_others(void) {
  uint64_t taken = 0;
  for (struct heap *p = atomic_load(&all_heaps); p; p = p->next_heap)
    if (p != current_heap) taken += __atomic_load_n(&p->lock.taken, __ATOMIC_RELAXED);
  return taken;
}

/* Waits until rounds of the scavenger, which has much to do meanwhile, pass without a look at any of them. */
static void wait_until_left_alone(void) {
  struct pages_totals totals = pages_totals();
  const uint64_t held_before = totals.committed - totals.free_clean;
  uint64_t before;
  do {
    before = locks_of_others();
    burst();
    do {
      nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
      totals = pages_totals(); /* tslab_stats would look at all heaps */
    } while (totals.committed - totals.free_clean > held_before + 4 * MiB);
  } while (locks_of_others() != before);
}

static void forks_take_no_lock_of_the_dead(void) {
  const uint64_t before = locks_of_others();
  for (int i = 0; i < FORKS; i++) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  CHECK_COUNT(locks_of_others(), ==, before);
}

static void dead_and_idle(void) {
  static pthread_t thread[MANY];
  options.publish = 0;
  for (int rests = 1; rests >= 0; rests--) {
    CHECK(pthread_barrier_init(&all_used, NULL, MANY + 1) == 0);
    for (int i = 0; i < MANY; i++) CHECK(pthread_create(&thread[i], NULL, uses_some, rests ? &may_end : NULL) == 0);
    pthread_barrier_wait(&all_used);
    if (rests) wait_until_left_alone();
    atomic_store(&may_end, true);
    for (int i = 0; i < MANY; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    wait_until_left_alone();
    forks_take_no_lock_of_the_dead();
  }
}

/* malloc_trim ends even if other threads free as fast as it returns memory. The linker replaces os_purge by this
   function; pages_lock is free here, as it is for those threads. */
enum { FED_MOST = 1000 };
static int fed = FED_MOST;
bool __real_os_purge(void *at, size_t length);
bool __wrap_os_purge(void *at, size_t length);
bool __wrap_os_purge(void *at, size_t length) {
  bool zero;
  const bool done = __real_os_purge(at, length);
  if (fed < FED_MOST) {
    struct run *const run = pages_alloc(4 * MiB / GRANULE, GRANULE, RUN_LARGE, &zero, NULL);
    CHECK(run != NULL);
    pages_free(run, false);
    fed++;
  }
  return done;
}

static void trim_ends(void) {
  options.scavenger = 0;
  tslab_free(must(16 * MiB));
  fed = 0;
  CHECK_COUNT(tslab_purge(), >, 0);
  CHECK_COUNT(fed, <, FED_MOST);
}

/* Ends the scavenger as the last thread's end does. */
static void stops_and_is_born_again(unsigned before) {
  scavenger_stop();
  while (threads() != before) sched_yield(); /* the kernel's list of threads lags behind a join */
  scavenger_stop(); /* nothing to stop */
  burst();
  CHECK_COUNT(threads(), ==, before + 1);
  wait_until_held_at_most(4 * MiB);
}

static void *nothing(void *unused) { return unused; }

int main(void) {
  pthread_t first;
  CHECK(in_child(unwanted) == 0);
  CHECK(in_child(ends_beside_a_purge) == 0);
  if (!emulated() && !SANITIZED) sleepers(); /* its memory counts for the process too */
  if (!TSLAB_HARDENED) CHECK(in_child(sleepers_unwanted) == 0);
  if (!emulated() && !SANITIZED) CHECK(in_child(shortage) == 0);
  if (!emulated() && !SANITIZED) CHECK(in_child(sleeps_beside_an_open_epoch) == 0);
  if (!emulated()) CHECK(in_child(trim_ends) == 0);
  if (!emulated() && !SANITIZED) CHECK(in_child(nothing_ahead) == 0);
  if (!emulated() && !SANITIZED && !TSLAB_HARDENED && kernel_populates()) CHECK(in_child(ahead_of_growth) == 0);
  if (!SANITIZED) CHECK(in_child(dismissed_at_its_birth) == 0);
  CHECK(pthread_create(&first, NULL, nothing, NULL) == 0 && pthread_join(first, NULL) == 0);
  const unsigned before = threads(); /* with a sanitizer's own, which the first thread starts */
  tslab_free(must(100));
  CHECK_COUNT(threads(), ==, before); /* a small program keeps its one thread */
  burst();
  CHECK_COUNT(threads(), ==, before + 1);
  wait_until_held_at_most(4 * MiB);
  CHECK_COUNT(threads(), ==, before + 1);
  holes();
  if (!TSLAB_HARDENED) waves();
  no_round_misses_another();
  signals_are_not_for_it();
  stops_and_is_born_again(before);
  if (!emulated() && !SANITIZED) CHECK(in_child(dead_and_idle) == 0);
  CHECK_COUNT(tslab_purge(), <, 4 * MiB);
  return 0;
}
