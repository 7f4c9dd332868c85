/* One program that runs with the library and without it. */
#include <stdio.h>
#include <stdlib.h>

#include <tslab/optional.h>

int main(void) {
  const tslab_epoch request = tslab_epoch_open("request");
  if (tslab_epoch_enter(request) != 0) return 1;
  void *const block = malloc(100);
  printf("available=%d routed=%d\n", tslab_available(), request != 0 && tslab_epoch_of(block) == request);
  free(block);
  return tslab_epoch_leave(request) != 0 || tslab_epoch_close(request, NULL) != 0;
}
