/* limit_mapping: a process begins under a limit, fills most of it, and frees all. Then there is room for a mapping that
 * the library does not see: at once under a limit of addresses, and after malloc_trim under one of data. A stack that
 * grows counts in the former alone. If there were no room for it, the kernel would end the process. */
#include "each_limit.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { FRAME = 65536, STACK_FRAMES = 1600, SIZES = 3 };
#define MIB ((size_t)1 << 20)
#define LIMIT (400 * MIB)
#define LIST  (180 * MIB)
#define OWN   (250 * MIB)

static const size_t sizes[SIZES] = {20000, 102400, LIST / 2};

static void fill_and_free(size_t size) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, size, LIST), >=, LIST);
  free_list(&list);
}

static unsigned deep(unsigned frames) {
  volatile char room[FRAME];
  room[0] = (char)frames;
  return frames == 0 ? 0 : deep(frames - 1) + (unsigned char)room[0] % 2;
}

static void *map(size_t bytes) {
  const int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  void *const mapping = (void *)syscall(SYS_mmap, NULL, bytes, access, flags, -1, (off_t)0);
  CHECK(mapping != MAP_FAILED);
  return mapping;
}

static int under(int resource) {
  const struct rlimit limit = {LIMIT, LIMIT}, stack = {RLIM_INFINITY, RLIM_INFINITY};
  CHECK(syscall(SYS_prlimit64, 0, resource, &limit, NULL) == 0);
  for (int i = 0; i < SIZES; i++) {
    fill_and_free(sizes[i]);
    if (resource == RLIMIT_DATA) malloc_trim(0);
    CHECK(munmap(map(OWN), OWN) == 0);
  }
  if (resource == RLIMIT_DATA || setrlimit(RLIMIT_STACK, &stack) != 0) return 0;
  fill_and_free(sizes[0]);
  map(LIMIT - LIST);
  CHECK_COUNT(deep(STACK_FRAMES), >, 0);
  return 0;
}

int main(void) { return under_each_limit(under); }
