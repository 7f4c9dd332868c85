/* spare: see spare.h.                                                                                floor: epoch */
#include "epoch/spare.h"

#include "epoch/ending.h"
#include "heap/chunk_cache.h"
#include "os/os.h"

#define SPARE_TICKS 4 /* a second */

bool spare_is_plain(const struct epoch *e) {
  return !e->lifetime.parent && !epoch_has_children(e) && e->lifetime.budget == SIZE_MAX;
}

/* Of what it took, nothing is elsewhere. */
static bool is_whole(const struct epoch *e) {
  return e->lifetime.ready == 0 && atomic_load_explicit(&e->lifetime.spilled, memory_order_relaxed) == 0;
}

/* Bytes of the slabs, up to pages, that were ever handed out. */
static size_t touched_bytes(struct epoch *e) {
  size_t bytes = 0;
  struct lifetime_walk walk;
  for (struct run *run = lifetime_walk(&walk, &e->lifetime); run; run = lifetime_walk_on(&walk, 1)) {
    uint64_t word = atomic_load_explicit(&run->word, memory_order_relaxed);
    bytes += round_up(slab_linked(word) * class_size(run->class), os_page_size);
  }
  return bytes;
}

/* Whether the thread claims the spare's granules already: then nothing that others read changes. */
static bool is_claimed(const struct thread *thread, const struct epoch *e) {
  return chunk_cache_has_claimed(thread->home, e->lifetime.index, e->kept_granules);
}

/* Slabs that are new may lie in granules of the reserve, which are resident as a whole: what they did not hand out goes
 * back. */
static NOINLINE bool claim_slabs(const struct thread *thread, struct epoch *e, struct part *part) {
  size_t granules = round_up(max_size(touched_bytes(e), 1), GRANULE) / GRANULE;
  if (!chunk_cache_claim_spare(thread->home, e->lifetime.index, granules)) return false;
  if (atomic_load_explicit(&part->slab_granules, memory_order_relaxed) > e->slab_granules) {
    heap_trim(part, true);
    lifetime_return_spilled(&e->lifetime, SIZE_MAX);
  }
  STORE_RACING(e->kept_granules, (uint16_t)granules);
  e->kept_at = (uint32_t)part->visits;
  e->slab_granules = (uint16_t)min_size(atomic_load_explicit(&part->slab_granules, memory_order_relaxed), UINT16_MAX);
  return true;
}
_Static_assert(((size_t)1024 * MiB) / GRANULE <= UINT16_MAX, "what TSLAB_RESERVE allows, in granules, can be stored");

/* One chunk, or nothing. */
static void claim_chunk(const struct thread *thread, struct epoch *e, unsigned granules) {
  STORE_RACING(e->kept_granules, (uint16_t)granules);
  e->slab_granules = 0;
  if (granules != 0 && UNLIKELY(!is_claimed(thread, e)))
    chunk_cache_claim_spare(thread->home, e->lifetime.index, granules);
}

void spare_drop_claim(struct epoch *e, struct part *plain) {
  STORE_RACING(e->kept_granules, 0);
  chunk_cache_drop_spare(plain, e->lifetime.index);
}

bool spare_may_keep(const struct thread *thread, struct epoch *e) {
  if (!spare_is_plain(e) || !is_whole(e) || atomic_load_explicit(&thread->spare, memory_order_relaxed)) return false;
  struct part *part = e->parts;
  if (part_has_slabs(part)) {
    /* Only slow paths touch more memory than was counted. */
    bool is_counted = e->kept_granules && e->kept_at == (uint32_t)part->visits && is_claimed(thread, e);
    return e->lifetime.by_slabs && (LIKELY(is_counted) || claim_slabs(thread, e, part));
  }
  return e->kept_granules || reserve_most() != 0;
}

/* Into the reserve, where there is room. */
static void drop_chunk(struct epoch *e, struct part *part) {
  bump_leave(part, false);
  lifetime_return_spilled(&e->lifetime, SIZE_MAX);
}

void spare_keep(struct thread *thread, struct epoch *e, uint64_t handed_out) {
  struct part *part = e->parts;
  epoch_count_allocations(e, part, handed_out);
  STORE_RACING(e->recycled_here,
               e->recycled_here + atomic_load_explicit(&e->lifetime.own, memory_order_relaxed));
  part->bump.off = spare_learned(e); /* now: once it is open, others may be looking */
  unsigned chunks = part->bump.chunk && !part->bump.off;
  if (!part_has_slabs(part)) claim_chunk(thread, e, chunks);
  if (UNLIKELY(part->bump.chunk && part->bump.off)) drop_chunk(e, part);
  atomic_store_explicit(&e->open_id, 0, memory_order_relaxed);
  atomic_store_explicit(&e->state, EPOCH_SPARE, memory_order_relaxed);
  epoch_unlock(e); /* whoever takes it from another thread locks it */
  atomic_store_explicit(&thread->spare, e, memory_order_relaxed);
}

static struct epoch *take(struct thread *thread) {
  if (!atomic_load_explicit(&thread->spare, memory_order_relaxed)) return NULL;
  return atomic_exchange_explicit(&thread->spare, NULL, memory_order_acquire);
}

uint64_t spare_open(struct thread *thread, const char *label, uint32_t flags) {
  struct epoch *e = take(thread);
  if (!e) return 0;
  epoch_begin(e, label, flags);
  return epoch_id(e);
}

/* As a close does it, so that what misuse left alive in its slabs stays. */
static void end(struct epoch *e, bool lists_are_lost, enum lateness late) {
  struct lock *gate = epoch_take(e);
  struct part *part = e->parts;
  atomic_store_explicit(&e->lifetime.closing, true, memory_order_relaxed);
  atomic_store_explicit(&e->lifetime.late, late, memory_order_relaxed);
  if (lists_are_lost && part_has_slabs(part)) {
    heap_abandon(part, true);
    ending_take_apart(e, NULL);
  }
  spare_drop_claim(e, part->plain);
  heap_close(part, UINT64_MAX);
  lifetime_return_spilled(&e->lifetime, SIZE_MAX);
  scope_detach(e, part);
  atomic_store_explicit(&e->state, EPOCH_CLOSING, memory_order_seq_cst);
  ending_finish_if_done(e, gate);
}

void spare_give_up(struct thread *thread, bool lists_are_lost) {
  struct epoch *e = take(thread);
  if (e) end(e, lists_are_lost, LIFETIME_LATE);
}

static void give_up_unused(struct thread *thread) {
  struct epoch *e = take(thread);
  if (e) end(e, false, LIFETIME_UNUSED);
}

/* One that was not used since the last look has the same id. */
static void age(struct thread *thread, bool now) {
  const struct epoch *e = atomic_load_explicit(&thread->spare, memory_order_relaxed);
  uint64_t id = e ? epoch_id(e) : 0;
  if (!now && (id == 0 || id != thread->spare_seen)) {
    thread->spare_seen = id;
    thread->spare_age = 0;
  } else if (now || ++thread->spare_age == SPARE_TICKS) {
    give_up_unused(thread);
  }
}

void spares_age(bool now) {
  for (struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) age(t, now);
}

/* ---- what all threads keep --------------------------------------------------------------------------------------- */

void spare_settle_claim(struct part *plain) {
  uint32_t index = LOAD_RACING(plain->store->chunks.spare_of);
  if (index == 0) return;
  struct epoch *e = epoch_at(index);
  epoch_lock(e);
  uint64_t id = epoch_id(e);
  bool is_kept = epoch_state(e) == EPOCH_SPARE && e->parts && e->parts->plain == plain;
  if (is_kept) plain->store->chunks.spare_seen = 0;
  else if (id == plain->store->chunks.spare_seen) chunk_cache_drop_spare(plain, index);
  else plain->store->chunks.spare_seen = id;
  epoch_unlock(e);
}

size_t spares_reserve_bytes(void) {
  size_t granules = 0, most = reserve_bytes();
  for (const struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part)
    granules += LOAD_RACING(p->store->chunks.count);
  for (const struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) {
    const struct epoch *e = atomic_load_explicit(&t->spare, memory_order_relaxed);
    if (e) granules += LOAD_RACING(e->kept_granules);
  }
  return min_size(reserve_ready_bytes() + granules * GRANULE, most);
}
