/* fork_signals: a timer's handler forks while the program allocates, frees and forks itself, with one thread and with
 * several. Nothing hangs, and each child ends.
 *  fork_signals [long] */
#include "../check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BLOCKS = 64, THREADS = 8, PATIENCE_S = 60 };

static _Atomic int forks, stop;

static void fork_once(void) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  alarm(PATIENCE_S); /* for each fork */
  while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  forks++;
}

static void fork_in_handler(int signal) {
  const int kept = errno;
  (void)signal;
  fork_once();
  errno = kept;
}

static void use_heap(void) {
  static _Thread_local void *blocks[BLOCKS];
  static _Thread_local uint64_t random = 1;
  for (int i = 0; i < 1000; i++) {
    void **const place = &blocks[check_random(&random) % BLOCKS];
    tslab_free(*place);
    *place = tslab_malloc(100 + check_random(&random) % 300000);
    CHECK(*place != NULL);
  }
}

/* The timer interrupts main alone: glibc's fork itself waits for ever where two threads fork in handlers. */
static void *keep_allocating(void *unused) {
  sigset_t timer;
  sigemptyset(&timer);
  sigaddset(&timer, SIGPROF);
  CHECK(pthread_sigmask(SIG_BLOCK, &timer, NULL) == 0);
  while (!stop) use_heap();
  return unused;
}

static void run(int times) {
  const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  forks = 0;
  CHECK(setitimer(ITIMER_PROF, &often, NULL) == 0);
  while (forks < times) {
    use_heap();
    fork_once();
  }
  CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
}

int main(int argc, char **argv) {
  const int times = argc > 1 && strcmp(argv[1], "long") == 0 ? 20000 : 400;
  const struct sigaction handler = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
  pthread_t threads[THREADS];
  CHECK(sigaction(SIGPROF, &handler, NULL) == 0);
  run(times);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, keep_allocating, NULL) == 0);
  run(times);
  stop = 1;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
