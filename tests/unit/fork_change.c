/* fork_change: a signal handler interrupts a change of several numbers, forks, and returns in the child, where that
   change ends. Readers in the child see the finished change. */
#include "unit.h"

#include "heap/tcache.h"
#include <sys/wait.h>

static void look(void) {
  tslab_stats_global stats;
  alarm(20); /* a reader looks again and again while a change is under way */
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  tslab_free(tslab_malloc(100));
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  _exit(0);
}

static void change(pid_t (*copy)(void)) {
  int status;
  struct heap *const heap = current_heap;
  heap_begin_list_change(heap, 3);
  const pid_t child = copy();
  heap_end_change(heap);
  CHECK(child >= 0);
  if (child == 0) look();
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
}

int main(void) {
  tslab_free(tslab_malloc(100));
  change(fork);
#if defined(__GLIBC__)
  change(_Fork);
#endif
  return 0;
}
