/* small_limit: the library serves a process with 20 MiB of address space, program and libc included: blocks of any
 * size, threads, epochs. Past the end malloc fails with ENOMEM, and freed memory can be used again. */
#include "memory.h"

#include <pthread.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

enum { THREADS = 4 };

static void use(size_t most) {
  static const size_t sizes[] = {24, 1000, 20000, 300000, 64};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *list = NULL;
    CHECK_COUNT(fill_list(&list, sizes[i], most), >=, most);
    CHECK(tslab_owns(list));
    free_list(&list);
  }
}

static void *use_in_thread(void *unused) {
  use(MIB / 2);
  return unused;
}

static void use_threads(void) {
  pthread_attr_t attributes;
  pthread_t threads[THREADS];
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], &attributes, use_in_thread, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

static void use_epochs(void) {
  for (int i = 0; i < 200; i++) {
    const tslab_epoch e = tslab_epoch_open("request");
    CHECK(e != 0 && tslab_epoch_enter(e) == 0);
    void *list = NULL;
    CHECK_COUNT(fill_list(&list, 200, 100000), >=, 100000);
    free_list(&list);
    CHECK(tslab_epoch_leave(e) == 0 && tslab_epoch_close(e, NULL) == 0);
  }
}

static void use_up(size_t least) {
  for (int round = 0; round < 2; round++) {
    void *list = NULL;
    errno = 0;
    CHECK_COUNT(fill_list(&list, 3000, 100 * MIB), >=, least);
    CHECK(errno == ENOMEM);
    free_list(&list);
  }
}

int main(int argc, char **argv) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  if (limit.rlim_cur == RLIM_INFINITY) {
    limit.rlim_cur = (argc > 1 ? strtoul(argv[1], NULL, 10) : 20480) << 10;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    execv("/proc/self/exe", argv);
    CHECK(!"execv");
  }
  use(4 * MIB);
  use_epochs();
  use_threads();
  use_up(limit.rlim_cur / 2 - 2 * MIB);
  use(4 * MIB);
  return 0;
}
