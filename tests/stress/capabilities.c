/* capabilities: a program that has one thread, or had more before, gives up capabilities while the library has a
 * thread. glibc's calls that change the user then get the same answer for every thread. */
#include "../check.h"
#include "memory.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define BIT(number) (1u << (number))

int capset(void *header, const void *data); /* as in libcap's header */

static bool has_scavenger(void) {
  char text[2048];
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  const ssize_t length = read(file, text, sizeof text - 1);
  CHECK(length > 0 && close(file) == 0);
  text[length] = 0;
  return strstr(text, "\nThreads:\t2\n") != NULL;
}

static void make_scavenger(void) {
  void *list = NULL;
  for (int i = 0; i < 100 && !has_scavenger(); i++) {
    CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
    free_list(&list);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  CHECK(has_scavenger());
}

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
  have_one_thread_again();
  run(have_less); /* a child of a program that had several */
  return 0;
}
