/* namespaces: the kernel lets only a process of one thread into some namespaces. A program that made no thread enters
 * them although the library has one, and the library gives memory back again afterwards. */
#include "scavenger.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

static void enter_user_namespace(void) {
  make_scavenger();
  if (unshare(CLONE_NEWUSER) == 0) return;
  CHECK_COUNT(errno, !=, EINVAL);
  _exit(SKIPPED);
}

static void enter(const char *name, int kind) {
  const int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) _exit(SKIPPED);
  make_scavenger();
  if (setns(file, kind) == 0) return;
  CHECK(errno != EINVAL && errno != EUSERS);
  _exit(SKIPPED);
}

static void enter_mount_namespace(void) { enter("/proc/self/ns/mnt", CLONE_NEWNS); }
static void enter_time_namespace(void) { enter("/proc/self/ns/time", 0); }

/* Calls that the kernel refuses for another reason still fail, and so do those of a program with threads. */
static void *wait_for_it(void *mutex) {
  pthread_mutex_lock(mutex);
  pthread_mutex_unlock(mutex);
  return NULL;
}

/* The library's thread would keep the old working directory and the old namespace in use. */
static void leave_nothing_behind(void) {
  make_scavenger();
  CHECK(unshare(CLONE_FS) == 0);
  /* The kernel drops a joined thread a moment later. */
  for (int i = 0; i < 100 && other_thread() != 0; i++) usleep(1000);
  CHECK(other_thread() == 0);
}

static void leave_a_namespace(void) {
  const int file = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWUTS) != 0) _exit(SKIPPED);
  make_scavenger();
  CHECK(setns(file, CLONE_NEWUTS) == 0);
  for (int i = 0; i < 100 && other_thread() != 0; i++) usleep(1000);
  CHECK(other_thread() == 0);
}

static void be_refused(void) {
  pthread_t thread;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  make_scavenger();
  CHECK(setns(-1, 0) == -1 && errno == EBADF);
  CHECK(unshare(-1) == -1 && errno == EINVAL);
  pthread_mutex_lock(&mutex);
  CHECK(pthread_create(&thread, NULL, wait_for_it, &mutex) == 0);
  CHECK(unshare(CLONE_THREAD) == -1 && errno == EINVAL);
  pthread_mutex_unlock(&mutex);
  CHECK(pthread_join(thread, NULL) == 0);
}

static bool is_passed(void (*run)(void)) {
  const pid_t child = fork();
  if (child == 0) {
    run();
    make_scavenger();
    exit(0);
  }
  return child_passed(child);
}

int main(void) {
  free(malloc(100));
  const int passed = is_passed(enter_user_namespace) + is_passed(enter_mount_namespace) +
                     is_passed(enter_time_namespace);
  CHECK(is_passed(be_refused));
  CHECK(is_passed(leave_nothing_behind));
  is_passed(leave_a_namespace);
  if (passed == 0) {
    printf("skipped: no namespace can be entered here\n");
    return SKIPPED;
  }
  return 0;
}
