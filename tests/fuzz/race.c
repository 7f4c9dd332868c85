/* race.c: epochs while all threads run at once, against the results that some order of their calls allows.
 *
 * Each thread opens epochs of its own, and allocates in all of them. Those that may be destroyed are private: nobody
 * else uses them, they have no children, and their blocks stay with the thread. Slots and piles are one thread's; any
 * other block may go to another thread, before the close of its epoch and after it.
 *
 * Always: contents, overlap, the epoch of a block, one of the errors that the header names, scopes. At the end: nothing
 * is left, and the statistics are exact. */
#include "race.h"

#include <sched.h>
#include <stdatomic.h>

enum { OWN = 8 };

static struct own {
  _Atomic tslab_epoch id;
  _Atomic bool is_private;
} own[THREADS][OWN];

static struct {
  int depth;
  tslab_epoch scopes[TSLAB_SCOPES + 1];
} threads[THREADS];

enum kind {
  MALLOC, CALLOC, ALIGNED, EPOCH_MALLOC, EPOCH_CALLOC, REALLOC, FREE, PILE_UP, PILE_OFF, SEND, RECEIVE, OPEN, ENTER,
  LEAVE, SWITCH, UNWIND, CLOSE, CLOSE_STEP, DESTROY, RESET, INFO, EACH, PURGE, YIELD, KINDS
};

static bool is_end(int error) { return error == ESHUTDOWN || error == ESTALE; }

/* Returns an epoch that the thread may use: one of its own, or another thread's that is not private. open_one marks an
 * epoch as private before it publishes the id. */
static tslab_epoch any(unsigned thread, uint8_t x) {
  const struct own *const e = &own[x / OWN % THREADS][x % OWN];
  const tslab_epoch id = atomic_load(&e->id);
  return x / OWN % THREADS != thread && atomic_load(&e->is_private) ? 0 : id;
}

/* A block knows its epoch when that is private: OWN * thread + number; else -1. */
static int private_of(unsigned thread, tslab_epoch id) {
  for (int i = 0; i < OWN; i++)
    if (id && own[thread][i].is_private && own[thread][i].id == id) return (int)thread * OWN + i;
  return -1;
}

static struct block adopt(unsigned thread, void *start, size_t size, tslab_epoch id, bool zeroed, size_t alignment) {
  if (!start) {
    CHECK(id != 0 && (errno == ENOMEM || is_end(errno)));
    return (struct block){.start = NULL};
  }
  const tslab_epoch in = tslab_epoch_of(start);
  CHECK(in == id || in == 0);
  if (zeroed) check_zero(start, size);
  return block_new(start, size, alignment, private_of(thread, in));
}

static struct block take_here(unsigned thread, enum kind how, size_t alignment, size_t size) {
  const tslab_epoch id = threads[thread].scopes[threads[thread].depth];
  void *start;
  errno = 0;
  if (how == CALLOC) start = tslab_calloc(1, size);
  else if (how == ALIGNED) start = tslab_aligned_alloc(alignment, size);
  else start = tslab_malloc(size);
  CHECK(start || errno == ENOMEM);
  return adopt(thread, start, size, id, how == CALLOC, how == ALIGNED ? alignment : 16);
}

static struct block take_in(unsigned thread, tslab_epoch id, enum kind how, size_t size) {
  errno = 0;
  void *const start = how == EPOCH_CALLOC ? tslab_epoch_calloc(id, 1, size) : tslab_epoch_malloc(id, size);
  if (start) CHECK_COUNT(tslab_epoch_of(start), ==, id);
  return adopt(thread, start, size, id, how == EPOCH_CALLOC, 16);
}

static void put(struct block *b, struct block new) {
  block_free(b, false);
  *b = new;
}

static void resize(unsigned thread, struct block *b, size_t size) {
  if (!b->start || size == 0) return;
  const tslab_epoch before = tslab_epoch_of(b->start);
  errno = 0;
  if (!block_resize(b, size, 0)) CHECK(before != 0 && errno == ENOMEM);
  const tslab_epoch after = tslab_epoch_of(b->start);
  CHECK(after == before || after == 0);
  b->epoch = private_of(thread, after);
}

static void pile_up(unsigned thread, tslab_epoch id, unsigned count, size_t size) {
  for (size_t bytes = 0; count > 0 && bytes <= PILE_BYTES; count--, bytes += size) {
    struct block *const b = pile_next(&piles[thread]);
    if (!b) return;
    *b = id ? take_in(thread, id, EPOCH_MALLOC, size) : take_here(thread, MALLOC, 16, size);
    if (b->start) continue;
    pile_take(&piles[thread], false);
    return;
  }
}

static void pile_off(unsigned thread, unsigned count, bool oldest) {
  for (struct block *b; count > 0 && (b = pile_take(&piles[thread], oldest)); count--) block_free(b, false);
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

/* The entry has no epoch that could still be open. */
static bool is_over(const struct own *e) {
  tslab_epoch_status s;
  return e->id == 0 || tslab_epoch_info(e->id, &s) == ESTALE;
}

static void open_one(unsigned thread, struct own *e, struct op op) {
  if (!is_over(e)) return;
  const tslab_epoch_options options = {
      .struct_size = sizeof options,
      .label = op.b & 4 ? "race" : NULL,
      .flags = op.b & 3,
      .budget_bytes = op.b & 8 ? 128 << 10 : 0,
      .prefault_bytes = op.b & 16 ? 64 << 10 : 0,
      .parent = op.b & 32 ? any(thread, op.a) : 0,
  };
  if (options.parent && private_of(thread, options.parent) >= 0) return;
  e->is_private = (options.flags & TSLAB_EPOCH_DESTROYABLE) != 0;
  errno = 0;
  const tslab_epoch id = tslab_epoch_open_with(&options);
  if (!id) CHECK((options.parent && (is_end(errno) || errno == EOVERFLOW)) || errno == ENOMEM);
  e->id = id;
}

/* Each block of it, before and after a call that gives all of them up or none. */
static void each_block(unsigned thread, int epoch, void (*visit)(struct block *)) {
  for (unsigned i = thread; i < SLOTS; i += THREADS)
    if (slots[i].start && slots[i].epoch == epoch) visit(&slots[i]);
  for (unsigned i = 0; i < piles[thread].count; i++) {
    struct block *const b = pile_at(&piles[thread], i);
    if (b->start && b->epoch == epoch) visit(b);
  }
}

static void give_up(struct block *b) {
  atomic_fetch_add(&blocks_gone, 1);
  b->start = NULL;
}

static void drop_gone(struct pile *pile) {
  unsigned kept = 0;
  for (unsigned i = 0; i < pile->count; i++)
    if (pile_at(pile, i)->start) *pile_at(pile, kept++) = *pile_at(pile, i);
  pile->count = kept;
}

static void destroy_or_reset(unsigned thread, struct own *e, bool resets) {
  const int number = (int)thread * OWN + (int)(e - own[thread]);
  tslab_epoch_report r;
  if (!e->is_private || e->id == 0) return;
  each_block(thread, number, block_unclaim);
  const int error = resets ? tslab_epoch_reset(e->id, &r) : tslab_epoch_destroy(e->id, &r);
  CHECK(error == 0 || error == EBUSY || is_end(error));
  CHECK(error != EBUSY || !resets);
  each_block(thread, number, error ? block_reclaim : give_up);
  drop_gone(&piles[thread]);
}

static void enter(unsigned thread, tslab_epoch id) {
  const int error = tslab_epoch_enter(id);
  CHECK(error == 0 || (id && (is_end(error) || error == ENOMEM)) || error == EOVERFLOW);
  CHECK((error == EOVERFLOW) == (threads[thread].depth == TSLAB_SCOPES));
  if (error == 0) threads[thread].scopes[++threads[thread].depth] = id;
}

static void leave(unsigned thread) {
  const tslab_epoch id = threads[thread].scopes[threads[thread].depth];
  CHECK_COUNT(tslab_epoch_leave(id), ==, (threads[thread].depth ? 0 : EINVAL));
  if (threads[thread].depth) threads[thread].depth--;
}

static void switch_to(unsigned thread, tslab_epoch id) {
  tslab_epoch *const top = &threads[thread].scopes[threads[thread].depth];
  errno = 0;
  CHECK_COUNT(tslab_epoch_switch(id), ==, *top);
  CHECK(errno == 0 || (id && (is_end(errno) || errno == ENOMEM)));
  if (errno == 0) *top = id;
}

static void close_one(tslab_epoch id, uint64_t ns) {
  tslab_epoch_report r;
  const int error = ns ? tslab_epoch_close_step(id, ns, &r) : tslab_epoch_close(id, &r);
  CHECK(error == 0 || (id == 0 && error == EPERM) || (id && is_end(error)) || (ns && error == EAGAIN));
  CHECK_COUNT(r.epoch, ==, id);
}

static void ask(tslab_epoch id) {
  tslab_epoch_status s;
  const int error = tslab_epoch_info(id, &s);
  CHECK(error == 0 || (id && error == ESTALE));
  if (error != 0) return;
  CHECK_COUNT(s.epoch, ==, id);
  CHECK_COUNT(s.threads_inside, <=, id ? THREADS : THREADS + 1); /* main is in the default epoch */
  CHECK_COUNT(s.slabs_pinned, <=, s.slabs);
}

static int visit(const tslab_epoch_status *s, void *argument) {
  (void)argument;
  CHECK(s->epoch != 0 && (s->state == TSLAB_EPOCH_OPEN || s->state == TSLAB_EPOCH_CLOSING));
  return 0;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

void race_begin(void) {
  memset(own, 0, sizeof own);
  memset(threads, 0, sizeof threads);
}

void race_step(unsigned thread, struct op op) {
  struct block *const b = &slots[op.variant % (SLOTS / THREADS) * THREADS + thread], letter;
  struct own *const mine = &own[thread][op.x % OWN];
  const tslab_epoch id = any(thread, op.x);
  const size_t size = fuzz_size(op.a, op.b), alignment = (size_t)1 << op.x % 19;
  const unsigned count = 1u << op.variant % 13;
  switch ((enum kind)(op.kind % KINDS)) {
  case MALLOC: put(b, take_here(thread, MALLOC, 16, size)); break;
  case CALLOC: put(b, take_here(thread, CALLOC, 16, size)); break;
  case ALIGNED: put(b, take_here(thread, ALIGNED, alignment, size)); break;
  case EPOCH_MALLOC: put(b, take_in(thread, id, EPOCH_MALLOC, size)); break;
  case EPOCH_CALLOC: put(b, take_in(thread, id, EPOCH_CALLOC, size)); break;
  case REALLOC: resize(thread, b, size); break;
  case FREE: block_free(b, op.a % 2); break;
  case PILE_UP: pile_up(thread, op.variant & 32 ? id : 0, count, size); break;
  case PILE_OFF: pile_off(thread, count, op.b % 2); break;
  case SEND:
    if (b->start && b->epoch < 0) mail_send(b, op.a % THREADS);
    break;
  case RECEIVE:
    if (mail_receive(thread, &letter)) block_free(&letter, false);
    break;
  case OPEN: open_one(thread, mine, op); break;
  case ENTER: enter(thread, id); break;
  case LEAVE: leave(thread); break;
  case SWITCH: switch_to(thread, id); break;
  case UNWIND:
    tslab_scope_unwind(op.a % 8);
    if (threads[thread].depth > op.a % 8) threads[thread].depth = op.a % 8;
    break;
  case CLOSE: close_one(id, 0); break;
  case CLOSE_STEP: close_one(id, (op.a + 1u) * 1000); break;
  case DESTROY: destroy_or_reset(thread, mine, false); break;
  case RESET: destroy_or_reset(thread, mine, true); break;
  case INFO: ask(id); break;
  case EACH: CHECK_COUNT(tslab_epoch_each(visit, NULL), ==, 0); break;
  case PURGE: tslab_purge(); break;
  case YIELD: case KINDS: sched_yield(); break;
  }
  CHECK_COUNT(tslab_epoch_current(), ==, threads[thread].scopes[threads[thread].depth]);
  CHECK_COUNT(tslab_scope_depth(), ==, threads[thread].depth);
}

/* The threads are gone. Some blocks go before the close of their epoch, and some after it. */
void race_end(void) {
  struct block letter;
  for (unsigned i = 0; i < SLOTS; i += 2) block_free(&slots[i], false);
  for (unsigned i = 0; i < THREADS * OWN; i++) {
    const tslab_epoch id = own[i / OWN][i % OWN].id;
    if (id == 0) continue;
    close_one(id, 0);
    while (tslab_epoch_close_step(id, UINT64_MAX, NULL) == EAGAIN) {} /* somebody began that, and did not end it */
  }
  for (unsigned i = 0; i < THREADS; i++)
    if (mail_receive(i, &letter)) block_free(&letter, false);
  for (unsigned i = 0; i < SLOTS; i++) block_free(&slots[i], false);
  for (unsigned i = 0; i < THREADS; i++) pile_off(i, PILE_MOST, i % 2);
  for (unsigned i = 0; i < THREADS * OWN; i++) CHECK(is_over(&own[i / OWN][i % OWN]));
}
