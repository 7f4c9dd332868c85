/* optional.h: epochs for a program that runs with or without temporal-slab.
 *
 * Include it instead of tslab.h, and link nothing. If the library is preloaded or linked, every call below is the one
 * that tslab.h describes. If not, each name has a fallback, so that the same program runs on plain malloc:
 *
 *   calls that choose an epoch    succeed and do nothing: open returns a fresh id that is not 0; enter, leave and close
 *                                 return 0; reports are zero except the epoch's id; move returns the block
 *   calls that allocate           call malloc, calloc or aligned_alloc; tslab_free calls free
 *   calls that ask                answer truly: the current epoch is 0, every block's epoch is 0, no block is ours
 *   calls that only the library   fail with ENOSYS: destroy, reset, info, tslab_occupancy, tslab_stats,
 *   can serve                     tslab_stats_class, handles
 *
 * This header lacks the other statistics (by label, path, lock, thread, epoch; JSON): link the library for them.
 *
 * Mind destroy and reset: without the library they free nothing. A program that relies on them to free its blocks
 * checks their result, or tslab_available(), and frees by hand.
 *
 * Of malloc's family this header has only tslab_free; a program that includes it calls malloc.
 *
 * How:   each function is declared weak, and its name is a macro for an inline function that checks if the function
 *        exists. The dynamic linker looks a weak name up when the program starts: a later dlopen comes too late. A weak
 *        name pulls nothing out of a static archive: a program that links libtslab.a always has the library, and
 *        includes tslab.h.
 * C++:   epoch.hpp uses these calls, too, if it is included after this header. */
#ifndef TSLAB_OPTIONAL_H
#define TSLAB_OPTIONAL_H

#include <tslab/tslab.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* In code for a fixed address the linker itself decides that a weak function does not exist. gcc's noplt leaves that to
 * the program's start; clang has no such attribute. */
#if defined(__clang__) && !defined(__PIC__)
#warning "tslab/optional.h needs -fPIE or -fPIC with clang: without, the library is not found even when it is loaded"
#endif

#ifdef __cplusplus
#define TSLAB_OPTIONAL inline
extern "C" {
#else
#define TSLAB_OPTIONAL static inline
#endif

#if defined(__clang__)
#define TSLAB_WEAK(name) extern __typeof__(name) name __attribute__((weak))
#else
#define TSLAB_WEAK(name) extern __typeof__(name) name __attribute__((weak, noplt))
#endif

TSLAB_WEAK(tslab_free);
TSLAB_WEAK(tslab_owns);
TSLAB_WEAK(tslab_occupancy);
TSLAB_WEAK(tslab_purge);
TSLAB_WEAK(tslab_version);
TSLAB_WEAK(tslab_stats);
TSLAB_WEAK(tslab_stats_class);
TSLAB_WEAK(tslab_epoch_open);
TSLAB_WEAK(tslab_epoch_open_with);
TSLAB_WEAK(tslab_epoch_enter);
TSLAB_WEAK(tslab_epoch_leave);
TSLAB_WEAK(tslab_epoch_switch);
TSLAB_WEAK(tslab_scope_depth);
TSLAB_WEAK(tslab_scope_unwind);
TSLAB_WEAK(tslab_epoch_current);
TSLAB_WEAK(tslab_epoch_of);
TSLAB_WEAK(tslab_epoch_malloc);
TSLAB_WEAK(tslab_epoch_calloc);
TSLAB_WEAK(tslab_epoch_aligned_alloc);
TSLAB_WEAK(tslab_epoch_move);
TSLAB_WEAK(tslab_epoch_close);
TSLAB_WEAK(tslab_epoch_close_step);
TSLAB_WEAK(tslab_epoch_destroy);
TSLAB_WEAK(tslab_epoch_reset);
TSLAB_WEAK(tslab_epoch_advance);
TSLAB_WEAK(tslab_epoch_info);
TSLAB_WEAK(tslab_epoch_each);
TSLAB_WEAK(tslab_handle_alloc);
TSLAB_WEAK(tslab_handle_get);
TSLAB_WEAK(tslab_handle_free);

/* The last id that a fallback returned. Weak, so that the program's objects share one. */
__attribute__((weak, visibility("hidden"))) tslab_epoch tslab_optional_last = 0;

#ifdef __cplusplus
}
#endif

/* Returns true if the program runs with the library. The answer never changes while the program runs. */
TSLAB_OPTIONAL bool tslab_available(void) { return tslab_epoch_open != NULL; }

/* ---- the fallbacks ----------------------------------------------------------------------------------------------- */

/* Returns a fresh id, for an epoch that does not exist. */
TSLAB_OPTIONAL tslab_epoch tslab_optional_next(void) {
  return __atomic_add_fetch(&tslab_optional_last, 1, __ATOMIC_RELAXED);
}

/* Fills *out with an empty report about `epoch`; `out` may be NULL. */
TSLAB_OPTIONAL void tslab_optional_report(tslab_epoch epoch, tslab_epoch_report *out) {
  if (out == NULL) return;
  memset(out, 0, sizeof *out);
  out->epoch = epoch;
}

/* Asking about a pointer or the process. */
TSLAB_OPTIONAL void tslab_optional_free(void *block) {
  if (tslab_free != NULL) tslab_free(block);
  else free(block);
}

TSLAB_OPTIONAL bool tslab_optional_owns(const void *p) { return tslab_owns != NULL && tslab_owns(p); }

TSLAB_OPTIONAL int tslab_optional_occupancy(void *const *blocks, size_t count, tslab_slab_use *out) {
  return tslab_occupancy != NULL ? tslab_occupancy(blocks, count, out) : ENOSYS;
}

TSLAB_OPTIONAL size_t tslab_optional_purge(void) { return tslab_purge != NULL ? tslab_purge() : 0; }

TSLAB_OPTIONAL const char *tslab_optional_version(void) {
  return tslab_version != NULL ? tslab_version() : "temporal-slab is not loaded";
}

TSLAB_OPTIONAL int tslab_optional_stats(tslab_stats_global *out, size_t struct_size) {
  return tslab_stats != NULL ? tslab_stats(out, struct_size) : ENOSYS;
}

TSLAB_OPTIONAL int tslab_optional_stats_class(unsigned index, tslab_class_stats *out, size_t struct_size) {
  return tslab_stats_class != NULL ? tslab_stats_class(index, out, struct_size) : ENOSYS;
}

/* Epochs and scopes. */
TSLAB_OPTIONAL tslab_epoch tslab_optional_epoch_open(const char *label) {
  return tslab_epoch_open != NULL ? tslab_epoch_open(label) : tslab_optional_next();
}

TSLAB_OPTIONAL tslab_epoch tslab_optional_epoch_open_with(const tslab_epoch_options *options) {
  return tslab_epoch_open_with != NULL ? tslab_epoch_open_with(options) : tslab_optional_next();
}

TSLAB_OPTIONAL int tslab_optional_epoch_enter(tslab_epoch epoch) {
  return tslab_epoch_enter != NULL ? tslab_epoch_enter(epoch) : 0;
}

TSLAB_OPTIONAL int tslab_optional_epoch_leave(tslab_epoch epoch) {
  return tslab_epoch_leave != NULL ? tslab_epoch_leave(epoch) : 0;
}

TSLAB_OPTIONAL tslab_epoch tslab_optional_epoch_switch(tslab_epoch epoch) {
  return tslab_epoch_switch != NULL ? tslab_epoch_switch(epoch) : 0;
}

TSLAB_OPTIONAL int tslab_optional_scope_depth(void) { return tslab_scope_depth != NULL ? tslab_scope_depth() : 0; }

TSLAB_OPTIONAL void tslab_optional_scope_unwind(int depth) {
  if (tslab_scope_unwind != NULL) tslab_scope_unwind(depth);
}

TSLAB_OPTIONAL tslab_epoch tslab_optional_epoch_current(void) {
  return tslab_epoch_current != NULL ? tslab_epoch_current() : 0;
}

TSLAB_OPTIONAL tslab_epoch tslab_optional_epoch_of(const void *p) {
  return tslab_epoch_of != NULL ? tslab_epoch_of(p) : 0;
}

/* Allocating. */
TSLAB_OPTIONAL TSLAB_ALLOC void *tslab_optional_epoch_malloc(tslab_epoch epoch, size_t size) {
  return tslab_epoch_malloc != NULL ? tslab_epoch_malloc(epoch, size) : malloc(size);
}

TSLAB_OPTIONAL TSLAB_ALLOC void *tslab_optional_epoch_calloc(tslab_epoch epoch, size_t count, size_t size) {
  return tslab_epoch_calloc != NULL ? tslab_epoch_calloc(epoch, count, size) : calloc(count, size);
}

TSLAB_OPTIONAL TSLAB_ALLOC void *tslab_optional_epoch_aligned_alloc(tslab_epoch epoch, size_t alignment, size_t size) {
  if (tslab_epoch_aligned_alloc != NULL) return tslab_epoch_aligned_alloc(epoch, alignment, size);
  return aligned_alloc(alignment, size);
}

TSLAB_OPTIONAL void *tslab_optional_epoch_move(void *block, tslab_epoch to) {
  return tslab_epoch_move != NULL ? tslab_epoch_move(block, to) : block;
}

/* The end of an epoch. */
TSLAB_OPTIONAL int tslab_optional_epoch_close(tslab_epoch epoch, tslab_epoch_report *out) {
  if (tslab_epoch_close != NULL) return tslab_epoch_close(epoch, out);
  tslab_optional_report(epoch, out);
  return 0;
}

TSLAB_OPTIONAL int tslab_optional_epoch_close_step(tslab_epoch epoch, uint64_t max_ns, tslab_epoch_report *out) {
  if (tslab_epoch_close_step != NULL) return tslab_epoch_close_step(epoch, max_ns, out);
  tslab_optional_report(epoch, out);
  return 0;
}

TSLAB_OPTIONAL int tslab_optional_epoch_destroy(tslab_epoch epoch, tslab_epoch_report *out) {
  return tslab_epoch_destroy != NULL ? tslab_epoch_destroy(epoch, out) : ENOSYS;
}

TSLAB_OPTIONAL int tslab_optional_epoch_reset(tslab_epoch epoch, tslab_epoch_report *out) {
  return tslab_epoch_reset != NULL ? tslab_epoch_reset(epoch, out) : ENOSYS;
}

TSLAB_OPTIONAL tslab_epoch tslab_optional_epoch_advance(const char *label, tslab_epoch_report *closed) {
  if (tslab_epoch_advance != NULL) return tslab_epoch_advance(label, closed);
  tslab_optional_report(0, closed);
  return tslab_optional_next();
}

/* Asking about epochs. */
TSLAB_OPTIONAL int tslab_optional_epoch_info(tslab_epoch epoch, tslab_epoch_status *out) {
  return tslab_epoch_info != NULL ? tslab_epoch_info(epoch, out) : ENOSYS;
}

TSLAB_OPTIONAL int tslab_optional_epoch_each(int (*visit)(const tslab_epoch_status *status, void *arg), void *arg) {
  return tslab_epoch_each != NULL ? tslab_epoch_each(visit, arg) : 0;
}

/* Handles: only the library can check them, so without it no call returns one. */
TSLAB_OPTIONAL tslab_handle tslab_optional_handle_alloc(tslab_epoch epoch, size_t size, void **block) {
  if (tslab_handle_alloc != NULL) return tslab_handle_alloc(epoch, size, block);
  *block = NULL;
  errno = ENOSYS;
  return 0;
}

TSLAB_OPTIONAL void *tslab_optional_handle_get(tslab_handle handle) {
  return tslab_handle_get != NULL ? tslab_handle_get(handle) : NULL;
}

TSLAB_OPTIONAL bool tslab_optional_handle_free(tslab_handle handle) {
  return tslab_handle_free != NULL && tslab_handle_free(handle);
}

/* From here on the names of tslab.h mean the functions above. */
#define tslab_free                tslab_optional_free
#define tslab_owns                tslab_optional_owns
#define tslab_occupancy           tslab_optional_occupancy
#define tslab_purge               tslab_optional_purge
#define tslab_version             tslab_optional_version
#define tslab_stats               tslab_optional_stats
#define tslab_stats_class         tslab_optional_stats_class
#define tslab_epoch_open          tslab_optional_epoch_open
#define tslab_epoch_open_with     tslab_optional_epoch_open_with
#define tslab_epoch_enter         tslab_optional_epoch_enter
#define tslab_epoch_leave         tslab_optional_epoch_leave
#define tslab_epoch_switch        tslab_optional_epoch_switch
#define tslab_scope_depth         tslab_optional_scope_depth
#define tslab_scope_unwind        tslab_optional_scope_unwind
#define tslab_epoch_current       tslab_optional_epoch_current
#define tslab_epoch_of            tslab_optional_epoch_of
#define tslab_epoch_malloc        tslab_optional_epoch_malloc
#define tslab_epoch_calloc        tslab_optional_epoch_calloc
#define tslab_epoch_aligned_alloc tslab_optional_epoch_aligned_alloc
#define tslab_epoch_move          tslab_optional_epoch_move
#define tslab_epoch_close         tslab_optional_epoch_close
#define tslab_epoch_close_step    tslab_optional_epoch_close_step
#define tslab_epoch_destroy       tslab_optional_epoch_destroy
#define tslab_epoch_reset         tslab_optional_epoch_reset
#define tslab_epoch_advance       tslab_optional_epoch_advance
#define tslab_epoch_info          tslab_optional_epoch_info
#define tslab_epoch_each          tslab_optional_epoch_each
#define tslab_handle_alloc        tslab_optional_handle_alloc
#define tslab_handle_get          tslab_optional_handle_get
#define tslab_handle_free         tslab_optional_handle_free

#undef TSLAB_WEAK
#undef TSLAB_OPTIONAL
#endif
