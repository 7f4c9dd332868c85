/* misuse: see misuse.h.                                                                             floor: heap */
#include "heap/misuse.h"

#include "base/log.h"
#include "base/options.h"
#include "heap/arena.h"
#include "heap/heap.h"
#include "heap/profile.h"
#include "os/lock.h"
#include "slab/chunk.h"
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t misuses;

uint64_t misuse_count(void) { return atomic_load_explicit(&misuses, memory_order_relaxed); }

void misuse_end(void) {
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

/* Returns an addition to a line that might accuse the wrong call: if the memory was used before, a pointer from that
 * time may be the cause. A fresh epoch on fresh memory gets none. */
static const char *stale_text(const struct run *run, const char *text) {
  if (!run->epoch) return "";
  return run->was == CHUNK_WAS || !arena_at(run->epoch)->first_of_label ? text : "";
}

static void say_freed(const char *call, const void *p, const char *what, const char *end) {
  if (strcmp(call, "free") == 0) log_line("double free of %p (%s)%s", p, what, end);
  else log_line("%s of freed block %p (%s)%s", call, p, what, end);
}

static void say_freed_in(const char *call, const void *p, const char *what, const struct run *run) {
  say_freed(call, p, what, stale_text(run, "; if no other call freed this block, one freed it by a pointer from before "
                                           "a reset or an epoch's end (TSLAB_ON_DESTROY=trap names that call)"));
}

static void say_foreign(const char *call, const void *p) {
  if (is_on_stack(p)) log_line("%s of stack pointer %p", call, p);
  else log_line("%s of foreign pointer %p (not from this allocator)", call, p);
}

/* Reports a pointer to where a block of an epoch may have started, or into memory of freed blocks. For an epoch the
 * message is the same while the heap keeps the memory and after it went back, since only time decides between these. */
static void say_no_block(const char *call, const void *p) {
  log_line("%s of %p (no block: it was freed, alone or with its epoch, or never allocated)", call, p);
}

/* Reports a pointer into memory in which no block lies now, by the last use of that memory. */
static void say_by_last_use(const char *call, const void *p, unsigned was) {
  char text[32];
  bool is_of_class = was != 0 && was < CHUNK_WAS;
  if (was == 0) say_foreign(call, p);
  else if (was == LARGE_WAS && (uintptr_t)p % GRANULE == 0) say_freed(call, p, "large block", "");
  else if (is_of_class && class_starts_block((uintptr_t)p, class_inverse(was - 1)))
    say_freed(call, p, class_text(text, sizeof text, was - 1), "");
  else say_no_block(call, p);
}

/* Adds where a block was allocated, if the heap profile knows it. `who` precedes that. */
#define ORIGIN_BYTES 400
static void say_origin(const char *who, const void *block) {
  char origin[ORIGIN_BYTES];
  if (profile_origin(block, origin, sizeof origin)) log_line("  %s%s", who, origin);
}

/* Returns the start of the block that p lies in, or p if it lies in none. */
static const void *start_of(const void *p) {
  const struct run *run = pages_run_of(p);
  const void *start = NULL;
  if (run && run->kind == RUN_LARGE) start = run_start(run);
  if (run && run->kind == RUN_SLAB) start = slab_block_of(run, p);
  if (run && run->kind == RUN_CHUNK && chunk_place_of(run, p) != CHUNK_FREED) start = chunk_block_of(run, p);
  return start ? start : p;
}

/* Reports a pointer to an unused block. On a page that the kernel never gave, or has back, nothing tells a double free
 * from a block that was never allocated. */
static void say_unused(const char *call, const void *p, const char *class, const struct run *run) {
  uintptr_t word = (uintptr_t)((void *const *)p)[1];
  if (word == block_key(p) || word == block_waiting_key(p)) say_freed_in(call, p, class, run);
  else log_line("%s of %p (%s; freed long ago, or never allocated)", call, p, class);
}

/* Returns true if the last block of the chunk was taken back and started here. */
static bool was_last(const struct run *chunk, const void *p) {
  const struct heap *heap = atomic_load_explicit(&chunk->heap, memory_order_relaxed);
  return heap && LOAD_RACING(heap->bump.last) == (uintptr_t)p + 1;
}

/* Reports a pointer into a run in use that lies in no block. */
static void say_nowhere(const char *call, const void *p, const struct run *run) {
  if (run->kind != RUN_CHUNK) say_foreign(call, p);
  else if (was_last(run, p)) say_freed_in(call, p, "block of an epoch", run);
  else say_no_block(call, p);
}

/* Reports a pointer into a block. Returns false if p lies outside all blocks. */
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
    log_line("%s of interior pointer %p (%zu bytes into a %s)%s", call, p, (size_t)((const char *)p - start),
             chunk_text(text, sizeof text, chunk_size_of(run, start)),
             stale_text(run, "; or it is a pointer from before a reset or an epoch's end, where another block lay"));
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
  struct pages_found found = pages_find_to_report(p);
  struct run *run = found.run;
  if (!run) say_foreign(call, p);
  else if (found.has_no_block) say_by_last_use(call, p, found.was);
  else if (run->kind == RUN_TRAP) log_line("%s of %p (block of destroyed epoch %zu)", call, p, run->size);
  else if (run->kind == RUN_CHUNK && chunk_place_of(run, p) == CHUNK_FREED)
    say_freed_in(call, p, chunk_text(text, sizeof text, chunk_size_of(run, p)), run);
  else if (run->kind == RUN_SLAB && slab_block_of(run, p) == p)
    say_unused(call, p, class_text(text, sizeof text, run->class), run);
  else if (!say_interior(call, p, run)) say_nowhere(call, p, run);
  say_origin("", start_of(p));
  misuse_end();
}

/* Returns an addition to lines about a list, which the library may check long after the mistake. */
static const char *late_text(void) {
  return TSLAB_HARDENED ? "" : "; found late: libtslab-hardened.so.0 names a double free at the call";
}

/* Describes the block that ends where this one starts, and its state, because an overrun comes from there. */
static const char *before_text(char *out, size_t capacity, const struct run *run, const void *block) {
  char *before = slab_block_of(run, (const char *)block - 1);
  const char *state = before && slab_refuses(before) ? "free" : "in use";
  if (!before) log_format(out, capacity, "what lies before its slab");
  else log_format(out, capacity, "the block before it (%p, %s)", (void *)before, state);
  return out;
}

/* Returns true if the first word of a free block still links to another block of its class, or to the end of a list. */
static bool links_on(const struct run *run, void *block) {
  const void *next = block_next(block);
  if (TSLAB_HARDENED) return link_decode(block, (uintptr_t)block_words(block)[0]) != NULL;
  const struct run *other = next == CHAIN_END ? run : pages_run_of(next);
  if (!other || other->kind != RUN_SLAB || other->class != run->class) return false;
  return next == CHAIN_END || slab_block_of(other, next) == next;
}

/* Returns true if the two words of a block on a list say that it was met or handed out before, and nothing else: malloc
 * clears the second word and leaves the first. */
static bool is_surely_double(const struct run *run, void *block) {
  uintptr_t word = (uintptr_t)block_words(block)[1];
  return word - block_key(block) <= 1 || (word == 0 && links_on(run, block));
}

/* Reports a write to a free block. An overrun of the block before changes byte 0, too, so the line names that block
 * only then. */
static void say_written(const void *block, size_t at, const struct run *run) {
  char class[32], before[80];
  class_text(class, sizeof class, run->class);
  if (at > 0) log_line("write to freed block %p (%s, at byte %zu)", block, class, at);
  else log_line("write to freed block %p (%s, at byte 0), or overrun from %s", block, class,
                before_text(before, sizeof before, run, block));
  if (at == 0) say_origin("the block before it: ", slab_block_of(run, (const char *)block - 1));
}

void misuse_written(const void *block, size_t at) {
  say_written(block, at, pages_run_of(block));
  say_origin("", block);
  misuse_end();
}

/* Reports a block that has lost its key. A hardened library reports a second free at the call, so there it was a
 * write. */
static void say_changed(void *block, const struct run *run) {
  char class[32], before[80];
  bool links = links_on(run, block);
  class_text(class, sizeof class, run->class);
  before_text(before, sizeof before, run, block);
  if (TSLAB_HARDENED)
    say_written(block, links ? sizeof(void *) : 0, run);
  else if (links)
    log_line("free block %p (%s) has changed at byte 8: it was freed twice, or written to after its free%s", block,
             class, late_text());
  else
    log_line("free block %p (%s) has changed: it was freed twice, written to after its free, or overrun by %s%s", block,
             class, before, late_text());
  if (!TSLAB_HARDENED && !links) say_origin("the block before it: ", slab_block_of(run, (const char *)block - 1));
}

void misuse_freed(void *block) {
  char class[32];
  const struct run *run = pages_run_of(block);
  if (!run || run->kind != RUN_SLAB || slab_block_of(run, block) != block)
    log_line("free list corrupted: it links to %p, which is not a block: a free block was written to, or overrun by "
             "the block before it%s", block, TSLAB_HARDENED ? "" : "; libtslab-hardened.so.0 names the block");
  else if (TSLAB_HARDENED && !links_on(run, block)) say_written(block, 0, run);
  else if (is_surely_double(run, block))
    say_freed("free", block, class_text(class, sizeof class, run->class), late_text());
  else say_changed(block, run);
  say_origin("", block);
  misuse_end();
}

void misuse_overdrawn(unsigned class) {
  char text[32];
  log_line("double free of a block (%s): its list handed out more blocks than it held%s",
           class_text(text, sizeof text, class), late_text());
  misuse_end();
}

void misuse_batch(void *p) {
  char class[32];
  const struct run *run = pages_run_of(p);
  if (run && run->kind == RUN_SLAB && slab_block_of(run, p) == p && block_has_key(p)) {
    say_freed("free", p, class_text(class, sizeof class, run->class), late_text());
    say_origin("", p);
    misuse_end();
  } else {
    misuse("free", p);
  }
}

void misuse_interior(const char *call, const void *p) {
  if (!say_interior(call, p, pages_run_of(p))) say_foreign(call, p);
  abort(); /* the fast path has overwritten two words of the block */
}

void misuse_size(const char *call, const void *p, size_t size, const struct run *run) {
  char text[48];
  const char *what = run->kind == RUN_GUARDED ? "guarded block" : "large block";
  if (run->kind == RUN_SLAB) what = class_text(text, sizeof text, run->class);
  if (run->kind == RUN_CHUNK) what = chunk_text(text, sizeof text, chunk_size_of(run, p));
  log_line("%s of %p with size %zu (%s)", call, p, size, what);
  say_origin("", p);
  misuse_end();
}
