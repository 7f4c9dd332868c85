/* holes: of 300,000 blocks one in 20 stays. After ten seconds without a call only the pages with a live block may be
 * resident, and for blocks of 1 KiB at least 74 of 100 bytes went back. The test also prints the pages that hold a live
 * block, which no allocator can give back without moving blocks. */
#include "memory.h"

#include <sys/wait.h>
#include <time.h>

enum { BLOCKS = 300000 / TEST_SCALE, KEPT_ONE_IN = 20, IDLE_MS = 10000 };

static char *block[BLOCKS];

/* A sanitizer keeps what is freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static int by_address(const void *a, const void *b) {
  const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
  return (x > y) - (x < y);
}

/* Bytes of pages that a kept block touches. They are in no order, so they are sorted first. */
static size_t pages_of_kept(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  static uintptr_t kept[BLOCKS / KEPT_ONE_IN + 1];
  size_t count = 0, pages = 0;
  uintptr_t next = 0;
  for (size_t i = 0; i < BLOCKS; i += KEPT_ONE_IN) kept[count++] = (uintptr_t)block[i];
  qsort(kept, count, sizeof *kept, by_address);
  for (size_t i = 0; i < count; i++)
    for (uintptr_t at = kept[i] / page; at <= (kept[i] + size - 1) / page; at++)
      if (at >= next) pages++, next = at + 1;
  return pages * page;
}

static void idle(unsigned milliseconds) {
  struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&rest, &rest) != 0) continue;
}

static void leave_holes(size_t size) {
  memset(block, 1, sizeof block);
  const size_t before = resident_bytes();
  for (size_t i = 0; i < BLOCKS; i++) CHECK((block[i] = tslab_malloc(size)) && memset(block[i], 1, size));
  const size_t full = resident_bytes() - before;
  for (size_t i = 0; i < BLOCKS; i++)
    if (i % KEPT_ONE_IN != 0) tslab_free(block[i]);
  idle(IDLE_MS);
  const size_t left = resident_bytes() - before, bound = pages_of_kept(size);
  dprintf(1, "blocks of %zu: %zu of 100 bytes went back; pages with a live block allow %zu\n", size,
          100 - 100 * left / full, 100 - 100 * bound / full);
  if (SANITIZED) return;
  CHECK_COUNT(left, <=, bound + bound / 10 + (2 << 20));
  if (size == 1024) CHECK_COUNT(100 * (full - left), >=, 74 * full);
}

/* Each in a process of its own, where nothing lies free yet. */
static void in_child(size_t size) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    leave_holes(size);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
  (void)argv;
  in_child(1024);
  if (argc > 1) in_child(200), in_child(4000);
  return 0;
}
