/* The C library's own, where ours has not taken its place, or still stands beside it. */
#include "misuse.h"

#include <dlfcn.h>
#include <sys/mman.h>

#if !defined(TEST_LIBC)
#define others_malloc malloc
#elif defined(__GLIBC__)
static void *others_malloc(size_t size) {
  void *libc = dlopen("libc.so.6", RTLD_NOW);
  void *(*its_own)(size_t) = libc ? (void *(*)(size_t))dlsym(libc, "malloc") : NULL;
  return its_own ? its_own(size) : NULL;
}
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
