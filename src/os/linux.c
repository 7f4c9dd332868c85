/* os: Linux. See os.h for the contracts.                                                             floor: os */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
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

/* ---- system calls ------------------------------------------------------------------------------------------------ */

/* Made here and not by libc's wrappers: they leave errno alone, whatever comes back, and an idle process does not map
 * the pages of libc that hold them. Negative: an error number. */
#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#else
static long call(long number, long a, long b, long c, long d, long e, long f) {
  int kept = errno;
  long result = syscall(number, a, b, c, d, e, f);
  if (result == -1) result = -errno;
  errno = kept;
  return result;
}
#endif

static void *map(void *at, size_t length, int protection, int flags) {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  long got = call(SYS_mmap, (long)at, (long)length, protection, flags, -1, 0);
  return got < 0 && got > -4096 ? NULL : (void *)got;
}

static bool advise(void *at, size_t length, int advice) {
  return call(SYS_madvise, (long)at, (long)length, advice, 0, 0, 0) == 0;
}

static bool protect(void *at, size_t length, int protection) {
  return call(SYS_mprotect, (long)at, (long)length, protection, 0, 0, 0) == 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

size_t os_page_size;

void os_start(void) { os_page_size = getauxval(AT_PAGESZ); }

void *os_reserve(void *hint, size_t length) {
  void *at = map(hint, length, PROT_NONE, 0);
  if (!at) return NULL;
  advise(at, length, MADV_NOHUGEPAGE); /* one 64-byte block must not cost 2 MiB under THP=always */
  advise(at, length, MADV_DONTDUMP);
  return at;
}

bool os_reserve_at(void *at, size_t length) {
  void *got = os_reserve(at, length);
  if (got == at) return true;
  if (got) os_unreserve(got, length);
  return false;
}

void os_unreserve(void *at, size_t length) { call(SYS_munmap, (long)at, (long)length, 0, 0, 0, 0); }

bool os_commit(void *at, size_t length) {
  bool done = protect(at, length, PROT_READ | PROT_WRITE);
  if (done) advise(at, length, MADV_DODUMP);
  return done;
}

bool os_purge(void *at, size_t length) {
  return advise(at, length, MADV_DONTNEED) || advise(at, length, MADV_DONTNEED_LOCKED); /* the latter under mlockall */
}

enum os_moved os_move(void *from, void *to, size_t length) {
  long got = call(SYS_mremap, (long)from, (long)length, (long)length,
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, (long)to, 0);
  if (got == (long)to) return MOVED;
  /* mremap unmaps the destination before it looks at the limits, and before 6.17 at whether the source is one
   * mapping. */
  return os_heal(to, length) ? NOT_MOVED : LOST;
}

bool os_heal(void *at, size_t length) {
  void *got = map(at, length, PROT_READ | PROT_WRITE, MAP_FIXED);
  if (got == at) advise(at, length, MADV_NOHUGEPAGE);
  return got == at;
}

void os_populate(void *at, size_t length) { advise(at, length, MADV_POPULATE_WRITE); }

bool os_forbid(void *at, size_t length) {
  bool done = protect(at, length, PROT_NONE);
  if (done) advise(at, length, MADV_DONTNEED);
  return done;
}

/* ---- the machine and the process --------------------------------------------------------------------------------- */

size_t os_address_space_limit(void) {
  struct rlimit64 limit;
  bool known = call(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&limit, 0, 0) == 0;
  return known && limit.rlim_cur != RLIM64_INFINITY ? limit.rlim_cur : SIZE_MAX;
}

size_t os_physical_memory(void) {
  struct sysinfo info = {0};
  call(SYS_sysinfo, (long)&info, 0, 0, 0, 0, 0);
  return info.totalram * info.mem_unit;
}

uint64_t os_random(void) {
  uint64_t random = 0;
  const void *bytes = (const void *)getauxval(AT_RANDOM);
  if (bytes) memcpy(&random, bytes, sizeof random);
  return random;
}

bool os_secure_mode(void) { return getauxval(AT_SECURE) != 0; }

/* The second number of /proc/self/statm is resident pages. */
size_t os_resident_bytes(void) {
  char text[128];
  long file = call(SYS_openat, AT_FDCWD, (long)"/proc/self/statm", O_RDONLY | O_CLOEXEC, 0, 0, 0);
  long length = file < 0 ? 0 : call(SYS_read, file, (long)text, sizeof text - 1, 0, 0, 0);
  if (file >= 0) call(SYS_close, file, 0, 0, 0, 0, 0);
  if (length <= 0) return 0;
  text[length] = 0;
  const char *at = strchr(text, ' ');
  size_t resident = 0;
  for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++) resident = resident * 10 + (size_t)(*at - '0');
  return resident * os_page_size;
}

/* ---- other threads ----------------------------------------------------------------------------------------------- */

void os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds) {
  struct timespec timeout = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
  call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, milliseconds ? (long)&timeout : 0, 0, 0);
}

void os_wake(_Atomic uint32_t *word, int waiters) { call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, waiters, 0, 0, 0); }

void os_yield(void) { call(SYS_sched_yield, 0, 0, 0, 0, 0, 0); }

static bool membarrier(int command) { return call(SYS_membarrier, command, 0, 0, 0, 0, 0) == 0; }

bool os_barrier_everywhere(void) {
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
         (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static uint64_t now(clockid_t clock) {
  struct timespec time = {0};
  clock_gettime(clock, &time); /* no system call, most times; these clocks do not fail */
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t os_now_ns(void) { return now(CLOCK_MONOTONIC); }
uint64_t os_now_coarse_ns(void) { return now(CLOCK_MONOTONIC_COARSE); }
