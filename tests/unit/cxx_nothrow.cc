// A program whose only operator is new that may not throw, linked statically without anything that throws: it gets
// memory, and NULL where there is none.
#include "../check.h"

#include <new>

int main() {
  void *volatile block = ::operator new(100, std::nothrow);
  CHECK(block != nullptr && tslab_owns(block));
  free(block);
  block = ::operator new[](100, std::align_val_t(256), std::nothrow);
  CHECK(block != nullptr && reinterpret_cast<uintptr_t>(block) % 256 == 0);
  free(block);
  const size_t huge = size_t(1) << 61;
  block = ::operator new(huge, std::nothrow);
  CHECK(block == nullptr);
  block = ::operator new[](huge, std::align_val_t(64), std::nothrow);
  CHECK(block == nullptr);
  return 0;
}
