// cxx_nothrow: the forms of operator new that may not throw: by the standard they are those that may, and NULL for what
// these throw, a program's new_handler included.                                                       floor: front
//
// The one thing here that C cannot say. The C++ runtime is the program's: its symbols are weak, so that the library
// loads in a process that has none, where nobody calls this.
#include <stddef.h> // not <cstddef>: the library needs no C++ library, not even to be compiled

asm(".weak __gxx_personality_v0\n\t.weak __cxa_begin_catch\n\t.weak __cxa_end_catch\n\t"
    ".weak _Unwind_Resume\n\t.weak _ZSt9terminatev");

#define EXPORT __attribute__((visibility("default"), weak))

// `name`, which may not throw, by `form`, which may. Both in cxx.c's way of naming.
#define NOTHROW(name, form, parameters, arguments)     \
  extern "C" EXPORT void *form parameters;             \
  extern "C" EXPORT void *name parameters noexcept;    \
  void *name parameters noexcept {                     \
    try {                                              \
      return form arguments;                           \
    } catch (...) {                                    \
      return nullptr;                                  \
    }                                                  \
  }

NOTHROW(_ZnwmRKSt9nothrow_t, _Znwm, (size_t size), (size))
NOTHROW(_ZnamRKSt9nothrow_t, _Znam, (size_t size), (size))
NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnwmSt11align_val_t, (size_t size, size_t alignment), (size, alignment))
NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_t, (size_t size, size_t alignment), (size, alignment))
