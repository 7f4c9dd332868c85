/* A C program loads a C++ library privately, as scripting languages do. The library's new calls its handler and then
   throws bad_alloc, although the C++ runtime is in no other object's search order. The runtime may be loaded after the
   allocator. */
#include "../check.h"

#include <dlfcn.h>

static int (*function_of(void *library, const char *name))(size_t) {
  int (*function)(size_t) = (int (*)(size_t))dlsym(library, name);
  CHECK(function != NULL);
  return function;
}

int main(void) {
  CHECK(dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") == NULL);
  void *library = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  const size_t huge = (size_t)1 << 61;
  CHECK(function_of(library, "throws")(100) == 0);
  CHECK(function_of(library, "throws")(huge) == 1);
  CHECK(function_of(library, "calls_handler")(huge) == 1);
  CHECK(function_of(library, "nothrow_is_null")(huge) == 1);
  return 0;
}
