/* lock_handler: a timer's signal handler locks and unlocks all memory, and later also forks, while the thread that it
 * interrupted lets a buffer grow. If the handler waited for that thread, no cycle would end before the next signal. */
#include "memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

enum { CYCLES = 400, FORKING_FROM = 330, FORK_EACH = 8 };

static volatile sig_atomic_t calls, forks, is_child;

static void lock_and_unlock(void) {
  if (mlockall(MCL_CURRENT) == 0) munlockall();
}

static void handle(int signal) {
  (void)signal;
  if (is_child) return;
  if (!forks || ++calls % FORK_EACH != 0) lock_and_unlock();
  else if (fork() == 0) is_child = 1;
}

static void grow(void) {
  size_t size = MIB;
  char *block = malloc(size);
  CHECK(block != NULL);
  memset(block, 1, size);
  for (; size < 24 * MIB; size += size / 2) {
    CHECK((block = realloc(block, size + size / 2)) != NULL);
    CHECK(block[0] == 1 && block[size - 1] == 1);
    memset(block + size, 1, size / 2);
  }
  free(block);
}

int main(void) {
  if (mlockall(MCL_CURRENT) != 0 || munlockall() != 0) return SKIPPED;
  const struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  const struct itimerval each = {{0, 9000}, {0, 9000}};
  CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &each, NULL) == 0);
  int children = 0;
  for (int i = 0; i < CYCLES; i++) {
    forks = i >= FORKING_FROM;
    grow();
    if (is_child) {
      lock_and_unlock();
      grow();
      _exit(0);
    }
    for (int status; waitpid(-1, &status, WNOHANG) > 0; children++) CHECK_COUNT(status, ==, 0);
  }
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL) == 0);
  for (int status; waitpid(-1, &status, 0) > 0; children++) CHECK_COUNT(status, ==, 0);
  CHECK_COUNT(children, >, 0);
  return 0;
}
