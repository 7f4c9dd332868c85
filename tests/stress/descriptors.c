/* descriptors: a program of one thread closes a descriptor and expects its number from the next open. So the library's
 * thread, which opens files, has a table of descriptors of its own. It keeps none of the program's open there, not even
 * for the moment after the call that made it: the reader of a pipe would wait for its end. */
#include "scavenger.h"

#include <sys/syscall.h>
#include <sys/wait.h>

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

/* Allocates until a call makes the thread, and returns at once. */
static pid_t make_thread(void) {
  pid_t thread = 0;
  for (int i = 0; i < 1000 && !thread; i++) {
    free(memset(malloc(3 * MIB), 1, 3 * MIB));
    thread = other_thread();
  }
  return thread;
}

static void none_is_kept_after_the_call(void) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const pid_t thread = make_thread();
    char byte, path[64];
    int ends[2];
    if (!thread) _exit(SKIPPED);
    CHECK(fcntl(0, F_GETFD) >= 0 && pipe(ends) == 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/fd/0", (int)thread);
    CHECK(readlink(path, &byte, 1) < 0); /* it has left */
    CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 0);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != SKIPPED) CHECK_COUNT(status, ==, 0);
}

int main(void) {
  int ends[2];
  char byte;
  if (syscall(SYS_close_range, ~0u, ~0u, 0) != 0) {
    printf("skipped: the kernel has no close_range\n");
    return SKIPPED;
  }
  for (int i = 0; i < 20; i++) none_is_kept_after_the_call();
  CHECK(pipe(ends) == 0);
  const pid_t thread = make_scavenger();
  for (int i = 0; i < 100 && count_files(thread) != 0; i++) usleep(20000); /* it opens files of its own */
  CHECK_COUNT(count_files(thread), ==, 0);
  CHECK_COUNT(count_files(getpid()), >=, 5);
  CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 0);
  return 0;
}
