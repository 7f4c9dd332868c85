/* capabilities: the threads of a program get the same capabilities by any calls, of which the library's thread knows
 * nothing. glibc's calls that change the user then get the same answer for every thread. And the library's thread does
 * not count for the new user when the program executes another one. */
#include "scavenger.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define BIT(number) (1u << (number))

int capset(void *header, const void *data); /* as in libcap's header */

static void keep_only(unsigned bits) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const struct __user_cap_data_struct data[2] = {{bits, bits, 0}, {0, 0, 0}};
  if (capset(&header, data) != 0) _exit(SKIPPED);
}

/* The thread that was there before has more. */
static void have_less(void) {
  make_scavenger();
  keep_only(0);
  make_scavenger();
  CHECK(setresuid(65534, 65534, 65534) == -1 && errno == EPERM);
}

/* The thread that was there before has less. */
static void have_more(void) {
  make_scavenger();
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(SKIPPED);
  keep_only(BIT(CAP_SETUID));
  make_scavenger();
  CHECK_COUNT(setresuid(65533, 65533, 65533), ==, 0);
}

static void *nothing(void *argument) { return argument; }

static void have_one_thread_again(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void have_less_after_threads(void) {
  have_one_thread_again();
  have_less();
}

/* This thread alone keeps its capabilities when its user changes. */
static void keep_all(void) {
  make_scavenger();
  if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0) _exit(SKIPPED);
  CHECK_COUNT(setresuid(1000, 1000, 1000), ==, 0);
  CHECK_COUNT(setresuid(1001, 1001, 1001), ==, 0);
}

static pthread_barrier_t have_dropped;

static void *drop(void *unused) {
  keep_only(0);
  pthread_barrier_wait(&have_dropped);
  pause();
  return unused;
}

static void all_threads_have_less(void) {
  pthread_t thread;
  make_scavenger();
  CHECK(pthread_barrier_init(&have_dropped, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, drop, NULL) == 0);
  keep_only(0);
  pthread_barrier_wait(&have_dropped);
  CHECK(setuid(65534) == -1 && errno == EPERM);
}

/* A thread that makes the library's thread while it acts for another user. */
static void *act_for_another(void *unused) {
  void *list = NULL;
  if (syscall(SYS_setresuid, -1, 1000, -1) != 0) _exit(SKIPPED);
  CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
  free_list(&list);
  CHECK_COUNT(syscall(SYS_setresuid, -1, 0, -1), ==, 0);
  return unused;
}

static void acted_for_another(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, act_for_another, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK_COUNT(seteuid(1001), ==, 0);
}

static void execute_at_the_limit(void) {
  make_scavenger();
  CHECK(setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0}) == 0);
  if (setgid(54321) != 0 || setuid(54321) != 0) _exit(SKIPPED);
  execl("/bin/true", "true", NULL);
  CHECK(!"executed");
}

static void run(void (*use)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    use();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
    printf("skipped: the user cannot be changed here\n");
    exit(SKIPPED);
  }
  CHECK_COUNT(status, ==, 0);
}

int main(void) {
  free(malloc(100));
  if (geteuid() != 0) {
    printf("skipped: only a superuser has capabilities to give up\n");
    return SKIPPED;
  }
  run(have_more);
  run(have_less);
  run(have_less_after_threads);
  run(keep_all);
  run(all_threads_have_less);
  run(acted_for_another);
  run(execute_at_the_limit);
  have_one_thread_again();
  run(have_less); /* a child of a program that had several */
  return 0;
}
