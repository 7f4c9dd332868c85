// Every form of operator new and delete, and the new_handler.
#include "../check.h"

#include <initializer_list>
#include <new>
#include <sys/resource.h>

namespace {

void check_block(void *block, size_t size, size_t alignment = 16) {
  CHECK(block != nullptr);
  CHECK_COUNT(reinterpret_cast<uintptr_t>(block) % alignment, ==, 0);
  CHECK_COUNT(malloc_usable_size(block), >=, size);
  memset(block, 0x33, malloc_usable_size(block));
}

// Each form of new is paired with each form of delete that the standard allows for it.
void every_form(size_t size) {
  void *block;
  check_block(block = ::operator new(size), size);
  ::operator delete(block);
  check_block(block = ::operator new(size), size);
  ::operator delete(block, size);
  check_block(block = ::operator new(size, std::nothrow), size);
  ::operator delete(block, std::nothrow);
  check_block(block = ::operator new[](size), size);
  ::operator delete[](block);
  check_block(block = ::operator new[](size), size);
  ::operator delete[](block, size);
  check_block(block = ::operator new[](size, std::nothrow), size);
  ::operator delete[](block, std::nothrow);

  for (size_t alignment = 16; alignment <= (size_t(2) << 20); alignment *= 8) {
    const auto aligned = static_cast<std::align_val_t>(alignment);
    check_block(block = ::operator new(size, aligned), size, alignment);
    ::operator delete(block, aligned);
    check_block(block = ::operator new(size, aligned), size, alignment);
    ::operator delete(block, size, aligned);
    check_block(block = ::operator new(size, aligned, std::nothrow), size, alignment);
    ::operator delete(block, aligned, std::nothrow);
    check_block(block = ::operator new[](size, aligned), size, alignment);
    ::operator delete[](block, aligned);
    check_block(block = ::operator new[](size, aligned), size, alignment);
    ::operator delete[](block, size, aligned);
    check_block(block = ::operator new[](size, aligned, std::nothrow), size, alignment);
    ::operator delete[](block, aligned, std::nothrow);
  }
}

void null_may_be_deleted() {
  const auto aligned = static_cast<std::align_val_t>(64);
  void *volatile null = nullptr;
  ::operator delete(null);
  ::operator delete(null, 8);
  ::operator delete(null, std::nothrow);
  ::operator delete(null, aligned);
  ::operator delete(null, 8, aligned);
  ::operator delete(null, aligned, std::nothrow);
  ::operator delete[](null);
  ::operator delete[](null, 8);
  ::operator delete[](null, std::nothrow);
  ::operator delete[](null, aligned);
  ::operator delete[](null, 8, aligned);
  ::operator delete[](null, aligned, std::nothrow);
}

// Returns the result of a form of new, or null if it threw bad_alloc. Volatile, because compilers may remove a call of
// new if its result is unused, and know that it is not null.
template <typename Form> void *result_of(Form form, bool *threw) {
  void *volatile block = nullptr;
  *threw = false;
  try {
    block = form();
  } catch (const std::bad_alloc &) {
    *threw = true;
  }
  return block;
}

template <typename Form> void check_throws(Form form) {
  bool threw;
  CHECK(result_of(form, &threw) == nullptr && threw);
}

template <typename Form> void check_null(Form form) {
  bool threw;
  CHECK(result_of(form, &threw) == nullptr && !threw);
}

// Calls `expect(throwing form)` for the four throwing forms and `expect_null(nothrow form)` for the other four.
template <typename Throwing, typename Null> void huge_in_every_form(size_t size, Throwing expect, Null expect_null) {
  const auto aligned = static_cast<std::align_val_t>(64);
  expect([=] { return ::operator new(size); });
  expect([=] { return ::operator new[](size); });
  expect([=] { return ::operator new(size, aligned); });
  expect([=] { return ::operator new[](size, aligned); });
  expect_null([=] { return ::operator new(size, std::nothrow); });
  expect_null([=] { return ::operator new[](size, std::nothrow); });
  expect_null([=] { return ::operator new(size, aligned, std::nothrow); });
  expect_null([=] { return ::operator new[](size, aligned, std::nothrow); });
}

int handled;

void give_up_at_the_third_call() {
  if (++handled == 3) std::set_new_handler(nullptr);
}

void throw_at_the_second_call() {
  if (++handled == 2) throw std::bad_alloc();
}

void huge_sizes_fail() {
  for (const size_t size : {SIZE_MAX, SIZE_MAX - 100, size_t(PTRDIFF_MAX) + 1, size_t(PTRDIFF_MAX)}) {
    const auto throws = [](auto form) { check_throws(form); };
    const auto is_null = [](auto form) { check_null(form); };
    huge_in_every_form(size, throws, is_null);
    const auto with_handler = [](std::new_handler handler, int calls, auto check) {
      return [=](auto form) {
        handled = 0;
        std::set_new_handler(handler);
        check(form);
        CHECK_COUNT(handled, ==, calls);
        std::set_new_handler(nullptr);
      };
    };
    huge_in_every_form(size, with_handler(give_up_at_the_third_call, 3, throws),
                       with_handler(give_up_at_the_third_call, 3, is_null));
    huge_in_every_form(size, with_handler(throw_at_the_second_call, 2, throws),
                       with_handler(throw_at_the_second_call, 2, is_null));
  }
}

constexpr size_t PIECE = size_t(64) << 20;
void *pieces[256];
size_t piece_count;

void give_one_piece_back() {
  CHECK_COUNT(++handled, ==, 1);
  ::operator delete(pieces[--piece_count]);
}

// The handler may make memory available; the same call then succeeds.
void a_handler_that_finds_memory_is_enough() {
  while (void *piece = ::operator new(PIECE, std::nothrow)) {
    CHECK_COUNT(piece_count, <, 256);
    pieces[piece_count++] = piece;
  }
  CHECK_COUNT(piece_count, >, 4);
  std::set_new_handler(give_one_piece_back);
  handled = 0;
  pieces[piece_count] = ::operator new(PIECE);
  piece_count++;
  CHECK_COUNT(handled, ==, 1);
  handled = 0;
  pieces[piece_count] = ::operator new(PIECE, std::nothrow);
  piece_count++;
  CHECK_COUNT(handled, ==, 1);
  std::set_new_handler(nullptr);
  while (piece_count > 0) ::operator delete(pieces[--piece_count]);
}

} // namespace

int main(int, char **argv) {
  // Under a limit from the start, memory runs out at a known place.
  rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  if (limit.rlim_cur == RLIM_INFINITY) {
    limit.rlim_cur = rlim_t(4) << 30;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    execv("/proc/self/exe", argv);
    CHECK(!"execv");
  }
  for (size_t size = 0; size < (size_t(3) << 20); size += 1 + size / 3) every_form(size);
  null_may_be_deleted();
  huge_sizes_fail();
  a_handler_that_finds_memory_is_enough();
  return 0;
}
