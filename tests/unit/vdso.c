/* vdso: the kernel's own clock is found where the process has a vDSO, and tells the time that libc's does. */
#include "unit.h"

#include "os/vdso.h"
#include <sys/auxv.h>

static struct timespec read_by(clock_function *clock) {
  struct timespec time;
  CHECK(clock(CLOCK_MONOTONIC, &time) == 0);
  return time;
}

static bool is_ordered(struct timespec a, struct timespec b) {
  return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec <= b.tv_nsec);
}

int main(void) {
  clock_function *const clock = vdso_clock();
  if (getauxval(AT_SYSINFO_EHDR) == 0) {
    CHECK(clock == NULL);
    return 0;
  }
  CHECK(clock != NULL && clock != clock_gettime);
  const struct timespec before = read_by(clock_gettime), between = read_by(clock), after = read_by(clock_gettime);
  CHECK(is_ordered(before, between) && is_ordered(between, after));
  struct timespec unused;
  CHECK(clock(-1, &unused) != 0);
  return 0;
}
