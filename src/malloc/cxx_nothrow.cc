// cxx_nothrow: the forms of operator new that may not throw.                                        floor: malloc
//
// By the standard each calls the form that may throw, and returns NULL if that or the program's new_handler throws. C
// cannot catch. The C++ runtime is the program's. Its symbols are weak, so that the library loads in a process without
// one, where no code calls this.
#include <stddef.h> // not <cstddef>: the library needs no C++ library, not even to be compiled

asm(".weak __gxx_personality_v0\n\t.weak __cxa_begin_catch\n\t.weak __cxa_end_catch\n\t"
    ".weak _Unwind_Resume\n\t.weak _ZSt9terminatev");

#define HIDDEN extern "C" __attribute__((visibility("hidden")))
#define EXPORT extern "C" __attribute__((visibility("default")))

HIDDEN void *new_or_null(size_t size, size_t alignment);
HIDDEN void *own_new(size_t size), *own_new_array(size_t size);
HIDDEN void *own_new_aligned(size_t size, size_t alignment), *own_new_aligned_array(size_t size, size_t alignment);

// The four that may throw, the program's or the library's. Not weak: a static link must look for them.
EXPORT void *_Znwm(size_t size), *_Znam(size_t size);
EXPORT void *_ZnwmSt11align_val_t(size_t size, size_t alignment), *_ZnamSt11align_val_t(size_t size, size_t alignment);

namespace {

// Hides a name from the compiler, which assumes that two names are two functions.
template <typename Function> bool is_same(Function *a, Function *b) {
  asm("" : "+r"(a));
  return a == b;
}
bool new_is_own() { return is_same(_Znwm, own_new); }
bool new_array_is_own() { return new_is_own() && is_same(_Znam, own_new_array); }
bool new_aligned_is_own() { return is_same(_ZnwmSt11align_val_t, own_new_aligned); }
bool new_aligned_array_is_own() {
  return new_aligned_is_own() && is_same(_ZnamSt11align_val_t, own_new_aligned_array);
}

} // namespace

// Defines `name`, which may not throw, by `form`, which may. If `form` is the library's own, this does not throw and
// catch, because a static link may have no runtime that throws.
#define NOTHROW(name, parameters, is_own, alignment, form)          \
  EXPORT __attribute__((weak)) void *name parameters noexcept;      \
  void *name parameters noexcept {                                  \
    try {                                                           \
      return is_own() ? new_or_null(size, alignment) : form;        \
    } catch (...) {                                                 \
      return nullptr;                                               \
    }                                                               \
  }

NOTHROW(_ZnwmRKSt9nothrow_t, (size_t size), new_is_own, 16, _Znwm(size))
NOTHROW(_ZnamRKSt9nothrow_t, (size_t size), new_array_is_own, 16, _Znam(size))
NOTHROW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment), new_aligned_is_own, alignment,
        _ZnwmSt11align_val_t(size, alignment))
NOTHROW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment), new_aligned_array_is_own, alignment,
        _ZnamSt11align_val_t(size, alignment))
