/* Prints who served an allocation, and what a scope's epoch told at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tslab/tslab.h>

#ifdef PREFIXED
#define taken tslab_malloc
#define given_back tslab_free
#else
#define taken malloc
#define given_back free
#endif

int main(void) {
  tslab_epoch_report report;
  const tslab_epoch request = tslab_epoch_open("request");
  if (request == 0 || tslab_epoch_enter(request) != 0) return 1;
  char *const block = taken(100);
  strcpy(block, "memory of the request");
  const int routed = tslab_epoch_of(block) == request;
  given_back(block);
  if (tslab_epoch_leave(request) != 0 || tslab_epoch_close(request, &report) != 0) return 1;

  void *const plain = malloc(100);
  printf("routed=%d live=%d malloc=%s version=%s\n", routed, (int)report.live_blocks,
         tslab_owns(plain) ? "tslab" : "libc", tslab_version());
  free(plain);
  return 0;
}
