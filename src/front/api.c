/* api: the tslab_ twins of malloc's family, and what malloc and free do off the fast path.          floor: front */
#include "front/malloc_inline.h"

#include "epoch/close.h"
#include "heap/cut.h"
#include "os/os.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <string.h>

/* ---- malloc ------------------------------------------------------------------------------------------------------ */

static void *no_memory(void) {
  errno = ENOMEM;
  return NULL;
}

/* The fast path failed although there is a list: its head was freed twice or written to since. The list is given up. */
static COLD void give_up_list(unsigned class) {
  void *bad = heap_take_bad_list(current_heap, class);
  if (!bad) return;
  counters_stage(counters_here(), PATH_DAMAGED);
  misuse_freed(bad);
}

static bool is_closing(const struct heap *heap) { return heap->arena && arena_is_closing(heap->arena); }

/* Whether the epoch is in the way, and not the machine: it closes, or its budget is used up, which is counted. */
static bool epoch_refuses(struct heap *heap, size_t bytes) {
  if (is_closing(heap)) return true;
  for (const struct arena *l = heap->arena; l; l = l->parent) {
    if (atomic_load_explicit(&l->charged, memory_order_relaxed) + bytes <= l->budget) continue;
    atomic_fetch_add_explicit(&heap->arena->refused, 1, memory_order_relaxed);
    return true;
  }
  return false;
}

static void *refill_again(unsigned class) {
  struct heap *heap = current_heap;
  void *block = heap_refill(heap, class);
  if (LIKELY(block != NULL) || epoch_refuses(heap, slab_bytes(class))) return block;
  /* What other sizes hold free may be what is missing. */
  counters_stage(counters_here(), PATH_PURGE);
  front_reclaim(heap->arena ? SIZE_MAX : slab_bytes(class));
  return heap_refill(heap, class);
}

/* Returns a block that lay ready for a thread that was just born, or a sample. */
static COLD void *first_block(struct heap *heap, unsigned class, size_t size) {
  void *block = profile_is_on() ? cut_miss(heap, class, size) : NULL;
  return block ? block : fast_pop(heap, class, (uintptr_t)pages.base);
}

/* A thread without a heap gets one, perhaps with a dead thread's lists; else the list is empty, or bad. */
static void *refill(unsigned class, size_t size) {
  struct timing timing;
  bool is_born = UNLIKELY(current_heap == &empty_heap);
  uint64_t start = is_born ? ticks_now() : 0;
  if (is_born && !front_heap()) return NULL;
  sample_begin(&timing);
  if (UNLIKELY(is_born)) {
    timing.start = start;
    counters_stage(counters_here(), PATH_BIRTH);
  }
  void *block = UNLIKELY(is_born) ? first_block(current_heap, class, size) : NULL;
  if (LIKELY(!block)) {
    if (UNLIKELY(current_heap->list[class] != CHAIN_END)) give_up_list(class);
    block = refill_again(class);
  }
  if (block) scavenger_notice_malloc(current_heap);
  sample_end(&timing, size, block ? class_size(class) : 0);
  if (UNLIKELY(is_born)) front_end_call();
  return block;
}

/* Who needs no refill is seen, too, now and then. */
static NOINLINE void *take_detached(struct heap *heap, unsigned class, size_t size) {
  void *block = sample_detached(heap, class, size);
  if (UNLIKELY(heap->sampling.timings == TIMED)) scavenger_notice_malloc(heap);
  return block;
}

/* The list is empty or bad; or detached, for this call to be timed. */
INLINE void *miss(unsigned class, size_t size) {
  struct heap *heap = current_heap;
  if (profile_is_on()) {
    void *drawn = cut_miss(heap, class, size);
    if (drawn) return drawn;
  }
  void *block = LIKELY(sample_is_due(heap, class)) ? take_detached(heap, class, size) : NULL; /* the rarer, as if not */
  return LIKELY(block != NULL) ? block : refill(class, size);
}

static void *large(size_t size, size_t alignment, bool *zero) {
  struct timing timing;
  bool is_born = UNLIKELY(current_heap == &empty_heap);
  if (!front_start() || size > pages_most() || alignment > pages_most() || !front_heap()) return NULL;
  struct heap *heap = current_heap;
  sample_begin(&timing);
  void *block = heap_large_alloc(heap, size, alignment, zero);
  if (UNLIKELY(!block) && !epoch_refuses(heap, large_run_bytes(size))) {
    counters_stage(counters_here(), PATH_PURGE);
    front_reclaim(heap->arena ? SIZE_MAX : large_run_bytes(size));
    block = heap_large_alloc(heap, size, alignment, zero);
  }
  if (block) scavenger_notice_malloc(heap);
  if (block && profile_is_on()) profile_large(heap, block, size);
  sample_end(&timing, size, block ? large_run_bytes(size) : 0);
  if (UNLIKELY(is_born)) front_end_call();
  return block;
}

static void *small(unsigned class, size_t size) {
  if (UNLIKELY(current_heap == &empty_heap)) return refill(class, size);
  void *block = fast_pop(current_heap, class, (uintptr_t)pages.base);
  return LIKELY(block != NULL) ? block : miss(class, size);
}

/* Before the process has started the class tables are empty. */
INLINE unsigned class_for(size_t size) {
  return LIKELY(current_heap != &empty_heap) || front_start() ? class_of(size) : 0;
}

/* By class or as a large block. */
INLINE void *by_size(size_t size, bool *zero) {
  if (LIKELY(size <= DIRECT_MAX)) return miss(class_for(size), size); /* the list was tried */
  return size <= SMALL_MAX ? small(class_for(size), size) : large(size, GRANULE, zero);
}

/* The chunk is full, or there is none, or the call is to be a sample. */
static void *bump_timed(size_t size) {
  struct timing timing;
  sample_begin(&timing);
  void *block = bump_refill(current_heap, size);
  if (!block) return NULL;
  scavenger_notice_malloc(current_heap);
  sample_end(&timing, size, round_up(max_size(size, 1), CHUNK_UNIT));
  return block;
}

/* Inside the scope of an epoch, whose chunk is full, or which has none. */
static NOINLINE void *malloc_in_scope(size_t size, bool *zero) {
  void *block = bump_timed(size);
  if (!block && !is_closing(current_heap)) block = by_size(size, zero);
  return block || !is_closing(current_heap) ? block : front_malloc_fallback(size);
}

static NOINLINE void *malloc_otherwise(size_t size) {
  bool zero;
  profile_note_caller(__builtin_frame_address(0));
  void *block = UNLIKELY(current_heap->arena) ? malloc_in_scope(size, &zero) : by_size(size, &zero);
  return LIKELY(block != NULL) ? block : no_memory();
}

static NOINLINE void *calloc_otherwise(size_t size) {
  bool zero = false;
  profile_note_caller(__builtin_frame_address(0));
  void *block = UNLIKELY(current_heap->arena) ? malloc_in_scope(size, &zero) : by_size(size, &zero);
  if (UNLIKELY(!block)) return no_memory();
  return zero ? block : memset(block, 0, size);
}

/* An epoch's heap that bumps comes to these each time: nothing is saved or restored on the way. */
HOT void *front_malloc_direct(size_t size, struct heap *heap) {
  void *block = bump_take(heap, size);
  return LIKELY(block != NULL) ? block : malloc_otherwise(size);
}

HOT void *front_malloc(size_t size) {
  void *block = size <= BUMP_MOST ? bump_take(current_heap, size) : NULL;
  return LIKELY(block != NULL) ? block : malloc_otherwise(size);
}

HOT void *front_calloc(size_t size) {
  void *block = size <= BUMP_MOST ? bump_take(current_heap, size) : NULL;
  return LIKELY(block != NULL) ? memset(block, 0, size) : calloc_otherwise(size);
}

static void *aligned(size_t alignment, size_t size, bool *zero) {
  unsigned class = class_of_aligned(size, alignment);
  return class < CLASSES ? small(class, size) : large(max_size(size, 1), alignment, zero);
}

static void *aligned_in_scope(size_t alignment, size_t size) {
  bool zero;
  struct heap *heap = current_heap;
  void *block = bump_aligned(heap, alignment, size);
  if (!block && !is_closing(heap)) block = aligned(alignment, size, &zero);
  return block || !is_closing(heap) ? block : front_aligned_fallback(alignment, size);
}

void *front_aligned(size_t alignment, size_t size) {
  bool zero, is_born = current_heap == &empty_heap;
  if (!front_heap()) return no_memory();
  profile_note_caller(__builtin_frame_address(0));
  void *block = current_heap->arena ? aligned_in_scope(alignment, size) : aligned(alignment, size, &zero);
  if (is_born) front_end_call();
  return block ? block : no_memory();
}

/* ---- free -------------------------------------------------------------------------------------------------------- */

/* The run of a block in use that starts at p, or NULL after telling the misuse. */
static struct run *run_of_block(const char *call, void *p) {
  struct run *run = front_has_started() ? pages_run_of(p) : NULL;
  if (run && run->kind == RUN_LARGE && run_start(run) == p) return run;
  if (run && run->kind == RUN_SLAB && !slab_refuses(p)) return run;
  if (run && run->kind == RUN_CHUNK && chunk_place_of(run, p) == CHUNK_LIVE) return run;
  misuse(call, p);
  return NULL;
}

/* A block of the thread's own heap of epoch 0, freed inside a scope: nobody else touches that heap's lists. */
static void free_to_own_slab(struct heap *own, void *p) {
  struct heap *heap = current_heap;
  current_heap = own;
  inline_free(p);
  current_heap = heap;
}

static void free_large(struct heap *own, struct run *run) {
  struct timing timing;
  if (heap_large_keep(own, run)) return;
  sample_begin_path(&timing);
  heap_large_free(own, run);
  sample_end_path(&timing, PATH_LARGE_FREE);
}

static bool is_owned_by(const struct heap *heap, const void *p) {
  return heap_class_of(heap, LOAD_RACING(pages_pagemap()[granule_of(p)])) < CLASSES;
}

static void free_elsewhere(struct run *run, void *p) {
  struct heap *own = current_thread ? current_thread->plain : &empty_heap;
  if (own == &empty_heap && run->kind == RUN_SLAB) own = front_heap_to_free();
  uint32_t epoch = run->epoch;
  if (run->kind == RUN_LARGE) free_large(own, run);
  else if (run->kind == RUN_SLAB && own != current_heap && is_owned_by(own, p))
    free_to_own_slab(own, p);
  else if (run->kind == RUN_SLAB) heap_free_remote(own, run, p);
  else if (!bump_free(run, p)) misuse("free", p);
  if (epoch) epoch_after_free(epoch);
}

NOINLINE void front_free_otherwise(void *p) {
  if (!p) return;
  struct run *run = run_of_block("free", p);
  if (!run) return;
  if (profile_is_on()) profile_freed(run, p);
  free_elsewhere(run, p);
  scavenger_notice(current_heap);
}

/* Returns true if p starts a block of a slab of the heap that is not free already. A list would take another pointer,
 * and tell only when it hands it out; a block that is freed from outside its epoch is told at once. */
static bool is_live_of(const struct heap *heap, void *p) {
  uintptr_t class = heap_class_of(heap, LOAD_RACING(pages_pagemap()[granule_of(p)]));
  return class < CLASSES && class_starts_block((uintptr_t)p, heap->inverse[class]) && !block_has_key(p);
}

/* A block of the thread's own heap of an epoch that is not the current one needs no atomic instruction. */
static NOINLINE void free_looking(void *p) {
  struct thread *thread = current_thread;
  uint32_t index = pages_run_holding(p)->epoch;
  struct epoch *e = LIKELY(index != 0) ? epoch_at(index) : NULL;
  uint64_t id = e ? atomic_load_explicit(&e->open_id, memory_order_relaxed) : 0;
  if (UNLIKELY(id == 0)) {
    front_free_otherwise(p);
    return;
  }
  struct heap *heap = scope_look(thread, e, id), *before = current_heap;
  if (LIKELY(heap != NULL)) scope_learn(thread, e, id, heap);
  if (LIKELY(heap != NULL) && heap != before && is_live_of(heap, p)) {
    scope_stay(thread, heap); /* what follows may take locks */
    current_heap = heap;
    inline_free(p);
    current_heap = before;
    scope_let_go(heap, id);
    return;
  }
  bool freed = LIKELY(heap != NULL) && bump_free_current(heap, p);
  scope_look_away(thread, e, id);
  if (UNLIKELY(!freed)) front_free_otherwise(p);
}

static COLD void free_seen(const struct named *named, void *p, bool freed) {
  scope_was_seen(named->epoch, named->id);
  if (!freed) front_free_otherwise(p);
}

/* The same of an epoch that the thread named before, in a slab of its heap. */
static NOINLINE void free_named_to_list(struct thread *thread, const struct named *named, void *p) {
  struct heap *heap = named->heap, *before = current_heap;
  unsigned class = 0;
  if (TSLAB_HARDENED) { /* its quarantine takes locks at any time */
    free_looking(p);
    return;
  }
  if (UNLIKELY(!is_live_of(heap, p))) {
    front_free_otherwise(p);
    return;
  }
  if (UNLIKELY(!scope_look_named(thread, named))) {
    scope_set_looking(thread, 0);
    free_seen(named, p, false);
    return;
  }
  current_heap = heap;
  enum fast_free done = fast_push(p, &class, &heap);
  if (UNLIKELY(done == LIST_FULL)) { /* what takes locks needs it to stay */
    scope_stay(thread, heap);
    front_free_full(p);
    current_heap = before;
    scope_let_go(heap, named->id);
    return;
  }
  current_heap = before;
  if (UNLIKELY(!scope_look_away_named(thread, named))) free_seen(named, p, true);
}

/* And in its current chunk. */
HOT static NOINLINE void free_named(void *p) {
  struct thread *thread = current_thread;
  if (UNLIKELY(!thread)) {
    front_free_otherwise(p);
    return;
  }
  size_t granule = granule_of(p);
  uint32_t index = pages.runs[granule].epoch;
  const struct named *named = scope_named(thread, index);
  FORGET(named); /* or its index would be kept beside it */
  if (UNLIKELY(named->slot != index)) {
    free_looking(p);
    return;
  }
  if (UNLIKELY(heap_class_of(named->heap, LOAD_RACING(pages_pagemap()[granule])) < CLASSES)) {
    free_named_to_list(thread, named, p);
    return;
  }
  bool freed = LIKELY(scope_look_named(thread, named)) && bump_free_current(named->heap, p);
  if (UNLIKELY(!scope_look_away_named(thread, named))) {
    free_seen(named, p, freed);
    return;
  }
  if (UNLIKELY(!freed)) free_looking(p);
}

HOT void front_free(void *p, struct heap *heap) {
  if (!bump_free_current(heap, p) && !heap_keep_remote(heap, p)) free_named(p);
}

void front_free_full(void *p) {
  struct timing timing;
  sample_begin_path(&timing);
  unsigned class = (unsigned)heap_class_of(current_heap, LOAD_RACING(pages_pagemap()[granule_of(p)]));
  if (!class_starts_block((uintptr_t)p, class_inverse(class))) misuse_interior("free", p);
  if (profile_is_on() && cut_overflow(current_heap, class, p)) return;
  bool emptied = heap_overflow(current_heap, class, p);
  scavenger_notice(current_heap);
  if (emptied) sample_end_path(&timing, PATH_PUT_BY);
}

void front_free_interior(unsigned class) { misuse_interior("free", current_heap->list[class]); }

/* ---- realloc ----------------------------------------------------------------------------------------------------- */

static size_t usable_size(const struct run *run, const void *p) {
  if (run->kind == RUN_CHUNK) return chunk_size_of(run, p);
  return run->kind == RUN_LARGE ? run->size : class_size(run->class);
}

static void *resize(void *p, size_t size) {
  struct run *run = run_of_block("realloc", p);
  if (!run || size > PTRDIFF_MAX) return no_memory();
  size_t old = usable_size(run, p);
  profile_note_caller(__builtin_frame_address(0));
  if (run->kind == RUN_LARGE && size > SMALL_MAX && size <= pages_most() && run->epoch == 0) {
    if (profile_is_on()) profile_freed(run, p); /* what it becomes is drawn anew */
    void *block = large_resize(run, size, &counters_here()->large);
    if (LIKELY(block != NULL)) {
      scavenger_notice_malloc(current_heap);
      if (profile_is_on() && current_heap != &empty_heap) profile_large(current_heap, block, size);
      return block;
    } /* else malloc looks for what other sizes hold free */
  }
  if (size <= old && size >= old / 2) return p; /* moving would save less than half */
  void *block = front_malloc_in(run->epoch, size); /* a block keeps its epoch, whatever scope this is */
  if (!block) return size <= old ? p : NULL;
  memcpy(block, p, min_size(old, size));
  inline_free(p);
  return block;
}

/* Whether p is a block of this thread's that serves `size` bytes as it is. */
static bool fits_here(void *p, size_t size) {
  size_t granule = granule_of(p);
  if (granule >= LOAD_RACING(pages.count)) return false;
  uintptr_t class = heap_class_of(current_heap, LOAD_RACING(pages_pagemap()[granule]));
  if (class >= CLASSES || block_is_free(p)) return false;
  return size - 1 < class_sizes[class] && size >= class_sizes[class] / 2u &&
         class_starts_block((uintptr_t)p, current_heap->inverse[class]);
}

static NOINLINE void *realloc_otherwise(void *p, size_t size) {
  if (!p) return inline_malloc(size);
  if (size == 0) {
    if (run_of_block("realloc", p)) inline_free(p);
    return NULL;
  }
  return resize(p, size);
}

void *tslab_realloc(void *p, size_t size) { return LIKELY(fits_here(p, size)) ? p : realloc_otherwise(p, size); }

void *tslab_reallocarray(void *p, size_t count, size_t size) {
  size_t bytes;
  return __builtin_mul_overflow(count, size, &bytes) ? no_memory() : tslab_realloc(p, bytes);
}

/* ---- the rest of the family -------------------------------------------------------------------------------------- */

HOT void *tslab_malloc(size_t size) { return inline_malloc(size); }
HOT void tslab_free(void *p) { inline_free(p); }
void *tslab_calloc(size_t count, size_t size) { return inline_calloc(count, size); }

static void *invalid(void) {
  errno = EINVAL;
  return NULL;
}

/* As glibc does: any alignment is rounded up to a power of two, until that overflows. */
void *tslab_memalign(size_t alignment, size_t size) {
  if (alignment > SIZE_MAX / 2 + 1) return invalid();
  if (!is_power_of_two(alignment)) alignment = alignment == 0 ? 16 : (size_t)1 << (log2_floor(alignment) + 1);
  return front_aligned(max_size(alignment, 16), size);
}

/* C17 demands an error for an alignment that is not supported; glibc returns it from 2.38 on. */
void *tslab_aligned_alloc(size_t alignment, size_t size) {
  return is_power_of_two(alignment) ? front_aligned(max_size(alignment, 16), size) : invalid();
}

int tslab_posix_memalign(void **out, size_t alignment, size_t size) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
  int kept = errno;
  void *block = front_aligned(max_size(alignment, 16), size);
  if (!block) return ENOMEM; /* errno says it too, as glibc's does; programs look there */
  errno = kept;
  *out = block;
  return 0;
}

void *tslab_valloc(size_t size) { return front_start() ? front_aligned(os_page_size, size) : no_memory(); }

void *tslab_pvalloc(size_t size) {
  if (!front_start() || size > PTRDIFF_MAX) return no_memory();
  return front_aligned(os_page_size, round_up(max_size(size, 1), os_page_size));
}

size_t tslab_malloc_usable_size(const void *p) {
  struct run *run = p ? run_of_block("malloc_usable_size", (void *)p) : NULL;
  return run ? usable_size(run, p) : 0;
}

/* A size that the block cannot have is the caller's mix-up of two blocks: worth knowing before it spreads. */
static void free_checked(const char *call, void *p, size_t size) {
  struct run *run = p ? run_of_block(call, p) : NULL;
  if (!run) return;
  if (size > usable_size(run, p)) {
    misuse_size(call, p, size, run);
    return;
  }
  inline_free(p);
}

void tslab_free_sized(void *p, size_t size) { free_checked("free_sized", p, size); }

void tslab_free_aligned_sized(void *p, size_t alignment, size_t size) {
  (void)alignment; /* says nothing that the block does not */
  free_checked("free_aligned_sized", p, size);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

bool tslab_owns(const void *p) {
  struct run *run = front_has_started() ? pages_run_of(p) : NULL;
  return run && run->kind != RUN_META;
}

size_t tslab_purge(void) { return front_purge(); }

int tslab_malloc_trim(size_t pad) {
  (void)pad; /* what may stay is what the next tick of the scavenger would take anyway */
  return front_purge() != 0;
}

/* glibc's parameters run from M_ARENA_MAX to M_KEEP, without 0; the newest glibc accepts every value of each. None of
 * them names anything that is here (arenas, fast bins, a heap top, blocks with mappings of their own), so each is
 * accepted and changes nothing: programs end when mallopt refuses one. */
enum { ARENA_MAX = -8, KEEP = 4 };

int tslab_mallopt(int parameter, int value) {
  (void)value;
  return parameter >= ARENA_MAX && parameter <= KEEP && parameter != 0;
}

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)
#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifndef TSLAB_BUILD
#define TSLAB_BUILD "unknown build"
#endif

const char *tslab_version(void) {
  return "temporal-slab " VALUE(TSLAB_VERSION_MAJOR) "." VALUE(TSLAB_VERSION_MINOR) "." VALUE(
      TSLAB_VERSION_PATCH) " (" TSLAB_BUILD ", " COMPILER ")";
}
