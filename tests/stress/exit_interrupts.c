/* exit_interrupts: a signal handler of a program of one thread calls exit, wherever it interrupts the program. The exit
 * handlers free memory, and the process ends. */
#include "../check.h"

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { CHILDREN = 300, LONG = 30000, TABLE = 2000, BLOCKS = 200, HANG_S = 60, STATUS = 3 };

static void *table[TABLE];

static void free_table(void) {
  for (size_t i = 0; i < TABLE; i++) tslab_free(table[i]);
  for (size_t i = 0; i < BLOCKS; i++) tslab_free(tslab_malloc(i * i * 5));
}

static void leave(int number) {
  (void)number;
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  exit(STATUS);
}

/* Large blocks hold locks for long. */
_Noreturn static void use_heap(size_t largest, suseconds_t until) {
  void *blocks[BLOCKS] = {NULL};
  unsigned random = (unsigned)until;
  CHECK(atexit(free_table) == 0 && signal(SIGALRM, leave) != SIG_ERR);
  for (size_t i = 0; i < TABLE; i++) CHECK((table[i] = tslab_malloc(1 + i % 300)) != NULL);
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, until}}, NULL) == 0);
  for (;;) {
    random = random * 1103515245 + 12345;
    void **const block = &blocks[(random >> 8) % BLOCKS];
    tslab_free(*block);
    *block = tslab_malloc((random >> 4) % largest);
  }
}

int main(int argc, char **argv) {
  const int children = argc > 1 && strcmp(argv[1], "long") == 0 ? LONG : CHILDREN;
  static const size_t largest[] = {500, 8000, 200000};
  for (int i = 0; i < children; i++) {
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) use_heap(largest[i % 3], 300 + i * 7919 % 5000);
    alarm(HANG_S);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_COUNT(WIFEXITED(status) ? WEXITSTATUS(status) : 0, ==, STATUS);
  }
  return 0;
}
