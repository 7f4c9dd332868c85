/* reaches: for test_profile_programs.py. It keeps 4,000 rows that a library allocated for it, or itself without one.
 * Then it does what it is told, and waits.
 *
 *   reaches keep LIBRARY           keeps the library
 *   reaches close LIBRARY          closes it
 *   reaches execute - PROGRAM...   executes the program when a line comes */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SITE __attribute__((noinline))
#define BARRIER(p) __asm__ volatile("" : "+r"(p) : : "memory")

enum { ROWS = 4000, BYTES = 1000 };

SITE static void *keep_own(size_t bytes) { void *p = malloc(bytes); BARRIER(p); return memset(p, 1, bytes); }

static void work(void) {
  for (const pid_t parent = getppid(); getppid() == parent;) {
    usleep(100000);
    free(malloc(100000));
  }
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  void *(*keep)(size_t) = keep_own;
  void *const library = arguments[2][0] == '-' ? NULL : dlopen(arguments[2], RTLD_NOW);
  if (library) *(void **)&keep = dlsym(library, "keep_row");
  for (int i = 0; i < ROWS; i++) keep(BYTES);
  for (int i = 0; i < ROWS; i++) keep_own(BYTES);
  if (strcmp(arguments[1], "close") == 0 && dlclose(library) != 0) return 1;
  puts("ready");
  fflush(stdout);
  if (strcmp(arguments[1], "execute") != 0) work();
  for (int i = 0; i < 12; i++) {
    usleep(100000);
    free(malloc(100000)); /* publishes what it has */
  }
  getchar();
  if (count > 3) execv(arguments[3], &arguments[3]);
  return 1;
}
