/* cxx_shared: see cxx.h; in libtslab.so.                                                            floor: malloc */
#include "base/log.h"
#include "malloc/cxx.h"
#include <dlfcn.h>
#include <stdlib.h>

#define GET_NEW_HANDLER "_ZSt15get_new_handlerv"
#define THROW_BAD_ALLOC "_ZSt17__throw_bad_allocv"

/* A program that contains its C++ runtime exports these if a library that it is linked with asks for them. */
extern __attribute__((weak)) new_handler get_new_handler(void) __asm__(GET_NEW_HANDLER);
extern __attribute__((weak)) NORETURN void throw_bad_alloc(void) __asm__(THROW_BAD_ALLOC);

/* Finds a name in a runtime that came with a plugin. Only objects that were loaded with the plugin see such names. */
static void *find(const char *name) {
  static const char *const runtimes[] = {"libstdc++.so.6", "libc++.so.1"};
  for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
    void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
    void *found = runtime ? dlsym(runtime, name) : NULL;
    if (found) return found; /* the runtime stays loaded, because this will run */
  }
  return NULL;
}

new_handler cxx_new_handler(bool is_caught_here) {
  if (get_new_handler) return get_new_handler();
  if (is_caught_here) return NULL;
  __typeof__(get_new_handler) *found = (__typeof__(found))find(GET_NEW_HANDLER);
  return found ? found() : NULL;
}

void cxx_throw_bad_alloc(size_t size) {
  if (throw_bad_alloc) throw_bad_alloc();
  __typeof__(throw_bad_alloc) *found = (__typeof__(found))find(THROW_BAD_ALLOC);
  if (found) found();
  log_line("operator new: no memory for %zu bytes, and no C++ runtime to throw std::bad_alloc", size);
  abort();
}
