/* descriptors: a program of one thread closes a descriptor and expects its number from the next open. So the library's
 * thread, which opens files, has a table of descriptors of its own. It keeps none of the program's open there: the
 * reader of a pipe would wait for its end. */
#include "scavenger.h"

#include <sys/syscall.h>

static int count_files(pid_t thread) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/fd", (int)thread);
  DIR *const folder = opendir(path);
  CHECK(folder != NULL);
  for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

int main(void) {
  int ends[2];
  char byte;
  if (syscall(SYS_close_range, ~0u, ~0u, 0) != 0) {
    printf("skipped: the kernel has no close_range\n");
    return SKIPPED;
  }
  CHECK(pipe(ends) == 0);
  const pid_t thread = make_scavenger();
  for (int i = 0; i < 100 && count_files(thread) > 1; i++) usleep(20000); /* it opens files of its own */
  CHECK_COUNT(count_files(thread), <=, 1);                                  /* and keeps its /proc/self/pagemap */
  CHECK_COUNT(count_files(getpid()), >=, 5);
  CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 0);
  return 0;
}
