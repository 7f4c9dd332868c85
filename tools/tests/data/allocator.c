/* A preloadable malloc over glibc's own, in the variants that the tests of the laboratory need.
 *
 *   -DTSLAB       names itself tslab, and reads TSLAB_CACHE as the one setting that it knows
 *   -DHOT=n       malloc does n more multiplications
 *   -DCOLD=n      a function that only a request of 1 GiB reaches returns n
 *   -DALIAS       gives one function a second name
 *   -DNO_MALLOC   serves no malloc at all
 *   -DCRASH       malloc aborts on its 1,000th call                                                                     */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef HOT
#define HOT 0
#endif
#ifndef COLD
#define COLD 0
#endif

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern char **environ;

volatile unsigned long sink = 3;

__attribute__((noinline)) int unreached(void) { return COLD + (int)sink; }
__attribute__((noinline)) void work(void) {
  unsigned long value = sink;
  for (int i = 0; i < HOT; i++) __asm__ volatile("imul $3, %0, %0" : "+r"(value));
}

#ifdef ALIAS
void other_name_of_work(void) __attribute__((alias("work")));
#endif

#ifdef TSLAB
const char *tslab_version(void) { return "test"; }
__attribute__((constructor)) static void settings(void) {
  for (char **at = environ; *at; at++)
    if (strncmp(*at, "TSLAB_", 6) == 0 && strncmp(*at, "TSLAB_CACHE=", 12) != 0)
      fprintf(stderr, "tslab: unknown setting %.*s (see docs/settings.md)\n", (int)strcspn(*at, "="), *at);
}
#endif

#ifndef NO_MALLOC
void *malloc(size_t size) {
  if (size == 1ul << 30 && unreached() == 42) return NULL;
#ifdef CRASH
  static int calls;
  if (++calls == 1000) abort();
#endif
  work();
  return __libc_malloc(size);
}
void free(void *block) { __libc_free(block); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
#endif
