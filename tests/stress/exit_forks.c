/* exit_forks: the main thread calls exit while other threads fork. The process ends, and so does each child. */
#include "../check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { PROCESSES = 150, LONG = 3000, THREADS = 2, PATIENCE_S = 20, FROM_EXIT = 7 };

static void *keep_forking(void *unused) {
  for (;;) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
  }
  return unused;
}

_Noreturn static void exit_beside_forks(unsigned process) {
  pthread_t thread;
  alarm(PATIENCE_S);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&thread, NULL, keep_forking, NULL) == 0);
  usleep(1000 + process * 7919 % 5000);
  exit(FROM_EXIT);
}

int main(int argc, char **argv) {
  const unsigned processes = argc > 1 && strcmp(argv[1], "long") == 0 ? LONG : PROCESSES;
  tslab_free(tslab_malloc(100)); /* registers the library's fork handlers */
  for (unsigned i = 0; i < processes; i++) {
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) exit_beside_forks(i);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, FROM_EXIT << 8);
  }
  return 0;
}
