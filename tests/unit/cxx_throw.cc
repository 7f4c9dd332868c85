// A program without a throw of its own, with its C++ runtime linked statically: without memory, new still throws
// bad_alloc, and calls a handler first.
#include "../check.h"

#include <new>

static int handled;

static void give_up() {
  handled++;
  std::set_new_handler(nullptr);
}

static bool throws(size_t size) {
  try {
    void *volatile block = ::operator new(size);
    ::operator delete(block);
    return false;
  } catch (const std::bad_alloc &) {
    return true;
  }
}

int main() {
  const size_t huge = size_t(1) << 61;
  CHECK(!throws(100) && throws(huge));
  std::set_new_handler(give_up);
  CHECK(throws(huge) && handled == 1);
  return 0;
}
