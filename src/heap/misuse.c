/* misuse: see misuse.h.                                                                              floor: heap */
#include "heap/misuse.h"

#include "base/log.h"
#include "base/options.h"
#include "os/lock.h"
#include "slab/chunk.h"
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t misuses;

uint64_t misuse_count(void) { return atomic_load_explicit(&misuses, memory_order_relaxed); }

static void end(void) {
  if (options.on_misuse != MISUSE_REPORT) lock_abort();
  atomic_fetch_add_explicit(&misuses, 1, memory_order_relaxed);
}

/* The caller's frames lie above this one; 8 MiB is the usual limit of a stack. */
static bool is_on_stack(const void *p) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  return (uintptr_t)p >= here && (uintptr_t)p - here < 8 * MiB;
}

static const char *class_text(char *out, size_t capacity, unsigned class) {
  log_format(out, capacity, "%zu-byte class", class_size(class));
  return out;
}

static const char *chunk_text(char *out, size_t capacity, size_t size) {
  log_format(out, capacity, "%zu-byte block of an epoch", size);
  return out;
}

static void say_freed(const char *call, const void *p, const char *what) {
  if (strcmp(call, "free") == 0) log_line("double free of %p (%s)", p, what);
  else log_line("%s of freed block %p (%s)", call, p, what);
}

static void say_foreign(const char *call, const void *p) {
  if (is_on_stack(p)) log_line("%s of stack pointer %p", call, p);
  else log_line("%s of foreign pointer %p (not from this allocator)", call, p);
}

static void say_in_free_memory(const char *call, const void *p) {
  char text[32];
  unsigned was = pages.runs[granule_of(p)].was;
  if (was == 0) say_foreign(call, p);
  else if (was == LARGE_WAS) say_freed(call, p, "large block");
  else if (was == CHUNK_WAS) say_freed(call, p, "block of an epoch, freed before or with it");
  else say_freed(call, p, class_text(text, sizeof text, was - 1));
}

/* On a page that the kernel has, or has back, nothing says which of the two it was. */
static void say_unused(const char *call, const void *p, const char *class) {
  uintptr_t word = (uintptr_t)((void *const *)p)[1];
  if (word == block_key(p) || word == block_waiting_key(p)) say_freed(call, p, class);
  else log_line("%s of %p (%s; freed long ago, or never allocated)", call, p, class);
}

/* In a run that is in use, and in no block of it. */
static void say_nowhere(const char *call, const void *p, const struct run *run) {
  if (run->kind != RUN_CHUNK) say_foreign(call, p);
  else log_line("%s of %p (no block: its epoch ended or was reset, or it was never allocated)", call, p);
}

/* False when p lies outside all blocks. */
static bool say_interior(const char *call, const void *p, const struct run *run) {
  char text[48];
  if (run->kind == RUN_LARGE) {
    size_t offset = (size_t)((const char *)p - run_start(run));
    if (offset >= run->size) return false;
    log_line("%s of interior pointer %p (%zu bytes into a large block)", call, p, offset);
    return true;
  }
  if (run->kind == RUN_CHUNK) {
    char *start = chunk_block_of(run, p);
    if (!start) return false;
    log_line("%s of interior pointer %p (%zu bytes into a %s)", call, p, (size_t)((const char *)p - start),
             chunk_text(text, sizeof text, chunk_size_of(run, start)));
    return true;
  }
  const char *block = slab_block_of(run, p);
  if (!block) return false;
  log_line("%s of interior pointer %p (%zu bytes into a block of the %s)", call, p,
           (size_t)((const char *)p - block), class_text(text, sizeof text, run->class));
  return true;
}

void misuse(const char *call, const void *p) {
  char text[48];
  struct run *run = pages_run_of(p);
  if (!run || run->kind == RUN_META || run->kind == RUN_NONE) say_foreign(call, p);
  else if (run->kind == RUN_FREE || run->kind == RUN_RESERVED) say_in_free_memory(call, p);
  else if (run->kind == RUN_TRAP) log_line("%s of %p (block of destroyed epoch %zu)", call, p, run->size);
  else if (run->kind == RUN_CHUNK && chunk_place_of(run, p) == CHUNK_FREED)
    say_freed(call, p, chunk_text(text, sizeof text, chunk_size_of(run, p)));
  else if (run->kind == RUN_SLAB && slab_block_of(run, p) == p)
    say_unused(call, p, class_text(text, sizeof text, run->class));
  else if (!say_interior(call, p, run)) say_nowhere(call, p, run);
  end();
}

/* Whether the second word of a block of a list says that it was met, or handed out, before, and no more. */
static bool is_surely_double(const void *block) {
  uintptr_t word = (uintptr_t)((void *const *)block)[1];
  return word == 0 || word - block_key(block) <= 1;
}

static void say_written(const void *block, size_t at, const char *what) {
  log_line("write to freed block %p (%s, at byte %zu)", block, what, at);
}

void misuse_written(const void *block, size_t at) {
  char text[32];
  say_written(block, at, class_text(text, sizeof text, pages_run_of(block)->class));
  end();
}

void misuse_freed(const void *block) {
  char text[48];
  const struct run *run = pages_run_of(block);
  if (!run || run->kind != RUN_SLAB || slab_block_of(run, block) != block) {
    log_line("write to a freed block: a list of free blocks leads to %p, which is none", block);
  } else {
    class_text(text, sizeof text, run->class);
    if (TSLAB_HARDENED && !link_decode(block, *(const uint64_t *)block)) say_written(block, 0, text);
    else if (is_surely_double(block)) say_freed("free", block, text);
    else if (TSLAB_HARDENED) say_written(block, sizeof(void *), text); /* a second free is refused at the call */
    else log_line("double free of %p (%s), or a write to it after it was freed", block, text);
  }
  end();
}

void misuse_interior(const char *call, const void *p) {
  if (!say_interior(call, p, pages_run_of(p))) say_foreign(call, p);
  abort(); /* two words of the block were overwritten when the free was taken for a good one */
}

void misuse_size(const char *call, const void *p, size_t size, const struct run *run) {
  char text[48];
  const char *what = "large block";
  if (run->kind == RUN_SLAB) what = class_text(text, sizeof text, run->class);
  if (run->kind == RUN_CHUNK) what = chunk_text(text, sizeof text, chunk_size_of(run, p));
  log_line("%s of %p with size %zu (%s)", call, p, size, what);
  end();
}
