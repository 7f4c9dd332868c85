/* rlimit_as: a process that may have 256 MiB of address space can use at least 150 MiB of it, in small blocks, then in
 * large ones, then in small ones again; past the end malloc fails with ENOMEM and the process goes on. */
#include "memory.h"

#include <pthread.h>

#define MIB ((size_t)1 << 20)

static void *fill_in_thread(void *unused) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, 1000, 20 * MIB), >=, 20 * MIB);
  free_list(&list);
  return unused;
}

int main(int argc, char **argv) {
  (void)argc;
  be_born_under(256 * MIB, argv);
  const size_t sizes[] = {112, 1 * MIB, 3072, 10 * MIB, 48, 131072};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *list = NULL;
    CHECK_COUNT(fill_list(&list, sizes[i], 150 * MIB), >=, 150 * MIB);
    free_list(&list);
  }
  /* glibc gives a thread a stack of 8 MiB of address space unless told otherwise. */
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 256 << 10) == 0);
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, fill_in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }

  void *list = NULL;
  errno = 0;
  CHECK_COUNT(fill_list(&list, 5000, 300 * MIB), <, 256 * MIB);
  CHECK(errno == ENOMEM);
  CHECK(tslab_malloc(200 * MIB) == NULL && tslab_calloc(200, MIB) == NULL);
  void *some = tslab_realloc(NULL, 300 * MIB);
  CHECK(some == NULL);
  free_list(&list);
  return 0;
}
