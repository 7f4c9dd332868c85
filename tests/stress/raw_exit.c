/* raw_exit: a process ends if the program's last thread leaves by the system call exit, which runs no destructor. A
 * program under seccomp's strict mode may make no other call to end. The scavenger must not keep the process, also
 * without /proc, and under a filter that refuses to give memory back. */
#include "filter.h"

#include <stdlib.h>
#include <sys/wait.h>

enum { BLOCKS = 64, BYTES = 60000, STATUS = 7 };

/* Enough for the scavenger to be started. */
static void free_much(void) {
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = malloc(BYTES)) != NULL);
    memset(blocks[i], 1, BYTES);
  }
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void end_at_once(void) { free_much(); }

static void end_strictly(void) {
  free_much();
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(STATUS); /* not allowed here */
}

static char empty[] = "/tmp/tslab-root-XXXXXX";

static void end_in_an_empty_root(void) {
  CHECK(chdir(empty) == 0);
  if (chroot(".") != 0) printf("not tried without /proc: chroot is not allowed here\n");
  free_much();
}

static void end_without_purges(void) {
  if (answer_with(SYS_madvise, EPERM)) free_much();
}

static void end_uncounted(void) {
  if (answer_with(SYS_newfstatat, EPERM)) free_much();
}

static void (*const ways[])(void) = {end_at_once, end_strictly, end_without_purges, end_uncounted,
                                     end_in_an_empty_root};
enum { WAYS = sizeof ways / sizeof *ways };

/* On newer kernels the library cannot know the first thread's status without /proc. */
static bool is_right(int way, int status) {
  const bool is_known = ways[way] != end_in_an_empty_root && ways[way] != end_uncounted;
  return WIFEXITED(status) && (WEXITSTATUS(status) == STATUS || !is_known);
}

int main(void) {
  pid_t children[WAYS];
  alarm(60);
  CHECK(mkdtemp(empty) != NULL);
  for (int i = 0; i < WAYS; i++) {
    children[i] = fork();
    CHECK(children[i] >= 0);
    if (children[i] != 0) continue;
    ways[i]();
    syscall(SYS_exit, STATUS);
  }
  for (int i = 0; i < WAYS; i++) {
    int status;
    CHECK(waitpid(children[i], &status, 0) == children[i]);
    CHECK(is_right(i, status));
  }
  CHECK(rmdir(empty) == 0);
  return 0;
}
