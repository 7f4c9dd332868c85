/* epochs.c: epochs, scopes and handles by four threads against a model that knows what every call must return.
 *
 * The model follows include/tslab/tslab.h: an epoch is open, closing or ended; closing until its last block is freed,
 * its last child has ended and the last thread has left. Epochs are numbered by the model; 0 is plain malloc's. */
#include "race.h"

#include <stdatomic.h>

enum { EPOCHS = 72, FEW = 8, HANDLES = 16 };
#define NEVER_ISSUED UINT64_C(0xFFFFFFFFFFFFFFF0)

enum state { ENDED, OPEN, CLOSING };

static struct epoch {
  tslab_epoch id; /* of the last one that had this number; 0: there was none */
  enum state state;
  int parent;
  uint32_t flags;
  uint64_t budget, era, allocations, diverted, refused, blocks, bytes;
  unsigned inside[THREADS]; /* scopes */
  bool left;                /* AUTO_CLOSE: a scope has ended */
  bool stepping;
  char label[TSLAB_EPOCH_LABEL];
} epochs[EPOCHS] = {[0] = {.state = OPEN}};

static struct {
  int depth, scopes[TSLAB_SCOPES + 1];
  tslab_epoch advanced;
} threads[THREADS];

static struct {
  tslab_handle handle;
  struct block block; /* start NULL: the handle has ended */
} handles[HANDLES];

enum kind {
  MALLOC, CALLOC, ALIGNED, EPOCH_MALLOC, EPOCH_CALLOC, EPOCH_ALIGNED, REALLOC, FREE, FREE_SIZED, PILE_UP, PILE_UP_IN,
  PILE_OFF, OPEN_ONE, ENTER, LEAVE, LEAVE_ANY, SWITCH, UNWIND, CLOSE, CLOSE_STEP, DESTROY, RESET, ADVANCE, INFO, EACH,
  HANDLE_ALLOC, HANDLE_GET, HANDLE_FREE, CHAIN, UNKNOWN, PURGE, STATISTICS, EXIT, KINDS
};

static bool exits(struct op op) { return !fuzz_racing && op.kind % KINDS == EXIT; }

/* ---- what the model derives -------------------------------------------------------------------------------------- */

static unsigned inside(const struct epoch *e) {
  unsigned count = 0;
  for (unsigned i = 0; i < THREADS; i++) count += e->inside[i] != 0;
  return count;
}

static bool others_inside(const struct epoch *e, unsigned self) {
  return inside(e) > (e->inside[self] != 0);
}

static bool is_child(int i, int parent) { return epochs[i].state != ENDED && epochs[i].parent == parent; }

static bool has_children(int parent) {
  for (int i = 1; i < EPOCHS; i++)
    if (is_child(i, parent)) return true;
  return false;
}

static int error_of(int e) { return epochs[e].state == OPEN ? 0 : epochs[e].state == CLOSING ? ESHUTDOWN : ESTALE; }

static bool is_limited(int e) {
  for (; e; e = epochs[e].parent)
    if (epochs[e].budget) return true;
  return false;
}

static int ancestors(int e) {
  int count = 0;
  for (; epochs[e].parent; e = epochs[e].parent) count++;
  return count;
}

static int top(unsigned thread) { return threads[thread].scopes[threads[thread].depth]; }

/* ---- what calls do to the model ---------------------------------------------------------------------------------- */

static void end_if_done(int e) {
  struct epoch *const epoch = &epochs[e];
  if (e == 0 || epoch->state != CLOSING || epoch->stepping || epoch->blocks || inside(epoch) || has_children(e)) return;
  epoch->state = ENDED;
  end_if_done(epoch->parent);
}

static void close_model(int e) {
  epochs[e].state = CLOSING;
  for (int i = 1; i < EPOCHS; i++)
    if (is_child(i, e) && epochs[i].state == OPEN) close_model(i);
  end_if_done(e);
}

static void left(unsigned thread, int e) {
  struct epoch *const epoch = &epochs[e];
  if (e == 0) return;
  if (epoch->flags & TSLAB_EPOCH_AUTO_CLOSE) epoch->left = true;
  if (--epoch->inside[thread] != 0) return;
  if (epoch->state == CLOSING) end_if_done(e);
  else if (epoch->left && inside(epoch) == 0) close_model(e);
}

static void count_block(const struct block *b) {
  epochs[b->epoch].blocks++;
  epochs[b->epoch].bytes += b->usable;
}

static void uncount_block(const struct block *b) {
  epochs[b->epoch].blocks--;
  epochs[b->epoch].bytes -= b->usable;
}

static void lose(struct block *b, int e) {
  if (!b->start || b->epoch != e) return;
  uncount_block(b);
  block_lose(b);
}

static void lose_all(int e) {
  for (unsigned i = 0; i < SLOTS; i++) lose(&slots[i], e);
  for (unsigned i = 0; i < HANDLES; i++) lose(&handles[i].block, e);
  for (unsigned i = 0; i < PILES && epochs[e].blocks; i++) {
    struct pile *const pile = &piles[i];
    unsigned kept = 0;
    for (unsigned j = 0; j < pile->count; j++) {
      struct block *const b = pile_at(pile, j);
      lose(b, e);
      if (b->start) *pile_at(pile, kept++) = *b;
    }
    pile->count = kept;
  }
  CHECK(epochs[e].blocks == 0 && epochs[e].bytes == 0);
}

static void destroy_model(int e) {
  for (int i = 1; i < EPOCHS; i++)
    if (is_child(i, e) && epochs[i].state == OPEN) destroy_model(i);
  lose_all(e);
  epochs[e].state = CLOSING;
  end_if_done(e);
}

static void reset_model(int e) {
  for (int i = 1; i < EPOCHS; i++)
    if (is_child(i, e) && epochs[i].state == OPEN) reset_model(i);
  lose_all(e);
  epochs[e].era++;
}

/* ---- what is asked ----------------------------------------------------------------------------------------------- */

static void audit(int e) {
  const struct epoch *const epoch = &epochs[e];
  tslab_epoch_status s;
  const int error = tslab_epoch_info(epoch->id, &s);
  if (e != 0 && epoch->state == ENDED) {
    CHECK_COUNT(error, ==, epoch->id ? ESTALE : 0);
    return;
  }
  CHECK_COUNT(error, ==, 0);
  CHECK_COUNT(s.epoch, ==, epoch->id);
  CHECK_COUNT(s.live_blocks, ==, epoch->blocks);
  CHECK_COUNT(s.live_bytes, ==, epoch->bytes);
  if (e == 0) return;
  CHECK_COUNT(s.state, ==, (epoch->state == OPEN ? TSLAB_EPOCH_OPEN : TSLAB_EPOCH_CLOSING));
  CHECK_COUNT(s.era, ==, epoch->era);
  CHECK_COUNT(s.flags, ==, epoch->flags);
  CHECK_COUNT(s.budget_bytes, ==, epoch->budget);
  CHECK_COUNT(s.threads_inside, ==, inside(epoch));
  CHECK_COUNT(s.parent, ==, epochs[epoch->parent].id);
  CHECK_COUNT(s.allocations, ==, epoch->allocations);
  CHECK_COUNT(s.diverted, ==, epoch->diverted);
  CHECK_COUNT(s.refused, >=, epoch->refused);
  CHECK_COUNT((s.slabs_pinned > 0), ==, (epoch->blocks > 0));
  CHECK_COUNT(s.slabs_pinned, <=, s.slabs);
  CHECK_COUNT(s.committed_bytes, >=, s.live_bytes);
  CHECK_COUNT(s.charged_bytes, >=, s.committed_bytes);
  if (epoch->budget) CHECK_COUNT(s.charged_bytes, <=, epoch->budget);
  CHECK(strcmp(s.label, epoch->label) == 0);
  for (unsigned i = 0; i < sizeof s.reserved / sizeof *s.reserved; i++) CHECK(s.reserved[i] == 0);
}

static int visit(const tslab_epoch_status *s, void *argument) {
  unsigned *const left_to_see = argument;
  int e = 1;
  while (e < EPOCHS && (epochs[e].state == ENDED || epochs[e].id != s->epoch)) e++;
  CHECK(e < EPOCHS);
  audit(e);
  return --*left_to_see == 0 ? 42 : 0;
}

static void visit_all(void) {
  unsigned open = 0, closing = 0, seen;
  for (int i = 1; i < EPOCHS; i++) open += epochs[i].state == OPEN, closing += epochs[i].state == CLOSING;
  seen = open + closing;
  CHECK_COUNT(tslab_epoch_each(visit, &seen), ==, (open + closing ? 42 : 0));
  seen = open + closing + 1;
  CHECK_COUNT(tslab_epoch_each(visit, &seen), ==, 0);
  CHECK_COUNT(seen, ==, 1);
  tslab_stats_global all;
  CHECK_COUNT(tslab_stats(&all, sizeof all), ==, 0);
  CHECK_COUNT(all.epochs_open, ==, open);
  CHECK_COUNT(all.epochs_closing, ==, closing);
}

static void check_labels(void) {
  tslab_label_stats row;
  uint64_t open = 0, blocks = 0, bytes = 0;
  for (unsigned i = 0; tslab_stats_label(i, &row, sizeof row) == 0; i++) {
    CHECK_COUNT(row.opened, ==, row.ended + row.open);
    CHECK_COUNT(row.allocations, >=, row.live_blocks);
    open += row.open;
    blocks += row.live_blocks;
    bytes += row.live_bytes;
  }
  for (int i = 1; i < EPOCHS; i++)
    if (epochs[i].state != ENDED) open--, blocks -= epochs[i].blocks, bytes -= epochs[i].bytes;
  CHECK(open == 0 && blocks == 0 && bytes == 0);
}

static void check_report(const tslab_epoch_report *r, tslab_epoch id, unsigned threads_inside, uint64_t blocks,
                         uint64_t bytes, bool exact) {
  CHECK_COUNT(r->epoch, ==, id);
  CHECK_COUNT(r->threads_inside, ==, threads_inside);
  if (exact) CHECK_COUNT(r->live_blocks, ==, blocks);
  if (exact) CHECK_COUNT(r->live_bytes, ==, bytes);
  CHECK_COUNT(r->live_blocks, >=, blocks);
  CHECK_COUNT(r->live_bytes, >=, bytes);
  if (exact) CHECK_COUNT((r->slabs_pinned > 0), ==, (blocks > 0));
  CHECK(r->rss_before == 0 && r->rss_after == 0);
  for (unsigned i = 0; i < sizeof r->reserved / sizeof *r->reserved; i++) CHECK(r->reserved[i] == 0);
}

static void check_nothing_done(const tslab_epoch_report *r, tslab_epoch id) {
  const tslab_epoch_report nothing = {.epoch = id};
  CHECK(memcmp(r, &nothing, sizeof nothing) == 0);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void release(struct block *b, bool sized) {
  if (!b->start) return;
  uncount_block(b);
  block_free(b, sized);
  end_if_done(b->epoch);
}

/* The model's number of the epoch that a new block is in, one of the two. */
static int epoch_of(const void *start, int expected, int other) {
  const tslab_epoch id = tslab_epoch_of(start);
  if (id == epochs[other].id) return other;
  CHECK_COUNT(id, ==, epochs[expected].id);
  return expected;
}

/* NULL only where a budget is in the way. */
static bool was_refused(const void *start, int e) {
  if (start) return false;
  CHECK_COUNT(errno, ==, ENOMEM);
  CHECK(is_limited(e));
  epochs[e].refused++;
  return true;
}

static struct block adopt(void *start, size_t size, size_t alignment, int e) {
  const struct block b = block_new(start, size, alignment, e);
  epochs[e].allocations++;
  count_block(&b);
  return b;
}

enum how { PLAINLY, ZEROED, ALIGNED_TO };

/* By this thread's malloc family. In a closing epoch it goes to epoch 0, at the latest when the list is empty that the
 * thread had there when another one closed it. */
static struct block take_here(unsigned thread, enum how how, size_t alignment, size_t size) {
  const int e = top(thread);
  void *start;
  errno = 0;
  switch (how) {
  case PLAINLY: start = tslab_malloc(size); break;
  case ZEROED: start = tslab_calloc(size, 1); break;
  default: start = tslab_aligned_alloc(alignment, size); break;
  }
  if (epochs[e].state == OPEN && was_refused(start, e)) return (struct block){.start = NULL};
  CHECK(start);
  if (how == ZEROED) check_zero(start, size);
  const int in = epochs[e].state == OPEN ? epoch_of(start, e, e) : epoch_of(start, 0, e);
  if (in != e) epochs[e].diverted++;
  return adopt(start, size, alignment, in);
}

static struct block take_in(int e, enum how how, size_t alignment, size_t size) {
  void *start;
  errno = 0;
  switch (how) {
  case PLAINLY: start = tslab_epoch_malloc(epochs[e].id, size); break;
  case ZEROED: start = tslab_epoch_calloc(epochs[e].id, size, 1); break;
  default: start = tslab_epoch_aligned_alloc(epochs[e].id, alignment, size); break;
  }
  if (epochs[e].state != OPEN) {
    CHECK(!start);
    CHECK_COUNT(errno, ==, error_of(e));
    return (struct block){.start = NULL};
  }
  if (was_refused(start, e)) return (struct block){.start = NULL};
  if (how == ZEROED) check_zero(start, size);
  return adopt(start, size, alignment, epoch_of(start, e, e));
}

static void resize(struct block *b, size_t size) {
  if (!b->start) return;
  const int e = b->epoch;
  void *const before = b->start;
  if (size == 0) {
    uncount_block(b);
    block_forget(b);
    CHECK(tslab_realloc(before, 0) == NULL);
    end_if_done(e);
    return;
  }
  errno = 0;
  uncount_block(b);
  const bool served = block_resize(b, size, 0);
  if (!served) was_refused(NULL, e);
  b->epoch = b->start == before || epochs[e].state == OPEN ? e : 0; /* a block that must move leaves a closing epoch */
  CHECK_COUNT(tslab_epoch_of(b->start), ==, epochs[b->epoch].id);
  if (b->start != before) epochs[b->epoch].allocations++;
  count_block(b);
  end_if_done(e);
}

static void pile_up(struct pile *pile, unsigned thread, int e, bool by_id, unsigned count, size_t size) {
  for (size_t bytes = 0; count > 0 && bytes <= PILE_BYTES; count--, bytes += size) {
    struct block *const b = pile_next(pile);
    if (!b) return;
    *b = by_id ? take_in(e, PLAINLY, 16, size) : take_here(thread, PLAINLY, 16, size);
    if (b->start) continue;
    pile_take(pile, false);
    return;
  }
}

static void pile_off(struct pile *pile, unsigned count, bool oldest) {
  for (struct block *b; count > 0 && (b = pile_take(pile, oldest)); count--) release(b, false);
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

static const char *const labels[] = {"", "request", "frame", NULL,
                                     "a label that is longer than what an epoch keeps of it, which is 63 bytes"};

static void note_open(int e, tslab_epoch id, const tslab_epoch_options *options, int parent) {
  CHECK(id != 0);
  for (int i = 1; i < EPOCHS; i++) CHECK(epochs[i].id != id); /* never used again */
  epochs[e] = (struct epoch){.id = id, .state = OPEN, .parent = parent, .flags = options->flags};
  epochs[e].budget = options->budget_bytes == UINT64_MAX ? 0 : options->budget_bytes;
  if (options->label) strncpy(epochs[e].label, options->label, TSLAB_EPOCH_LABEL - 1);
}

static void open_one(int e, int parent, uint8_t a, uint8_t b) {
  static const uint64_t budgets[] = {0, 0, 0, 0, 64 << 10, 192 << 10, 1 << 20, 65535, UINT64_MAX, UINT64_MAX - 1};
  static const uint64_t prefaults[] = {0, 0, 0, 0, 1, 64 << 10, 200 << 10};
  tslab_epoch_options options = {
      .struct_size = sizeof options,
      .label = labels[b % 5],
      .budget_bytes = budgets[a % 10],
      .prefault_bytes = prefaults[a / 10 % 7],
      .flags = b / 5 % 5, /* 4 is not known */
      .parent = epochs[parent].id,
  };
  if (e == 0 || epochs[e].state != ENDED) return;
  int expected = parent ? error_of(parent) : 0;
  if (expected == 0 && parent && ancestors(parent) >= 64) expected = EOVERFLOW;
  if (options.flags > 3 || (options.budget_bytes && options.budget_bytes < 65536)) expected = EINVAL;
  if (b == 255) options.struct_size--, expected = EINVAL;
  const uint64_t ready = (options.prefault_bytes + 65535) / 65536 * 65536;
  bool may_fail = ready && is_limited(parent);
  if (expected == 0 && options.budget_bytes && options.budget_bytes < ready) expected = ENOMEM;
  errno = 0;
  const tslab_epoch id = tslab_epoch_open_with(&options);
  if (id == 0) {
    if (expected || !may_fail) CHECK_COUNT(errno, ==, expected);
    CHECK(errno == ENOMEM || !may_fail || expected);
    CHECK(expected || may_fail);
    return;
  }
  CHECK_COUNT(expected, ==, 0);
  note_open(e, id, &options, parent);
}

/* Each the child of the one before. */
static void open_chain(int e, unsigned count) {
  for (int i = 1; i < EPOCHS && count > 0; i++) {
    if (i == e || epochs[i].state != ENDED) continue;
    open_one(i, e, 0, 10); /* destroyable */
    if (epochs[i].state == ENDED) return;
    e = i;
    count--;
  }
}

static void enter(unsigned thread, int e) {
  const int expected = threads[thread].depth == TSLAB_SCOPES ? EOVERFLOW : error_of(e);
  CHECK_COUNT(tslab_epoch_enter(epochs[e].id), ==, expected);
  if (expected) return;
  threads[thread].scopes[++threads[thread].depth] = e;
  epochs[e].inside[thread]++;
}

static void leave(unsigned thread, int e) {
  const bool matches = threads[thread].depth > 0 && epochs[e].id == epochs[top(thread)].id;
  CHECK_COUNT(tslab_epoch_leave(epochs[e].id), ==, (matches ? 0 : EINVAL));
  if (!matches) return;
  e = top(thread);
  threads[thread].depth--;
  left(thread, e);
}

static void switch_to(unsigned thread, int e) {
  const int before = top(thread), expected = error_of(e);
  errno = 77;
  CHECK_COUNT(tslab_epoch_switch(epochs[e].id), ==, epochs[before].id);
  CHECK_COUNT(errno, ==, (expected ? expected : 77));
  if (expected) return;
  epochs[e].inside[thread]++;
  threads[thread].scopes[threads[thread].depth] = e;
  left(thread, before);
}

static void unwind(unsigned thread, int depth) {
  tslab_scope_unwind(depth);
  while (depth >= 0 && threads[thread].depth > depth) {
    const int e = top(thread);
    threads[thread].depth--;
    left(thread, e);
  }
}

static void close_one(unsigned thread, int e, bool reports) {
  tslab_epoch_report r;
  memset(&r, 0xEE, sizeof r);
  const int expected = e == 0 ? EPERM : error_of(e), rc = tslab_epoch_close(epochs[e].id, reports ? &r : NULL);
  CHECK_COUNT(rc, ==, expected);
  if (reports) {
    if (expected != 0 && expected != ESHUTDOWN) check_nothing_done(&r, epochs[e].id);
    else check_report(&r, epochs[e].id, inside(&epochs[e]), epochs[e].blocks, epochs[e].bytes,
                      !others_inside(&epochs[e], thread));
  }
  if (expected == 0) close_model(e);
}

static void close_by_steps(int e, uint64_t ns, bool reports) {
  tslab_epoch_report r;
  const int rc = tslab_epoch_close_step(epochs[e].id, ns, reports ? &r : NULL);
  int expected = e == 0 ? EPERM : epochs[e].state == CLOSING && epochs[e].stepping ? 0 : error_of(e);
  if (expected == 0 && ns < UINT64_MAX / 2 && rc == EAGAIN) expected = EAGAIN;
  CHECK_COUNT(rc, ==, expected);
  if (reports) CHECK_COUNT(r.epoch, ==, epochs[e].id);
  if (rc != 0 && rc != EAGAIN) return;
  epochs[e].stepping = true;
  close_model(e);
  epochs[e].stepping = rc == EAGAIN;
  end_if_done(e);
}

/* Finds the reasons for which a destroy or a reset of the tree at e fails. With both, EPERM and EBUSY are right. */
static void look_below(int e, unsigned thread, bool resets, bool *busy, bool *forbidden) {
  const struct epoch *const epoch = &epochs[e];
  *busy |= resets ? others_inside(epoch, thread) : inside(epoch) != 0;
  *forbidden |= !(epoch->flags & TSLAB_EPOCH_DESTROYABLE);
  for (int i = 1; i < EPOCHS; i++)
    if (is_child(i, e)) look_below(i, thread, resets, busy, forbidden);
}

static void destroy_or_reset(unsigned thread, int e, bool resets, bool reports) {
  tslab_epoch_report r;
  memset(&r, 0xEE, sizeof r);
  tslab_epoch_report *const out = reports ? &r : NULL;
  const int rc = resets ? tslab_epoch_reset(epochs[e].id, out) : tslab_epoch_destroy(epochs[e].id, out);
  bool busy = false, forbidden = false;
  if (e == 0 || error_of(e)) {
    CHECK_COUNT(rc, ==, (e == 0 ? EPERM : error_of(e)));
  } else {
    look_below(e, thread, resets, &busy, &forbidden);
    CHECK(rc == 0 ? !busy && !forbidden : (rc == EBUSY && busy) || (rc == EPERM && forbidden));
    CHECK(rc == EPERM || (epochs[e].flags & TSLAB_EPOCH_DESTROYABLE));
  }
  if (rc != 0 && reports) check_nothing_done(&r, epochs[e].id);
  if (rc != 0) return;
  if (reports) check_report(&r, epochs[e].id, inside(&epochs[e]), epochs[e].blocks, epochs[e].bytes, true);
  if (resets) reset_model(e);
  else destroy_model(e);
}

static void advance(unsigned thread, int e, const char *label, bool reports) {
  tslab_epoch_report r;
  int last = 1;
  if (e == 0 || epochs[e].state != ENDED) return;
  while (last < EPOCHS && (epochs[last].id != threads[thread].advanced || epochs[last].state == ENDED)) last++;
  memset(&r, 0xEE, sizeof r);
  errno = 0;
  const tslab_epoch id = tslab_epoch_advance(label, reports ? &r : NULL);
  const int error = errno;
  if (last < EPOCHS) {
    if (threads[thread].depth > 0 && top(thread) == last) {
      threads[thread].depth--;
      left(thread, last);
    }
    /* Closed before, it may have ended when this thread left it: then there is nothing to report. */
    if (reports) CHECK_COUNT(r.epoch, ==, (epochs[last].state == ENDED ? 0 : epochs[last].id));
    if (epochs[last].state == OPEN) close_model(last);
  }
  threads[thread].advanced = id;
  if (id == 0) {
    CHECK_COUNT(error, ==, EOVERFLOW);
    CHECK_COUNT(threads[thread].depth, ==, TSLAB_SCOPES);
    return;
  }
  note_open(e, id, &(tslab_epoch_options){.label = label}, 0);
  threads[thread].scopes[++threads[thread].depth] = e;
  epochs[e].inside[thread]++;
}

/* Ids and handles that never were, at every call that takes one. */
static void use_unknown(unsigned thread, struct op op) {
  const tslab_epoch ids[] = {NEVER_ISSUED, op.x, (uint64_t)op.a << 24 | op.x, UINT64_MAX, (uint64_t)1 << 24};
  const tslab_epoch id = ids[op.b % 5], current = tslab_epoch_current();
  tslab_epoch_status s;
  for (int i = 0; i < EPOCHS; i++)
    if (epochs[i].id == id) return;
  if (tslab_epoch_info(id, &s) != ESTALE) CHECK(!"an id that was never given out is stale");
  CHECK_COUNT(tslab_epoch_info(id, NULL), ==, EINVAL);
  CHECK_COUNT(tslab_epoch_enter(id), ==, (threads[thread].depth == TSLAB_SCOPES ? EOVERFLOW : ESTALE));
  CHECK_COUNT(tslab_epoch_leave(id), ==, EINVAL);
  errno = 0;
  CHECK(tslab_epoch_switch(id) == current && errno == ESTALE);
  errno = 0;
  CHECK(tslab_epoch_malloc(id, 10) == NULL && errno == ESTALE);
  errno = 0;
  CHECK(tslab_epoch_aligned_alloc(id, 24, 10) == NULL && errno == EINVAL);
  CHECK_COUNT(tslab_epoch_close(id, NULL), ==, ESTALE);
  CHECK_COUNT(tslab_epoch_close_step(id, 1000, NULL), ==, ESTALE);
  CHECK_COUNT(tslab_epoch_destroy(id, NULL), ==, ESTALE);
  CHECK_COUNT(tslab_epoch_reset(id, NULL), ==, ESTALE);
  CHECK(tslab_handle_get(id) == NULL && !tslab_handle_free(id));
  CHECK(tslab_epoch_of(&s) == 0 && tslab_epoch_of((void *)(uintptr_t)id) == 0);
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static void handle_alloc(int e, unsigned h, size_t size) {
  void *start = &start;
  if (handles[h].block.start) return;
  errno = 0;
  const tslab_handle handle = tslab_handle_alloc(epochs[e].id, size, &start);
  CHECK((handle == 0) == (start == NULL));
  if (epochs[e].state != OPEN) {
    CHECK(handle == 0);
    CHECK_COUNT(errno, ==, error_of(e));
    return;
  }
  if (was_refused(start, e)) return;
  for (unsigned i = 0; i < HANDLES; i++) CHECK(handles[i].handle != handle);
  handles[h].handle = handle;
  handles[h].block = adopt(start, size, 16, epoch_of(start, e, e));
}

static void handle_get(unsigned h) { CHECK(tslab_handle_get(handles[h].handle) == handles[h].block.start); }

static void handle_free(unsigned h) {
  struct block *const b = &handles[h].block;
  const bool lives = b->start;
  if (lives) {
    uncount_block(b);
    block_forget(b);
  }
  CHECK(tslab_handle_free(handles[h].handle) == lives);
  CHECK(!tslab_handle_free(handles[h].handle));
  CHECK(tslab_handle_get(handles[h].handle) == NULL);
  if (lives) end_if_done(b->epoch);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static void put(struct block *b, struct block new) {
  release(b, false);
  *b = new;
}

/* A number without an epoch has the id 0. */
static int known(int e) { return epochs[e].id ? e : 0; }

static void do_one(unsigned thread, struct op op, int number) {
  static const uint64_t steps[] = {0, 1000, 20000, UINT64_MAX / 2, UINT64_MAX};
  struct block *const b = &slots[op.variant];
  struct pile *const pile = &piles[op.variant % PILES];
  const size_t size = fuzz_size(op.a, op.b), alignment = (size_t)1 << op.x % 19;
  const unsigned count = 1u << op.variant / PILES % 13, h = op.variant % HANDLES;
  const int e = known(number);
  switch ((enum kind)(op.kind % KINDS)) {
  case MALLOC: put(b, take_here(thread, PLAINLY, 16, size)); break;
  case CALLOC: put(b, take_here(thread, ZEROED, 16, size)); break;
  case ALIGNED: put(b, take_here(thread, ALIGNED_TO, alignment, size)); break;
  case EPOCH_MALLOC: put(b, take_in(e, PLAINLY, 16, size)); break;
  case EPOCH_CALLOC: put(b, take_in(e, ZEROED, 16, size)); break;
  case EPOCH_ALIGNED: put(b, take_in(e, ALIGNED_TO, (size_t)1 << op.a % 19, size)); break;
  case REALLOC: resize(b, size); break;
  case FREE: release(b, false); break;
  case FREE_SIZED: release(b, true); break;
  case PILE_UP: pile_up(pile, thread, 0, false, count, size); break;
  case PILE_UP_IN: pile_up(pile, thread, e, true, count, size); break;
  case PILE_OFF: pile_off(pile, count, op.b % 2); break;
  case OPEN_ONE: open_one(number, known(op.variant % (FEW + 1)), op.a, op.b); break;
  case ENTER: enter(thread, e); break;
  case LEAVE: leave(thread, top(thread)); break;
  case LEAVE_ANY: leave(thread, e); break;
  case SWITCH: switch_to(thread, e); break;
  case UNWIND: unwind(thread, op.a < 66 ? op.a : -1); break;
  case CLOSE: close_one(thread, e, op.b % 2); break;
  case CLOSE_STEP: close_by_steps(e, steps[op.a % 5], op.b % 2); break;
  case DESTROY: destroy_or_reset(thread, e, false, op.b % 2); break;
  case RESET: destroy_or_reset(thread, e, true, op.b % 2); break;
  case ADVANCE: advance(thread, number, labels[op.a % 5], op.b % 2); break;
  case INFO: break; /* which is what follows every instruction */
  case EACH: visit_all(); break;
  case HANDLE_ALLOC: handle_alloc(e, h, size); break;
  case HANDLE_GET: handle_get(h); break;
  case HANDLE_FREE: handle_free(h); break;
  case CHAIN: open_chain(e, op.a); break;
  case UNKNOWN: use_unknown(thread, op); break;
  case PURGE: tslab_purge(); break;
  case STATISTICS:
    check_statistics();
    check_labels();
    for (int i = 0; i < EPOCHS; i++) audit(i);
    break;
  case EXIT: case KINDS: break;
  }
}

static void step(unsigned thread, struct op op) {
  if (fuzz_racing) {
    race_step(thread, op);
    return;
  }
  const int e = op.x < 224 ? op.x % (FEW + 1) : op.x % EPOCHS;
  do_one(thread, op, e);
  CHECK_COUNT(tslab_epoch_current(), ==, epochs[top(thread)].id);
  CHECK_COUNT(tslab_scope_depth(), ==, threads[thread].depth);
  audit(e);
}

static void exited(unsigned thread) {
  if (fuzz_racing) return;
  for (; threads[thread].depth >= 0; threads[thread].depth--) left(thread, top(thread));
  memset(&threads[thread], 0, sizeof threads[thread]);
}

static void end(void) {
  if (fuzz_racing) race_end();
  for (unsigned i = 0; i < SLOTS; i += 2) release(&slots[i], false);
  for (int i = 1; i < EPOCHS; i += 2)
    if (epochs[i].state == OPEN) close_one(0, i, true);
  for (int i = 1; i < EPOCHS; i++)
    if (epochs[i].stepping) close_by_steps(i, UINT64_MAX, true);
  for (unsigned i = 0; i < SLOTS; i++) release(&slots[i], true);
  for (unsigned i = 0; i < PILES; i++) pile_off(&piles[i], PILE_MOST, i % 2);
  for (unsigned i = 0; i < HANDLES; i++) handle_free(i);
  for (int i = 1; i < EPOCHS; i++)
    if (epochs[i].state == OPEN) close_one(0, i, false);
  for (int i = 0; i < EPOCHS; i++) {
    audit(i);
    CHECK_COUNT(epochs[i].state, ==, (i ? ENDED : OPEN));
  }
  visit_all();
  if (fuzz_purges) tslab_purge();
  check_statistics();
}

static void begin(void) {
  if (fuzz_racing) race_begin();
}

const struct fuzzer fuzzer = {begin, step, exits, exited, end};
