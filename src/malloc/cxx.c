/* cxx: C++'s replaceable operators new and delete, under their Itanium ABI names, so that the library needs no C++
 * runtime. Left out of libtslab_prefixed.a.                                                            floor: malloc
 *
 * A program may replace some of them, and rely on the standard, which defines the others by those. So these operators
 * call each other by name, which may lead to the program's. They are weak, so that in a static link the program's are
 * no second definition.
 *
 * When memory is short, new calls the program's new_handler until there is memory or the handler throws. Without a
 * handler the program's own C++ runtime throws bad_alloc. */
#include "malloc/cxx.h"

#include "malloc/malloc.h"
#include "malloc/malloc_inline.h"

#define EXPORT __attribute__((visibility("default")))

static void *allocate(size_t size, size_t alignment) {
  return alignment <= 16 ? inline_malloc(size) : slow_aligned(alignment, size);
}

/* Calls the handler until there is memory or it throws. Returns NULL without a handler. */
static COLD void *new_handled(size_t size, size_t alignment, bool is_caught_here) {
  for (;;) {
    new_handler handler = cxx_new_handler(is_caught_here);
    if (!handler) return NULL;
    handler();
    void *block = allocate(size, alignment);
    if (block) return block;
  }
}

static COLD void *new_retry(size_t size, size_t alignment) {
  void *block = new_handled(size, alignment, false);
  if (block) return block;
  cxx_throw_bad_alloc(size);
}

#define OPERATOR(type, name, parameters)             \
  EXPORT __attribute__((weak)) type name parameters; \
  type name parameters

OPERATOR(HOT void *, _Znwm, (size_t size)) {
  void *block = inline_malloc(size);
  return LIKELY(block != NULL) ? block : new_retry(size, 16);
}
OPERATOR(void *, _ZnwmSt11align_val_t, (size_t size, size_t alignment)) {
  void *block = allocate(size, alignment);
  return LIKELY(block != NULL) ? block : new_retry(size, alignment);
}
OPERATOR(void *, _Znam, (size_t size)) { return _Znwm(size); }
OPERATOR(void *, _ZnamSt11align_val_t, (size_t size, size_t alignment)) {
  return _ZnwmSt11align_val_t(size, alignment);
}

/* For the operators of cxx_nothrow.cc: how the library's own operators allocate, and other names of these operators,
 * which the program cannot replace. */
HIDDEN void *new_or_null(size_t size, size_t alignment);
void *new_or_null(size_t size, size_t alignment) {
  void *block = allocate(size, alignment);
  return LIKELY(block != NULL) ? block : new_handled(size, alignment, true);
}
HIDDEN void *own_new(size_t) __attribute__((alias("_Znwm")));
HIDDEN void *own_new_array(size_t) __attribute__((alias("_Znam")));
HIDDEN void *own_new_aligned(size_t, size_t) __attribute__((alias("_ZnwmSt11align_val_t")));
HIDDEN void *own_new_aligned_array(size_t, size_t) __attribute__((alias("_ZnamSt11align_val_t")));

/* delete. Sizes, and the tag of nothrow forms, come in further registers; delete ignores them. */
OPERATOR(HOT void, _ZdlPv, (void *p)) { inline_free(p); }
OPERATOR(void, _ZdaPv, (void *p)) { _ZdlPv(p); }
OPERATOR(void, _ZdlPvm, (void *p)) { _ZdlPv(p); }
OPERATOR(void, _ZdaPvm, (void *p)) { _ZdaPv(p); }
OPERATOR(void, _ZdlPvRKSt9nothrow_t, (void *p)) { _ZdlPv(p); }
OPERATOR(void, _ZdaPvRKSt9nothrow_t, (void *p)) { _ZdaPv(p); }

/* Operators for aligned blocks. */
OPERATOR(void, _ZdlPvSt11align_val_t, (void *p, size_t alignment)) {
  (void)alignment;
  inline_free(p);
}
OPERATOR(void, _ZdaPvSt11align_val_t, (void *p, size_t alignment)) { _ZdlPvSt11align_val_t(p, alignment); }
OPERATOR(void, _ZdlPvmSt11align_val_t, (void *p, size_t size, size_t alignment)) {
  (void)size;
  _ZdlPvSt11align_val_t(p, alignment);
}
OPERATOR(void, _ZdaPvmSt11align_val_t, (void *p, size_t size, size_t alignment)) {
  (void)size;
  _ZdaPvSt11align_val_t(p, alignment);
}
OPERATOR(void, _ZdlPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t alignment)) {
  _ZdlPvSt11align_val_t(p, alignment);
}
OPERATOR(void, _ZdaPvSt11align_val_tRKSt9nothrow_t, (void *p, size_t alignment)) {
  _ZdaPvSt11align_val_t(p, alignment);
}
