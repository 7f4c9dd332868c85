/* scavenger_signals: a signal handler forks while its thread makes the library's own thread, and while it waits for
 * that thread's end. A child that returns from the handler goes on there, without the thread: it must not make a second
 * one, nor wait for one that it does not have. Two functions of libc's, in which the library is then, raise the
 * signal. */
#include "../threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { BLOCKS = 8, BYTES = 2 << 20, HANG_S = 6 };
enum place { NOWHERE, MAKING, ENDING };

static enum place raises_when, raised;
static pid_t child = -1;

static void raise_when(enum place here) {
  if (raises_when != here) return;
  raises_when = NOWHERE;
  raised = here;
  raise(SIGUSR1);
}

int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes) {
  int (*next)(pthread_attr_t *, size_t) = (int (*)(pthread_attr_t *, size_t))dlsym(RTLD_NEXT, __func__);
  raise_when(MAKING);
  return next(attributes, bytes);
}

int pthread_setcancelstate(int state, int *before) {
  int (*next)(int, int *) = (int (*)(int, int *))dlsym(RTLD_NEXT, __func__);
  raise_when(ENDING);
  return next(state, before);
}

/* Enough for the scavenger to be started. */
static void free_much(void) {
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(BYTES)) != NULL);
  for (int i = 0; i < BLOCKS; i++) memset(blocks[i], 1, BYTES);
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
}

static void handle(int unused) {
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(HANG_S);
    if (raised == MAKING) free_much();
  }
  (void)unused;
}

static void *end_last(void *main_thread) {
  CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
  free_much();
  raises_when = ENDING;
  return NULL; /* the last heap ends, and both processes with it */
}

/* Both processes end here: the parent when it knows how its child did. */
static void check_last(void) {
  int status = 0;
  if (raised != ENDING) dprintf(2, "never raised\n");
  if (child > 0 && waitpid(child, &status, 0) != child) _exit(2);
  _exit(raised == ENDING && status == 0 ? 0 : 3);
}

/* In its own process, which ends with its last thread. */
static void end_with_child(void) {
  static pthread_t self;
  pthread_t last;
  self = pthread_self();
  CHECK(atexit(check_last) == 0);
  CHECK(pthread_create(&last, NULL, end_last, &self) == 0);
  pthread_exit(NULL);
}

int main(int argc, char **argv) {
  int status;
  alarm(HANG_S);
  CHECK(signal(SIGUSR1, handle) != SIG_ERR);
  if (argc > 1) end_with_child();
  const pid_t other = fork();
  CHECK(other >= 0);
  if (other == 0) execl(argv[0], argv[0], "last", NULL); /* musl 1.2.3: only so a thread can outlive the first */
  CHECK(waitpid(other, &status, 0) == other);
  CHECK_COUNT(status, ==, 0);

  raises_when = MAKING;
  free_much();
  CHECK_COUNT(raised, ==, MAKING);
  CHECK_COUNT(threads(), ==, 2);
  if (child == 0) _exit(0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
  return 0;
}
