/* wrapped_threads: a program stands in for pthread_create with a start routine of its own, which allocates; the
 * scavenger's thread comes through it, too, in a program that has no libtslab.so. That thread's heap must not keep a
 * process whose main thread left. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

struct start {
  void *(*routine)(void *);
  void *argument;
};

static _Atomic int started;

static void *begin(void *given) {
  struct start start = *(struct start *)given;
  tslab_free(given);
  started++;
  void *volatile kept = tslab_malloc(100);
  void *result = start.routine(start.argument);
  tslab_free(kept);
  return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
  create_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  struct start *start = tslab_malloc(sizeof *start);
  CHECK(start != NULL);
  *start = (struct start){routine, argument};
  return next(thread, attributes, begin, start);
}

static void *outlive_main(void *unused) {
  usleep(100000);
  tslab_free(tslab_malloc(100));
  CHECK_COUNT(started, >=, 2); /* the scavenger, and this; a second one where main's heap ended before this began */
  CHECK_COUNT(started, <=, 3);
  return unused;
}

int main(void) {
  enum { BLOCKS = 64, BYTES = 60000 };
  void *blocks[BLOCKS];
  pthread_t thread;
  alarm(20);
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = tslab_malloc(BYTES)) != NULL);
    memset(blocks[i], 1, BYTES);
  }
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  while (started == 0) tslab_free(tslab_malloc(3000)), usleep(1000);
  CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0);
  CHECK(pthread_detach(thread) == 0);
  pthread_exit(NULL);
}
