/* locked_threads: a program stands in for pthread_create, pthread_join and pthread_detach, and holds a mutex of its own
 * in them. In a fork child, which has its parent's memory and no scavenger, the first pthread_create makes one under
 * that mutex. It must not wait for the mutex, nor come through these functions. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int join_function(pthread_t, void **);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int made, joined;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
  create_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  pthread_mutex_lock(&mutex);
  made++;
  free(malloc(40000)); /* a slow path, which may make the scavenger, too */
  int error = next(thread, attributes, routine, argument);
  pthread_mutex_unlock(&mutex);
  return error;
}

int pthread_join(pthread_t thread, void **result) {
  join_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "pthread_join");
  pthread_mutex_lock(&mutex);
  joined++;
  pthread_mutex_unlock(&mutex);
  return next(thread, result);
}

int pthread_detach(pthread_t thread) {
  (void)thread;
  CHECK(false); /* only the library could call it */
  return 0;
}

static void *rest(void *unused) { return unused; }

static void use_threads(void) {
  enum { THREADS = 3 };
  pthread_t thread;
  for (int i = 0; i < THREADS; i++) {
    CHECK(pthread_create(&thread, NULL, rest, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK_COUNT(made, ==, THREADS);
  CHECK_COUNT(joined, ==, THREADS);
}

int main(void) {
  enum { BLOCKS = 64, BYTES = 60000 };
  static void *blocks[BLOCKS];
  alarm(20);
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = malloc(BYTES)) != NULL);
    memset(blocks[i], 1, BYTES);
  }
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    use_threads();
    pthread_exit(NULL); /* the last heap: this thread ends the scavenger */
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  use_threads();
  return 0;
}
