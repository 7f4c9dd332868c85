/* lock_limit: a process that may lock little memory has allocated, and locks all that it has: mlockall does not count
 * addresses that are only reserved. Nor do these count later against the limit of the user that a superuser becomes,
 * also if the library sees no limit when they are locked. */
#include "filter.h"
#include "memory.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define LIMIT (8 * MIB) /* the system's default; this process takes some 5 MiB of address space */

static bool become_nobody(void) {
  return geteuid() != 0 || (setgroups(0, NULL) == 0 && setresgid(65534, 65534, 65534) == 0 &&
                            setresuid(65534, 65534, 65534) == 0);
}

static void limit_locks(size_t bytes) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  if (limit.rlim_max < bytes) _exit(SKIPPED);
  limit.rlim_cur = bytes;
  CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
}

static void limit_locks_after_a_peak(void) {
  void *volatile peak = malloc(256 * MIB); /* free addresses do not count either */
  free(peak);
  limit_locks(LIMIT);
}

static void lock_all(void) {
  limit_locks_after_a_peak();
  CHECK_COUNT(mlockall(MCL_CURRENT | MCL_FUTURE), ==, 0);
}

/* Up to the limit and no further, and all of it locked. */
static void use_what_is_left(void) {
  void *const mapped = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED && munmap(mapped, 65536) == 0);
  void *list = NULL;
  errno = 0;
  const size_t bytes = fill_list(&list, 1000, 2 * LIMIT);
  CHECK(errno == ENOMEM);
  CHECK_COUNT(bytes, >=, MIB / 2);
  CHECK_COUNT(bytes, <, LIMIT);
  free_list(&list);
}

static void as_another_user(void) {
  if (!become_nobody()) _exit(SKIPPED);
  lock_all();
  use_what_is_left();
}

static void as_superuser_first(void) {
  if (geteuid() != 0) _exit(SKIPPED);
  lock_all();
  if (!become_nobody()) _exit(SKIPPED);
  use_what_is_left();
}

/* Blocks grow while all is locked. Once they are unlocked, none of them counts. */
static void grow_while_locked(void) {
  enum { TURNS = 100, LEAST = 300000 };
  limit_locks(LIMIT);
  if (!become_nobody()) _exit(SKIPPED);
  void *const mapped = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  for (int i = 0; i < TURNS; i++) {
    unsigned char *block = malloc(LEAST);
    CHECK(block != NULL);
    memset(block, i, LEAST);
    void *volatile behind = malloc(50000);
    CHECK_COUNT(mlockall(MCL_CURRENT), ==, 0);
    CHECK((block = realloc(block, 2 * (size_t)LEAST)) != NULL);
    for (int k = 0; k < LEAST; k += 1000) CHECK_COUNT(block[k], ==, (unsigned char)i);
    CHECK_COUNT(munlockall(), ==, 0);
    free(block);
    free(behind);
    CHECK(mlock(mapped, 65536) == 0 && munlock(mapped, 65536) == 0);
  }
}

static void behind_a_filter_that_hides_the_limit(void) {
  limit_locks_after_a_peak();
  if (!answer_with(SYS_prlimit64, EPERM)) _exit(SKIPPED);
  CHECK_COUNT(mlockall(MCL_CURRENT), ==, 0);
  if (!become_nobody()) _exit(SKIPPED);
  void *const mapped = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED && mlock(mapped, 65536) == 0);
}

static int run(void (*use)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    use();
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

int main(void) {
  free(malloc(100));
  static void (*const parts[])(void) = {as_another_user, as_superuser_first, behind_a_filter_that_hides_the_limit,
                                        grow_while_locked};
  int done = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const int status = run(parts[i]);
    CHECK(status == 0 || status == SKIPPED);
    done += status == 0;
  }
  if (done != 0) return 0;
  printf("skipped: the limit of locked memory is too low here, or the user cannot be changed\n");
  return SKIPPED;
}
