/* users_library: its constructor waits for a thread that changes the group, while the loader holds its lock. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *set_group(void *unused) {
  if (setegid(getegid()) != 0) abort();
  return unused;
}

__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, set_group, NULL) != 0 || pthread_join(thread, NULL) != 0) abort();
}
