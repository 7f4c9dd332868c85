/* holds: a server that keeps memory in three ways, for test_profile.py: rows of plain malloc that it never frees, one
 * block of each request's epoch, and none of what it works with. Then it sleeps until its parent ends it, or is gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tslab/optional.h"

#define SITE __attribute__((noinline))
#define BARRIER(p) __asm__ volatile("" : "+r"(p) : : "memory")

SITE static void *keep_row(void) { void *p = malloc(1000); BARRIER(p); return memset(p, 1, 1000); }
SITE static void *keep_leak(void) { void *p = malloc(3000); BARRIER(p); return memset(p, 1, 3000); }
SITE static void *scratch(size_t size) { void *p = malloc(size); BARRIER(p); return memset(p, 1, size); }

SITE static void serve(void) {
  tslab_epoch e = tslab_epoch_open("request");
  void *blocks[64];
  tslab_epoch_enter(e);
  for (int i = 0; i < 64; i++) blocks[i] = scratch(500);
  if (keep_leak() == NULL) abort();
  tslab_epoch_leave(e);
  for (int i = 0; i < 64; i++) free(blocks[i]);
  tslab_epoch_close(e, NULL);
}

int main(int count, char **arguments) {
  int rows = count > 1 ? atoi(arguments[1]) : 4000, requests = count > 2 ? atoi(arguments[2]) : 300;
  int later = count > 3 ? atoi(arguments[3]) : 0; /* rows that it keeps in the next ten seconds */
  for (int i = 0; i < rows; i++) keep_row();
  for (int i = 0; i < requests; i++) serve();
  puts("ready");
  fflush(stdout);
  for (const pid_t parent = getppid(); getppid() == parent;) {
    usleep(100000);
    free(malloc(100000));
    for (int i = 0; i < 4000 && later > 0; i++, later--) keep_row();
  }
  return 0;
}
