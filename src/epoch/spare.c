/* spare: see spare.h.                                                                                floor: epoch */
#include "epoch/spare.h"

#include "base/options.h"

#define SPARE_TICKS 4 /* a second */

/* Nothing that the next incarnation would inherit. */
static bool is_plain(const struct epoch *e) {
  return !e->lifetime.parent && !epoch_has_children(e) && e->lifetime.budget == SIZE_MAX && e->lifetime.ready == 0 &&
         atomic_load_explicit(&e->lifetime.spilled, memory_order_relaxed) == 0;
}

bool spare_may_keep(const struct thread *thread, const struct epoch *e) {
  return is_plain(e) && !atomic_load_explicit(&thread->spare, memory_order_relaxed) &&
         (e->lent || options.reserve_bytes >= GRANULE);
}

void spare_keep(struct thread *thread, struct epoch *e) {
  struct part *part = e->parts;
  epoch_count_allocations(e);
  if (part->bump.chunk) STORE_RACING(e->recycled_here, e->recycled_here + GRANULE);
  if (part->bump.chunk && !e->lent) {
    reserve_lend(1);
    e->lent = true;
  }
  atomic_store_explicit(&part->attached->id, ATTACHED_SPARE, memory_order_relaxed);
  e->spare_age = 0;
  atomic_store_explicit(&e->open_id, 0, memory_order_relaxed);
  atomic_store_explicit(&e->state, EPOCH_SPARE, memory_order_relaxed);
  epoch_unlock(e);
  atomic_store_explicit(&thread->spare, e, memory_order_release); /* pairs with take */
}

static struct epoch *take(struct thread *thread) {
  if (!atomic_load_explicit(&thread->spare, memory_order_relaxed)) return NULL;
  return atomic_exchange_explicit(&thread->spare, NULL, memory_order_acquire);
}

uint64_t spare_open(struct thread *thread, const char *label, uint32_t flags) {
  struct epoch *e = take(thread);
  if (!e) return 0;
  struct attached *a = e->parts->attached;
  e->parts->bump.off = false;
  epoch_begin(e, label, flags);
  uint64_t id = epoch_id(e);
  atomic_store_explicit(&a->id, id, memory_order_relaxed);
  thread->recent = a;
  return id;
}

static void end(struct epoch *e) {
  epoch_lock(e);
  struct part *part = e->parts;
  struct attached *a = part->attached;
  atomic_store_explicit(&e->lifetime.closing, true, memory_order_relaxed);
  atomic_store_explicit(&e->lifetime.late, true, memory_order_relaxed);
  scope_detach(e, part);
  atomic_store_explicit(&a->id, 0, memory_order_release); /* pairs with its thread's look for an unused entry */
  epoch_end(e);
}

void spare_give_up(struct thread *thread) {
  struct epoch *e = take(thread);
  if (e) end(e);
}

static void age(struct thread *thread, bool now) {
  struct epoch *e = take(thread), *none = NULL;
  if (!e) return;
  if (now || ++e->spare_age > SPARE_TICKS ||
      !atomic_compare_exchange_strong_explicit(&thread->spare, &none, e, memory_order_release, memory_order_relaxed))
    end(e);
}

void spares_age(bool now) {
  for (struct thread *t = atomic_load_explicit(&all_threads, memory_order_acquire); t; t = t->next) age(t, now);
}
