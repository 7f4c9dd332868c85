/* deep: a module loaded with RTLD_DEEPBIND has the program's malloc all the same. */
#include "../check.h"

#include <tslab/tslab.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MODES = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND };

static void use(void *module) {
  CHECK(module != NULL);
  char *(*gives)(void) = (char *(*)(void))dlsym(module, "module_gives");
  char *(*gives_from_libc)(void) = (char *(*)(void))dlsym(module, "module_gives_from_libc");
  void (*takes)(char *) = (void (*)(char *))dlsym(module, "module_takes");
  CHECK(gives && gives_from_libc && takes);

  char *block = gives();
  CHECK(tslab_owns(block));
  free(block);
  block = gives_from_libc();
  CHECK(tslab_owns(block));
  takes(block);
  takes(strdup("a word of the program"));
  CHECK(dlclose(module) == 0);
}

int main(void) {
  use(dlopen(MODULE, MODES));
  use(dlmopen(LM_ID_BASE, MODULE, MODES));
  return 0;
}
