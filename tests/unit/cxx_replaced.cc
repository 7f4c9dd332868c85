// A program that replaces some forms of operator new and delete. By the standard the other forms are defined by those,
// and so by the program's. The program's forms put a header before each block. The test notices a form that does not go
// through them: the header is missing, or the free reports an interior pointer.
#include "../check.h"

#include <new>

namespace {

constexpr size_t HEADER = 64;
constexpr size_t REFUSED = 0x1000;

struct header {
  void *start;
  uint64_t magic;
};

const char *last_called;
int live;

[[maybe_unused]] void *take(const char *called, size_t size, size_t alignment) {
  last_called = called;
  if (size == REFUSED) throw std::bad_alloc();
  char *start = static_cast<char *>(malloc(size + HEADER + alignment));
  CHECK(start != nullptr);
  uintptr_t at = (reinterpret_cast<uintptr_t>(start) + HEADER + alignment - 1) & ~(alignment - 1);
  header *head = reinterpret_cast<header *>(at) - 1;
  *head = {start, 0x68656164};
  live++;
  return head + 1;
}

[[maybe_unused]] void give(const char *called, void *block) {
  last_called = called;
  if (!block) return;
  header *head = static_cast<header *>(block) - 1;
  CHECK_COUNT(head->magic, ==, 0x68656164);
  head->magic = 0;
  live--;
  free(head->start);
}

} // namespace

#if REPLACED < 3
void *operator new(size_t size) { return take("new", size, 16); }
void operator delete(void *block) noexcept { give("delete", block); }
#endif
#if REPLACED == 2
void *operator new[](size_t size) { return take("new[]", size, 16); }
void operator delete[](void *block) noexcept { give("delete[]", block); }
#endif
#if REPLACED == 3
void *operator new(size_t size, std::align_val_t alignment) {
  return take("new", size, static_cast<size_t>(alignment));
}
void operator delete(void *block, std::align_val_t alignment) noexcept {
  CHECK_COUNT(static_cast<size_t>(alignment), ==, 256);
  give("delete", block);
}
#endif

namespace {

// Both calls went through the program's forms of those names.
template <typename New, typename Delete> void check_pair(const char *takes, New form, const char *gives, Delete undo) {
  last_called = "none of the program's";
  void *volatile block = form(100);
  CHECK(strcmp(last_called, takes) == 0);
  CHECK_COUNT(live, ==, 1);
  memset(block, 0x33, 100);
  last_called = "none of the program's";
  undo(block);
  CHECK(strcmp(last_called, gives) == 0);
  CHECK_COUNT(live, ==, 0);
  void *volatile null = nullptr;
  undo(null);
}

template <typename New> void check_refused(New form) {
  void *volatile block = form(REFUSED);
  CHECK(block == nullptr);
}

} // namespace

int main() {
#if REPLACED < 3
  const char *new_array = REPLACED == 2 ? "new[]" : "new", *delete_array = REPLACED == 2 ? "delete[]" : "delete";
  const auto plain = [](size_t n) { return ::operator new(n); };
  const auto nothrow = [](size_t n) { return ::operator new(n, std::nothrow); };
  const auto array = [](size_t n) { return ::operator new[](n); };
  const auto array_nothrow = [](size_t n) { return ::operator new[](n, std::nothrow); };
  check_pair("new", plain, "delete", [](void *p) { ::operator delete(p); });
  check_pair("new", plain, "delete", [](void *p) { ::operator delete(p, 100); });
  check_pair("new", nothrow, "delete", [](void *p) { ::operator delete(p, std::nothrow); });
  check_pair(new_array, array, delete_array, [](void *p) { ::operator delete[](p); });
  check_pair(new_array, array, delete_array, [](void *p) { ::operator delete[](p, 100); });
  check_pair(new_array, array_nothrow, delete_array, [](void *p) { ::operator delete[](p, std::nothrow); });
#else
  const auto at = std::align_val_t(256);
  const auto plain = [=](size_t n) { return ::operator new(n, at); };
  const auto nothrow = [=](size_t n) { return ::operator new(n, at, std::nothrow); };
  const auto array = [=](size_t n) { return ::operator new[](n, at); };
  const auto array_nothrow = [=](size_t n) { return ::operator new[](n, at, std::nothrow); };
  check_pair("new", plain, "delete", [=](void *p) { ::operator delete(p, at); });
  check_pair("new", plain, "delete", [=](void *p) { ::operator delete(p, 100, at); });
  check_pair("new", nothrow, "delete", [=](void *p) { ::operator delete(p, at, std::nothrow); });
  check_pair("new", array, "delete", [=](void *p) { ::operator delete[](p, at); });
  check_pair("new", array, "delete", [=](void *p) { ::operator delete[](p, 100, at); });
  check_pair("new", array_nothrow, "delete", [=](void *p) { ::operator delete[](p, at, std::nothrow); });
#endif
  check_refused(nothrow);
  check_refused(array_nothrow);
  return 0;
}
