/* lock_handler: a timer's signal handler locks and unlocks all memory, and later also forks, while the thread that it
 * interrupted lets a buffer grow. The handler must not wait for that thread: it would rest a thousand times. The timer
 * starts again when the handler ends, so the test gets on, however long the kernel takes to lock. */
#include "memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

enum { CYCLES = 100, FORKING_FROM = 80, FORK_EACH = 8, RESTS_MOST = 300, SPACING_US = 300 };

static volatile sig_atomic_t calls, forks, is_child;
static volatile long most_rests;

static long rests(void) {
  struct rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

static void lock_and_unlock(void) {
  const long before = rests();
  if (mlockall(MCL_CURRENT) == 0) munlockall();
  const long rested = rests() - before;
  if (rested > most_rests) most_rests = rested;
}

static void start_timer(void) {
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, SPACING_US}}, NULL) == 0);
}

static void handle(int signal) {
  (void)signal;
  if (!forks || ++calls % FORK_EACH != 0) lock_and_unlock();
  else if (fork() == 0) is_child = 1;
  if (!is_child) start_timer();
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
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  start_timer();
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
  CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR); /* a handler that runs just now would start the timer again */
  for (int status; waitpid(-1, &status, 0) > 0; children++) CHECK_COUNT(status, ==, 0);
  CHECK_COUNT(children, >, 0);
  CHECK_COUNT(most_rests, <=, RESTS_MOST);
  return 0;
}
