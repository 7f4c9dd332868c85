/* os: Linux. See os.h for the contracts.                                                             floor: os */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18; Debian 12's headers may be older */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7 */
#endif

size_t os_page_size;

void os_start(void) { os_page_size = getauxval(AT_PAGESZ); }

static bool kept_errno(int kept, bool result) {
  errno = kept;
  return result;
}

void *os_reserve(void *hint, size_t length) {
  int kept = errno;
  void *at = mmap(hint, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at != MAP_FAILED) {
    madvise(at, length, MADV_NOHUGEPAGE); /* one 64-byte block must not cost 2 MiB under THP=always */
    madvise(at, length, MADV_DONTDUMP);
  }
  errno = kept;
  return at == MAP_FAILED ? NULL : at;
}

bool os_reserve_at(void *at, size_t length) {
  void *got = os_reserve(at, length);
  if (got == at) return true;
  if (got) os_unreserve(got, length);
  return false;
}

void os_unreserve(void *at, size_t length) {
  int kept = errno;
  munmap(at, length);
  errno = kept;
}

bool os_commit(void *at, size_t length) {
  int kept = errno;
  bool done = mprotect(at, length, PROT_READ | PROT_WRITE) == 0;
  if (done) madvise(at, length, MADV_DODUMP);
  return kept_errno(kept, done);
}

bool os_purge(void *at, size_t length) {
  int kept = errno;
  bool done = madvise(at, length, MADV_DONTNEED) == 0 ||
              madvise(at, length, MADV_DONTNEED_LOCKED) == 0; /* under mlockall */
  return kept_errno(kept, done);
}

enum os_moved os_move(void *from, void *to, size_t length) {
  int kept = errno;
  void *got = mremap(from, length, length, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
  errno = kept;
  if (got == to) return MOVED;
  /* mremap unmaps the destination before it looks at the limits, and before 6.17 at whether the source is one
   * mapping. */
  return os_heal(to, length) ? NOT_MOVED : LOST;
}

bool os_heal(void *at, size_t length) {
  int kept = errno;
  void *got = mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (got == at) madvise(at, length, MADV_NOHUGEPAGE);
  return kept_errno(kept, got == at);
}

size_t os_address_space_limit(void) {
  int kept = errno;
  struct rlimit limit;
  bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  errno = kept;
  return limited ? limit.rlim_cur : SIZE_MAX;
}

size_t os_physical_memory(void) {
  int kept = errno;
  struct sysinfo info = {0};
  sysinfo(&info);
  errno = kept;
  return info.totalram * info.mem_unit;
}

uint64_t os_random(void) {
  uint64_t random = 0;
  const void *bytes = (const void *)getauxval(AT_RANDOM);
  if (bytes) memcpy(&random, bytes, sizeof random);
  return random;
}

void os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds) {
  int kept = errno;
  struct timespec timeout = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, milliseconds ? &timeout : NULL, NULL, 0);
  errno = kept;
}

void os_yield(void) {
  int kept = errno;
  sched_yield();
  errno = kept;
}

void os_wake(_Atomic uint32_t *word, int waiters) {
  int kept = errno;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, NULL, NULL, 0);
  errno = kept;
}

bool os_barrier_everywhere(void) {
  int kept = errno;
  bool done = syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  if (!done && errno == EPERM) /* not registered yet */
    done = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
           syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  return kept_errno(kept, done);
}

void os_populate(void *at, size_t length) {
  int kept = errno;
  madvise(at, length, MADV_POPULATE_WRITE);
  errno = kept;
}

bool os_forbid(void *at, size_t length) {
  int kept = errno;
  bool done = mprotect(at, length, PROT_NONE) == 0;
  if (done) madvise(at, length, MADV_DONTNEED);
  return kept_errno(kept, done);
}

static uint64_t now(clockid_t clock) {
  int kept = errno;
  struct timespec time = {0};
  clock_gettime(clock, &time);
  errno = kept;
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t os_now_ns(void) { return now(CLOCK_MONOTONIC); }
uint64_t os_now_coarse_ns(void) { return now(CLOCK_MONOTONIC_COARSE); }

/* The second number of /proc/self/statm is resident pages. */
size_t os_resident_bytes(void) {
  int kept = errno;
  char text[128];
  int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  errno = kept;
  if (length <= 0) return 0;
  text[length] = 0;
  const char *at = strchr(text, ' ');
  size_t resident = 0;
  for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++) resident = resident * 10 + (size_t)(*at - '0');
  return resident * os_page_size;
}

bool os_secure_mode(void) { return getauxval(AT_SECURE) != 0; }
