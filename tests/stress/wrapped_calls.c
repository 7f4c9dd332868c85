/* wrapped_calls: a program stands in for functions of libc that the library needs, as tracers and test harnesses do. It
 * allocates in them, and does so under a mutex under which another thread allocates, too. The library holds locks while
 * it blocks signals, sets up a thread's heap or writes a message, so none of that may come through such a function. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { FORKS = 100, BLOCKS = 50, THREADS = 2, HANG_S = 60 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool stop;
static _Atomic unsigned long turns;
static _Thread_local bool is_in_it;

static void allocate_much(void) {
  for (size_t i = 0; i < BLOCKS; i++) {
    void *volatile block = tslab_malloc(70000 + i * 1000); /* a slow path */
    CHECK(block != NULL);
    tslab_free(block);
  }
}

static void allocate_locked(void) {
  if (is_in_it) return;
  is_in_it = true;
  pthread_mutex_lock(&mutex);
  allocate_much();
  pthread_mutex_unlock(&mutex);
  is_in_it = false;
}

#define NEXT(name) \
  __typeof__(name) *next; \
  *(void **)&next = dlsym(RTLD_NEXT, #name)

int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
  NEXT(pthread_key_create);
  allocate_locked();
  return next(key, destructor);
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
  NEXT(pthread_sigmask);
  allocate_locked();
  return next(how, set, before);
}

int sigfillset(sigset_t *set) {
  NEXT(sigfillset);
  allocate_locked();
  return next(set);
}

int sigpending(sigset_t *set) {
  NEXT(sigpending);
  allocate_locked();
  return next(set);
}

int sched_yield(void) {
  NEXT(sched_yield);
  allocate_locked();
  return next();
}

static void *use_them(void *unused) {
  while (!stop) {
    allocate_locked();
    turns++;
  }
  return unused;
}

static void *live_shortly(void *unused) {
  allocate_much();
  return unused;
}

int main(void) {
  pthread_t threads[THREADS], other;
  alarm(HANG_S);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, use_them, NULL) == 0);
  while (turns < THREADS) tslab_free(tslab_malloc(100));
  for (int i = 0; i < FORKS; i++) {
    int status;
    CHECK(pthread_create(&other, NULL, live_shortly, NULL) == 0);
    const pid_t child = fork();
    if (child == 0) {
      allocate_much();
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pthread_join(other, NULL) == 0);
    tslab_purge();
  }
  stop = true;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
