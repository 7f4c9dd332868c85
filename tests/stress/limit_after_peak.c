/* limit_after_peak: a program has freed its largest block when it limits its addresses or its data. Free memory does
 * not count then: threads start, the program maps memory and allocates up to the limit. */
#include "each_limit.h"

#include <pthread.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (400 * MIB)

static void *work(void *unused) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 5000, 50 * MIB), >=, 50 * MIB);
  free_list(&list);
  return unused;
}

static int under(int resource) {
  unsigned char *const kept = memset(malloc(8 * MIB), 7, 8 * MIB);
  void *volatile peak = malloc(1024 * MIB);
  CHECK(peak != NULL);
  free(memset(peak, 1, 64 * MIB));
  const struct rlimit limit = {LIMIT, LIMIT};
  CHECK(setrlimit(resource, &limit) == 0);
  for (int i = 0; i < 3; i++) {
    pthread_t thread;
    CHECK_COUNT(pthread_create(&thread, NULL, work, NULL), ==, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    void *const mapped = mmap(NULL, 100 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && munmap(mapped, 100 * MIB) == 0);
  }
  void *list = NULL;
  errno = 0;
  CHECK_COUNT(fill_list(&list, 3 * MIB, 2 * LIMIT), >=, LIMIT / 2);
  CHECK(errno == ENOMEM);
  free_list(&list);
  work(NULL);
  for (size_t i = 0; i < 8 * MIB; i++) CHECK(kept[i] == 7);
  free(kept);
  return 0;
}

int main(void) { return under_each_limit(under); }
