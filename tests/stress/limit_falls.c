/* limit_falls: a process that has allocated limits its address space, by each function that can, or another process
 * does so. Afterwards threads start, libraries load, memory can be mapped and programs executed as with libc's malloc,
 * and malloc obeys the limit, too. */
#include "memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (200 * MIB)

extern char **environ;

enum way { SETRLIMIT, SETRLIMIT64, PRLIMIT, PRLIMIT64, BY_ANOTHER, WAYS };

static void limit_address_space(enum way way, pid_t process) {
  const struct rlimit limit = {LIMIT, RLIM_INFINITY};
  int done = 0;
  switch (way) {
  case SETRLIMIT: done = setrlimit(RLIMIT_AS, &limit); break;
  case PRLIMIT: done = prlimit(process, RLIMIT_AS, &limit, NULL); break;
#if defined(__GLIBC__)
  case SETRLIMIT64: done = setrlimit64(RLIMIT_AS, &(struct rlimit64){LIMIT, RLIM64_INFINITY}); break;
  case PRLIMIT64: done = prlimit64(process, RLIMIT_AS, &(struct rlimit64){LIMIT, RLIM64_INFINITY}, NULL); break;
#endif
  default: done = (int)syscall(SYS_prlimit64, process, RLIMIT_AS, &limit, NULL);
  }
  CHECK_COUNT(done, ==, 0);
}

static void *nothing(void *argument) { return argument; }

static void do_what_programs_do(void) {
  pthread_t thread;
  CHECK_COUNT(pthread_create(&thread, NULL, nothing, NULL), ==, 0);
  CHECK_COUNT(pthread_join(thread, NULL), ==, 0);
  void *const mapped = mmap(NULL, 20 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED && munmap(mapped, 20 * MIB) == 0);
#if defined(__GLIBC__)
  CHECK(dlopen("libresolv.so.2", RTLD_NOW) != NULL);
#endif
  pid_t child;
  int status;
  char *const arguments[] = {(char *)"true", NULL};
  CHECK_COUNT(posix_spawnp(&child, "true", NULL, NULL, arguments, environ), ==, 0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void check_malloc(void) {
  void *list = NULL, *const large = malloc(50 * MIB);
  CHECK(large != NULL);
  memset(large, 1, 50 * MIB);
  errno = 0;
  CHECK(malloc(300 * MIB) == NULL && errno == ENOMEM);
  CHECK_COUNT(fill_list(&list, 1000, LIMIT), <, LIMIT - 50 * MIB);
  CHECK(errno == ENOMEM);
  free_list(&list);
  free(large);
}

static void in_child(enum way way, int told) {
  char c;
  if (way == BY_ANOTHER) CHECK(read(told, &c, 1) == 1);
  else limit_address_space(way, getpid());
  do_what_programs_do();
  check_malloc();
  CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}) == 0);
  void *const more = malloc(300 * MIB);
  CHECK(more != NULL);
  free(more);
  do_what_programs_do();
}

static void try_way(enum way way) {
  int pipe_ends[2], status;
  CHECK(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    in_child(way, pipe_ends[0]);
    _exit(0);
  }
  if (way == BY_ANOTHER) {
    limit_address_space(way, child);
    CHECK(write(pipe_ends[1], "", 1) == 1);
  }
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) dprintf(2, "way %d: status %#x\n", (int)way, (unsigned)status);
  CHECK_COUNT(status, ==, 0);
  close(pipe_ends[0]), close(pipe_ends[1]);
}

int main(void) {
  free(malloc(100));
  for (unsigned way = 0; way < WAYS; way++) try_way((enum way)way);
  /* A vfork child limits itself, and executes: its parent has what it had. */
  tslab_stats_global before, after;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  const pid_t child = vfork();
  if (child == 0) {
    const struct rlimit limit = {LIMIT, LIMIT};
    setrlimit(RLIMIT_AS, &limit);
    _exit(0);
  }
  CHECK(waitpid(child, NULL, 0) == child && tslab_stats(&after, sizeof after) == 0);
  CHECK_COUNT(after.reserved_bytes, ==, before.reserved_bytes);
  return 0;
}
