/* cxx: C++'s replaceable operators new and delete, under their Itanium ABI names, so that the library needs no C++
 * runtime. Left out of libtslab_prefixed.a.                                                            floor: front
 *
 * When memory is short, new calls the program's new_handler until there is memory, the handler throws, or there is
 * none: then bad_alloc is thrown, by the program's own C++ runtime, found by weak reference. */
#include "front/entry.h"

#include "base/log.h"
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

typedef void (*new_handler)(void);
extern __attribute__((weak)) new_handler get_new_handler(void) __asm__("_ZSt15get_new_handlerv");
extern __attribute__((weak)) NORETURN void throw_bad_alloc(void) __asm__("_ZSt17__throw_bad_allocv");

static void *allocate(size_t size, size_t alignment) {
  return alignment <= 16 ? entry_malloc(size) : front_aligned(alignment, size);
}

/* In cxx_nothrow.cc: calls new_retry, and catches what the handler throws. */
HIDDEN void *new_retry_caught(size_t size, size_t alignment);
HIDDEN void *new_retry(size_t size, size_t alignment, bool may_throw);

COLD void *new_retry(size_t size, size_t alignment, bool may_throw) {
  for (;;) {
    new_handler handler = get_new_handler ? get_new_handler() : NULL;
    if (!handler) break;
    handler();
    void *block = allocate(size, alignment);
    if (block) return block;
  }
  if (!may_throw) return NULL;
  if (throw_bad_alloc) throw_bad_alloc();
  log_line("operator new: no memory for %zu bytes, and no C++ runtime to throw std::bad_alloc", size);
  abort();
}

INLINE void *new_block(size_t size) {
  void *block = entry_malloc(size);
  return LIKELY(block != NULL) ? block : new_retry(size, 16, true);
}

INLINE void *new_aligned(size_t size, size_t alignment, bool may_throw) {
  void *block = allocate(size, alignment);
  if (LIKELY(block != NULL)) return block;
  return may_throw ? new_retry(size, alignment, true) : new_retry_caught(size, alignment);
}

/* An operator, and its form for arrays, which is the same. */
#define NEW(single, array, parameters, body)                       \
  EXPORT void *single parameters;                                  \
  HOT void *single parameters body                                 \
  EXPORT void *array parameters __attribute__((alias(#single)));

/* clang-format off */
NEW(_Znwm, _Znam, (size_t size), { return new_block(size); })
NEW(_ZnwmSt11align_val_t, _ZnamSt11align_val_t, (size_t size, size_t alignment),
    { return new_aligned(size, alignment, true); })
NEW(_ZnwmRKSt9nothrow_t, _ZnamRKSt9nothrow_t, (size_t size, const void *nothrow),
    { (void)nothrow; return new_aligned(size, 16, false); })
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, _ZnamSt11align_val_tRKSt9nothrow_t,
    (size_t size, size_t alignment, const void *nothrow),
    { (void)nothrow; return new_aligned(size, alignment, false); })
/* clang-format on */

/* delete in all its forms. What else some are told, sizes and alignments, comes in further registers, and the block's
 * slab knows it. */
#define DELETE(form) EXPORT void form(void *p) __attribute__((alias("_ZdlPv")));

EXPORT void _ZdlPv(void *p);
HOT void _ZdlPv(void *p) { entry_free(p); }
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t)
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t)
