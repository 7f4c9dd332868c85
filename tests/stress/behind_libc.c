/* behind_libc: the loader has libc before this library, as in a program of which only a plugin needs it. Then libc
 * serves malloc, fork and pthread_create, and the library finds none of these behind it. Its thread still works. */
#include "../check.h"
#include "tslab/tslab.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { BLOCKS = 64, FORKS = 20 };

static void *use_library(void *unused) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = tslab_malloc(50000)) != NULL); /* more than a mebibyte, so that the library makes its thread */
    memset(blocks[i], 1, 50000);
  }
  for (size_t i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  return unused;
}

int main(void) {
  void *const ours = malloc(100);
  CHECK(ours != NULL && !tslab_owns(ours));
  free(ours);
  use_library(NULL);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_library, NULL) == 0);
  for (int i = 0; i < FORKS; i++) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      use_library(NULL);
      _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, 0);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
