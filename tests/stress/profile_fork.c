/* profile_fork: the heap profile of a fork child is exact. At its birth a child has its parent's live samples, and each
 * is as it was: its block, size, weight, epoch, label, thread, birth and call site. A sample that the child frees is
 * gone there, and stays in the parent. A sample that the child allocates has the child's own thread and time. The same
 * holds for a child's child.
 *
 * While three threads allocate and free samples and one reads the profile, each child has one sample too many at most
 * for each of them, that of the call that the thread was in. A child of clone() may have a profile that stands still,
 * which can be read all the same. No child hangs.
 *
 *  profile_fork [long] */
#include "../check.h"

#include "heap/profile.h"
#include "os/os.h"
#include "stats/profile.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { INTERVAL = 4096, LARGE = 64 * INTERVAL, PATIENCE_S = 60 };
enum { SMALL_BLOCKS = 3000 / TEST_SCALE, LARGE_BLOCKS = 20, EPOCH_BLOCKS = 300, OWN = SMALL_BLOCKS };
enum { BLOCKS = SMALL_BLOCKS + LARGE_BLOCKS + EPOCH_BLOCKS, ALLOCATORS = 3, SLOTS = 64, FORKS = 60 / TEST_SCALE };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MAKES_THREADS = 0 }; /* their runtimes cannot, in a child of a process with threads */
#else
enum { MAKES_THREADS = 1 };
#endif

static void *blocks[BLOCKS]; /* NULL: freed */

/* ---- all live samples -------------------------------------------------------------------------------------------- */

struct snapshot {
  struct profile_totals totals;
  struct profile_sample rows[PROFILE_SAMPLES + 1]; /* block NULL: dead */
  unsigned live;
};
static struct snapshot before, now;

static void look(struct snapshot *to) {
  memset(to, 0, sizeof *to);
  lock_take(&profile_lock);
  for (uint32_t i = 1; i <= profile_samples_most(); i++) {
    const struct profile_sample *const row = profile_sample_at(i);
    if (!row) continue;
    to->rows[i] = *row;
    to->live++;
  }
  to->totals = profile_totals();
  lock_release(&profile_lock);
  CHECK_COUNT(to->live, ==, to->totals.live);
  CHECK_COUNT(to->totals.samples, ==, to->totals.frees + to->totals.live + to->totals.lost);
}

static bool is_same(const struct profile_sample *a, const struct profile_sample *b) {
  return a->block == b->block && a->size == b->size && a->weight == b->weight && a->born_ns == b->born_ns &&
         a->site == b->site && a->epoch == b->epoch && a->label == b->label && a->thread_id == b->thread_id;
}

static bool is_held(const void *block) {
  for (unsigned i = 0; i < BLOCKS; i++)
    if (blocks[i] == block) return true;
  return false;
}

/* Every sample of a block that is held is there, as it was. Returns how many there are. */
static unsigned check_held(void) {
  unsigned held = 0;
  look(&now);
  for (unsigned i = 1; i <= PROFILE_SAMPLES; i++) {
    if (!before.rows[i].block || !is_held(before.rows[i].block)) continue;
    CHECK(is_same(&before.rows[i], &now.rows[i]));
    held++;
  }
  return held;
}

/* ---- one process ------------------------------------------------------------------------------------------------- */

static size_t size_of(unsigned i) { return i % 5 == 0 ? 3000 + i : i % 700; }

static void *leave_blocks(void *unused) {
  for (unsigned i = 0; i < SMALL_BLOCKS / 2; i++) CHECK((blocks[i] = tslab_malloc(size_of(i))) != NULL);
  return unused;
}

/* Half of the small blocks are those of a thread that has ended. */
static void fill(void) {
  pthread_t thread;
  unsigned i = SMALL_BLOCKS / 2;
  CHECK(pthread_create(&thread, NULL, leave_blocks, NULL) == 0 && pthread_join(thread, NULL) == 0);
  for (; i < SMALL_BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(size_of(i))) != NULL);
  for (; i < SMALL_BLOCKS + LARGE_BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(LARGE + i)) != NULL);
  const tslab_epoch epoch = tslab_epoch_open("inherited");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  for (; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(300)) != NULL);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
}

static void free_some(unsigned step) {
  for (unsigned i = 0; i < BLOCKS; i += step) {
    tslab_free(blocks[i]);
    blocks[i] = NULL;
  }
}

static bool is_one_of(void *const *own, const void *block) {
  for (unsigned i = 0; i < OWN; i++)
    if (own[i] == block) return true;
  return false;
}

/* New samples are those of this thread's new blocks, and end with these. */
static void *sample_as_myself(void *unused) {
  static void *own[OWN];
  const uint64_t start_ns = os_now_coarse_ns();
  unsigned found = 0;
  for (unsigned i = 0; i < OWN; i++) CHECK((own[i] = tslab_malloc(i % 50 ? size_of(i) : LARGE)) != NULL);
  look(&now);
  for (unsigned i = 1; i <= PROFILE_SAMPLES; i++) {
    const struct profile_sample *const row = &now.rows[i];
    if (!row->block || !is_one_of(own, row->block)) continue;
    CHECK_COUNT(row->thread_id, ==, os_thread_id());
    CHECK_COUNT(row->born_ns, >=, start_ns);
    found++;
  }
  CHECK_COUNT(found, >=, OWN / 50);
  const uint64_t live = now.totals.live;
  for (unsigned i = 0; i < OWN; i++) tslab_free(own[i]);
  look(&now);
  CHECK_COUNT(now.totals.live, ==, live - found);
  return unused;
}

static void wait_for(pid_t child) {
  int status;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
}

/* ---- no other thread runs ---------------------------------------------------------------------------------------- */

/* Compares with what the parent had, and frees some of it. This process's own child gets the rest. */
static void live_as_child(unsigned step) {
  pthread_t thread;
  alarm(PATIENCE_S);
  CHECK(!profile_is_frozen());
  CHECK_COUNT(check_held(), ==, before.live);
  CHECK(memcmp(&before.totals, &now.totals, sizeof now.totals) == 0);
  free_some(step);
  const unsigned held = check_held();
  CHECK_COUNT(now.live, ==, held);
  CHECK_COUNT(now.totals.frees, ==, before.totals.frees + before.live - held);
  sample_as_myself(NULL);
  CHECK_COUNT(check_held(), ==, held);
  if (MAKES_THREADS)
    CHECK(pthread_create(&thread, NULL, sample_as_myself, NULL) == 0 && pthread_join(thread, NULL) == 0);
  look(&before);
}

static void live_and_end(unsigned generations) {
  for (;; generations--) {
    live_as_child(2 + generations);
    const pid_t child = generations > 0 ? fork() : -1;
    if (child == 0) continue;
    if (generations > 0) wait_for(child);
    break;
  }
  CHECK_COUNT(check_held(), ==, before.live);
  free_some(1);
  look(&now);
  CHECK_COUNT(now.live, ==, 0);
  _exit(0);
}

static void while_alone(void) {
  look(&before);
  CHECK_COUNT(before.live, >, LARGE_BLOCKS + 100 / TEST_SCALE);
  CHECK_COUNT(before.totals.lost, ==, 0);
  for (int i = 0; i < 3; i++) {
    const pid_t child = fork();
    if (child == 0) live_and_end(2);
    wait_for(child);
    CHECK_COUNT(check_held(), ==, before.live);
    CHECK(memcmp(&before.totals, &now.totals, sizeof now.totals) == 0);
  }
}

/* ---- others allocate, free and read ------------------------------------------------------------------------------ */

enum { STANDS_STILL = 3 };
static void *_Atomic slots[ALLOCATORS][SLOTS];
static _Atomic bool stop;

static void *allocate(void *number) {
  uint64_t random = (uintptr_t)number + 1;
  while (!stop) {
    void *_Atomic *const slot = &slots[check_random(&random) % ALLOCATORS][check_random(&random) % SLOTS];
    const uint64_t r = check_random(&random);
    tslab_free(atomic_exchange(slot, NULL));
    void *const block = tslab_malloc(r % 8 == 0 ? LARGE : r % 5000);
    CHECK(block != NULL);
    tslab_free(atomic_exchange(slot, block));
  }
  return NULL;
}

static int pass(const tslab_profile_site *site, void *unused) {
  (void)unused;
  return site->live_samples > site->allocated_samples;
}

static int count(const tslab_profile_site *site, void *unused) {
  (void)unused;
  return site->depth > TSLAB_STACK;
}

static void *read_profile(void *unused) {
  while (!stop) {
    CHECK(tslab_profile_each(pass, NULL) == 0);
    usleep(1000);
  }
  return unused;
}

static void live_beside(void) {
  alarm(PATIENCE_S);
  tslab_free(tslab_malloc(LARGE)); /* takes a lock, at which a child of clone() notices that it is one */
  const bool frozen = profile_is_frozen();
  if (!frozen) CHECK_COUNT(check_held(), ==, before.live);
  free_some(1);
  for (unsigned i = 0; i < ALLOCATORS * SLOTS; i++) tslab_free(atomic_exchange(&slots[i / SLOTS][i % SLOTS], NULL));
  if (!frozen) {
    look(&now);
    CHECK_COUNT(now.live, <=, ALLOCATORS);
    sample_as_myself(NULL);
    CHECK_COUNT(now.live, <=, ALLOCATORS);
  }
  CHECK(tslab_profile_each(frozen ? count : pass, NULL) == 0);
  _exit(frozen ? STANDS_STILL : 0);
}

/* Returns whether the child's profile was exact, and not one that stands still. */
static bool give_birth(bool bare) {
  int status;
  const pid_t child = bare ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
  CHECK(child >= 0);
  if (child == 0) live_beside();
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == STANDS_STILL));
  return status == 0;
}

static void while_others_run(unsigned forks) {
  pthread_t threads[ALLOCATORS + 1];
  unsigned whole[2] = {0, 0};
  for (uintptr_t i = 0; i < ALLOCATORS; i++) CHECK(pthread_create(&threads[i], NULL, allocate, (void *)i) == 0);
  CHECK(pthread_create(&threads[ALLOCATORS], NULL, read_profile, NULL) == 0);
  for (unsigned i = 0; i < forks; i++) {
    const bool bare = i % 3 == 2;
    whole[bare] += give_birth(bare);
  }
  stop = true;
  for (unsigned i = 0; i <= ALLOCATORS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  printf("%u children, %u whole of fork and %u of clone\n", forks, whole[0], whole[1]);
  CHECK_COUNT(whole[0], >, 0);
  CHECK_COUNT(check_held(), ==, before.live);
}

int main(int argc, char **argv) {
  CHECK(tslab_profile_interval(INTERVAL, NULL) == 0);
  fill();
  while_alone();
  while_others_run(argc > 1 && strcmp(argv[1], "long") == 0 ? 100 * FORKS : FORKS);
  return 0;
}
