/* early_fork: a program makes threads and forks before any constructor runs, so before the library has fork handlers.
 * Each child allocates and ends. The program also changes its groups there, as each of its threads must. */
#include "../check.h"

#include <grp.h>
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 3, CHILDREN = 300, BLOCKS = 40, HANG_S = 30 };

static _Atomic int stop;
static int children;

static void use_heap(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(i * i * 200 + 1)) != NULL);
  for (size_t i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
}

static void *use_heap_until_stopped(void *unused) {
  while (!stop) use_heap();
  return unused;
}

static void fork_once(void) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(HANG_S);
    use_heap();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
}

__attribute__((unused)) static void begin_early(void) {
  pthread_t threads[THREADS];
  gid_t group = getgid();
  use_heap();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, use_heap_until_stopped, NULL) == 0);
  for (; children < CHILDREN / TEST_SCALE; children++) fork_once();
  CHECK(setgroups(1, &group) == 0 || errno == EPERM);
  stop = 1;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* glibc runs preinit_array before any constructor; other libcs do not know it. */
#if defined(__GLIBC__)
__attribute__((section(".preinit_array"), used)) static void (*const before_constructors)(void) = begin_early;
#endif

int main(void) {
  if (children == 0) return 77;
  use_heap();
  return 0;
}
