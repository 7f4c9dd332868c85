#include "misuse.h"

#include <signal.h>
#include <sys/wait.h>

static void run(void) {
  void *block = culprit_of(SMALL);
  int status;
  tslab_free(block);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    tslab_free(block);
    CHECK(tslab_malloc(SMALL) == block);
    CHECK(tslab_malloc(SMALL) != block);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

MISUSE("a block freed again by a fork child: the child aborts, its parent does not", TOLD, TWICE_LATE(SMALL_TEXT),
       .hardened = {TOLD, TWICE(SMALL_TEXT)});
