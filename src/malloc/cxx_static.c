/* cxx_static: see cxx.h; in libtslab.a.                                                             floor: malloc */
#include "malloc/cxx.h"

extern new_handler get_new_handler(void) __asm__("_ZSt15get_new_handlerv");
extern NORETURN void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");

new_handler cxx_new_handler(bool is_caught_here) {
  (void)is_caught_here;
  return get_new_handler();
}

void cxx_throw_bad_alloc(size_t size) {
  (void)size;
  throw_bad_alloc();
}
