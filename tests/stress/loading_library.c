/* The library that tests/stress/loading.c loads. Its constructor waits for a thread. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <threads.h>

enum { BLOCKS = 8, BYTES = 2 << 20 };

static void nothing(void) {}

static int use(void *unused) {
  void *blocks[BLOCKS];
  struct rlimit limit;
  (void)unused;
  for (int i = 0; i < BLOCKS; i++) { /* makes the scavenger's thread */
    blocks[i] = malloc(BYTES);
    if (!blocks[i]) return 1;
    memset(blocks[i], 1, BYTES);
  }
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  if (getrlimit(RLIMIT_CORE, &limit) != 0 || setrlimit(RLIMIT_CORE, &limit) != 0) return 1;
  return atexit(nothing);
}

__attribute__((constructor)) static void wait_for_thread(void) {
  thrd_t thread;
  int result = 1;
  if (thrd_create(&thread, use, NULL) != thrd_success) abort();
  if (thrd_join(thread, &result) != thrd_success || result != 0) abort();
}
