/* glibc's further names for malloc's family: calls of old programs and of malloc wrappers reach the same heap. */
#include "../check.h"

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
void __libc_free(void *block);

/* Programs that were linked before glibc 2.26 refer to it; newer ones can ask for it only in this way. */
void old_cfree(void *block);
#if defined(__x86_64__)
__asm__(".symver old_cfree, cfree@GLIBC_2.2.5");
#else
__asm__(".symver old_cfree, cfree@GLIBC_2.17");
#endif

/* A wrapper as programs have it. It must run once a call: every caller calls this program's malloc. */
static unsigned wrapped;
void *malloc(size_t size) {
  wrapped++;
  return __libc_malloc(size);
}

static void *check_ours(void *block, size_t size) {
  CHECK(tslab_owns(block));
  CHECK_COUNT(malloc_usable_size(block), >=, size);
  memset(block, 0x5a, size);
  return block;
}

int main(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *block = check_ours(__libc_malloc(100), 100);
  CHECK_COUNT(wrapped, ==, 0);
  __libc_free(block);
  free(check_ours(malloc(100), 100));
  CHECK_COUNT(wrapped, ==, 1);
  old_cfree(check_ours(__libc_calloc(3, 50), 150));
  block = check_ours(__libc_memalign(256, 100), 100);
  CHECK_COUNT((uintptr_t)block % 256, ==, 0);
  free(check_ours(__libc_realloc(block, 5000), 5000));
  block = check_ours(__libc_valloc(10), 10);
  CHECK_COUNT((uintptr_t)block % page, ==, 0);
  __libc_free(block);
  block = check_ours(__libc_pvalloc(page + 1), 2 * page);
  CHECK_COUNT((uintptr_t)block % page, ==, 0);
  free(block);
  free(check_ours(strdup("libc's own calls come by, too"), 8));
  CHECK_COUNT(wrapped, ==, 2);
  return 0;
}
