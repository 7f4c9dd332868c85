/* lock_swings: a process locks all of its memory and unlocks it, again and again, while threads let buffers grow. In
 * the end nothing counts as locked. */
#include "memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

enum { THREADS = 2, SWINGS = 1000 };

static _Atomic bool is_over;

static void *grow(void *unused) {
  while (!atomic_load(&is_over)) {
    size_t size = MIB;
    char *block = malloc(size);
    CHECK(block != NULL);
    memset(block, 1, size);
    while (size < 12 * MIB) {
      CHECK((block = realloc(block, size + size / 2)) != NULL);
      size += size / 2;
      block[size - 1] = 1;
    }
    free(block);
  }
  return unused;
}

static size_t locked_kib(void) {
  char line[256];
  size_t kib = 0;
  FILE *const file = fopen("/proc/self/status", "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof line, file)) sscanf(line, "VmLck: %zu", &kib);
  fclose(file);
  return kib;
}

int main(void) {
  pthread_t threads[THREADS];
  if (mlockall(MCL_CURRENT) != 0 || munlockall() != 0) return SKIPPED;
  const size_t before = locked_kib();
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, grow, NULL) == 0);
  for (int i = 0; i < SWINGS; i++) {
    CHECK(mlockall(MCL_CURRENT) == 0);
    usleep(500);
    CHECK(munlockall() == 0);
    usleep(500);
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(munlockall() == 0);
  CHECK_COUNT(locked_kib(), ==, before);
  return 0;
}
