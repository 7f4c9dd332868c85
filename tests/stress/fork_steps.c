/* fork_steps: a signal handler forks at each instruction of a thread's first malloc, and of mallocs and frees on slow
 * paths. Each child returns from the handler, and so ends the call that the signal interrupted. Then it and its own
 * threads fill blocks and check them: no two may have the same memory, and no malloc may fail. */
#include "memory.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#if defined(__x86_64__) && defined(__GLIBC__)

enum { THREADS = 3, BLOCKS = 600, LARGE = 70000, PATIENCE_S = 20, SOME = 60, MORE = 400 };
#define TRAP_FLAG 0x100

static volatile bool is_stepping, is_child;
static unsigned steps, each, most, births;
static pid_t (*give_birth)(void);

static void take_step(int number, siginfo_t *info, void *context) {
  greg_t *const flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  const int kept = errno;
  (void)number, (void)info;
  if (++steps > most) is_stepping = false;
  if (is_stepping && steps % each == 0) {
    const pid_t child = give_birth();
    is_child = child == 0;
    if (is_child) {
      is_stepping = false;
      alarm(PATIENCE_S);
    } else {
      int status;
      CHECK(child > 0 && waitpid(child, &status, 0) == child);
      if (status != 0) fprintf(stderr, "step %u\n", steps);
      CHECK_COUNT(status, ==, 0);
      births++;
    }
  }
  *flags = is_stepping ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  errno = kept;
}

static void begin_steps(pid_t (*way)(void), unsigned stride, unsigned last) {
  give_birth = way;
  each = stride;
  most = last;
  steps = 0;
  is_stepping = true;
  __asm__ volatile("lea -256(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tlea 256(%%rsp), %%rsp"
                   : : "i"(TRAP_FLAG) : "memory", "cc");
}

static size_t size_of(unsigned block, unsigned seed) {
  return block % 97 == 0 ? LARGE : (block * 37 + seed * 101) % 1500 + 1;
}

static void fill(unsigned char **blocks, unsigned seed) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = malloc(size_of(i, seed))) != NULL);
    memset(blocks[i], (int)((i + seed) % 256), size_of(i, seed));
  }
}

static void check(unsigned char **blocks, unsigned seed) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    for (size_t k = 0; k < size_of(i, seed); k++) CHECK_COUNT(blocks[i][k], ==, (i + seed) % 256);
    free(blocks[i]);
  }
}

static pthread_barrier_t all_have_filled;
static void *fill_and_check(void *seed) {
  unsigned char *blocks[BLOCKS];
  fill(blocks, (unsigned)(uintptr_t)seed);
  pthread_barrier_wait(&all_have_filled);
  check(blocks, (unsigned)(uintptr_t)seed);
  return NULL;
}

static void end_steps(void) {
  is_stepping = false;
  if (!is_child) return;
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&all_have_filled, NULL, THREADS + 1) == 0);
  for (uintptr_t i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, fill_and_check, (void *)(i + 1)) == 0);
  fill_and_check(NULL);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  _exit(0);
}

static void *volatile block;

static void *allocate_first(void *unused) {
  begin_steps(fork, 3, 1200 * TEST_SCALE);
  block = malloc(100);
  end_steps();
  return unused;
}

static void *allocate_first_bare(void *unused) {
  begin_steps(_Fork, 3, 1200 * TEST_SCALE);
  block = malloc(100);
  end_steps();
  return unused;
}

static void in_a_thread(void *(*body)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void allocate_some(pid_t (*way)(void)) {
  void *blocks[SOME];
  begin_steps(way, 13, 4000 * TEST_SCALE);
  for (int i = 0; i < SOME; i++) blocks[i] = malloc(208);
  end_steps();
  for (int i = 0; i < SOME; i++) free(blocks[i]);
}

static void free_many(void) {
  void *blocks[MORE];
  for (int i = 0; i < MORE; i++) CHECK((blocks[i] = malloc(208)) != NULL);
  begin_steps(fork, 13, 4000 * TEST_SCALE);
  for (int i = 0; i < MORE; i++) free(blocks[i]);
  end_steps();
}

static void move_large(void) {
  begin_steps(fork, 17, 4000 * TEST_SCALE);
  block = malloc(100000);
  block = realloc(block, 300000);
  block = realloc(block, 3000000);
  free(block);
  end_steps();
}

int main(void) {
  const struct sigaction action = {.sa_sigaction = take_step, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
  in_a_thread(allocate_first);
  CHECK_COUNT(births, >, 200);
  in_a_thread(allocate_first_bare);
  allocate_some(fork);
  allocate_some(_Fork);
  free_many();
  move_large();
  CHECK_COUNT(births, >, 1000);
  return 0;
}

#else

int main(void) { return SKIPPED; }

#endif
