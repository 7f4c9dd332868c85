/* The C library's own, where ours has not taken its place, or still stands beside it. */
#include "misuse.h"

#include <sys/mman.h>

#if !defined(TEST_LIBC)
#define others_malloc malloc
#elif defined(__GLIBC__)
void *__libc_malloc(size_t size);
#define others_malloc __libc_malloc
#else
static void *others_malloc(size_t size) {
  return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
#endif

static void run(void) {
  void *block = others_malloc(SMALL);
  CHECK(block != NULL && !tslab_owns(block));
  tslab_free(culprit(block));
}

MISUSE("a block of another malloc freed", NAMED, FOREIGN("free"));
