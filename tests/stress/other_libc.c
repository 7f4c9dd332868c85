/* other_libc: dlmopen loads a library with a libc of its own, which makes keys for values of threads. All libcs of a
 * process keep these values in the same place. The library still finds its own values, and the heap of a thread still
 * ends with the thread.
 *  other_libc LIBRARY */
#include "../check.h"
#include "tslab/tslab.h"

#include <dlfcn.h>
#include <pthread.h>

enum { KEYS = 20, THREADS = 50 };

static int (*use)(unsigned keys);

static void *use_both(void *unused) {
  void *const before = malloc(100);
  CHECK(use(KEYS) == 0);
  void *const after = malloc(1000);
  CHECK(tslab_owns(before) && tslab_owns(after));
  CHECK(use(KEYS) == 0);
  free(before);
  free(after);
  return unused;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
#ifndef LM_ID_NEWLM
  (void)argv;
  return SKIPPED; /* musl has no dlmopen */
#else
  void *const library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
  CHECK(library != NULL);
  use = (int (*)(unsigned))dlsym(library, "use_keys");
  CHECK(use != NULL);
  use_both(NULL);
  tslab_stats_global before, after;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_both, NULL) == 0 && pthread_join(thread, NULL) == 0);
  }
  CHECK(tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.heaps, <=, before.heaps + 2);
  return 0;
#endif
}
