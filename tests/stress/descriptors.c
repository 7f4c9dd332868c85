/* descriptors: a program of one thread closes a descriptor and expects its number from the next open. So the library's
 * thread, which opens files, has a table of descriptors of its own. It keeps none of the program's open there: the
 * reader of a pipe would wait for its end. */
#include "scavenger.h"

#include <sys/syscall.h>

/* Returns how many descriptors the thread has, without the one that it keeps: the process's own table of pages. */
static int count_files(pid_t thread) {
  char path[64], target[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/fd", (int)thread);
  DIR *const folder = opendir(path);
  CHECK(folder != NULL);
  for (const struct dirent *entry; (entry = readdir(folder));) {
    const ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    count += entry->d_name[0] != '.' && !strstr(target, "/pagemap");
  }
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
  for (int i = 0; i < 100 && count_files(thread) != 0; i++) usleep(20000); /* it opens files of its own */
  CHECK_COUNT(count_files(thread), ==, 0);
  CHECK_COUNT(count_files(getpid()), >=, 5);
  CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 0);
  return 0;
}
