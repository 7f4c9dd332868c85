/* limit_by_thread: a thread limits the addresses of its process by its own id, or by that of another thread. There is
 * room for a mapping then. */
#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static void *limit_process(void *thread) {
  const struct rlimit limit = {2048 * MIB, RLIM_INFINITY};
  CHECK(prlimit(thread ? *(pid_t *)thread : gettid(), RLIMIT_AS, &limit, NULL) == 0);
  return NULL;
}

static pid_t other;
static pthread_barrier_t reached;
static void *wait_for_limit(void *unused) {
  other = gettid();
  pthread_barrier_wait(&reached);
  pthread_barrier_wait(&reached);
  return unused;
}

static void map(void) {
  void *const mapped = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED && munmap(mapped, 64 * MIB) == 0);
}

static void by_another(void) {
  pthread_t thread;
  CHECK(pthread_barrier_init(&reached, NULL, 2) == 0 && pthread_create(&thread, NULL, wait_for_limit, NULL) == 0);
  pthread_barrier_wait(&reached);
  limit_process(&other);
  map();
  pthread_barrier_wait(&reached);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  pthread_t thread;
  free(malloc(100));
  const pid_t child = fork();
  if (child == 0) {
    by_another();
    _exit(0);
  }
  CHECK(child_passed(child));
  CHECK(pthread_create(&thread, NULL, limit_process, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  map();
  return 0;
}
