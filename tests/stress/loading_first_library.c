/* loading_first_library: see loading_first.c. */
#include <pthread.h>
#include <stdlib.h>
#include <threads.h>

static void *nothing(void *unused) { return unused; }

static int make_another(void *unused) {
  pthread_t thread;
  (void)unused;
  return pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0;
}

__attribute__((constructor)) static void wait_for_thread(void) {
  thrd_t thread;
  int result = 1;
  if (thrd_create(&thread, make_another, NULL) != thrd_success) abort();
  if (thrd_join(thread, &result) != thrd_success || result != 0) abort();
}
