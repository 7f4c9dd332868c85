/* epochs: the C face of epochs and handles.                                                         floor: malloc */
#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/close.h"
#include "epoch/destroy.h"
#include "epoch/handle.h"
#include "epoch/open.h"
#include "epoch/scope.h"
#include "epoch/status.h"
#include "heap/bump.h"
#include "heap/guard.h"
#include "heap/profile.h"
#include "malloc/malloc_inline.h"
#include "malloc/slow.h"
#include "process/process.h"
#include "runtime/birth.h"
#include "runtime/scavenger.h"
#include "runtime/thread.h"
#include "stats/collect.h"
#include "stats/scope_misuse.h"
#include <errno.h>
#include <string.h>

#define LEAST_BUDGET GRANULE
/* The alignment of a large block that a move keeps, at most: that of a huge page. By chance the block's address may be
 * a multiple of far more. */
#define MOST_KEPT_ALIGNMENT (2 * MiB)
#define KNOWN_FLAGS  (TSLAB_EPOCH_AUTO_CLOSE | TSLAB_EPOCH_DESTROYABLE)

_Static_assert(sizeof(tslab_epoch_report) % 128 == 0 && sizeof(tslab_epoch_status) % 128 == 0, "fixed multiples");

/* Returns the calling thread, which gets a heap if it has none, or NULL without memory. */
static struct thread *self(void) {
  if (UNLIKELY(current_heap == &empty_heap) && !thread_heap_to_keep()) return NULL;
  return current_thread;
}

/* Every call that may have made the thread's heap calls this last. */
INLINE void end_call(void) {
  if (UNLIKELY(thread_heap_state != HEAP_IS_KEPT)) thread_end_epoch_call();
}

/* Ends `call` on epoch `id` with the result `error`. */
INLINE int end_with(int error, const char *call, uint64_t id, const void *site) {
  end_call();
  return LIKELY(error == 0) ? 0 : scope_misused(call, id, error, site);
}

/* Ends a close, destroy or reset, which a program may call again while the epoch is closing. */
INLINE int end_end_with(int error, const char *call, uint64_t id, const void *site) {
  end_call();
  return LIKELY(error != ESTALE) ? error : scope_misused(call, id, error, site);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int check_options(const tslab_epoch_options *given) {
  if (!given || given->struct_size != sizeof *given || (given->flags & ~KNOWN_FLAGS)) return EINVAL;
  if (given->budget_bytes != 0 && given->budget_bytes < LEAST_BUDGET) return EINVAL;
  return 0;
}

/* Opens the thread's cached epoch, or returns 0. It takes no step more than it must, because requests open epochs. */
INLINE uint64_t open_cached(const tslab_epoch_options *wanted) {
  bool is_plain = wanted->parent == 0 && wanted->budget_bytes == 0 && wanted->prefault_bytes == 0;
  if (UNLIKELY(!current_thread || !is_plain) || UNLIKELY(options_budget(wanted->label) != 0)) return 0;
  return epoch_cache_open(current_thread, wanted->label, wanted->flags);
}

static uint64_t open_new(const tslab_epoch_options *wanted, int *error) {
  uint64_t id = epoch_open(wanted, error);
  if (!id && *error == ENOMEM && wanted->prefault_bytes == 0) { /* a budget may refuse that */
    scavenger_reclaim(GRANULE);
    id = epoch_open(wanted, error);
  }
  return id;
}

static NOINLINE tslab_epoch open_with(const tslab_epoch_options *given) {
  uint64_t id = 0;
  int error = self() ? check_options(given) : ENOMEM;
  if (error == 0) {
    tslab_epoch_options wanted = *given;
    if (wanted.budget_bytes == 0) wanted.budget_bytes = options_budget(wanted.label);
    id = open_new(&wanted, &error);
  }
  end_call();
  if (!id) errno = error;
  return id;
}

tslab_epoch tslab_epoch_open_with(const tslab_epoch_options *given) {
  uint64_t id = LIKELY(check_options(given) == 0) ? open_cached(given) : 0;
  return LIKELY(id != 0) ? id : open_with(given);
}

tslab_epoch tslab_epoch_open(const char *label) {
  tslab_epoch_options given = {.struct_size = sizeof given, .label = label};
  uint64_t id = open_cached(&given);
  return LIKELY(id != 0) ? id : open_with(&given);
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

static NOINLINE int enter(tslab_epoch epoch, const void *site) {
  struct thread *thread = self();
  return thread ? end_with(scope_enter(thread, epoch), "tslab_epoch_enter", epoch, site) : ENOMEM;
}

/* Like malloc, this and leave save no register: the slow path is a last call. */
HOT int tslab_epoch_enter(tslab_epoch epoch) {
  struct thread *thread = current_thread;
  if (LIKELY(thread != NULL) && LIKELY(scope_enter_at_once(thread, epoch))) return 0;
  return enter(epoch, CALL_SITE);
}

static NOINLINE int leave(tslab_epoch epoch, const void *site) {
  int error = current_thread ? scope_leave(current_thread, epoch) : EINVAL;
  return end_with(error, "tslab_epoch_leave", epoch, site);
}

HOT int tslab_epoch_leave(tslab_epoch epoch) {
  struct thread *thread = current_thread;
  bool ends_no_heap = LIKELY(thread_heap_state == HEAP_IS_KEPT); /* as a revived heap may end here */
  if (ends_no_heap && LIKELY(thread != NULL) && LIKELY(scope_leave_at_once(thread, epoch))) return 0;
  return leave(epoch, CALL_SITE);
}

tslab_epoch tslab_epoch_switch(tslab_epoch epoch) {
  struct thread *thread = self();
  tslab_epoch before = thread ? scope_current(thread) : 0;
  int error = thread ? scope_switch(thread, epoch) : ENOMEM;
  if (end_with(error, "tslab_epoch_switch", epoch, CALL_SITE) != 0) errno = error;
  return before;
}

int tslab_scope_depth(void) { return current_thread ? (int)current_thread->depth : 0; }

void tslab_scope_unwind(int depth) {
  struct thread *thread = current_thread;
  while (thread && depth >= 0 && thread->depth > (unsigned)depth) scope_leave(thread, scope_current(thread));
  end_call();
}

tslab_epoch tslab_epoch_current(void) { return current_thread ? scope_current(current_thread) : 0; }

tslab_epoch tslab_epoch_of(const void *p) {
  struct run *run = process_has_started() ? pages_run_of(guard_behind(p)) : NULL;
  if (!run || (run->kind != RUN_SLAB && run->kind != RUN_CHUNK && run->kind != RUN_LARGE)) return 0;
  return run->epoch ? epoch_id(epoch_at(run->epoch)) : 0;
}

tslab_epoch tslab_epoch_advance(const char *label, tslab_epoch_report *closed) {
  struct thread *thread = self();
  if (closed) memset(closed, 0, sizeof *closed);
  if (!thread) {
    errno = ENOMEM;
    return 0;
  }
  if (thread_heap_state == HEAP_REVIVED) thread_heap_state = HEAP_IS_KEPT; /* this call leaves the thread in a scope */
  if (thread->advanced) {
    scope_leave(thread, thread->advanced); /* fails if scopes are open inside it; then it closes with us inside */
    epoch_close(thread->advanced, closed);
  }
  thread->advanced = tslab_epoch_open(label);
  int error = thread->advanced ? scope_enter(thread, thread->advanced) : errno;
  if (error == 0) return thread->advanced;
  if (thread->advanced) epoch_close(thread->advanced, NULL);
  thread->advanced = 0;
  errno = error;
  return 0;
}

/* ---- allocating in a given epoch --------------------------------------------------------------------------------- */

/* Makes current_heap the one of an epoch for one call. */
struct visit {
  struct heap *before;
  uint64_t id;
  struct heap *heap; /* NULL: epoch 0 */
  bool was_visiting;
};

/* `call` is NULL if a failure is no mistake of the program. */
static bool visit_begin(struct visit *visit, uint64_t id, const char *call, const void *site) {
  struct thread *thread = self();
  int error = ENOMEM;
  visit->id = id;
  visit->heap = thread && id ? scope_hold(thread, id, &error) : NULL;
  if (UNLIKELY(!visit->heap && (id || !thread))) {
    errno = call ? scope_misused(call, id, error, site) : error;
    return false;
  }
  visit->before = current_heap;
  visit->was_visiting = thread->visiting;
  thread->visiting = true;
  current_heap = id ? visit->heap : thread->plain;
  return true;
}

/* Ends a visit and returns the block. If there is none because the epoch is closing, this sets errno to ESHUTDOWN. */
static void *visit_end(const struct visit *visit, void *block) {
  struct heap *heap = current_heap;
  current_heap = visit->before;
  current_thread->visiting = visit->was_visiting;
  if (UNLIKELY(!block && heap->arena && arena_is_closing(heap->arena))) errno = ESHUTDOWN;
  if (visit->heap) scope_let_go(visit->heap, visit->id);
  end_call();
  return block;
}

static NOINLINE void *malloc_in(uint64_t id, size_t size, const char *call, const void *site) {
  struct visit visit;
  return visit_begin(&visit, id, call, site) ? visit_end(&visit, inline_malloc(size)) : NULL;
}

static NOINLINE void *malloc_visiting(tslab_epoch epoch, size_t size, const void *site) {
  return malloc_in(epoch, size, "tslab_epoch_malloc", site);
}

/* Returns a block of the current chunk or of a list, or NULL if a slow path must serve the call. */
INLINE void *take_at_once(struct heap *heap, size_t size) {
  void *block = size <= BUMP_MOST ? bump_take(heap, size) : NULL;
  if (LIKELY(block != NULL) || size > DIRECT_MAX) return block;
  return fast_pop(heap, class_tables_by_key(pages.key)->direct[size], pages.key);
}

/* If the thread's heap of the epoch has a block ready, the thread looks at the epoch and does not enter it. */
static NOINLINE void *malloc_looking(tslab_epoch epoch, size_t size, const void *site) {
  struct thread *thread = current_thread;
  struct epoch *e = epoch_slot(epoch);
  if (UNLIKELY(!thread || !e)) return malloc_visiting(epoch, size, site);
  struct heap *heap = scope_look(thread, e, epoch);
  void *block = NULL;
  if (LIKELY(heap != NULL)) {
    block = take_at_once(heap, size);
    scope_learn(thread, e, epoch, heap);
  }
  scope_look_away(thread, e, epoch);
  return LIKELY(block != NULL) ? block : malloc_visiting(epoch, size, site);
}

static COLD void *malloc_seen(const struct named *named, size_t size, void *block, const void *site) {
  uint64_t id = named->id;
  scope_was_seen(named->epoch, id);
  return block ? block : malloc_visiting(id, size, site);
}

/* Most times the thread named this epoch before. Each branch makes only a last call, so that nothing is saved on the
 * stack. */
HOT void *tslab_epoch_malloc(tslab_epoch epoch, size_t size) {
  struct thread *thread = current_thread;
  if (UNLIKELY(!thread)) return malloc_visiting(epoch, size, CALL_SITE);
  const struct named *named = scope_named(thread, epoch);
  FORGET(named); /* otherwise the compiler also keeps its index */
  if (UNLIKELY(named->id != epoch)) return malloc_looking(epoch, size, CALL_SITE);
  void *block = LIKELY(scope_look_named(thread, named)) ? take_at_once(named->heap, size) : NULL;
  if (UNLIKELY(!scope_look_away_named(thread, named))) return malloc_seen(named, size, block, CALL_SITE);
  return LIKELY(block != NULL) ? block : malloc_visiting(epoch, size, CALL_SITE);
}

void *tslab_epoch_calloc(tslab_epoch epoch, size_t count, size_t size) {
  struct visit visit;
  if (!visit_begin(&visit, epoch, "tslab_epoch_calloc", CALL_SITE)) return NULL;
  return visit_end(&visit, inline_calloc(count, size));
}

void *tslab_epoch_aligned_alloc(tslab_epoch epoch, size_t alignment, size_t size) {
  struct visit visit;
  if (!is_power_of_two(alignment)) {
    errno = EINVAL;
    return NULL;
  }
  if (!visit_begin(&visit, epoch, "tslab_epoch_aligned_alloc", CALL_SITE)) return NULL;
  return visit_end(&visit, slow_aligned(max_size(alignment, 16), size));
}

void *malloc_in_epoch(uint32_t index, size_t size) {
  int kept = errno;
  if (index == 0 && !current_heap->arena) return inline_malloc(size);
  void *block = malloc_in(index ? epoch_id(epoch_at(index)) : 0, size, NULL, NULL);
  if (block || errno != ESHUTDOWN) return block;
  errno = kept;
  return tslab_epoch_malloc(0, size);
}

/* Returns the alignment that a move keeps. No run knows which alignment the caller of malloc asked for. A slab's blocks
 * lie on multiples of the class's lowest power of two. The blocks of a chunk without aligned blocks lie on multiples of
 * 16 bytes, and of more only by chance. */
static size_t alignment_of(const struct run *run, const void *p) {
  if (run->kind == RUN_SLAB) return lowest_power(class_size(run->class));
  if (run->kind == RUN_CHUNK && !LOAD_RACING(run->class)) return CHUNK_UNIT;
  return min_size(lowest_power((uintptr_t)p), run->kind == RUN_CHUNK ? GRANULE : MOST_KEPT_ALIGNMENT);
}

void *tslab_epoch_move(void *p, tslab_epoch to) {
  struct run *run = p ? run_of_live_block("tslab_epoch_move", p) : NULL;
  if (!run) {
    errno = EINVAL;
    return NULL;
  }
  if (tslab_epoch_of(p) == to) return p;
  struct visit visit;
  size_t size = block_usable_size(run, p), alignment = alignment_of(run, p);
  counters_note_caller(__builtin_frame_address(0));
  if (!visit_begin(&visit, to, "tslab_epoch_move", CALL_SITE)) return NULL;
  void *copy = visit_end(&visit, alignment <= CHUNK_UNIT ? inline_malloc(size) : slow_aligned(alignment, size));
  if (!copy) return NULL;
  memcpy(copy, p, size);
  inline_free(p);
  return copy;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

static int prepare_report(tslab_epoch id, tslab_epoch_report *out) {
  if (out) *out = (tslab_epoch_report){.epoch = id};
  if (id == 0) return EPERM;
  return self() ? 0 : ENOMEM;
}

/* Called after an end. An end that left the epoch as the thread's cached epoch gave little memory up, so 1 call in 64
 * suffices, unless the kernel counts what is mapped. */
INLINE void notice_end(tslab_epoch epoch) {
  bool is_cached = epoch_cache_is(current_thread, epoch) && (epoch >> EPOCH_INDEX_BITS) % 64 != 0;
  if (is_cached && LIKELY(!pages_counts_mapped())) return;
  scavenger_notice(current_heap);
}

int tslab_epoch_close(tslab_epoch epoch, tslab_epoch_report *out) {
  int error = prepare_report(epoch, out);
  if (error != 0) return error;
  error = epoch_close(epoch, out);
  notice_end(epoch);
  return end_end_with(error, "tslab_epoch_close", epoch, CALL_SITE);
}

int tslab_epoch_close_step(tslab_epoch epoch, uint64_t max_ns, tslab_epoch_report *out) {
  int error = prepare_report(epoch, out);
  if (error != 0) return error;
  return end_end_with(epoch_close_step(epoch, max_ns, out), "tslab_epoch_close_step", epoch, CALL_SITE);
}

int tslab_epoch_destroy(tslab_epoch epoch, tslab_epoch_report *out) {
  int error = prepare_report(epoch, out);
  if (error != 0) return error;
  error = epoch_destroy(epoch, out);
  notice_end(epoch);
  return end_end_with(error, "tslab_epoch_destroy", epoch, CALL_SITE);
}

int tslab_epoch_reset(tslab_epoch epoch, tslab_epoch_report *out) {
  int error = prepare_report(epoch, out);
  if (error != 0) return error;
  error = epoch_reset(epoch, out);
  if (UNLIKELY(pages_counts_mapped())) scavenger_notice(current_heap);
  return end_end_with(error, "tslab_epoch_reset", epoch, CALL_SITE);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int tslab_epoch_info(tslab_epoch epoch, tslab_epoch_status *out) {
  if (!out) return EINVAL;
  memset(out, 0, sizeof *out);
  return collect_epoch(epoch, out);
}

int tslab_epoch_each(int (*visit)(const tslab_epoch_status *, void *), void *arg) {
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    tslab_epoch_status status;
    uint64_t id = epoch_id(epoch_at(i));
    if (id == 0 || tslab_epoch_info(id, &status) != 0) continue;
    int result = visit(&status, arg);
    if (result != 0) return result;
  }
  return 0;
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

tslab_handle tslab_handle_alloc(tslab_epoch epoch, size_t size, void **block) {
  struct visit visit;
  *block = NULL;
  if (!visit_begin(&visit, epoch, "tslab_handle_alloc", CALL_SITE)) return 0;
  /* The thread is still inside: a destroy in between would leave the handle to the slot's next epoch, and a block
   * without a handle would be freed after its end. */
  void *made = inline_malloc(size);
  tslab_handle handle = made ? handle_make(pages_run_of(guard_behind(made))->epoch, made) : 0;
  bool has_no_handle = made && !handle;
  if (UNLIKELY(has_no_handle)) inline_free(made);
  *block = visit_end(&visit, handle ? made : NULL);
  if (UNLIKELY(has_no_handle)) errno = ENOMEM;
  return handle;
}

void *tslab_handle_get(tslab_handle handle) { return handle_get(handle); }

bool tslab_handle_free(tslab_handle handle) {
  uint32_t index;
  void *block = handle_claim(handle, &index);
  if (!block) return false;
  inline_free(block);
  handle_freed(index);
  return true;
}
