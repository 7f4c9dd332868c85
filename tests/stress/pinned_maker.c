/* pinned_maker: a thread that runs on one processor alone makes the library's thread, which then runs on all processors
 * of the program's first thread. */
#include "../check.h"
#include "memory.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

static void rest(long milliseconds) {
  clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

static void *pin_and_make(void *processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(*(int *)processor, &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  void *list = NULL;
  for (int i = 0; i < 100; i++) {
    CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
    free_list(&list);
    rest(20);
  }
  return NULL;
}

/* Returns how many threads of the process may run on exactly these processors. */
static int threads_on(const cpu_set_t *processors) {
  DIR *const folder = opendir("/proc/self/task");
  int count = 0;
  CHECK(folder != NULL);
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    cpu_set_t its;
    const pid_t thread = atoi(entry->d_name);
    if (thread != 0 && sched_getaffinity(thread, sizeof its, &its) == 0) count += CPU_EQUAL(&its, processors) != 0;
  }
  CHECK(closedir(folder) == 0);
  return count;
}

int main(void) {
  cpu_set_t all;
  pthread_t thread;
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  if (CPU_COUNT(&all) < 2) return SKIPPED;
  int processor = 0;
  while (!CPU_ISSET(processor, &all)) processor++;
  CHECK(pthread_create(&thread, NULL, pin_and_make, &processor) == 0);
  int seen = 1; /* the first thread itself */
  for (int i = 0; i < 400 && seen == 1; i++) {
    rest(10);
    seen = threads_on(&all);
  }
  CHECK_COUNT(seen, ==, 2);
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
