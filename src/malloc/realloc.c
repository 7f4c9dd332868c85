/* realloc: realloc, and the calls that return or take the size of a block.                          floor: malloc */
#include "heap/bump.h"
#include "heap/guard.h"
#include "heap/misuse.h"
#include "heap/profile.h"
#include "malloc/malloc_inline.h"
#include "malloc/slow.h"
#include "runtime/scavenger.h"
#include "tslab/tslab.h"
#include <stdint.h>
#include <string.h>

/* Returns the size above which a shrinking block stays where it is, because a move would save less than an eighth.
 * Programs call realloc to cut a buffer to its contents, and want the rest back. */
INLINE size_t least_used(size_t usable) { return usable - usable / 8; }

/* Returns true if a block that shrinks stays where it is. A chunk never reuses the bytes that a block leaves in it. */
static bool stays(size_t usable, size_t size, bool in_chunk) {
  if (size > usable) return false;
  return in_chunk || (size <= SMALL_MAX ? class_size(class_of(size)) : size) > least_used(usable);
}

static void *resize(void *p, size_t size) {
  struct run *run = run_of_live_block("realloc", p);
  if (!run || size > PTRDIFF_MAX) return no_memory();
  size_t old = block_usable_size(run, p);
  counters_note_caller(__builtin_frame_address(0));
  if (run->kind == RUN_LARGE && size > SMALL_MAX && size <= pages_most() && run->epoch == 0) {
    if (profile_is_on()) profile_freed(run, p); /* the resized block is drawn anew */
    void *block = large_resize(run, size, &counters_here()->large);
    if (LIKELY(block != NULL)) {
      scavenger_notice_malloc(current_heap);
      if (profile_is_on() && current_heap != &empty_heap) profile_large(current_heap, block, size);
      return block;
    } /* malloc also looks for free memory of other sizes */
  }
  if (run->kind == RUN_CHUNK && bump_resize(current_heap, p, size)) return p;
  if (stays(old, size, run->kind == RUN_CHUNK)) return p;
  if (run->kind == RUN_GUARDED) run = pages_run_of(guard_behind(p));
  void *block = malloc_in_epoch(run->epoch, size); /* a block keeps its epoch, in any scope */
  if (!block) return size <= old ? p : NULL;
  if (run->kind == RUN_LARGE && size > SMALL_MAX) large_copy(block, p, min_size(old, size));
  else memcpy(block, p, min_size(old, size));
  inline_free(p);
  return block;
}

/* Returns true if p is a block of this thread that can serve `size` bytes as it is. */
static bool fits_here(void *p, size_t size) {
  size_t granule = granule_of(p);
  if (granule >= LOAD_RACING(pages.count)) return false;
  uintptr_t class = heap_class_of(current_heap, LOAD_RACING(pages_pagemap()[granule]));
  if (class >= CLASSES || block_is_free(p)) return false;
  if (size - 1 >= class_sizes[class]) return false;
  return (LIKELY(size > least_used(class_sizes[class])) || class_of(size) == class) &&
         class_starts_block((uintptr_t)p, class_inverse(class));
}

static NOINLINE void *realloc_otherwise(void *p, size_t size) {
  if (!p) return inline_malloc(size);
  if (size == 0) {
    if (run_of_live_block("realloc", p)) inline_free(p);
    return NULL;
  }
  return resize(p, size);
}

void *tslab_realloc(void *p, size_t size) { return LIKELY(fits_here(p, size)) ? p : realloc_otherwise(p, size); }

void *tslab_reallocarray(void *p, size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? no_memory() : tslab_realloc(p, bytes);
}

/* ---- the size of a block ----------------------------------------------------------------------------------------- */

size_t tslab_malloc_usable_size(const void *p) {
  struct run *run = p ? run_of_live_block("malloc_usable_size", (void *)p) : NULL;
  return run ? block_usable_size(run, p) : 0;
}

/* If the block cannot have that size, the caller mixed up two blocks. This reports it before it does harm. */
static void free_checked(const char *call, void *p, size_t size) {
  struct run *run = p ? run_of_live_block(call, p) : NULL;
  if (!run) return;
  if (size > block_usable_size(run, p)) {
    misuse_size(call, p, size, run);
    return;
  }
  inline_free(p);
}

void tslab_free_sized(void *p, size_t size) { free_checked("free_sized", p, size); }

void tslab_free_aligned_sized(void *p, size_t alignment, size_t size) {
  (void)alignment; /* the block's address shows it already */
  free_checked("free_aligned_sized", p, size);
}
