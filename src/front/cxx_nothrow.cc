// cxx_nothrow: operator new that may not throw, although a program's new_handler does.                  floor: front
//
// The one thing here that C cannot say. The C++ runtime is the program's: its symbols are weak, so that the library loads in
// a process that has none, where nobody calls this.
#include <stddef.h> // not <cstddef>: the library needs no C++ library, not even to be compiled

asm(".weak __gxx_personality_v0\n\t.weak __cxa_begin_catch\n\t.weak __cxa_end_catch\n\t.weak _Unwind_Resume\n\t.weak _ZSt9terminatev");

extern "C" __attribute__((visibility("hidden"))) void *new_retry(size_t size, size_t alignment, bool may_throw);
extern "C" __attribute__((visibility("hidden"))) void *new_retry_caught(size_t size, size_t alignment) noexcept;

void *new_retry_caught(size_t size, size_t alignment) noexcept {
  try {
    return new_retry(size, alignment, false);
  } catch (...) {
    return nullptr;
  }
}
