/* fork_masks: handlers of fork run with the program's own signals. A collector stops its threads by signals, while one
 * of them waits in a handler of fork for the collector's lock. A handler in the child starts a thread, whose signals
 * arrive; or blocks them all around that, and they stay blocked. */
#include "../check.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/wait.h>

enum { PATIENCE_S = 30, AS_THEY_ARE = 1, ALL_BLOCKED };

static pthread_mutex_t collecting = PTHREAD_MUTEX_INITIALIZER;
static sem_t waits, stopped;
static _Atomic int starts_worker, has_arrived;

static void stop(int signal) {
  (void)signal;
  CHECK(sem_post(&stopped) == 0);
}

static void arrive(int signal) {
  (void)signal;
  has_arrived = 1;
}

static void prepare(void) {
  CHECK(sem_post(&waits) == 0);
  pthread_mutex_lock(&collecting);
}

static void go_on(void) { pthread_mutex_unlock(&collecting); }

static void *work(void *unused) {
  sigset_t blocked;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
  if (starts_worker == ALL_BLOCKED) CHECK(sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGSEGV) == 1);
  while (starts_worker == AS_THEY_ARE && !has_arrived) usleep(1000);
  return unused;
}

static void start_worker(void) {
  static sigset_t all, before;
  pthread_t worker;
  pthread_mutex_unlock(&collecting);
  if (!starts_worker) return;
  sigfillset(&all);
  if (starts_worker == ALL_BLOCKED) CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
  CHECK(pthread_create(&worker, NULL, work, NULL) == 0);
  if (starts_worker == ALL_BLOCKED) CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
  CHECK(pthread_kill(worker, SIGUSR1) == 0);
  CHECK(pthread_join(worker, NULL) == 0);
}

static void *fork_once(void *unused) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return unused;
}

int main(void) {
  pthread_t thread;
  sigset_t blocked;
  alarm(PATIENCE_S);
  CHECK(sem_init(&waits, 0, 0) == 0 && sem_init(&stopped, 0, 0) == 0);
  CHECK(signal(SIGUSR1, arrive) != SIG_ERR && signal(SIGUSR2, stop) != SIG_ERR);
  CHECK(pthread_atfork(prepare, go_on, start_worker) == 0);
  free(malloc(100));
  for (starts_worker = 0; starts_worker <= ALL_BLOCKED; starts_worker++) fork_once(NULL);
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 && sigismember(&blocked, SIGUSR1) == 0);

  starts_worker = 0;
  while (sem_trywait(&waits) == 0) continue;
  pthread_mutex_lock(&collecting);
  CHECK(pthread_create(&thread, NULL, fork_once, NULL) == 0);
  CHECK(sem_wait(&waits) == 0);
  usleep(50000); /* as good as certainly it waits for the lock */
  CHECK(pthread_kill(thread, SIGUSR2) == 0);
  while (sem_wait(&stopped) != 0) CHECK(errno == EINTR);
  pthread_mutex_unlock(&collecting);
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
