/* raw_exit: a process ends if the program's last thread leaves by the system call exit, which runs no destructor. A
 * program under seccomp's strict mode may make no other call to end. The scavenger must not keep the process. */
#include "../check.h"

#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

static void end_by_call(bool is_strict) {
  alarm(10);
  free_much();
  if (is_strict && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(STATUS); /* not allowed here */
  syscall(SYS_exit, STATUS);
}

int main(void) {
  pid_t children[2];
  alarm(30);
  for (int i = 0; i < 2; i++) {
    children[i] = fork();
    CHECK(children[i] >= 0);
    if (children[i] == 0) end_by_call(i == 1);
  }
  for (int i = 0; i < 2; i++) {
    int status;
    CHECK(waitpid(children[i], &status, 0) == children[i]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == STATUS);
  }
  return 0;
}
