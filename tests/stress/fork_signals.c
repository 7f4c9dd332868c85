/* fork_signals: a timer's handler forks while the program allocates and frees. With one thread the program forks
 * itself, too, and the handler interrupts that; with several glibc's own fork would wait for itself there. Nothing
 * hangs, and each child ends. The long form goes on for a minute beside eight threads.
 *  fork_signals [long] */
#include "../check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

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

/* Anew after each fork: beside busy threads a fork takes longer than that, and the program would do nothing else. */
static void set_timer(void) {
  const struct itimerval once = {{0, 0}, {0, 2000}};
  CHECK(setitimer(ITIMER_PROF, &once, NULL) == 0);
}

static void fork_in_handler(int signal) {
  const int kept = errno;
  (void)signal;
  fork_once();
  set_timer();
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

static void run(int times, int seconds, int forks_itself) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  const time_t end = time(NULL) + seconds;
  forks = 0;
  set_timer();
  while (forks < times || time(NULL) < end) {
    use_heap();
    if (forks_itself) fork_once();
  }
  CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
}

int main(int argc, char **argv) {
  const int is_long = argc > 1 && strcmp(argv[1], "long") == 0, times = is_long ? 20000 : 400;
  const struct sigaction handler = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
  pthread_t threads[THREADS];
  CHECK(sigaction(SIGPROF, &handler, NULL) == 0);
  run(times, 0, 1);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, keep_allocating, NULL) == 0);
  run(is_long ? 0 : times, is_long ? 60 : 0, 0);
  stop = 1;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  return 0;
}
