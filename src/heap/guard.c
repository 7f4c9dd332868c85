/* guard: see guard.h.                                                                               floor: heap */
#include "heap/guard.h"

#include "base/log.h"
#include "base/options.h"
#include "heap/arena.h"
#include "heap/draw.h"
#include "heap/label.h"
#include "heap/misuse.h"
#include "heap/stack.h"
#include "os/fault.h"
#include "os/os.h"
#include "slab/chunk.h"
#include <string.h>

#define FILL         0xb5
#define FILLED       256 /* bytes on either side of a block; the rest of its pages stays zero */
#define PAGES_LEAST  4   /* of a slot: two of them can be used */
#define FRAMES_SHOWN 12  /* they fit one line */

enum slot_state { UNUSED, TAKEN, LIVE, ENDING, GONE };
#define STATES 8 /* the word of a slot is its state plus a multiple of this, another one for each block */

struct slot {
  _Atomic uint32_t word;
  atomic_bool is_open;  /* its block was misused, and the program goes on: no second message */
  bool ended_by_epoch;
  bool is_forbidden;    /* by mappings, some of its pages, now or before */
  char *data, *block;
  size_t bytes, size;   /* of the usable pages; that the caller asked for */
  void *behind;
  uint64_t site;        /* its stack's hash */
  uint32_t label, allocated_by, freed_by;
  uint32_t depth, freed_depth;
  uintptr_t frames[STACK_MOST], freed_frames[STACK_MOST];
};

_Atomic uint32_t guard_interval;
struct lock guard_lock;

static struct {
  char *start;
  size_t bytes, slot_bytes;
  struct slot *slots;
  bool is_light; /* pages are guarded without mappings */
  /* Under guard_lock: */
  uint32_t used, first, waiting; /* slots that ever served; freed ones, in a ring */
  uint16_t ring[GUARD_SLOTS];
  size_t open_bytes;
  uint64_t placed, live, refused;
} pool;

/* ---- the pages --------------------------------------------------------------------------------------------------- */

static bool forbid(struct slot *slot, char *at, size_t bytes) {
  if (pool.is_light && os_guard(at, bytes)) return true; /* else they were locked meanwhile */
  if (!os_forbid(at, bytes)) return false;
  if (slot) slot->is_forbidden = true;
  return true;
}

static bool needs_mapping(const struct slot *slot) { return !pool.is_light || slot->is_forbidden; }

static bool allow(const struct slot *slot, char *at, size_t bytes) {
  if (pool.is_light && !os_unguard(at, bytes)) return false;
  return !needs_mapping(slot) || os_commit(at, bytes);
}

static char *slot_start(const struct slot *slot) {
  return pool.start + (size_t)(slot - pool.slots) * pool.slot_bytes;
}

static struct slot *slot_of(const void *p) {
  size_t offset = (size_t)((const char *)p - pool.start);
  return guard_is_on() && offset < pool.bytes ? &pool.slots[offset / pool.slot_bytes] : NULL;
}

static size_t most_bytes(void) { return pool.slot_bytes - 2 * os_page_size; }

bool guard_start(uint32_t interval) {
  bool zero;
  pool.slot_bytes = max_size(GRANULE, PAGES_LEAST * os_page_size);
  pool.bytes = GUARD_SLOTS * pool.slot_bytes;
  pool.slots = pages_keep(GUARD_SLOTS * sizeof(struct slot));
  struct run *run = pool.slots ? pages_alloc(pool.bytes >> GRANULE_SHIFT, GRANULE, RUN_META, &zero, NULL) : NULL;
  if (!run) return false;
  pool.start = run_start(run);
  pool.is_light = os_guard(pool.start, pool.bytes);
  if (!pool.is_light && !forbid(NULL, pool.start, pool.bytes)) return false;
  pages_reuse(run, RUN_GUARDED);
  atomic_store_explicit(&guard_interval, interval, memory_order_relaxed);
  return true;
}

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static uint32_t word_of(const struct slot *slot) {
  /* Acquire: pairs with set_state: a thread that sees a state sees all earlier writes. */
  return atomic_load_explicit(&slot->word, memory_order_acquire);
}

static enum slot_state state_of(const struct slot *slot) { return (enum slot_state)(word_of(slot) % STATES); }

/* Only the caller uses the slot. */
static void set_state(struct slot *slot, enum slot_state state) {
  uint32_t word = atomic_load_explicit(&slot->word, memory_order_relaxed), block = round_down(word, STATES);
  if (state == TAKEN) block += STATES;
  atomic_store_explicit(&slot->word, block + state, memory_order_release);
}

static uint64_t hash_of(const struct guard_call *call) {
  uint64_t hash = call->depth;
  for (unsigned i = 0; i < call->depth; i++) hash = (hash ^ call->frames[i]) * UINT64_C(0x9e3779b97f4a7c15);
  return hash;
}

/* Caller holds guard_lock. */
static bool site_has_enough(uint64_t site) {
  if (pool.live < GUARD_SITE_MOST) return false;
  unsigned count = 0;
  for (uint32_t i = 0; i < pool.used; i++) count += pool.slots[i].site == site && state_of(&pool.slots[i]) == LIVE;
  return count >= GUARD_SITE_MOST;
}

/* Caller holds guard_lock. A slot that never served first, so that those that did are kept for long. A freed block that
 * the program used leaves its slot in the ring, from where it comes out for good. */
static struct slot *next_slot(void) {
  if (pool.used < GUARD_SLOTS) return &pool.slots[pool.used++];
  while (pool.waiting > 0) {
    struct slot *slot = &pool.slots[pool.ring[pool.first]];
    pool.first = (pool.first + 1) % GUARD_SLOTS;
    pool.waiting--;
    if (!atomic_load_explicit(&slot->is_open, memory_order_relaxed)) return slot;
  }
  return NULL;
}

static struct slot *take(uint64_t site, size_t bytes) {
  lock_take(&guard_lock);
  bool fits = bytes <= most_bytes() && pool.open_bytes + bytes <= GUARD_BYTES_MOST && !site_has_enough(site);
  struct slot *slot = fits ? next_slot() : NULL;
  if (slot) {
    set_state(slot, TAKEN);
    slot->site = site;
    pool.open_bytes += bytes;
    pool.placed++;
    pool.live++;
  } else {
    pool.refused++;
  }
  lock_release(&guard_lock);
  return slot;
}

/* Caller holds guard_lock. */
static void give_back(const struct slot *slot, size_t bytes) {
  pool.ring[(pool.first + pool.waiting++) % GUARD_SLOTS] = (uint16_t)(slot - pool.slots);
  pool.open_bytes -= bytes;
}

static void give_up(struct slot *slot, size_t bytes) {
  set_state(slot, GONE);
  lock_take(&guard_lock);
  give_back(slot, bytes);
  pool.placed--;
  pool.live--;
  pool.refused++;
  lock_release(&guard_lock);
}

/* The bytes from here to the block are filled. */
static char *filled_from(const struct slot *slot) {
  return slot->block - min_size((size_t)(slot->block - slot->data), FILLED);
}

/* The bytes from the block's end to here are filled. */
static char *filled_to(const struct slot *slot) {
  char *end = slot->block + slot->size;
  return end + min_size((size_t)(slot->data + slot->bytes - end), FILLED);
}

static void fill(struct slot *slot, void *behind, size_t size, size_t alignment, const struct guard_call *call) {
  size_t room = slot->bytes - size;
  slot->block = draw_below(2) ? slot->data : slot->data + round_down(room, alignment);
  slot->size = size;
  STORE_RACING(slot->behind, behind);
  slot->label = call->label;
  slot->allocated_by = (uint32_t)counters_here()->thread_totals.thread_id;
  slot->depth = call->depth;
  memcpy(slot->frames, call->frames, call->depth * sizeof *call->frames);
  slot->freed_depth = 0;
  slot->ended_by_epoch = false;
  char *from = filled_from(slot), *end = slot->block + size;
  memset(from, FILL, (size_t)(slot->block - from));
  memset(end, FILL, (size_t)(filled_to(slot) - end));
}

static enum fault_answer explain(const struct fault *fault);

void *guard_place(void *behind, size_t size, size_t alignment, const struct guard_call *call) {
  size = max_size(size, 1);
  size_t bytes = alignment <= os_page_size ? round_up(size, os_page_size) : pool.slot_bytes; /* has no place */
  struct slot *slot = take(hash_of(call), bytes);
  if (!slot) return behind;
  fault_watch(explain);
  slot->data = slot_start(slot) + round_down((pool.slot_bytes - bytes) / 2, os_page_size);
  slot->bytes = bytes;
  if (!pages_may_be_present(bytes) || !allow(slot, slot->data, bytes)) {
    give_up(slot, bytes);
    return behind;
  }
  if (needs_mapping(slot)) memset(slot->data, 0, bytes); /* locked pages keep their bytes */
  pages_count_present(bytes);
  fill(slot, behind, size, alignment, call);
  set_state(slot, LIVE);
  return slot->block;
}

/* Returns true if the sample gets a guard: of all bytes one in TSLAB_GUARD does, at any interval of the samples. */
static bool is_drawn(size_t bytes, uint32_t interval) {
  uint32_t of_guards = atomic_load_explicit(&guard_interval, memory_order_relaxed);
  double share = (double)profile_weight(bytes, interval) / (double)profile_weight(bytes, of_guards);
  return (double)draw_below(UINT32_MAX) < share * UINT32_MAX;
}

/* Guards nothing for a thread without counters of its own: shared ones know of no alignment. */
NOINLINE void *guard_draw(const struct heap *heap, void *block, size_t size, size_t bytes, uint32_t interval) {
  uintptr_t frames[STACK_MOST];
  if (heap->counters == &shared_counters || !is_drawn(bytes, interval)) return block;
  const struct guard_call call = {frames, profile_stack(heap, frames), heap->arena ? heap->arena->label : 0};
  return guard_place(block, size, max_size(heap->counters->alignment, CHUNK_UNIT), &call);
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static const char *what_is(char *out, size_t capacity, const struct slot *slot) {
  const char *label = slot->label ? labels[slot->label].text : NULL;
  if (label) log_format(out, capacity, "%zu-byte guarded block of epoch \"%s\"", slot->size, label);
  else log_format(out, capacity, "%zu-byte guarded block", slot->size);
  return out;
}

static void say_stack(const char *what, uint32_t thread, const uintptr_t *frames, unsigned depth) {
  char text[400];
  stack_text(text, sizeof text, frames, (unsigned)min_size(depth, FRAMES_SHOWN));
  log_line("  %s by thread %u at %s", what, thread, depth ? text : "an unknown place");
}

static void say_stacks(const struct slot *slot) {
  say_stack("allocated", slot->allocated_by, slot->frames, slot->depth);
  if (state_of(slot) != GONE) return;
  say_stack(slot->ended_by_epoch ? "ended with its epoch" : "freed", slot->freed_by, slot->freed_frames,
            slot->freed_depth);
}

/* Returns true for the first call. */
static bool is_first(struct slot *slot) {
  return !atomic_exchange_explicit(&slot->is_open, true, memory_order_relaxed);
}

void guard_refuse(const char *call, const void *p) {
  char what[128];
  const struct slot *slot = slot_of(p);
  enum slot_state state = state_of(slot);
  size_t offset = (size_t)((const char *)p - slot->block);
  what_is(what, sizeof what, slot);
  if (state == UNUSED || state == TAKEN || offset >= slot->size) {
    log_line("%s of foreign pointer %p (between guarded blocks)", call, p);
  } else if (offset != 0) {
    log_line("%s of interior pointer %p (%zu bytes into a %s)", call, p, offset, what);
    say_stacks(slot);
  } else {
    if (slot->ended_by_epoch) log_line("%s of %p after the end of its epoch (%s)", call, p, what);
    else if (strcmp(call, "free") == 0) log_line("double free of %p (%s)", p, what);
    else log_line("%s of freed block %p (%s)", call, p, what);
    say_stacks(slot);
  }
  misuse_end();
}

/* Returns true if all bytes have this value: each is like the one before it. */
static bool are_all(uint8_t value, const char *from, const char *to) {
  return from == to || ((uint8_t)*from == value && memcmp(from, from + 1, (size_t)(to - from) - 1) == 0);
}

/* Of the bytes behind the block the first one that was written, of those before it the last one. */
static COLD void say_written(const struct slot *slot) {
  char what[128];
  const char *end = slot->block + slot->size, *last = slot->data + slot->bytes, *after = end, *before = slot->block;
  const char *from = filled_from(slot), *to = filled_to(slot);
  while (after < last && (uint8_t)*after == (after < to ? FILL : 0)) after++;
  while (before > slot->data && (uint8_t)before[-1] == (before > from ? FILL : 0)) before--;
  what_is(what, sizeof what, slot);
  if (after != last)
    log_line("overflow: a write %zu bytes past the end of %p (%s), found at its free", (size_t)(after - end),
             (void *)slot->block, what);
  else log_line("underflow: a write %zu bytes before %p (%s), found at its free", (size_t)(slot->block - before + 1),
                (void *)slot->block, what);
  say_stacks(slot);
  misuse_end();
}

static void look_at_fill(const struct slot *slot) {
  const char *from = filled_from(slot), *end = slot->block + slot->size, *to = filled_to(slot);
  bool beside = are_all(FILL, from, slot->block) && are_all(FILL, end, to);
  if (!beside || !are_all(0, slot->data, from) || !are_all(0, to, slot->data + slot->bytes)) say_written(slot);
}

/* Tells of an access to pages that nobody may touch. Runs in a handler. */
static void say_access(const struct fault *fault, const struct slot *slot) {
  char what[128];
  what_is(what, sizeof what, slot);
  const char *at = fault->address, *block = slot->block;
  if (at >= block && at < block + slot->size)
    log_line("use after %s: %s at %p, %zu bytes into %p (%s)", slot->ended_by_epoch ? "the end of its epoch" : "free",
             fault->access, (const void *)at, (size_t)(at - block), (const void *)block, what);
  else if (at < block)
    log_line("underflow: %s at %p, %zu bytes before %p (%s)", fault->access, (const void *)at, (size_t)(block - at),
             (const void *)block, what);
  else
    log_line("overflow: %s at %p, %zu bytes past the end of %p (%s)", fault->access, (const void *)at,
             (size_t)(at - block) - slot->size, (const void *)block, what);
  say_stacks(slot);
}

/* Under TSLAB_ON_MISUSE=report the program may touch all of the slot from now on, and the slot is never used again. */
static enum fault_answer explain(const struct fault *fault) {
  struct slot *slot = slot_of(fault->address);
  enum slot_state state = slot ? state_of(slot) : UNUSED;
  if (state == UNUSED || state == TAKEN) return FAULT_OF_OTHERS;
  if (state == LIVE && (size_t)(fault->address - slot->block) < slot->size) return FAULT_OF_OTHERS;
  bool is_new = is_first(slot);
  if (is_new) say_access(fault, slot);
  if (options.on_misuse != MISUSE_REPORT || !allow(slot, slot_start(slot), pool.slot_bytes)) return FAULT_TOLD;
  if (is_new) misuse_end();
  return FAULT_MENDED;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

bool guard_starts_live(const void *p) {
  const struct slot *slot = slot_of(p);
  return state_of(slot) == LIVE && slot->block == p;
}

size_t guard_size(const void *p) { return slot_of(p)->size; }

/* Returns true if the caller may end the block, which was live when it read the word. */
static bool claim(struct slot *slot, uint32_t seen) {
  return atomic_compare_exchange_strong_explicit(&slot->word, &seen, seen - LIVE + ENDING, memory_order_acq_rel,
                                                 memory_order_relaxed);
}

/* A misused block keeps its slot for good, so that a process that goes on finds its bytes there. */
static void end(struct slot *slot, const void *frame) {
  bool is_open = atomic_load_explicit(&slot->is_open, memory_order_relaxed);
  size_t bytes = slot->bytes;
  slot->freed_by = (uint32_t)counters_here()->thread_totals.thread_id;
  slot->freed_depth = stack_walk(slot->freed_frames, STACK_MOST, frame);
  bool serves_again = !is_open && forbid(slot, slot->data, bytes);
  if (serves_again) pages_count_absent(bytes);
  set_state(slot, GONE);
  lock_take(&guard_lock);
  if (serves_again) give_back(slot, bytes);
  pool.live--;
  lock_release(&guard_lock);
}

void *guard_free(void *p, const void *frame) {
  struct slot *slot = slot_of(p);
  uint32_t seen = word_of(slot);
  if (seen % STATES != LIVE || slot->block != p || !claim(slot, seen)) {
    guard_refuse("free", p);
    return NULL;
  }
  void *behind = slot->behind;
  if (!atomic_load_explicit(&slot->is_open, memory_order_relaxed)) look_at_fill(slot);
  end(slot, frame);
  return behind;
}

void guard_ends(const void *start, size_t bytes) {
  for (uint32_t i = 0; i < GUARD_SLOTS; i++) {
    struct slot *slot = &pool.slots[i];
    uint32_t seen = word_of(slot);
    if (seen % STATES != LIVE) continue;
    if ((size_t)((char *)LOAD_RACING(slot->behind) - (const char *)start) >= bytes || !claim(slot, seen)) continue;
    slot->ended_by_epoch = true;
    end(slot, __builtin_frame_address(0));
  }
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

const void *guard_look_behind(const void *p) {
  const struct slot *slot = slot_of(p);
  if (!slot) return p;
  bool is_in = state_of(slot) == LIVE && (size_t)((const char *)p - slot->block) < slot->size;
  return is_in ? slot->behind : NULL;
}

void *guard_look_in_front(void *behind) {
  for (uint32_t i = 0; i < GUARD_SLOTS; i++) {
    const struct slot *slot = &pool.slots[i];
    if (state_of(slot) == LIVE && LOAD_RACING(slot->behind) == behind) return slot->block;
  }
  return behind;
}

struct guard_totals guard_totals(void) {
  lock_take(&guard_lock);
  struct guard_totals totals = {pool.placed, pool.live, pool.refused, pool.open_bytes};
  lock_release(&guard_lock);
  return totals;
}
