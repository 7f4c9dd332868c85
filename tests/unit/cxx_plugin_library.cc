// For cxx_plugin.c.
#include <cstddef>
#include <new>

static int handled;

static void give_up() {
  handled++;
  std::set_new_handler(nullptr);
}

extern "C" int throws(std::size_t size) {
  try {
    void *volatile block = ::operator new(size);
    ::operator delete(block);
    return 0;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}

static void refuse() {
  handled++;
  throw std::bad_alloc();
}

extern "C" int nothrow_is_null(std::size_t size) {
  std::set_new_handler(refuse);
  void *volatile block = ::operator new(size, std::nothrow);
  std::set_new_handler(nullptr);
  return block == nullptr;
}

extern "C" int calls_handler(std::size_t size) {
  std::set_new_handler(give_up);
  return throws(size) ? handled : -1;
}
