/* fork_chunks: the process forks while another thread is at an instruction of a call in an epoch, or at rest. The child
 * has none but the forking thread. There every block of the epoch is as it was and can be freed. Then a close ends
 * the epoch, unless the interrupted call left a block, or in the middle of a release. The epoch fills chunks, and slabs
 * once it has reused its memory, or, if the thread is in many epochs, the holes of its chunks. */
#include "../epochs.h"
#include "memory.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <ucontext.h>

#if defined(__x86_64__) && defined(__GLIBC__)

enum { BLOCKS = 24, WAIT_MS = 20, PATIENCE_S = 20, OTHERS = 300, IS_LOST = 2, REFILL = 40 };
enum { EPOCHS = 300, TURNS = 150 };
#define TRAP_FLAG 0x100

static tslab_epoch epoch;
static struct {
  unsigned char *volatile at;
  volatile size_t size;
} blocks[BLOCKS];
static volatile int under_way = -1; /* the block that the other thread's call is about */
static volatile bool is_stepping, is_done, is_in_many;
static unsigned steps, each, births, lost, rounds;
static sem_t ask, answer;
static volatile bool is_late;

static void wait_for(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0) CHECK(errno == EINTR);
}

/* The fork may wait for a lock that this thread holds. So it does not wait for the fork for long. */
static void ask_for_a_fork(void) {
  struct timespec until;
  if (is_late && sem_trywait(&answer) != 0) return;
  is_late = false;
  CHECK(clock_gettime(CLOCK_REALTIME, &until) == 0 && sem_post(&ask) == 0);
  until.tv_nsec += WAIT_MS * 1000000L;
  if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
  is_late = sem_timedwait(&answer, &until) != 0;
}

static void end_asking(void) {
  if (is_late) wait_for(&answer);
  is_late = false;
}

static void take_step(int number, siginfo_t *info, void *context) {
  greg_t *const flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  const int kept = errno;
  (void)number, (void)info;
  if (is_stepping && ++steps % each == 0) ask_for_a_fork();
  *flags = is_stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  errno = kept;
}

static void begin_call(int i) {
  under_way = i;
  is_stepping = true;
  __asm__ volatile("lea -256(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tlea 256(%%rsp), %%rsp"
                   : : "i"(TRAP_FLAG) : "memory", "cc");
}
static void end_call(int i, void *block, size_t size) {
  is_stepping = false;
  if (block) memset(block, i + 1, size);
  blocks[i].size = size;
  blocks[i].at = block;
  under_way = -1;
}

static void take(int i, size_t size) {
  begin_call(i);
  void *const block = malloc(size);
  end_call(i, block, size);
}
static void take_aligned(int i, size_t size) {
  begin_call(i);
  void *const block = aligned_alloc(256, size);
  end_call(i, block, size);
}
static void give(int i) {
  void *const block = blocks[i].at;
  begin_call(i);
  free(block);
  end_call(i, NULL, 0);
}
static void resize(int i, size_t size) {
  void *const before = blocks[i].at;
  begin_call(i);
  void *const block = realloc(before, size);
  end_call(i, block, size);
}

/* Blocks come and go in an order in which the last one is taken back, others are freed before it, the last one grows
 * and shrinks where it is, gaps lie before aligned ones, and a chunk is filled. */
static void use(void) {
  for (int i = 0; i < 6; i++) take(i, 40 + 30 * (size_t)i);
  give(5);
  give(2);
  give(3);
  give(4); /* takes back three */
  take(2, 100);
  resize(2, 700);
  resize(2, 90);
  take_aligned(3, 512);
  give(1);
  take(4, 2000);
  resize(4, 3000);
  give(4);
  for (int i = 6; i < BLOCKS; i++) take(i, 6000);
  for (int i = 6; i < BLOCKS; i += 3) give(i);
}

/* Blocks are replaced, so the heap goes from hole to hole, and from chunk to chunk. */
static void replace(void) {
  unsigned draw = 1;
  for (unsigned turn = 0; turn < TURNS; turn++) {
    draw = draw * 1103515245 + 12345;
    const int i = (int)(draw >> 16) % BLOCKS;
    if (blocks[i].at) give(i);
    take(i, 100 + (draw >> 8) % 900);
    if (turn % 8 == 0) resize(i, 50 + (draw >> 8) % 700);
  }
}

static void free_all(void) {
  for (int i = 0; i < BLOCKS; i++)
    if (blocks[i].at) give(i);
}

static tslab_epoch many[EPOCHS];

static void enter_many(void) {
  for (int i = 0; i < EPOCHS; i++) {
    many[i] = open_epoch("many", TSLAB_EPOCH_DESTROYABLE);
    CHECK(tslab_epoch_enter(many[i]) == 0);
    CHECK(malloc(100) != NULL);
    CHECK(tslab_epoch_leave(many[i]) == 0);
  }
}

static void end_many(void) {
  for (int i = 0; i < EPOCHS; i++) CHECK(tslab_epoch_destroy(many[i], NULL) == 0);
}

static void *other_thread(void *unused) {
  if (is_in_many) enter_many();
  CHECK(tslab_epoch_enter(epoch) == 0);
  for (unsigned i = 1; i < rounds; i++) {
    use();
    free_all();
  }
  if (is_in_many) replace();
  else use();
  CHECK(tslab_epoch_leave(epoch) == 0);
  ask_for_a_fork(); /* at rest, with live blocks, outside the epoch */
  end_asking();
  CHECK(tslab_epoch_enter(epoch) == 0);
  free_all();
  end_asking();
  if (is_in_many) end_many();
  is_done = true;
  CHECK(sem_post(&ask) == 0);
  return unused;
}

static void fill_others(void) {
  unsigned char *others[OTHERS];
  const tslab_epoch id = tslab_epoch_open("others");
  CHECK(id != 0 && tslab_epoch_enter(id) == 0);
  for (int i = 0; i < OTHERS; i++) CHECK((others[i] = malloc(100 + 37 * (size_t)i % 900)) != NULL);
  for (int i = 0; i < OTHERS; i++) memset(others[i], i % 251, 100 + 37 * (size_t)i % 900);
  for (int i = 0; i < OTHERS; i++)
    for (size_t k = 0; k < 100 + 37 * (size_t)i % 900; k++) CHECK_COUNT(others[i][k], ==, i % 251);
  CHECK(tslab_epoch_leave(id) == 0);
  for (int i = 0; i < OTHERS; i++) free(others[i]);
  CHECK(tslab_epoch_close(id, NULL) == 0);
}

/* Returns true if the epoch stays although no block of it lives. A thread in single steps may hold a lock for longer
 * than a fork waits for it. Then the epoch is frozen in the child. */
static bool check_child(void) {
  tslab_epoch_status status = {.live_blocks = 0};
  const int about = under_way;
  fill_others();
  for (int i = 0; i < BLOCKS; i++) {
    if (!blocks[i].at || i == about) continue;
    for (size_t k = 0; k < blocks[i].size; k++) CHECK_COUNT(blocks[i].at[k], ==, i + 1);
    free(blocks[i].at);
  }
  const int closed = tslab_epoch_close(epoch, NULL);
  if (closed == ESHUTDOWN && is_late) {
    tslab_stats_global stats;
    CHECK(tslab_stats(&stats, sizeof stats) == 0 && stats.frozen_bytes != 0);
    return true;
  }
  CHECK_COUNT(closed, ==, 0);
  const int error = tslab_epoch_info(epoch, &status);
  /* A realloc has two for a moment, and a refill of a list holds as many as it takes. */
  const unsigned held = about < 0 ? 0 : rounds == 1 ? 2 : REFILL;
  CHECK_COUNT(status.live_blocks, <=, held);
  CHECK(error == ESTALE || about >= 0);
  fill_others();
  return error != ESTALE && status.live_blocks == 0;
}

static void fork_once(void) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(PATIENCE_S);
    _exit(check_child() ? IS_LOST : 0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == IS_LOST);
  births++;
  lost += WEXITSTATUS(status) == IS_LOST;
}

static void run(unsigned stride, unsigned times) {
  pthread_t other;
  each = stride;
  rounds = times;
  is_done = false;
  CHECK((epoch = tslab_epoch_open("chunks")) != 0);
  CHECK(pthread_create(&other, NULL, other_thread, NULL) == 0);
  for (wait_for(&ask); !is_done; wait_for(&ask)) {
    fork_once();
    CHECK(sem_post(&answer) == 0);
  }
  CHECK(pthread_join(other, NULL) == 0);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
}

int main(int count, char **arguments) {
  /* Nobody can step through the start of the scavenger, which blocks signals. */
  if (count == 1 && !getenv("TSLAB_SCAVENGER")) {
    CHECK(setenv("TSLAB_SCAVENGER", "0", 1) == 0);
    execv("/proc/self/exe", arguments);
  }
  const struct sigaction action = {.sa_sigaction = take_step, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
  CHECK(sem_init(&ask, 0, 0) == 0 && sem_init(&answer, 0, 0) == 0);
  tslab_epoch_close(tslab_epoch_open("chunks"), NULL); /* the label is known: its epochs use chunks */
  for (unsigned stride = 7; stride < 10; stride++) run(stride, 1);
  run(23, 4);
  is_in_many = true;
  run(11, 1);
  CHECK_COUNT(lost, <, births / 10);
  CHECK_COUNT(births, >, 1000);
  return 0;
}

#else

int main(void) { return SKIPPED; }

#endif
