// epoch.hpp: temporal-slab's epochs for C++17 and later. Header only; tslab.h says what each call means.
//
//   tslab::epoch requests("request");              // opened; closed by its destructor
//   {
//     tslab::scope inside(requests);               // malloc and new of this thread allocate in it until the brace
//     serve();                                     // an exception leaves the scope too
//   }
//   tslab::memory_resource memory(requests);       // or without a scope: for std::pmr containers
//   std::pmr::vector<int> numbers(&memory);
//   std::vector<int, tslab::allocator<int>> others(requests); // or as an allocator that remembers the epoch
//
// Declare the epoch before what lives in it: destructors run in reverse order.
//
// Errors:  std::system_error whose code has the errno value of the C call (ESTALE, ESHUTDOWN, EPERM, EBUSY, ...) in
//          tslab::category(); code() == std::errc::... holds where errc has the value. what() says in words what was
//          tried, on which epoch (id, and label while it has one), and why not. Allocations that find no memory or no
//          budget throw std::bad_alloc. Destructors throw nothing. Under -fno-exceptions the same words go to standard
//          error, and the process aborts.
// Threads: a scope belongs to its thread. An epoch object is like any object: one thread moves or closes it at a time;
//          its id may be used by all. Resources and allocators hold an id only, and are as thread-safe as malloc.
//
// Include optional.h first for a program that also runs without the library: all of this then uses its fallbacks.
#ifndef TSLAB_EPOCH_HPP
#define TSLAB_EPOCH_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "tslab/epoch.hpp needs C++17 or later: compile with -std=c++17 (C and older C++ include tslab/tslab.h)"
#endif

#include <tslab/tslab.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

namespace tslab {

// Code compiled after optional.h calls other functions, and code without exceptions aborts instead. Different names
// keep the linker from mixing these.
#ifdef TSLAB_OPTIONAL_H
inline namespace optional {
#else
inline namespace linked {
#endif
#ifdef __cpp_exceptions
inline namespace throwing {
#else
inline namespace aborting {
#endif

class error_category final : public std::error_category {
public:
  const char *name() const noexcept override { return "temporal-slab"; }

  std::string message(int error) const override {
    switch (error) {
    case ESTALE: return "it has ended, or this was never an epoch's id";
    case ESHUTDOWN: return "it is closing, and takes no more threads and blocks";
    case EPERM: return "it does not allow that (destroy and reset need TSLAB_EPOCH_DESTROYABLE; epoch 0 never ends)";
    case EBUSY: return "a thread is inside it";
    case EINVAL: return "an argument is not valid";
    case EOVERFLOW: return "too many scopes or parents are nested";
    case ENOMEM: return "there is no memory, or no budget";
    case ENOSYS: return "this program runs without the library";
    default: return std::generic_category().message(error);
    }
  }

  std::error_condition default_error_condition(int error) const noexcept override {
    return {error, std::generic_category()};
  }
};

// Returns the category of this header's error codes: errno values, in words about epochs.
inline const std::error_category &category() noexcept {
  static const error_category instance;
  return instance;
}

namespace detail {

#ifdef __cpp_exceptions
template <typename Error> [[noreturn]] void throw_or_abort(const Error &error, const char *) { throw error; }
#else
template <typename Error> [[noreturn]] void throw_or_abort(const Error &, const char *what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}
#endif

[[noreturn]] inline void fail(int error, const std::string &tried) {
  const std::system_error thrown(error, category(), "temporal-slab: " + tried);
  throw_or_abort(thrown, thrown.what());
}

[[noreturn]] inline void no_memory(std::size_t bytes, tslab_epoch id) {
  const std::string what = "temporal-slab: no memory, or no budget, for " + std::to_string(bytes) + " bytes in epoch " +
                           std::to_string(id);
  throw_or_abort(std::bad_alloc(), what.c_str());
}

// Returns the epoch's id and label; an ended epoch has no label any more.
inline std::string name_of(tslab_epoch id) {
  tslab_epoch_status status;
  const std::string name = "epoch " + std::to_string(id);
  return tslab_epoch_info(id, &status) == 0 ? name + " (" + status.label + ")" : name;
}

inline void check(int error, const char *tried, tslab_epoch id) {
  if (error != 0) fail(error, std::string(tried) + " " + name_of(id));
}

// ESTALE and ESHUTDOWN concern the parent.
[[noreturn]] inline void cannot_open(int error, const tslab_epoch_options &options) {
  const bool is_of_parent = error == ESTALE || error == ESHUTDOWN;
  fail(error, std::string("opening epoch ") + (options.label ? options.label : "(no label)") +
                  (is_of_parent ? " below " + name_of(options.parent) : ""));
}

[[noreturn]] inline void owns_none(const char *tried) {
  fail(EINVAL, std::string(tried) + " a tslab::epoch that owns no epoch: it was closed, destroyed, released or moved " +
                   "from, or never opened (for plain malloc's, name TSLAB_EPOCH_DEFAULT)");
}

inline void *allocate(tslab_epoch id, std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t always = 16; // the alignment of every block
  void *const block = alignment <= always ? tslab_epoch_malloc(id, bytes)
                                          : tslab_epoch_aligned_alloc(id, alignment, bytes);
  if (block != nullptr) return block;
  const int error = errno;
  if (error == ENOMEM) no_memory(bytes, id);
  fail(error, "allocating in " + name_of(id));
}

} // namespace detail

// Owns an epoch: the constructor opens it, and the destructor closes it. Blocks that outlive it stay valid. Movable,
// not copyable. An object that was default-constructed, moved from, closed, destroyed or released owns no epoch. Its id
// is 0, and everything that needs an epoch (a scope, a resource, close() and so on) throws system_error with EINVAL.
class epoch {
public:
  epoch() noexcept = default;

  // `flags` are TSLAB_EPOCH_AUTO_CLOSE and TSLAB_EPOCH_DESTROYABLE. Throws system_error.
  explicit epoch(const char *label, std::uint32_t flags = 0) : epoch(with(label, flags)) {}

  // `options.struct_size` need not be set. Throws system_error.
  explicit epoch(tslab_epoch_options options) {
    options.struct_size = sizeof options;
    id_ = tslab_epoch_open_with(&options);
    if (id_ == 0) detail::cannot_open(errno, options);
  }

  // Takes over an epoch that C code opened; 0 for none.
  static epoch adopt(tslab_epoch id) noexcept {
    epoch owner;
    owner.id_ = id;
    return owner;
  }

  epoch(epoch &&other) noexcept : id_(other.release()) {}

  epoch &operator=(epoch &&other) noexcept {
    if (this != &other) {
      end();
      id_ = other.release();
    }
    return *this;
  }

  ~epoch() { end(); }

  tslab_epoch id() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ != 0; }

  // Returns the id of the epoch that it owns. Throws system_error if it owns none; `tried` names the attempt in the
  // message.
  tslab_epoch owned(const char *tried = "using") const {
    if (id_ == 0) detail::owns_none(tried);
    return id_;
  }

  // Gives the epoch up without closing it.
  [[nodiscard]] tslab_epoch release() noexcept { return std::exchange(id_, 0); }

  // Closes the epoch now, for the report or an error; afterwards this object owns none. It is no error if the epoch is
  // closing already (its last thread left, or its parent was closed).
  void close(tslab_epoch_report *report = nullptr) {
    const tslab_epoch id = owned("closing");
    id_ = 0;
    const int error = tslab_epoch_close(id, report);
    if (error != ESHUTDOWN) detail::check(error, "closing", id);
  }

  // Gives up every block in the epoch, freed or not; afterwards this object owns none. No thread may be inside (EBUSY),
  // and the epoch must be TSLAB_EPOCH_DESTROYABLE (EPERM). On an error nothing changes.
  void destroy(tslab_epoch_report *report = nullptr) {
    detail::check(tslab_epoch_destroy(owned("destroying"), report), "destroying", id_);
    id_ = 0;
  }

  // Gives up every block, but the epoch stays open. The calling thread may be inside it.
  void reset(tslab_epoch_report *report = nullptr) {
    detail::check(tslab_epoch_reset(owned("resetting"), report), "resetting", id_);
  }

  // Returns the epoch's status at this moment.
  tslab_epoch_status info() const {
    tslab_epoch_status status;
    detail::check(tslab_epoch_info(owned("asking about"), &status), "asking about", id_);
    return status;
  }

private:
  static tslab_epoch_options with(const char *label, std::uint32_t flags) noexcept {
    tslab_epoch_options options{};
    options.label = label;
    options.flags = flags;
    return options;
  }

  // Ignores errors: another thread has ended the epoch already.
  void end() noexcept {
    if (id_ != 0) (void)tslab_epoch_close(id_, nullptr);
    id_ = 0;
  }

  tslab_epoch id_ = 0;
};

// This thread allocates in an epoch until the end of the block, however control leaves it. Scopes that C code entered
// inside and did not leave, because it failed or jumped, end with it.
//
// It is neither movable nor copyable, and does not go on the heap, because the thread that entered scopes leaves them
// in reverse order. A function may still return one, since C++17 moves nothing then. Do not hold one while a coroutine
// is suspended: its scheduler calls tslab_epoch_switch.
class [[nodiscard]] scope {
public:
  // `id` may be 0, to allocate long-lived things in the middle of a request. Throws system_error.
  explicit scope(tslab_epoch id) : depth_(tslab_scope_depth()) {
    detail::check(tslab_epoch_enter(id), "entering", id);
  }
  explicit scope(const epoch &inside) : scope(inside.owned("entering")) {}
  ~scope() { tslab_scope_unwind(depth_); }

  scope(const scope &) = delete;
  scope &operator=(const scope &) = delete;
  static void *operator new(std::size_t) = delete;
  static void *operator new[](std::size_t) = delete;

private:
  int depth_;
};

// For std::pmr containers: allocates in an epoch, in any scope. It does not own the epoch. To allocate after the close
// throws system_error; to deallocate is right as long as the block is valid.
class memory_resource final : public std::pmr::memory_resource {
public:
  explicit memory_resource(tslab_epoch id) noexcept : id_(id) {}
  explicit memory_resource(const epoch &in) : id_(in.owned("making a memory resource of")) {}

  tslab_epoch id() const noexcept { return id_; }

private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    return detail::allocate(id_, bytes, alignment);
  }

  void do_deallocate(void *block, std::size_t, std::size_t) override { tslab_free(block); }

  // Any of these could free another's blocks. Yet only two on the same epoch are equal, because containers on equal
  // resources hand each other their blocks, and a long-lived container must not get a request's blocks.
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
    return this == &other || same_epoch(other);
  }

#ifdef __cpp_rtti
  bool same_epoch(const std::pmr::memory_resource &other) const noexcept {
    const auto *resource = dynamic_cast<const memory_resource *>(&other);
    return resource != nullptr && resource->id_ == id_;
  }
#else
  bool same_epoch(const std::pmr::memory_resource &) const noexcept { return false; } // correct, and copies more
#endif

  tslab_epoch id_;
};

// An STL allocator of an epoch. A container keeps its epoch for life: none of the propagation traits holds. So an
// assignment from a container of another epoch moves or copies the elements one by one into the container's own epoch.
// A swap of containers of two epochs is undefined, as for std::pmr. A copy, or a container made without an allocator,
// lies in the epoch that is current where it is made. With plain malloc it would, too, but here it stays there for
// good.
template <typename T> class allocator {
public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::false_type;
  using propagate_on_container_move_assignment = std::false_type;
  using propagate_on_container_swap = std::false_type;
  using is_always_equal = std::false_type;

  allocator() noexcept : id_(tslab_epoch_current()) {}
  explicit allocator(tslab_epoch id) noexcept : id_(id) {}
  allocator(const epoch &in) : id_(in.owned("making an allocator of")) {} // implicit: a container takes an epoch
  template <typename U> allocator(const allocator<U> &other) noexcept : id_(other.id()) {}

  tslab_epoch id() const noexcept { return id_; }

  [[nodiscard]] T *allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
      detail::throw_or_abort(std::bad_array_new_length(), "temporal-slab: too many elements");
    return static_cast<T *>(detail::allocate(id_, count * sizeof(T), alignof(T)));
  }

  void deallocate(T *block, std::size_t) noexcept { tslab_free(block); }

  allocator select_on_container_copy_construction() const noexcept { return allocator(); }

private:
  tslab_epoch id_;
};

template <typename T, typename U> bool operator==(const allocator<T> &a, const allocator<U> &b) noexcept {
  return a.id() == b.id();
}
template <typename T, typename U> bool operator!=(const allocator<T> &a, const allocator<U> &b) noexcept {
  return a.id() != b.id();
}

} // inline namespace
} // inline namespace
} // namespace tslab

#endif
