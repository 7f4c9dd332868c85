/* loading: the constructor of a library waits for a thread, which allocates, sets a limit and registers a handler. The
 * thread that loads the library holds the dynamic linker's lock meanwhile, so none of these may wait for that lock.
 * loading LIBRARY */
#include "../check.h"

#include <dlfcn.h>

enum { PATIENCE_S = 60 };

int main(int argc, char **argv) {
  CHECK(argc == 2);
  alarm(PATIENCE_S);
  CHECK(dlopen(argv[1], RTLD_NOW) != NULL);
  return 0;
}
