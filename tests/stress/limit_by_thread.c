/* limit_by_thread: a thread limits the addresses of its process by its own id. There is room for a mapping then. */
#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static void *limit_process(void *unused) {
  const struct rlimit limit = {2048 * MIB, RLIM_INFINITY};
  CHECK(prlimit(gettid(), RLIMIT_AS, &limit, NULL) == 0);
  return unused;
}

int main(void) {
  pthread_t thread;
  free(malloc(100));
  CHECK(pthread_create(&thread, NULL, limit_process, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  void *const mapped = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  return 0;
}
