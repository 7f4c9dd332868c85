/* fork_steps: a signal handler forks at each instruction of a thread's first malloc, of mallocs and frees on slow
 * paths, and of calls for epochs. Each child returns from the handler, and so ends the call that the signal
 * interrupted. Then it and its own threads fill blocks and check them: no two may have the same memory, and no malloc
 * may fail. Epochs that the child opens are different ones. A frozen child does not return into a call for epochs. */
#include "memory.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#if defined(__x86_64__) && defined(__GLIBC__)

enum { THREADS = 3, BLOCKS = 600, LARGE = 70000, PATIENCE_S = 20, SOME = 60, MORE = 400, EPOCHS = 6, CHILDREN = 3,
       CHARGED = 24 };
#define TRAP_FLAG 0x100

static volatile bool is_stepping, is_child, is_about_epochs;
static unsigned steps, each, most, births;
static void *volatile block;
static pid_t (*give_birth)(void);

static bool is_frozen(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  return stats.frozen_bytes != 0;
}

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
      if (is_about_epochs && is_frozen()) _exit(0);
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

static size_t size_of(unsigned i, unsigned seed) {
  return i % 97 == 0 ? LARGE : (i * 37 + seed * 101) % 1500 + 1;
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

/* If one is the interrupted call's, it is `opened`. */
static tslab_epoch opened;
static void check_epochs(void) {
  tslab_epoch epochs[EPOCHS];
  for (unsigned i = 0; i < EPOCHS; i++) {
    CHECK((epochs[i] = tslab_epoch_open("step")) != 0 && tslab_epoch_enter(epochs[i]) == 0);
    CHECK((block = malloc(100)) != NULL && tslab_epoch_of(block) == epochs[i]);
    CHECK(tslab_epoch_leave(epochs[i]) == 0 && epochs[i] != opened);
    for (unsigned j = 0; j < i; j++) CHECK(epochs[j] != epochs[i]);
  }
  for (unsigned i = 0; i < EPOCHS; i++) CHECK(tslab_epoch_close(epochs[i], NULL) == 0);
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
  if (is_about_epochs) check_epochs();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  _exit(0);
}

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

static void open_cached(void) {
  CHECK((opened = tslab_epoch_open("step")) != 0 && tslab_epoch_close(opened, NULL) == 0);
  opened = 0;
  begin_steps(fork, 3, 1000 * TEST_SCALE);
  opened = tslab_epoch_open("step");
  end_steps();
  CHECK(tslab_epoch_close(opened, NULL) == 0);
  opened = 0;
}

static void close_tree(bool destroys) {
  const tslab_epoch_options root = {.struct_size = sizeof root, .label = "root", .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch parent = tslab_epoch_open_with(&root);
  tslab_epoch_options child = root;
  child.parent = parent;
  for (int i = 0; i < CHILDREN; i++) CHECK((block = tslab_epoch_malloc(tslab_epoch_open_with(&child), 90)) != NULL);
  begin_steps(fork, 23, 12000 * TEST_SCALE);
  CHECK((destroys ? tslab_epoch_destroy(parent, NULL) : tslab_epoch_close(parent, NULL)) == 0);
  end_steps();
}

static void free_handles(void) {
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = "h", .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch epoch = tslab_epoch_open_with(&options);
  void *unused;
  begin_steps(fork, 7, 2500 * TEST_SCALE);
  CHECK(tslab_handle_free(tslab_handle_alloc(epoch, 40, &unused)));
  if (is_child) CHECK(tslab_epoch_destroy(epoch, NULL) == 0);
  end_steps();
  CHECK(tslab_epoch_destroy(epoch, NULL) == 0);
}

/* The sums that a budget limits stay right: the epoch still serves the child, and may end there. */
static void release_charged(void) {
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = "b", .budget_bytes = 16 << 20};
  const tslab_epoch epoch = tslab_epoch_open_with(&options);
  void *blocks[CHARGED];
  tslab_epoch_status status;
  for (int i = 0; i < CHARGED; i++) CHECK((blocks[i] = tslab_epoch_malloc(epoch, 100000)) != NULL);
  begin_steps(fork, 31, 20000 * TEST_SCALE);
  for (int i = 0; i < CHARGED; i++) free(blocks[i]);
  if (is_child) {
    CHECK((block = tslab_epoch_malloc(epoch, 40000)) != NULL);
    free(block);
    CHECK(tslab_epoch_close(epoch, NULL) == 0 && tslab_epoch_info(epoch, &status) == ESTALE);
  }
  end_steps();
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
}

static void trim(void) {
  void *blocks[SOME];
  for (int i = 0; i < SOME; i++) memset(blocks[i] = malloc(9000), 1, 9000);
  for (int i = 0; i < SOME; i++)
    if (i % 5) free(blocks[i]);
  begin_steps(fork, 97, 30000 * TEST_SCALE);
  malloc_trim(0);
  end_steps();
  for (int i = 0; i < SOME; i += 5) free(blocks[i]);
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
  is_about_epochs = true;
  open_cached();
  close_tree(false);
  close_tree(true);
  free_handles();
  release_charged();
  is_about_epochs = false;
  trim();
  CHECK_COUNT(births, >, 1000);
  return 0;
}

#else

int main(void) { return SKIPPED; }

#endif
