/* fork_unseen: threads that the program makes by a pointer into libc, so that the library sees no pthread_create, fork
 * at the same time: no fork hangs, and none leaves signals blocked, in the parent or in the child. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { THREADS = 3, FORKS = 500 };

static bool blocks_any(void) {
  sigset_t set;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0);
  for (int i = 1; i < 32; i++)
    if (sigismember(&set, i) == 1) return true;
  return false;
}

static void *fork_often(void *unused) {
  for (int i = 0; i < FORKS; i++) {
    int status;
    const pid_t child = fork();
    if (child == 0) _exit(blocks_any());
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, 0);
    CHECK(!blocks_any());
  }
  return unused;
}

int main(void) {
  pthread_t threads[THREADS];
  void *const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  CHECK(libc != NULL);
  typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  create_function *const create = (create_function *)dlsym(libc, "pthread_create");
  CHECK(create != NULL);
  alarm(120);
  for (int i = 0; i < THREADS; i++) CHECK(create(&threads[i], NULL, fork_often, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(fflush(NULL) == 0);
  return 0;
}
