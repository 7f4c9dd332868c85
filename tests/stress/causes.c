/* causes: slow calls whose cause is known, because it was injected, as lines that causes.py judges: injected cause,
 * wall, thread and lock wait time in nanoseconds, path. Every slow call is sampled, with its thread time. Which calls
 * are judged is decided by what the test knows from elsewhere, never by what the library says of the call:
 *
 *   cpu     another process on the same core spins for a turn and sleeps for one, again and again. Judged: calls whose
 *           thread time was taken and that lasted half a turn or longer. Left alone, 99 % of them take less than a
 *           fifth of that (else the machine is too busy to tell, and the test skips), so they were interrupted.
 *   lock    another thread holds the lock of the caller's heap, or of its own heap, some blocks of which the caller has
 *           freed, or that of all pages. Judged: slow calls that the holder saw asleep, and let sleep for a while.
 *   faults  a class grows without a free, all of it is freed and given back, again and again. Judged: slow calls in
 *           which the kernel counted a page fault of the thread.
 *   remote  another thread frees most blocks of many slabs, and the caller allocates again. Judged: slow calls that
 *           return one of these blocks.
 *   map     a class grows in a fresh process. Judged: slow calls across which the frontier moved.
 *
 * Other processes on the machine take the processor from some of these calls. In `faults`, `remote` and `map` no call
 * has to wait. If the test's own clocks say that such a call lost the processor, it has two causes and is not
 * judged. */
#include "../unit/unit.h"

#include "heap/timing.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <time.h>

enum { SKIPPED = 77, WANTED = 300 / TEST_SCALE, PROCESSES = 6, BLOCKS = 4096 };

static void *blocks[BLOCKS];

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* Returns true if the malloc was slow and sampled. No other thread allocates here, so the newest sample is its own. */
static bool slow_malloc(size_t size, void **block, struct sample *s) {
  struct sample before = {0}, after = {0};
  samples_copy(&before, 1);
  *block = tslab_malloc(size);
  CHECK(*block != NULL);
  samples_copy(&after, 1);
  *s = after;
  return after.number != before.number && after.path != PATH_FAST;
}

static uint64_t now_ns(clockid_t clock) {
  struct timespec t;
  CHECK(clock_gettime(clock, &t) == 0);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The same, and the thread kept the processor: its time, read around the other, is no shorter. */
static bool slow_malloc_alone(size_t size, void **block, struct sample *s) {
  const uint64_t cpu = now_ns(CLOCK_THREAD_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
  const bool slow = slow_malloc(size, block, s);
  const uint64_t wall_ns = now_ns(CLOCK_MONOTONIC) - wall;
  return slow && now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu >= wall_ns;
}

static void tell(const char *cause, const struct sample *s) {
  dprintf(1, "%s %llu %lld %llu %s\n", cause, (unsigned long long)s->wall_ns, (long long)s->cpu_ns,
          (unsigned long long)s->lock_wait_ns, path_names[s->path]);
}

/* Where in its first stretch a thread begins is chance: until it ends, no slow call is sampled. */
static void wait_for_first(void) {
  for (bool seen = false; !seen;) {
    struct sample s;
    void *block;
    seen = slow_malloc(GRANULE, &block, &s);
    tslab_free(block);
  }
}

static void free_all(unsigned count) {
  for (unsigned i = 0; i < count; i++) tslab_free(blocks[i]);
}

/* ---- cpu --------------------------------------------------------------------------------------------------------- */

#define TURN_NS 400000

static void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

static pid_t compete(void) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1);
  for (;;) {
    for (const uint64_t start = now_ns(CLOCK_MONOTONIC); now_ns(CLOCK_MONOTONIC) - start < TURN_NS;) {}
    nanosleep(&(struct timespec){.tv_nsec = TURN_NS}, NULL);
  }
}

/* Most of the time of this goes by inside slow calls: each touches a fresh page. */
static void grow_and_shrink(void (*visit)(const struct sample *s)) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    struct sample s;
    if (slow_malloc(SMALL_MAX, &blocks[i], &s)) visit(&s);
  }
  free_all(BLOCKS);
  tslab_purge();
}

static unsigned seen, long_ones;

static void count_long(const struct sample *s) {
  seen++;
  long_ones += s->wall_ns >= TURN_NS / 10;
}

static void tell_long(const struct sample *s) {
  if (s->wall_ns < TURN_NS / 2 || s->cpu_ns == SAMPLE_NO_CPU) return;
  tell("cpu", s);
  seen++;
}

static void cpu(void) {
  stay_on(sched_getcpu());
  grow_and_shrink(count_long);
  grow_and_shrink(count_long);
  if (long_ones * 100 > seen) _exit(SKIPPED);
  const pid_t competitor = compete();
  seen = 0;
  for (unsigned i = 0; seen < WANTED && i < 400; i++) grow_and_shrink(tell_long);
  kill(competitor, SIGKILL);
  waitpid(competitor, NULL, 0);
}

/* ---- lock -------------------------------------------------------------------------------------------------------- */

enum { LOCKED = 1024, APART = 64, PENDING = 14 }; /* bytes; blocks in a slab or more; frees that wait for company */

static struct lock *_Atomic wanted; /* by the caller; the holder takes it away when it holds the lock */
static _Atomic bool holds, has_waited, has_returned, is_over;
static struct heap *_Atomic holders_heap;
static void *theirs[BLOCKS];

static void *hold(void *unused) {
  for (unsigned i = 0; i < BLOCKS; i++) CHECK((theirs[i] = tslab_malloc(LOCKED)) != NULL);
  holders_heap = current_heap;
  for (; !is_over; sched_yield()) {
    struct lock *const lock = wanted;
    if (!lock) continue;
    lock_take(lock);
    holds = true;
    wanted = NULL;
    while (atomic_load(&lock->word) % 2 == 0 && !has_returned) sched_yield();
    has_waited = !has_returned;
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    lock_release(lock);
    holds = false;
  }
  return unused;
}

static void have_held(struct lock *lock) {
  has_waited = has_returned = false;
  wanted = lock;
  while (wanted) sched_yield();
}

/* Blocks of a slab of the holder's, all given out, which the next slow path brings there and so must have listed. */
static void free_theirs(unsigned slab) {
  for (unsigned i = 0; i < PENDING; i++) tslab_free(theirs[slab * APART + i]);
}

static void lock(void) {
  pthread_t holder;
  CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
  while (!holders_heap) sched_yield();
  unsigned told = 0, count = 0;
  for (unsigned turn = 0, slab = 0; told < WANTED && count < BLOCKS; turn++, count++) {
    struct sample s;
    const bool large = turn % 4 == 0, slow = large || current_heap->list[class_of(LOCKED)] == CHAIN_END;
    if (large) {
      have_held(&pages_lock);
    } else if (slow && turn % 2 && slab < BLOCKS / APART) {
      free_theirs(slab++);
      have_held(&holders_heap->lock);
    } else if (slow) {
      have_held(&current_heap->lock);
    }
    const bool sampled = slow_malloc(large ? GRANULE : LOCKED, &blocks[count], &s);
    has_returned = true;
    while (holds) sched_yield();
    if (!sampled || !slow || !has_waited) continue;
    tell("lock", &s);
    told++;
  }
  is_over = true;
  pthread_join(holder, NULL);
}

/* ---- faults and map ---------------------------------------------------------------------------------------------- */

static long faults_now(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
  return usage.ru_minflt;
}

static void faults(void) {
  for (unsigned told = 0, turn = 0; told < WANTED && turn < 100; turn++) {
    for (unsigned i = 0; i < BLOCKS; i++) {
      struct sample s;
      const long before = faults_now();
      if (!slow_malloc_alone(4 * KiB, &blocks[i], &s) || faults_now() == before) continue;
      tell("faults", &s);
      told++;
    }
    free_all(BLOCKS);
    tslab_purge();
  }
}

static void map(void) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    struct sample s;
    const size_t before = pages.count;
    if (slow_malloc_alone(SMALL_MAX, &blocks[i], &s) && pages.count != before) tell("map", &s);
  }
}

/* ---- remote ------------------------------------------------------------------------------------------------------ */

enum { SMALL = 256, KEPT = 64 }; /* one block in KEPT stays, so that no slab is ever empty and retired */
static bool is_given[BLOCKS];

static bool was_given(const void *block) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (blocks[i] == block) return is_given[i];
  return false;
}

static void *free_given(void *unused) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (is_given[i]) tslab_free(blocks[i]);
  return unused;
}

static void remote(void) {
  static void *again[BLOCKS];
  for (unsigned told = 0, turn = 0; told < WANTED && turn < 200; turn++) {
    pthread_t other;
    for (unsigned i = 0; i < BLOCKS; i++) {
      CHECK((blocks[i] = tslab_malloc(SMALL)) != NULL);
      is_given[i] = i % KEPT != 0;
    }
    CHECK(pthread_create(&other, NULL, free_given, NULL) == 0);
    pthread_join(other, NULL);
    unsigned count = 0;
    for (; count < BLOCKS / 2; count++) {
      struct sample s;
      if (!slow_malloc_alone(SMALL, &again[count], &s) || !was_given(again[count])) continue;
      tell("remote", &s);
      told++;
    }
    for (unsigned i = 0; i < count; i++) tslab_free(again[i]);
    for (unsigned i = 0; i < BLOCKS; i++)
      if (!is_given[i]) tslab_free(blocks[i]);
  }
}

/* ------------------------------------------------------------------------------------------------------------------ */

static const struct {
  const char *name;
  void (*inject)(void);
  unsigned processes;
} injected[] = {
    {"cpu", cpu, 1}, {"lock", lock, 1}, {"faults", faults, 1}, {"remote", remote, 1}, {"map", map, PROCESSES},
};

static void (*inject)(void);

static void run(void) {
  wait_for_first();
  inject();
}

/* With the name of one cause: only that one. Status 77 when `cpu` could not be told. */
int main(int argc, char **argv) {
  if (!getenv("TSLAB_SAMPLE")) { /* read before main begins */
    setenv("TSLAB_SAMPLE", "1", 1);
    setenv("TSLAB_SAMPLE_CPU", "1", 1);
    setenv("TSLAB_SCAVENGER", "0", 1); /* which would allocate nothing, but take locks and purge */
    execv("/proc/self/exe", argv);
    CHECK(false);
  }
  int worst = 0;
  for (size_t i = 0; i < sizeof injected / sizeof *injected; i++) {
    if (argc > 1 && strcmp(argv[1], injected[i].name) != 0) continue;
    for (unsigned p = 0; p < injected[i].processes; p++) {
      inject = injected[i].inject;
      const int status = in_child(run);
      CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIPPED));
      if (WEXITSTATUS(status) != 0) worst = SKIPPED;
    }
  }
  return worst;
}
