/* process_limit: a limit of processes lets the program have one more. It counts threads, and the scavenger is one. A
 * fork, a pthread_create, and a thrd_create, of the program succeed all the same. */
#include "../check.h"

#include <grp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>

#define USER 54321 /* this user has no other process */

static bool become_a_user(void) {
  return setgroups(0, NULL) == 0 && setresgid(USER, USER, USER) == 0 && setresuid(USER, USER, USER) == 0;
}

static unsigned threads(void) {
  struct stat status;
  CHECK(stat("/proc/self/task", &status) == 0);
  return (unsigned)status.st_nlink - 2;
}

static void start_scavenger(void) {
  enum { BYTES = 4 << 20 };
  for (int i = 0; threads() == 1 && i < 10000; i++) {
    void *block = malloc(BYTES);
    CHECK(block != NULL);
    free(memset(block, 1, BYTES));
    usleep(1000);
  }
  CHECK_COUNT(threads(), ==, 2);
}

static void *note_id(void *id) {
  *(pid_t *)id = gettid();
  return NULL;
}

static int note_id_simply(void *id) {
  note_id(id);
  return 0;
}

/* The kernel counts a joined thread for a moment more. */
static void wait_until_gone(pid_t id) {
  while (syscall(SYS_tgkill, getpid(), id, 0) == 0) usleep(100);
}

static void use_a_thread(void) {
  pthread_t thread;
  pid_t id = 0;
  CHECK(pthread_create(&thread, NULL, note_id, &id) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  wait_until_gone(id);
}

static void use_a_simple_thread(void) {
  thrd_t thread;
  pid_t id = 0;
  CHECK(thrd_create(&thread, note_id_simply, &id) == thrd_success);
  CHECK(thrd_join(thread, NULL) == thrd_success);
  wait_until_gone(id);
}

int main(void) {
  const struct rlimit limit = {2, 2};
  if (!become_a_user()) return 77;
  alarm(60);
  start_scavenger();
  CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  CHECK(waitpid(child, NULL, 0) == child);
  start_scavenger();
  use_a_thread();
  start_scavenger();
  use_a_simple_thread();
  start_scavenger();
  child = fork(); /* of a program that had several threads */
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  CHECK(waitpid(child, NULL, 0) == child);
  return 0;
}
