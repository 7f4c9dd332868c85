/* loading_first: dlmopen loads a library, whose constructor waits for the first thread that the program makes.
 * thrd_create makes that thread, and the thread makes another one by pthread_create. The loader holds its lock
 * meanwhile, so none of these may wait for that lock.
 *  loading_first LIBRARY */
#include "../check.h"

#include <dlfcn.h>

#ifndef LM_ID_BASE /* musl has no dlmopen */
#define dlmopen(space, file, mode) dlopen(file, mode)
#endif

enum { PATIENCE_S = 60 };

int main(int argc, char **argv) {
  CHECK(argc == 2);
  alarm(PATIENCE_S);
  void *block = malloc(1);
  CHECK(tslab_owns(block));
  free(block);
  CHECK(dlmopen(LM_ID_BASE, argv[1], RTLD_NOW) != NULL);
  return 0;
}
