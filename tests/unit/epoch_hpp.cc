// epoch.hpp: its objects give memory back at the ends of their lives, and containers put their elements in the epoch.
#include "../check.h"

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <tslab/epoch.hpp>

namespace {

// `words` are in the message.
template <typename Call> void check_throws(int error, Call call, const std::string &words = "") {
  int thrown = 0;
  try {
    call();
  } catch (const std::system_error &e) {
    thrown = e.code().value();
    CHECK(e.code().category() == tslab::category() && strcmp(e.code().category().name(), "temporal-slab") == 0);
    CHECK(e.code() == std::error_condition(thrown, std::generic_category()));
    CHECK(strstr(e.what(), "temporal-slab: ") == e.what());
    if (!strstr(e.what(), words.c_str())) dprintf(2, "expected '%s' in: %s\n", words.c_str(), e.what());
    CHECK(strstr(e.what(), words.c_str()) != nullptr);
    CHECK(strstr(e.what(), strerror(thrown)) == nullptr); // "Stale file handle"
  }
  CHECK_COUNT(thrown, ==, error);
}

// Returns the epoch of the block that this thread's malloc hands out now.
tslab_epoch routed() {
  void *block = tslab_malloc(100);
  const tslab_epoch e = tslab_epoch_of(block);
  tslab_free(block);
  CHECK_COUNT(e, ==, tslab_epoch_current());
  return e;
}

int info_error(tslab_epoch id) {
  tslab_epoch_status status;
  return tslab_epoch_info(id, &status);
}

// ---- scope

void scopes_end_with_their_block() {
  tslab::epoch a("a"), b("b");
  {
    tslab::scope in_a(a);
    CHECK_COUNT(routed(), ==, a.id());
    {
      tslab::scope in_b(b.id());
      CHECK_COUNT(routed(), ==, b.id());
      tslab::scope in_none(TSLAB_EPOCH_DEFAULT);
      CHECK_COUNT(routed(), ==, 0);
      CHECK_COUNT(tslab_scope_depth(), ==, 3);
    }
    CHECK_COUNT(routed(), ==, a.id());
  }
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
  CHECK_COUNT(routed(), ==, 0);
}

void throw_from(const tslab::epoch &e, int deep) {
  tslab::scope inside(e);
  if (deep == 0) throw 42;
  throw_from(e, deep - 1);
}

void an_exception_leaves_scopes() {
  tslab::epoch e("e");
  int caught = 0;
  try {
    throw_from(e, 10);
  } catch (int thrown) {
    caught = thrown;
  }
  CHECK_COUNT(caught, ==, 42);
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
  CHECK_COUNT(e.info().threads_inside, ==, 0);
}

// The inner scopes are of the same epoch and of another one: a leave by id alone would leave the wrong scope, or none.
void scopes_that_c_code_forgot_end_too() {
  tslab::epoch a("a"), b("b");
  {
    tslab::scope outer(b);
    {
      tslab::scope inside(a);
      CHECK_COUNT(tslab_epoch_enter(a.id()), ==, 0);
      CHECK_COUNT(tslab_epoch_enter(0), ==, 0);
    }
    CHECK_COUNT(tslab_scope_depth(), ==, 1);
    CHECK_COUNT(routed(), ==, b.id());
    CHECK_COUNT(a.info().threads_inside, ==, 0);
  }
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
}

tslab::scope returned(const tslab::epoch &e) { return tslab::scope(e); }

void scopes_do_not_move() {
  static_assert(!std::is_copy_constructible_v<tslab::scope> && !std::is_move_constructible_v<tslab::scope>);
  static_assert(!std::is_copy_assignable_v<tslab::scope> && !std::is_move_assignable_v<tslab::scope>);
  tslab::epoch e("e");
  {
    const tslab::scope inside = returned(e);
    CHECK_COUNT(tslab_scope_depth(), ==, 1);
    CHECK_COUNT(routed(), ==, e.id());
  }
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
}

void a_scope_that_cannot_be_entered_throws() {
  tslab::epoch e("e");
  const tslab_epoch id = e.id();
  e.close();
  check_throws(ESTALE, [=] { tslab::scope inside(id); }, "entering epoch " + std::to_string(id) + ": it has ended");
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
}

// Not in epoch 0, where a mistake would pass unnoticed.
void an_owner_of_none_throws() {
  tslab::epoch closed("e"), destroyed("e", TSLAB_EPOCH_DESTROYABLE), from("e"), released("e"), none;
  closed.close();
  destroyed.destroy();
  const tslab::epoch moved = std::move(from), adopted = tslab::epoch::adopt(released.release());
  for (const tslab::epoch *e : {&closed, &destroyed, &from, &released, &none}) {
    check_throws(EINVAL, [=] { tslab::scope inside(*e); }, "entering a tslab::epoch that owns no epoch");
    check_throws(EINVAL, [=] { tslab::memory_resource memory(*e); }, "owns no epoch");
    check_throws(EINVAL, [=] { const std::vector<int, tslab::allocator<int>> numbers(10, 1, *e); }, "owns no epoch");
    check_throws(EINVAL, [=] { (void)e->info(); }, "owns no epoch");
  }
  CHECK_COUNT(tslab_scope_depth(), ==, 0);
}

void messages_name_the_epoch() {
  tslab::epoch e("a label", TSLAB_EPOCH_DESTROYABLE), kept("kept");
  const std::string name = "epoch " + std::to_string(e.id()) + " (a label)";
  tslab::scope inside(e);
  check_throws(EBUSY, [&] { e.destroy(); }, "destroying " + name + ": a thread is inside it");
  tslab_epoch_options options{};
  options.label = "child";
  options.parent = tslab::epoch("parent").id();
  check_throws(ESTALE, [=] { tslab::epoch child(options); }, "opening epoch child below epoch ");
  check_throws(EPERM, [&] { kept.reset(); }, "(kept): it does not allow that (destroy and reset need TSLAB_EPOCH_DEST");
}

void the_last_scope_closes_an_auto_close_epoch() {
  tslab::epoch e("e", TSLAB_EPOCH_AUTO_CLOSE);
  { tslab::scope inside(e); }
  CHECK_COUNT(info_error(e.id()), ==, ESTALE);
} // and the destructor finds it gone

// ---- epoch

void epochs_close_at_the_end() {
  tslab_epoch id, pinned;
  void *block;
  {
    tslab::epoch e("e"), survivor("survivor");
    id = e.id();
    pinned = survivor.id();
    CHECK(e && id != 0);
    CHECK(strcmp(e.info().label, "e") == 0);
    block = tslab_epoch_malloc(pinned, 100);
    memset(block, 0x77, 100);
  }
  CHECK_COUNT(info_error(id), ==, ESTALE);
  CHECK_COUNT(tslab_epoch_of(block), ==, pinned);
  for (int i = 0; i < 100; i++) CHECK_COUNT(static_cast<unsigned char *>(block)[i], ==, 0x77);
  tslab_free(block);
  CHECK_COUNT(info_error(pinned), ==, ESTALE);
}

void epochs_move() {
  static_assert(!std::is_copy_constructible_v<tslab::epoch> && !std::is_copy_assignable_v<tslab::epoch>);
  static_assert(std::is_nothrow_move_constructible_v<tslab::epoch> && std::is_nothrow_move_assignable_v<tslab::epoch>);
  tslab::epoch none;
  CHECK(!none && none.id() == 0);
  tslab::epoch a("a"), b("b");
  const tslab_epoch id_a = a.id(), id_b = b.id();
  tslab::epoch moved(std::move(a));
  CHECK(!a);
  CHECK_COUNT(moved.id(), ==, id_a);
  moved = std::move(b); // closes the one it held
  CHECK_COUNT(info_error(id_a), ==, ESTALE);
  CHECK_COUNT(moved.id(), ==, id_b);
  tslab::epoch &self = moved;
  moved = std::move(self);
  CHECK_COUNT(moved.info().epoch, ==, id_b);

  const tslab_epoch released = moved.release();
  CHECK_COUNT(released, ==, id_b);
  CHECK(!moved);
  CHECK_COUNT(info_error(id_b), ==, 0);
  { const tslab::epoch adopted = tslab::epoch::adopt(released); }
  CHECK_COUNT(info_error(id_b), ==, ESTALE);

  std::vector<tslab::epoch> many;
  for (int i = 0; i < 100; i++) many.emplace_back("one of many");
}

void options_reach_the_library() {
  tslab_epoch_options options{};
  options.label = "limited";
  options.budget_bytes = 256 << 10;
  tslab::epoch e(options);
  CHECK_COUNT(e.info().budget_bytes, ==, 256 << 10);
  tslab::memory_resource memory(e);
  bool refused = false;
  try {
    std::pmr::vector<char> too_large(size_t(1) << 20, &memory);
  } catch (const std::bad_alloc &) {
    refused = true;
  }
  CHECK(refused);
  options.budget_bytes = 1;
  check_throws(EINVAL, [=] { tslab::epoch impossible(options); });
}

void an_epoch_is_closed_destroyed_or_reset() {
  tslab_epoch_report report;
  tslab::epoch e("e", TSLAB_EPOCH_DESTROYABLE);
  const tslab_epoch id = e.id();
  CHECK(tslab_epoch_malloc(id, 100) != nullptr);
  e.reset(&report);
  CHECK_COUNT(report.live_blocks, ==, 1);
  CHECK_COUNT(e.info().era, ==, 1);
  CHECK_COUNT(e.info().live_blocks, ==, 0);
  {
    tslab::scope inside(e);
    e.reset(); // the caller may be inside
    CHECK_COUNT(routed(), ==, id);
    check_throws(EBUSY, [&] { e.destroy(); });
    CHECK_COUNT(e.id(), ==, id);
  }
  CHECK(tslab_epoch_malloc(id, 100) != nullptr);
  e.destroy(&report);
  CHECK_COUNT(report.epoch, ==, id);
  CHECK_COUNT(report.live_blocks, ==, 1);
  CHECK(!e);
  CHECK_COUNT(info_error(id), ==, ESTALE);
  check_throws(EINVAL, [&] { e.close(); }, "closing a tslab::epoch that owns no epoch");

  tslab::epoch kept("kept");
  check_throws(EPERM, [&] { kept.destroy(); });
  check_throws(EPERM, [&] { kept.reset(); });
  void *block = tslab_epoch_malloc(kept.id(), 100);
  kept.close(&report);
  CHECK_COUNT(report.live_blocks, ==, 1);
  CHECK(!kept);
  tslab_free(block);
}

// A parent's close comes first when the parent is declared last.
void closing_what_is_closing_is_no_error() {
  tslab_epoch_options options{};
  tslab::epoch parent("parent");
  options.parent = parent.id();
  tslab::epoch child(options);
  void *block = tslab_epoch_malloc(child.id(), 100);
  parent.close();
  tslab_epoch_report report;
  child.close(&report);
  CHECK_COUNT(report.live_blocks, ==, 1);
  tslab_free(block);
}

// ---- memory_resource and allocator

template <typename Container> void check_all_in(const Container &container, tslab_epoch e) {
  for (const auto &element : container) CHECK_COUNT(tslab_epoch_of(&element), ==, e);
}

void resources_allocate_in_their_epoch() {
  tslab::epoch a("a"), b("b");
  tslab::memory_resource in_a(a), also_in_a(a.id()), in_b(b);
  CHECK(in_a == also_in_a && in_a != in_b && in_a != *std::pmr::new_delete_resource());
  CHECK_COUNT(in_a.id(), ==, a.id());
  tslab::scope elsewhere(b); // which does not matter
  {
    std::pmr::list<int> list(&in_a);
    std::pmr::map<int, std::pmr::string> map(&in_a);
    std::pmr::vector<long double> vector(&in_a);
    for (int i = 0; i < 1000; i++) {
      list.push_back(i);
      map.emplace(i, "a string that does not fit into its own object");
      vector.push_back(i);
    }
    check_all_in(list, a.id());
    check_all_in(map, a.id());
    check_all_in(vector, a.id());
    for (const auto &entry : map) CHECK_COUNT(tslab_epoch_of(entry.second.data()), ==, a.id());

    std::pmr::vector<long double> other(&in_b);
    const long double *const before = vector.data();
    other = std::move(vector); // of another epoch: element by element
    CHECK(other.data() != before);
    check_all_in(other, b.id());
    std::pmr::vector<long double> same(&also_in_a), from(&in_a);
    from.assign(100, 1.0L);
    const long double *const data = from.data();
    same = std::move(from); // of the same: the block changes hands
    CHECK(same.data() == data);
  }
  for (size_t alignment = 1; alignment <= 65536; alignment *= 2) {
    void *block = in_a.allocate(100, alignment);
    CHECK_COUNT(reinterpret_cast<uintptr_t>(block) % alignment, ==, 0);
    CHECK_COUNT(tslab_epoch_of(block), ==, a.id());
    in_a.deallocate(block, 100, alignment);
  }
  CHECK_COUNT(a.info().live_blocks, ==, 0);
}

struct alignas(128) wide {
  char bytes[128];
};

template <typename T> using in_epoch = tslab::allocator<T>;

void allocators_allocate_in_their_epoch() {
  tslab::epoch a("a"), b("b");
  {
    std::vector<int, in_epoch<int>> vector(a);
    std::list<std::string, in_epoch<std::string>> list(a);
    std::vector<wide, in_epoch<wide>> aligned(a);
    std::map<int, int, std::less<int>, in_epoch<std::pair<const int, int>>> map(a);
    for (int i = 0; i < 1000; i++) {
      vector.push_back(i);
      list.emplace_back("x");
      aligned.emplace_back();
      map[i] = i;
    }
    check_all_in(vector, a.id());
    check_all_in(list, a.id());
    check_all_in(aligned, a.id());
    check_all_in(map, a.id());
    for (const wide &element : aligned) CHECK_COUNT(reinterpret_cast<uintptr_t>(&element) % 128, ==, 0);
    const auto shared = std::allocate_shared<wide>(in_epoch<wide>(b));
    CHECK_COUNT(tslab_epoch_of(shared.get()), ==, b.id());
  }
  CHECK_COUNT(a.info().live_blocks, ==, 0);
  CHECK_COUNT(b.info().live_blocks, ==, 0);
}

void containers_keep_their_epoch() {
  using vector = std::vector<int, in_epoch<int>>;
  using traits = std::allocator_traits<in_epoch<int>>;
  static_assert(!traits::propagate_on_container_copy_assignment::value);
  static_assert(!traits::propagate_on_container_move_assignment::value);
  static_assert(!traits::propagate_on_container_swap::value && !traits::is_always_equal::value);
  tslab::epoch a("a"), b("b");
  CHECK(in_epoch<int>(a) == in_epoch<char>(a.id()) && in_epoch<int>(a) != in_epoch<int>(b));

  vector in_a(100, 1, a), in_b(b);
  in_b = in_a;
  CHECK(in_b == in_a && in_b.get_allocator().id() == b.id());
  check_all_in(in_b, b.id());
  vector long_lived(in_epoch<int>(TSLAB_EPOCH_DEFAULT));
  long_lived = std::move(in_b); // copied: a session must not hold a request's block
  CHECK_COUNT(tslab_epoch_of(long_lived.data()), ==, 0);
  const int *const data = in_a.data();
  const vector moved(std::move(in_a)); // a new container takes the block with its epoch
  CHECK(moved.data() == data && moved.get_allocator().id() == a.id());

  const vector copied_outside(moved);
  CHECK_COUNT(tslab_epoch_of(copied_outside.data()), ==, 0);
  tslab::scope inside(b);
  const vector copied(moved), made(100);
  CHECK_COUNT(tslab_epoch_of(copied.data()), ==, b.id());
  CHECK_COUNT(tslab_epoch_of(made.data()), ==, b.id());
}

void allocating_in_an_epoch_that_is_over_throws() {
  tslab::epoch e("e");
  tslab::memory_resource memory(e);
  std::vector<int, in_epoch<int>> pinned(10, 1, e);
  const tslab_epoch drained = tslab::epoch("drained").id();
  e.close();
  check_throws(ESHUTDOWN, [&] { pinned.reserve(1000); }, "(e): it is closing");
  check_throws(ESHUTDOWN, [&] { (void)memory.allocate(10); });
  check_throws(ESTALE, [=] { (void)in_epoch<int>(drained).allocate(1); });
  CHECK_COUNT(pinned.size(), ==, 10);
}

void too_large_throws_bad_alloc() {
  tslab::epoch e("e");
  int thrown = 0;
  for (const size_t count : {SIZE_MAX, SIZE_MAX / sizeof(int), size_t(PTRDIFF_MAX)}) {
    try {
      (void)in_epoch<int>(e).allocate(count);
    } catch (const std::bad_alloc &) {
      thrown++;
    }
  }
  CHECK_COUNT(thrown, ==, 3);
}

void resources_serve_any_thread() {
  tslab::epoch e("e");
  std::vector<int, in_epoch<int>> filled(e);
  std::thread([&] { filled.assign(1000, 3); }).join();
  CHECK_COUNT(tslab_epoch_of(filled.data()), ==, e.id());
}

} // namespace

int main() {
  scopes_end_with_their_block();
  an_exception_leaves_scopes();
  scopes_that_c_code_forgot_end_too();
  scopes_do_not_move();
  a_scope_that_cannot_be_entered_throws();
  an_owner_of_none_throws();
  messages_name_the_epoch();
  the_last_scope_closes_an_auto_close_epoch();
  epochs_close_at_the_end();
  epochs_move();
  options_reach_the_library();
  an_epoch_is_closed_destroyed_or_reset();
  closing_what_is_closing_is_no_error();
  resources_allocate_in_their_epoch();
  allocators_allocate_in_their_epoch();
  containers_keep_their_epoch();
  allocating_in_an_epoch_that_is_over_throws();
  too_large_throws_bad_alloc();
  resources_serve_any_thread();
  return 0;
}
