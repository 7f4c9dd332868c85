/* wrapped_clock: a program stands in for clock_gettime, as libfaketime does, and allocates in its function under a
 * mutex of its own. The library asks for the time while it holds locks, around a fork all of them. It must not come
 * through that function: a thread in there may wait for one of these locks. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <time.h>

enum { FORKS = 300, BLOCKS = 100, SKIPPED = 77 };

typedef int clock_function(clockid_t, struct timespec *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool stop;
static _Atomic unsigned long calls;
static _Thread_local bool is_in_it, forks;
static _Thread_local unsigned of_forks;

int clock_gettime(clockid_t clock, struct timespec *time) {
  clock_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
  of_forks += forks;
  if (is_in_it) return next(clock, time);
  is_in_it = true;
  pthread_mutex_lock(&mutex);
  calls++;
  for (size_t i = 0; i < BLOCKS; i++) {
    void *volatile block = tslab_malloc(70000 + i * 1000); /* a slow path */
    CHECK(block != NULL);
    tslab_free(block);
  }
  int error = next(clock, time);
  pthread_mutex_unlock(&mutex);
  is_in_it = false;
  return error;
}

static void *ask_for_time(void *unused) {
  struct timespec now;
  while (!stop) CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return unused;
}

int main(void) {
  enum { THREADS = 2 };
  pthread_t threads[THREADS];
  if (getauxval(AT_SYSINFO_EHDR) == 0) return SKIPPED; /* then the library has only this function to ask */
  alarm(60);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, ask_for_time, NULL) == 0);
  while (calls < THREADS) tslab_free(tslab_malloc(100));
  for (int i = 0; i < FORKS; i++) {
    int status;
    forks = true;
    const pid_t child = fork();
    forks = false;
    if (child == 0) _exit(0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(of_forks, ==, 0);
  return 0;
}
