/* epochs: 8 threads open, enter, nest, switch, unwind, allocate, free each other's blocks, close, destroy and reset,
 * against a model that knows every live block.
 *
 * The model is a table of epochs. Each has cells, one for each live block, which any thread may take for itself, and a
 * lock that is shared by whoever uses the epoch and exclusive for whoever must know it exactly. So most calls race with
 * all others, and the exact ones are still compared with what must come out:
 *   always      contents, alignment, overlap, tslab_epoch_of, no 16 KiB with live blocks of two epochs, legal errors
 *   exclusive   state, threads inside, live blocks and bytes as tslab_epoch_info and every report tell them
 *   each round  nothing is left: every epoch has drained, tslab_stats is where it began, memory went back
 * A failure names the thread, the call, the epoch, the block, and tells the thread's last calls.       epochs [long] */
#include "shadow.h"

#include "../check.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 8, EPOCHS = 40, CELLS = 192, DEPTH = 7, TRACED = 24, DEAD = 256, MAIN = THREADS };
enum { LARGEST_CLASS = 32768 };
#define CROWDED ((size_t)96 << 20) /* bytes in use above which no more large blocks are taken */

struct block {
  unsigned char *start;
  size_t usable;
  uint64_t seed;  /* of the canary that fills it */
  unsigned owner; /* the thread that allocated it */
};

/* Returns the bytes that the epoch counts for the block. A guarded block has fewer usable bytes. */
static size_t counted(const struct block *b) {
  const size_t unit = b->usable > LARGEST_CLASS ? (size_t)sysconf(_SC_PAGESIZE) : 16;
  return (b->usable + unit - 1) / unit * unit;
}

enum { EMPTY, BUSY, HELD };

struct cell {
  _Atomic int state; /* EMPTY and HELD become BUSY by whoever uses the cell */
  struct block b;
};

struct epoch {
  pthread_rwlock_t lock;
  /* Written with the lock exclusive. */
  _Atomic tslab_epoch id; /* 0: this entry is unused, but the first, which is TSLAB_EPOCH_DEFAULT */
  _Atomic uint64_t tag;   /* the shadow's number for it: never used again */
  uint64_t era, budget;
  uint32_t flags;
  bool may_refuse; /* it or an ancestor has a budget */
  char label[16];
  /* Written by anybody who shares the lock. */
  _Atomic tslab_epoch parent;
  _Atomic uint64_t close_begun; /* the tag, when a close may be under way or done: calls may fail */
  _Atomic uint64_t close_done;  /* the tag, when a close has returned 0: calls must fail */
  _Atomic int closers;          /* calls that may have closed it, other than its own AUTO_CLOSE */
  _Atomic int closed;           /* closes of this very id that returned 0; at most one does */
  _Atomic int entered;
  _Atomic int switched; /* left by switch or by a thread's end: AUTO_CLOSE is not followed from there on */
  _Atomic unsigned inside[THREADS + 1]; /* scopes of each thread */
  struct cell cells[CELLS];
};
static struct epoch epochs[EPOCHS];

enum call {
  MALLOC, EPOCH_MALLOC, REALLOC, FREE, FOREIGN_FREE, DIVERTED, REFUSED, ENTER, LEAVE, WRONG_LEAVE, SWITCH, UNWIND,
  OPEN, RACING_CLOSE, CLOSE, CLOSE_INSIDE, CLOSE_STEP, DESTROY, RESET, BUSY_DESTROY, AUDIT, DRAINED, STALE, BURST,
  REQUEST, EACH, CALLS
};
static const char *const names[CALLS] = {
    "malloc", "epoch_malloc", "realloc", "free", "free of another thread's block", "diverted", "refused by budget",
    "enter", "leave", "wrong leave", "switch", "unwind", "open", "racing close", "close", "close with threads inside",
    "close_step", "destroy", "reset", "refused destroy or reset", "info", "drained", "stale id", "burst", "request",
    "each"};

struct trace {
  enum call call;
  tslab_epoch id;
  const void *block;
};

static struct worker {
  pthread_t thread;
  unsigned index;
  uint64_t random;
  bool dies_inside;
  int depth; /* scopes; scopes[0] is where the thread allocates outside all of them */
  struct epoch *scopes[DEPTH + 1];
  uint64_t allocations; /* tslab_stats must report these */
  uint64_t calls[CALLS];
  struct trace traces[TRACED];
  uint64_t traced;
} workers[THREADS + 1];

static _Atomic int stop;
static pthread_barrier_t stopped;
static _Atomic size_t bytes_in_use; /* relaxed, for the reason given in shadow.c */
static _Atomic uint64_t next_tag = 1;
static _Atomic tslab_epoch dead[DEAD];

static bool close_begun(const struct epoch *e) { return e->tag != 0 && e->close_begun == e->tag; }
static bool close_done(const struct epoch *e) { return e->tag != 0 && e->close_done == e->tag; }

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static void trace(struct worker *w, enum call call, tslab_epoch id, const void *block) {
  w->calls[call]++;
  w->traces[w->traced++ % TRACED] = (struct trace){call, id, block};
}

__attribute__((noreturn, format(printf, 6, 7))) static void fail(int line, struct worker *w, const struct epoch *e,
                                                                 const struct block *b, const char *condition,
                                                                 const char *format, ...) {
  const int error = errno;
  static _Atomic int first = 1;
  if (!atomic_exchange(&first, 0)) pause(); /* the first one tells, and ends the process */
  char what[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  dprintf(2,
          "%s:%d: does not hold: %s (errno %d)\n  expected: %s\n"
          "  thread %u of %d, depth %d, inside %#llx\n",
          __FILE__, line, condition, error, what, w->index, THREADS, w->depth,
          (unsigned long long)w->scopes[w->depth]->id);
  if (e) {
    dprintf(
        2,
        "  epoch %#llx (tag %llu, era %llu, flags %u, budget %llu, parent %#llx); close begun %d, done %d, "
        "closers %d; scopes:",
        (unsigned long long)e->id, (unsigned long long)e->tag, (unsigned long long)e->era, e->flags,
        (unsigned long long)e->budget, (unsigned long long)e->parent, close_begun(e), close_done(e), e->closers);
    for (int i = 0; i <= THREADS; i++) dprintf(2, " %u", e->inside[i]);
    dprintf(2, "\n");
  }
  if (b)
    dprintf(2, "  block %p, usable %zu, allocated by thread %u, seed %#llx, tslab_epoch_of %#llx\n", (void *)b->start,
            b->usable, b->owner, (unsigned long long)b->seed, (unsigned long long)tslab_epoch_of(b->start));
  for (uint64_t i = w->traced > TRACED ? w->traced - TRACED : 0; i < w->traced; i++) {
    const struct trace *t = &w->traces[i % TRACED];
    dprintf(2, "  call %llu: %s, epoch %#llx, block %p\n", (unsigned long long)i, names[t->call],
            (unsigned long long)t->id, t->block);
  }
  _exit(1);
}

#define EXPECT(w, e, b, condition, ...)                                                                                \
  do {                                                                                                                 \
    if (!(condition)) fail(__LINE__, w, e, b, #condition, __VA_ARGS__);                                                \
  } while (0)

/* ---- the model's epochs ------------------------------------------------------------------------------------------ */

static uint64_t draw(struct worker *w, uint64_t bound) { return check_random(&w->random) % bound; }
static struct epoch *top(struct worker *w) { return w->scopes[w->depth]; }
static bool gone(int error) { return error == ESHUTDOWN || error == ESTALE; }

static bool used(const struct epoch *e) { return e == &epochs[0] || e->id != 0; }

/* A random epoch, shared, or NULL. Half the time one of the thread's own few, so that heaps stay attached. */
static struct epoch *share_any(struct worker *w) {
  struct epoch *e = &epochs[draw(w, 2) ? (w->index * 5 + draw(w, 5)) % EPOCHS : draw(w, EPOCHS)];
  if (draw(w, 8) == 0) e = top(w);
  if (pthread_rwlock_tryrdlock(&e->lock) != 0) return NULL;
  if (used(e)) return e;
  pthread_rwlock_unlock(&e->lock);
  return NULL;
}

/* For an epoch that the thread is inside of, which does not go away. Nobody waits with a lock held exclusively, so no
 * order of locks is needed: tried over and over, because ThreadSanitizer would ask for one. */
static struct epoch *share(struct epoch *e) {
  while (pthread_rwlock_tryrdlock(&e->lock) != 0) sched_yield();
  return e;
}

static void unlock(struct epoch *e) { CHECK(pthread_rwlock_unlock(&e->lock) == 0); }

/* Tags grow, so a mark for an epoch that is no longer in this entry harms nobody. */
static void mark(_Atomic uint64_t *newest, uint64_t tag) {
  uint64_t before = atomic_load(newest);
  while (before < tag && !atomic_compare_exchange_weak(newest, &before, tag)) {}
}

/* Marks the children of `parent`, without their locks. The fields that it reads of a child belong together if the
 * child's tag has stayed. */
static void mark_children(tslab_epoch parent, bool begun, bool done) {
  for (struct epoch *child = epochs + 1; parent != 0 && child < epochs + EPOCHS; child++) {
    const uint64_t tag = atomic_load(&child->tag);
    const tslab_epoch id = atomic_load(&child->id);
    if (atomic_load(&child->parent) != parent || atomic_load(&child->tag) != tag) continue;
    if (begun) atomic_fetch_add(&child->closers, 1);
    if (begun) mark(&child->close_begun, tag);
    if (done) mark(&child->close_done, tag);
    mark_children(id, begun, done);
  }
}

/* Before a call that may close `e`, and so its descendants. A thread that opens a child sets its parent first and
 * looks at the parent's mark last, so one of the two sees the other. */
static void close_begins(struct epoch *e, bool by_itself) {
  if (!by_itself) atomic_fetch_add(&e->closers, 1);
  mark(&e->close_begun, e->tag);
  mark_children(e->id, true, false);
}

static void close_ended(struct epoch *e) {
  mark(&e->close_done, e->tag);
  mark_children(e->id, false, true);
}

/* Takes the epochs of the tree at `e` exclusively; how many, or 0 when not all could be had. */
static unsigned take_tree(struct epoch *e, struct epoch **tree) {
  unsigned count = 0;
  if (pthread_rwlock_trywrlock(&e->lock) != 0) return 0;
  tree[count++] = e;
  for (unsigned i = 0; i < count && used(e); i++)
    for (struct epoch *child = epochs + 1; child < epochs + EPOCHS; child++) {
      if (atomic_load(&child->parent) != tree[i]->id) continue;
      if (pthread_rwlock_trywrlock(&child->lock) != 0) {
        while (count) unlock(tree[--count]);
        return 0;
      }
      if (atomic_load(&child->parent) == tree[i]->id) tree[count++] = child;
      else unlock(child); /* it drained before it was locked */
    }
  return count;
}

static void give_tree(struct epoch **tree, unsigned count) {
  while (count) unlock(tree[--count]);
}

struct content {
  uint64_t blocks, bytes, threads;
};

/* Exclusive. Adds what the model knows of `e`. */
static void count_content(struct epoch *e, struct content *content) {
  for (unsigned i = 0; i < CELLS; i++)
    if (atomic_load_explicit(&e->cells[i].state, memory_order_relaxed) == HELD) {
      content->blocks++;
      content->bytes += counted(&e->cells[i].b);
    }
  for (unsigned i = 0; i <= THREADS; i++) content->threads += atomic_load(&e->inside[i]) > 0;
}

/* No id is ever given out twice, as far as this set reaches. */
static void check_new_id(struct worker *w, tslab_epoch id) {
  enum { IDS = 1 << 21 };
  static _Atomic tslab_epoch ids[IDS];
  static _Atomic unsigned count;
  EXPECT(w, NULL, NULL, id != 0, "an id");
  if (atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) > IDS / 4 * 3) return;
  for (uint64_t i = id * UINT64_C(0x9E3779B97F4A7C15) >> 32;; i++) {
    tslab_epoch seen = 0;
    if (atomic_compare_exchange_strong_explicit(&ids[i % IDS], &seen, id, memory_order_relaxed, memory_order_relaxed))
      return;
    EXPECT(w, NULL, NULL, seen != id, "a new id, not %#llx again", (unsigned long long)id);
  }
}

static void forget(struct worker *w, struct epoch *e) {
  trace(w, DRAINED, e->id, NULL);
  atomic_store_explicit(&dead[draw(w, DEAD)], e->id, memory_order_relaxed);
  atomic_store(&e->parent, 0);
  e->id = 0;
}

/* Exclusive. Compares what the allocator says of `e` with the model; takes it from the table when it has drained. */
static void audit(struct worker *w, struct epoch *e) {
  struct content model = {0};
  tslab_epoch_status s;
  bool has_children = false;
  if (!used(e) || e == &epochs[0]) return;
  count_content(e, &model);
  for (struct epoch *child = epochs + 1; child < epochs + EPOCHS; child++)
    has_children |= atomic_load(&child->parent) == e->id;
  trace(w, AUDIT, e->id, NULL);
  const bool done = close_done(e); /* before the question: a close of an ancestor may return at any moment */
  const int rc = tslab_epoch_info(e->id, &s);
  EXPECT(w, e, NULL, rc == 0 || rc == ESTALE, "info: 0 or ESTALE, not %d", rc);
  const bool is_open = rc == 0 && s.state == TSLAB_EPOCH_OPEN, by_itself = e->flags & TSLAB_EPOCH_AUTO_CLOSE;
  if (is_open) {
    EXPECT(w, e, NULL, !done, "closing: a close of it or of its parent has returned");
    EXPECT(w, e, NULL, !by_itself || !e->entered || e->switched || model.threads > 0, "closed by the last leave");
  } else {
    EXPECT(w, e, NULL, close_begun(e), "open: nobody closed it");
    EXPECT(w, e, NULL, e->closers > 0 || e->switched || model.threads == 0, "open: AUTO_CLOSE waits for who is inside");
    mark(&e->close_done, e->tag);
  }
  if (rc == ESTALE) {
    EXPECT(w, e, NULL, model.blocks == 0, "still there: %llu blocks live in it", (unsigned long long)model.blocks);
    EXPECT(w, e, NULL, model.threads == 0, "still there: %llu threads inside", (unsigned long long)model.threads);
    if (!has_children) forget(w, e);
    return;
  }
  const bool exact = model.threads == 0;
  /* A thread that closes the parent may be in the middle of closing this one. clean_up checks the same without such
   * a thread. */
  EXPECT(w, e, NULL, is_open || !exact || model.blocks > 0 || has_children || e->parent,
         "drained: closed, no block, nobody inside");
  EXPECT(w, e, NULL, s.epoch == e->id && s.era == e->era && s.flags == e->flags && s.budget_bytes == e->budget,
         "info: its id, era, flags and budget, not %#llx, %llu, %llu, %llu", (unsigned long long)s.epoch,
         (unsigned long long)s.era, (unsigned long long)s.flags, (unsigned long long)s.budget_bytes);
  tslab_epoch_status parent;
  EXPECT(w, e, NULL, s.parent == e->parent || (s.parent == 0 && tslab_epoch_info(e->parent, &parent) == ESTALE),
         "info: its parent, or 0 when that has drained before it, not %#llx", (unsigned long long)s.parent);
  EXPECT(w, e, NULL, strcmp(s.label, e->label) == 0, "info: label \"%s\", not \"%.64s\"", e->label, s.label);
  EXPECT(w, e, NULL, s.threads_inside == model.threads, "info: %llu threads inside, not %llu",
         (unsigned long long)model.threads, (unsigned long long)s.threads_inside);
  EXPECT(w, e, NULL, exact ? s.live_blocks == model.blocks : s.live_blocks >= model.blocks,
         "info: %llu live blocks%s, not %llu", (unsigned long long)model.blocks, exact ? "" : " or more",
         (unsigned long long)s.live_blocks);
  EXPECT(w, e, NULL, exact ? s.live_bytes == model.bytes : s.live_bytes >= model.bytes,
         "info: %llu live bytes%s, not %llu (of %llu blocks)", (unsigned long long)model.bytes, exact ? "" : " or more",
         (unsigned long long)s.live_bytes, (unsigned long long)s.live_blocks);
  EXPECT(w, e, NULL, s.slabs_pinned <= s.slabs && (s.slabs_pinned > 0 || model.blocks == 0),
         "info: pinned slabs of %llu blocks, not %llu of %llu", (unsigned long long)model.blocks,
         (unsigned long long)s.slabs_pinned, (unsigned long long)s.slabs);
  EXPECT(w, e, NULL, s.committed_bytes >= model.bytes && s.charged_bytes >= s.committed_bytes,
         "info: %llu live bytes are committed and charged, not %llu and %llu", (unsigned long long)model.bytes,
         (unsigned long long)s.committed_bytes, (unsigned long long)s.charged_bytes);
  EXPECT(w, e, NULL, e->budget == 0 || s.charged_bytes <= e->budget, "info: at most the budget charged, not %llu",
         (unsigned long long)s.charged_bytes);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint64_t canary(uint64_t seed, size_t word) { return seed + word * UINT64_C(0x9E3779B97F4A7C15); }

static void fill(const struct block *b) {
  const size_t words = b->usable / 8;
  for (size_t i = 0; i < words; i++) ((uint64_t *)(void *)b->start)[i] = canary(b->seed, i);
  const uint64_t last = canary(b->seed, words);
  memcpy(b->start + words * 8, &last, b->usable % 8);
}

static void check_fill(struct worker *w, struct epoch *e, const struct block *b, size_t size) {
  const size_t words = size / 8;
  const uint64_t *const content = (const uint64_t *)(const void *)b->start;
  for (size_t i = 0; i < words; i++)
    EXPECT(w, e, b, content[i] == canary(b->seed, i), "the canary %#llx at byte %zu of %zu, not %#llx",
           (unsigned long long)canary(b->seed, i), i * 8, size, (unsigned long long)content[i]);
  const uint64_t last = canary(b->seed, words);
  EXPECT(w, e, b, memcmp(b->start + words * 8, &last, size % 8) == 0, "the canary in the last %zu bytes", size % 8);
}

static void claim(struct worker *w, struct epoch *e, const struct block *b) {
  EXPECT(w, e, b, shadow_claim_in(b->start, b->usable, e->tag), "nobody else's memory, 16 KiB of no other epoch");
  atomic_fetch_add_explicit(&bytes_in_use, b->usable, memory_order_relaxed);
}

static void disclaim(struct worker *w, struct epoch *e, const struct block *b) {
  EXPECT(w, e, b, shadow_release_in(b->start, b->usable, e->tag), "the shadow of this block: the test itself is wrong");
  atomic_fetch_sub_explicit(&bytes_in_use, b->usable, memory_order_relaxed);
}

/* A new block of `e`. */
static struct block adopt(struct worker *w, struct epoch *e, void *start, size_t size) {
  const struct block b = {start, tslab_malloc_usable_size(start), check_random(&w->random), w->index};
  EXPECT(w, e, &b, tslab_owns(start) && b.usable >= size, "ours, and %zu bytes at least", size);
  EXPECT(w, e, &b, tslab_epoch_of(start) == e->id, "a block of this epoch");
  claim(w, e, &b);
  fill(&b);
  return b;
}

static void give_back(struct worker *w, struct epoch *e, const struct block *b) {
  EXPECT(w, e, b, tslab_epoch_of(b->start) == e->id, "a block of this epoch still");
  EXPECT(w, e, b, tslab_malloc_usable_size(b->start) == b->usable, "the usable size that it had");
  check_fill(w, e, b, b->usable);
  disclaim(w, e, b);
  trace(w, b->owner == w->index ? FREE : FOREIGN_FREE, e->id, b->start);
  tslab_free(b->start);
}

/* A cell of `e` in `state`, now BUSY, or NULL after a few tries. Mostly of those that this thread fills. */
static struct cell *grab(struct worker *w, struct epoch *e, int state) {
  const unsigned share_of_thread = CELLS / THREADS;
  const uint64_t first =
      draw(w, 2) ? (w->index % THREADS) * share_of_thread + draw(w, share_of_thread) : draw(w, CELLS);
  for (unsigned i = 0; i < 12; i++) {
    struct cell *c = &e->cells[(first + i) % CELLS];
    int expected = state;
    if (atomic_compare_exchange_strong_explicit(&c->state, &expected, BUSY, memory_order_acquire, memory_order_relaxed))
      return c;
  }
  return NULL;
}

static void put(struct cell *c, int state) { atomic_store_explicit(&c->state, state, memory_order_release); }

/* A block that the allocator put into epoch 0 because its own is closing. */
static void divert(struct worker *w, void *start, size_t size) {
  struct epoch *e = &epochs[0];
  trace(w, DIVERTED, 0, start);
  const struct block b = adopt(w, e, start, size);
  struct cell *c = grab(w, e, EMPTY);
  if (c) {
    c->b = b;
    put(c, HELD);
  } else give_back(w, e, &b);
}

static size_t random_size(struct worker *w) {
  const uint64_t kind = draw(w, 1000), r = check_random(&w->random);
  if (kind < 860) return r % 1041;
  if (kind < 960) return r % 9000;
  if (kind < 995 || atomic_load_explicit(&bytes_in_use, memory_order_relaxed) > CROWDED) return r % 70000;
  return r % ((1 << 20) / TEST_SCALE);
}

/* One call of malloc's family for the epoch `e`, which is shared: the thread's own when `ambient`. */
static void *call_malloc(struct worker *w, struct epoch *e, bool ambient, size_t size) {
  const size_t alignment = (size_t)16 << draw(w, 10);
  const uint64_t kind = draw(w, 6);
  const int done = close_done(e);
  void *start = NULL;
  errno = 0;
  if (ambient) {
    switch (kind) {
    case 0: start = tslab_calloc(size, 1); break;
    case 1: start = tslab_memalign(alignment, size); break;
    case 2: start = tslab_realloc(NULL, size); break;
    default: start = tslab_malloc(size); break;
    }
  } else {
    switch (kind) {
    case 0: start = tslab_epoch_calloc(e->id, 1, size); break;
    case 1: start = tslab_epoch_aligned_alloc(e->id, alignment, size); break;
    default: start = tslab_epoch_malloc(e->id, size); break;
    }
  }
  trace(w, ambient ? MALLOC : EPOCH_MALLOC, e->id, start);
  if (!start) {
    const bool refused = e->may_refuse && errno == ENOMEM;
    EXPECT(w, e, NULL, refused || (!ambient && close_begun(e) && gone(errno)),
           "%zu bytes, or an error that fits the epoch's state, not %d", size, errno);
    if (refused) w->calls[REFUSED]++;
    return NULL;
  }
  w->allocations++;
  const struct block b = {start, 0, 0, w->index};
  EXPECT(w, e, &b, ambient || !done, "no block: the epoch was closed");
  EXPECT(w, e, &b, (uintptr_t)start % (kind == 1 ? alignment : 16) == 0, "alignment %zu", kind == 1 ? alignment : 16);
  if (kind == 0)
    for (size_t i = 0; i < size; i++)
      EXPECT(w, e, &b, b.start[i] == 0, "zeros from calloc, not %d at byte %zu", b.start[i], i);
  return start;
}

/* Returns true if `start` lies in the epoch. Returns false if it was diverted, which must have been legal. */
static bool arrived(struct worker *w, struct epoch *e, void *start) {
  const tslab_epoch of = tslab_epoch_of(start);
  const struct block b = {start, 0, 0, w->index};
  EXPECT(w, e, &b, of == e->id || (of == 0 && close_begun(e)), "a block of this epoch");
  return of == e->id;
}

static void allocate(struct worker *w, struct epoch *e, bool ambient) {
  struct cell *c = grab(w, e, EMPTY);
  if (!c) return;
  const size_t size = random_size(w);
  void *const start = call_malloc(w, e, ambient, size);
  bool held = false;
  if (start) {
    held = arrived(w, e, start);
    EXPECT(w, e, NULL, held || ambient, "only ambient calls are diverted");
    if (held) c->b = adopt(w, e, start, size);
    else divert(w, start, size);
  }
  put(c, held ? HELD : EMPTY);
}

static void release(struct worker *w, struct epoch *e) {
  struct cell *c = grab(w, e, HELD);
  if (!c) return;
  give_back(w, e, &c->b);
  put(c, EMPTY);
}

static void resize(struct worker *w, struct epoch *e) {
  struct cell *c = grab(w, e, HELD);
  if (!c) return;
  struct block old = c->b;
  const size_t size = random_size(w) + 1, kept = old.usable < size ? old.usable : size;
  const int done = close_done(e);
  disclaim(w, e, &old);
  trace(w, REALLOC, e->id, old.start);
  errno = 0;
  unsigned char *const start = tslab_realloc(old.start, size);
  if (!start) {
    EXPECT(w, e, &old, e->may_refuse && errno == ENOMEM, "%zu bytes by realloc", size);
    claim(w, e, &old);
    check_fill(w, e, &old, old.usable);
    put(c, HELD);
    return;
  }
  const bool moved = start != old.start, held = arrived(w, e, start);
  w->allocations += moved;
  old.start = start;
  EXPECT(w, e, &old, held || moved, "the epoch of a block that did not move");
  EXPECT(w, e, &old, !held || !moved || !done, "a block of epoch 0: its own was closed");
  check_fill(w, e, &old, kept);
  if (held) c->b = adopt(w, e, start, size);
  else divert(w, start, size);
  put(c, held ? HELD : EMPTY);
}

/* Allocates and frees blocks of one class, as a parser does, so that slabs take the place of the epoch's chunks. */
static void burst(struct worker *w, struct epoch *e) {
  enum { MOST = 96 };
  struct block blocks[MOST];
  const unsigned count = 1 + (unsigned)draw(w, MOST);
  const size_t size = 1 + draw(w, 400);
  unsigned held = 0;
  trace(w, BURST, e->id, NULL);
  for (unsigned i = 0; i < count; i++) {
    void *const start = call_malloc(w, e, true, size);
    if (start && !arrived(w, e, start)) divert(w, start, size);
    else if (start) blocks[held++] = adopt(w, e, start, size);
    if (held && draw(w, 3) == 0) give_back(w, e, &blocks[--held]);
  }
  while (held) give_back(w, e, &blocks[--held]);
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

/* Checks that the thread's current epoch is `e`. */
static void check_current(struct worker *w) {
  const struct epoch *e = top(w);
  const tslab_epoch current = tslab_epoch_current();
  EXPECT(w, e, NULL, current == e->id || (current == 0 && close_begun(e)), "current: this epoch, not %#llx",
         (unsigned long long)current);
  EXPECT(w, e, NULL, tslab_scope_depth() == w->depth, "scope_depth: %d, not %d", w->depth, tslab_scope_depth());
}

static void enter(struct worker *w, struct epoch *e) {
  if (w->depth == DEPTH) return;
  const int done = close_done(e);
  trace(w, ENTER, e->id, NULL);
  const int rc = tslab_epoch_enter(e->id);
  if (rc == 0) {
    EXPECT(w, e, NULL, !done, "enter: ESHUTDOWN or ESTALE, it was closed");
    w->scopes[++w->depth] = e;
    atomic_fetch_add(&e->inside[w->index], 1);
    atomic_store(&e->entered, 1);
  } else EXPECT(w, e, NULL, gone(rc) && close_begun(e), "enter: 0, not %d", rc);
  check_current(w);
}

/* The thread is no longer in its innermost scope. */
static void pop(struct worker *w) {
  atomic_fetch_sub(&top(w)->inside[w->index], 1);
  w->depth--;
}

static void may_close_itself(struct epoch *e) {
  if (e->flags & TSLAB_EPOCH_AUTO_CLOSE) close_begins(e, true);
}

static void leave(struct worker *w) {
  struct epoch *const e = share(top(w)), *const other = &epochs[draw(w, EPOCHS)];
  if (draw(w, 16) == 0 && other != e && pthread_rwlock_tryrdlock(&other->lock) == 0) {
    if (w->depth == 0 || other->id != e->id) {
      trace(w, WRONG_LEAVE, other->id, NULL);
      const int rc = tslab_epoch_leave(other->id);
      EXPECT(w, other, NULL, rc == EINVAL, "leave of what is not innermost: EINVAL, not %d", rc);
    }
    unlock(other);
  }
  if (w->depth > 0) {
    may_close_itself(e);
    trace(w, LEAVE, e->id, NULL);
    const int rc = tslab_epoch_leave(e->id);
    EXPECT(w, e, NULL, rc == 0, "leave: 0, not %d", rc);
    pop(w);
  }
  unlock(e);
  share(top(w));
  check_current(w);
  unlock(top(w));
}

static void switch_to(struct worker *w, struct epoch *e) {
  struct epoch *const old = share(top(w));
  const int done = close_done(e);
  may_close_itself(old);
  atomic_store(&old->switched, 1);
  trace(w, SWITCH, e->id, NULL);
  errno = 0;
  const tslab_epoch before = tslab_epoch_switch(e->id);
  const int error = errno;
  EXPECT(w, old, NULL, before == old->id, "switch returns this, not %#llx", (unsigned long long)before);
  if (error == 0) {
    EXPECT(w, e, NULL, !done || e == old, "switch: ESHUTDOWN or ESTALE, it was closed");
    atomic_fetch_sub(&old->inside[w->index], 1);
    atomic_fetch_add(&e->inside[w->index], 1);
    atomic_store(&e->entered, 1);
    atomic_store(&e->switched, 1);
    w->scopes[w->depth] = e;
  } else EXPECT(w, e, NULL, gone(error) && close_begun(e), "switch: errno 0, not %d", error);
  check_current(w);
  unlock(old);
}

static void unwind(struct worker *w, int depth) {
  struct epoch *left[DEPTH];
  int count = 0;
  for (int i = depth + 1; i <= w->depth; i++) {
    left[count++] = share(w->scopes[i]);
    may_close_itself(w->scopes[i]);
  }
  trace(w, UNWIND, top(w)->id, NULL);
  tslab_scope_unwind(depth);
  while (w->depth > depth) pop(w);
  while (count) unlock(left[--count]);
  share(top(w));
  check_current(w);
  unlock(top(w));
}

/* ---- beginning and ending ---------------------------------------------------------------------------------------- */

static void open_one(struct worker *w) {
  struct epoch *const e = &epochs[1 + draw(w, EPOCHS - 1)];
  struct epoch *parent = NULL;
  if (pthread_rwlock_trywrlock(&e->lock) != 0) return;
  if (used(e)) {
    unlock(e);
    return;
  }
  if (draw(w, 3) == 0) parent = share_any(w);
  const tslab_epoch parent_id = parent ? parent->id : 0;
  snprintf(e->label, sizeof e->label, "%u.%llu", w->index, (unsigned long long)(w->calls[OPEN] % 1000));
  const tslab_epoch_options options = {
      .struct_size = sizeof options,
      .label = e->label,
      .budget_bytes = draw(w, 8) ? 0 : (uint64_t)65536 << draw(w, 6),
      .prefault_bytes = draw(w, 16) ? 0 : draw(w, 65536),
      .flags = (draw(w, 5) ? 0 : TSLAB_EPOCH_AUTO_CLOSE) | (draw(w, 2) ? TSLAB_EPOCH_DESTROYABLE : 0),
      .parent = parent_id,
  };
  e->tag = atomic_fetch_add_explicit(&next_tag, 1, memory_order_relaxed);
  e->era = 0;
  e->flags = options.flags;
  e->budget = options.budget_bytes;
  e->may_refuse = e->budget || (parent_id && parent->may_refuse);
  e->closers = e->closed = e->entered = e->switched = 0;
  atomic_store(&e->parent, parent_id);
  const int done = parent_id && close_done(parent);
  errno = 0;
  const tslab_epoch id = tslab_epoch_open_with(&options);
  const int error = errno;
  trace(w, OPEN, id, NULL);
  if (id) {
    EXPECT(w, parent, NULL, !done, "open: an error, the parent was closed");
    check_new_id(w, id);
    e->id = id;
    if (parent_id && close_begun(parent)) close_begins(e, false);
  } else {
    EXPECT(w, parent, NULL,
           (parent_id && close_begun(parent) && gone(error)) ||
               (e->may_refuse && options.prefault_bytes && error == ENOMEM),
           "open: an id, not errno %d", error);
    atomic_store(&e->parent, 0);
  }
  if (parent) unlock(parent);
  if (e->id) audit(w, e);
  unlock(e);
}

/* Shared: any number of threads use and close it at this moment. */
static void racing_close(struct worker *w, struct epoch *e) {
  tslab_epoch_report r = {0};
  const int done = close_done(e);
  const bool in_steps = draw(w, 2);
  int rc;
  close_begins(e, false);
  trace(w, RACING_CLOSE, e->id, NULL);
  do rc = in_steps ? tslab_epoch_close_step(e->id, 20000, &r) : tslab_epoch_close(e->id, &r);
  while (rc == EAGAIN && in_steps);
  if (rc == 0) {
    if (!in_steps) {
      EXPECT(w, e, NULL, !done, "close: ESHUTDOWN or ESTALE, it was closed");
      const int before = atomic_fetch_add(&e->closed, 1);
      EXPECT(w, e, NULL, before == 0, "only one close that succeeds, not %d", before + 1);
    }
    EXPECT(w, e, NULL, r.epoch == e->id, "the report of this epoch, not of %#llx", (unsigned long long)r.epoch);
    close_ended(e);
  } else
    EXPECT(w, e, NULL, gone(rc) && (e->closers > 1 || e->flags & TSLAB_EPOCH_AUTO_CLOSE),
           "close: 0, nobody else closes it, not %d", rc);
}

static void check_report(struct worker *w, struct epoch *e, const tslab_epoch_report *r, const struct content *own,
                         const struct content *all) {
  const bool exact = all->threads == 0;
  EXPECT(w, e, NULL, r->epoch == e->id, "the report of this epoch, not of %#llx", (unsigned long long)r->epoch);
  EXPECT(w, e, NULL, r->threads_inside == own->threads || r->threads_inside == all->threads,
         "report: %llu threads inside, not %llu", (unsigned long long)own->threads,
         (unsigned long long)r->threads_inside);
  /* With its children's or without: the interface leaves that open. */
  EXPECT(w, e, NULL,
         exact ? (r->live_blocks == own->blocks && r->live_bytes == own->bytes) ||
                     (r->live_blocks == all->blocks && r->live_bytes == all->bytes)
               : r->live_blocks >= own->blocks && r->live_bytes >= own->bytes,
         "report: %llu live blocks of %llu bytes%s (with its children's %llu of %llu), not %llu of %llu",
         (unsigned long long)own->blocks, (unsigned long long)own->bytes, exact ? "" : " or more",
         (unsigned long long)all->blocks, (unsigned long long)all->bytes, (unsigned long long)r->live_blocks,
         (unsigned long long)r->live_bytes);
}

/* Exclusive, the whole tree, which is open: the caller has audited it. */
static void exact_close(struct worker *w, struct epoch **tree, unsigned count, const struct content *own,
                        const struct content *all) {
  struct epoch *const e = tree[0];
  tslab_epoch_report r = {0};
  const bool in_steps = draw(w, 2);
  unsigned steps = 0;
  int rc;
  close_begins(e, false);
  trace(w, in_steps ? CLOSE_STEP : all->threads ? CLOSE_INSIDE : CLOSE, e->id, NULL);
  do rc = in_steps ? tslab_epoch_close_step(e->id, 2000, &r) : tslab_epoch_close(e->id, &r);
  while (rc == EAGAIN && in_steps && ++steps < 1000000);
  if (gone(rc) && e->closers > 1) { /* a close of an ancestor came first */
    while (count) audit(w, tree[--count]);
    return;
  }
  EXPECT(w, e, NULL, rc == 0, "close: 0, it was open, not %d after %u steps", rc, steps);
  check_report(w, e, &r, own, all);
  EXPECT(w, e, NULL, r.slabs_pinned > 0 || own->blocks == 0, "report: pinned slabs");
  EXPECT(w, e, NULL, r.slabs_pinned == 0 || all->blocks + all->threads > 0, "report: no pinned slab, not %llu",
         (unsigned long long)r.slabs_pinned);
  e->closed = 1;
  close_ended(e);
  rc = tslab_epoch_close(e->id, NULL);
  EXPECT(w, e, NULL, gone(rc), "close again: ESHUTDOWN or ESTALE, not %d", rc);
  while (count) audit(w, tree[--count]); /* children first: they keep their parent in the table */
}

/* Exclusive, after a destroy or reset of it or of an ancestor, which says itself whether it took the blocks: a close of
 * an ancestor may have come between one epoch of the tree and the next. Blocks that were kept are the model's again. */
static void settle_blocks(struct worker *w, struct epoch *e, bool must_take) {
  tslab_epoch_status s;
  const bool is_there = tslab_epoch_info(e->id, &s) == 0, kept = is_there && s.era == e->era;
  EXPECT(w, e, NULL, !kept || !must_take, "ended, or one era older");
  EXPECT(w, e, NULL, !is_there || s.era - e->era <= 1, "one era older at most, not %llu", (unsigned long long)s.era);
  if (is_there) e->era = s.era;
  for (unsigned j = 0; j < CELLS; j++) {
    struct cell *c = &e->cells[j];
    if (c->state != HELD) continue;
    if (kept) {
      claim(w, e, &c->b);
      check_fill(w, e, &c->b, c->b.usable);
    } else c->state = EMPTY;
  }
}

/* Destroys or resets: exclusive, the whole tree, all of it open when the caller looked. */
static void exact_destroy(struct worker *w, struct epoch **tree, unsigned count, const struct content *own,
                          const struct content *all) {
  struct epoch *const e = tree[0];
  tslab_epoch_report r = {0};
  const bool reset = draw(w, 2), mine = e->inside[w->index] > 0;
  bool allowed = true, busy = all->threads > (reset && mine);
  for (unsigned i = 0; i < count; i++) {
    allowed &= (tree[i]->flags & TSLAB_EPOCH_DESTROYABLE) != 0;
    if (i > 0 && tree[i]->inside[w->index] > 0) return; /* a caller inside a child: the interface leaves that open */
  }
  if (!allowed || busy) {
    trace(w, BUSY_DESTROY, e->id, NULL);
    const int rc = reset ? tslab_epoch_reset(e->id, &r) : tslab_epoch_destroy(e->id, &r);
    EXPECT(w, e, NULL, (!allowed && rc == EPERM) || (busy && rc == EBUSY) || (gone(rc) && e->closers > 0),
           "%s: EPERM or EBUSY, not %d", reset ? "reset" : "destroy", rc);
    for (unsigned i = 0; i < count; i++) {
      for (unsigned j = 0; j < CELLS; j += 16) {
        const struct cell *c = &tree[i]->cells[j];
        if (c->state == HELD) check_fill(w, tree[i], &c->b, c->b.usable);
      }
    }
    while (count) audit(w, tree[--count]);
    return;
  }
  for (unsigned i = 0; i < count; i++)
    for (unsigned j = 0; j < CELLS; j++) {
      struct cell *c = &tree[i]->cells[j];
      if (c->state != HELD) continue;
      check_fill(w, tree[i], &c->b, c->b.usable);
      disclaim(w, tree[i], &c->b);
    }
  if (!reset)
    for (unsigned i = 0; i < count; i++) mark(&tree[i]->close_begun, tree[i]->tag);
  trace(w, reset ? RESET : DESTROY, e->id, NULL);
  const int rc = reset ? tslab_epoch_reset(e->id, &r) : tslab_epoch_destroy(e->id, &r);
  EXPECT(w, e, NULL, rc == 0 || (gone(rc) && e->closers > 0), "%s: 0, nobody closes it or its parent, not %d",
         reset ? "reset" : "destroy", rc);
  if (rc == 0) check_report(w, e, &r, own, all);
  for (unsigned i = 0; i < count; i++) settle_blocks(w, tree[i], rc == 0);
  for (unsigned i = count; i-- > 0;) {
    if (!reset && rc == 0) mark(&tree[i]->close_done, tree[i]->tag);
    audit(w, tree[i]);
    EXPECT(w, tree[i], NULL, reset || rc != 0 || !tree[i]->id, "ESTALE: it was destroyed");
  }
}

/* Everything about one epoch exactly. False when somebody uses it. */
static bool inspect(struct worker *w, struct epoch *e, bool end) {
  struct epoch *tree[EPOCHS];
  struct content own = {0}, all = {0};
  tslab_epoch_status s;
  unsigned count = take_tree(e, tree);
  if (count == 0) return false;
  for (unsigned i = count; i-- > 0;) audit(w, tree[i]);
  bool all_open = used(e) && !close_done(e);
  for (unsigned i = 0; all_open && i < count; i++) {
    all_open = used(tree[i]) && tslab_epoch_info(tree[i]->id, &s) == 0 && s.state == TSLAB_EPOCH_OPEN;
    count_content(tree[i], &all);
  }
  if (all_open && end) {
    count_content(e, &own);
    if (draw(w, 3)) exact_close(w, tree, count, &own, &all);
    else exact_destroy(w, tree, count, &own, &all);
  }
  give_tree(tree, count);
  return true;
}

static void end_one(struct worker *w) {
  struct epoch *const e = &epochs[1 + draw(w, EPOCHS - 1)];
  if (draw(w, 8)) {
    inspect(w, e, draw(w, 2));
  } else if (pthread_rwlock_tryrdlock(&e->lock) == 0) {
    if (used(e)) racing_close(w, e);
    unlock(e);
  }
}

/* ---- what is not in the table ------------------------------------------------------------------------------------ */

/* An id that has drained answers ESTALE to every call. */
static void use_stale(struct worker *w) {
  const tslab_epoch id = atomic_load_explicit(&dead[draw(w, DEAD)], memory_order_relaxed);
  tslab_epoch_status s;
  tslab_epoch_options options = {.struct_size = sizeof options, .parent = id};
  int rc = 0;
  if (id == 0) return;
  trace(w, STALE, id, NULL);
  errno = 0;
  const uint64_t kind = draw(w, 9);
  switch (kind) {
  case 0: rc = tslab_epoch_enter(id); break;
  case 1: rc = tslab_epoch_close(id, NULL); break;
  case 2: rc = tslab_epoch_info(id, &s); break;
  case 3: rc = tslab_epoch_destroy(id, NULL); break;
  case 4: rc = tslab_epoch_reset(id, NULL); break;
  case 5: rc = tslab_epoch_close_step(id, 1000, NULL); break;
  case 6: rc = tslab_epoch_open_with(&options) ? 0 : errno; break;
  case 7: rc = tslab_epoch_malloc(id, 100) ? 0 : errno; break;
  default:
    tslab_epoch_switch(id);
    rc = errno;
    break;
  }
  EXPECT(w, NULL, NULL, rc == ESTALE, "call %llu on %#llx, which has drained: ESTALE, not %d", (unsigned long long)kind,
         (unsigned long long)id, rc);
}

/* A request of its own: nobody else ever knows its epoch, so every report is exact. */
static void request(struct worker *w) {
  enum { OBJECTS = 60 };
  const uint64_t ending = draw(w, 4); /* 0 close, 1 destroy, 2 reset and destroy, 3 advance */
  struct block blocks[OBJECTS];
  struct epoch own = {.tag = atomic_fetch_add_explicit(&next_tag, 1, memory_order_relaxed),
                      .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = "request", .flags = own.flags};
  tslab_epoch_report r = {0};
  uint64_t bytes = 0;
  unsigned held = 0;
  int rc;
  if (w->depth == DEPTH) return;
  own.id = ending == 3 ? tslab_epoch_advance("request", NULL) : tslab_epoch_open_with(&options);
  trace(w, REQUEST, own.id, NULL);
  check_new_id(w, own.id);
  if (ending != 3) CHECK(tslab_epoch_enter(own.id) == 0);
  for (unsigned i = 0; i < OBJECTS; i++) {
    const size_t size = draw(w, 50) ? draw(w, 500) : draw(w, 50000);
    void *const start = call_malloc(w, &own, true, size);
    EXPECT(w, &own, NULL, start != NULL, "%zu bytes", size);
    blocks[held++] = adopt(w, &own, start, size);
    if (draw(w, 2)) give_back(w, &own, &blocks[--held]);
  }
  for (unsigned i = 0; i < held; i++) bytes += counted(&blocks[i]);
  const unsigned survivors = held;
  if (ending == 3) {
    const tslab_epoch next = tslab_epoch_advance("next", &r);
    check_new_id(w, next);
    EXPECT(w, &own, NULL, tslab_epoch_current() == next, "the next epoch current, %#llx", (unsigned long long)next);
    rc = tslab_epoch_leave(next);
    EXPECT(w, &own, NULL, rc == 0, "leave of what advance entered: 0, not %d", rc);
    rc = tslab_epoch_close(next, NULL);
    EXPECT(w, &own, NULL, rc == 0, "close of what advance opened: 0, not %d", rc);
  } else if (ending == 2) {
    for (unsigned i = 0; i < held; i++) disclaim(w, &own, &blocks[i]);
    rc = tslab_epoch_reset(own.id, &r);
    EXPECT(w, &own, NULL, rc == 0, "reset from inside: 0, not %d", rc);
    EXPECT(w, &own, NULL, r.live_blocks == held && r.live_bytes == bytes,
           "reset: %u live blocks of %llu bytes, not %llu of %llu", held, (unsigned long long)bytes,
           (unsigned long long)r.live_blocks, (unsigned long long)r.live_bytes);
    void *const start = call_malloc(w, &own, true, 100);
    blocks[0] = adopt(w, &own, start, 100);
    held = 1;
    bytes = counted(&blocks[0]);
    CHECK(tslab_epoch_leave(own.id) == 0);
  } else CHECK(tslab_epoch_leave(own.id) == 0);
  if (ending == 1 || ending == 2) {
    for (unsigned i = 0; i < held; i++) disclaim(w, &own, &blocks[i]);
    rc = tslab_epoch_destroy(own.id, &r);
    EXPECT(w, &own, NULL, rc == 0, "destroy: 0, not %d", rc);
  } else if (ending == 0) {
    rc = tslab_epoch_close(own.id, &r);
    EXPECT(w, &own, NULL, rc == 0, "close: 0, not %d", rc);
  }
  EXPECT(w, &own, NULL, r.epoch == own.id && r.threads_inside == 0, "the report of this epoch, nobody inside, not %llu",
         (unsigned long long)r.threads_inside);
  EXPECT(w, &own, NULL, r.live_blocks == held && r.live_bytes == bytes,
         "report of ending %llu (%u once): %u live blocks of %llu bytes, not %llu of %llu", (unsigned long long)ending,
         survivors, held, (unsigned long long)bytes, (unsigned long long)r.live_blocks,
         (unsigned long long)r.live_bytes);
  if (ending == 0 || ending == 3)
    while (held) give_back(w, &own, &blocks[--held]);
  tslab_epoch_status s;
  rc = tslab_epoch_info(own.id, &s);
  EXPECT(w, &own, NULL, rc == ESTALE, "drained with its last block: ESTALE, not %d (%llu blocks live)", rc,
         (unsigned long long)(rc ? 0 : s.live_blocks));
  check_current(w);
}

static int visit(const tslab_epoch_status *s, void *argument) {
  struct worker *const w = argument;
  EXPECT(w, NULL, NULL, s->epoch != 0 && (s->state == TSLAB_EPOCH_OPEN || s->state == TSLAB_EPOCH_CLOSING),
         "each: an epoch that is open or closing, not %#llx in state %llu", (unsigned long long)s->epoch,
         (unsigned long long)s->state);
  return 0;
}

static void visit_all(struct worker *w) {
  trace(w, EACH, 0, NULL);
  EXPECT(w, NULL, NULL, tslab_epoch_each(visit, w) == 0, "each: what the visitor returned, 0");
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void step(struct worker *w) {
  const uint64_t what = draw(w, 1000);
  struct epoch *e;
  if (close_begun(top(w)) && draw(w, 4) == 0) {
    leave(w); /* lest all threads end up in epochs that are closing */
  } else if (what < 300) {
    e = share(top(w));
    allocate(w, e, true);
    unlock(e);
  } else if (what < 780) {
    if (!(e = share_any(w))) return;
    if (close_begun(e) && draw(w, 2)) release(w, e); /* lest they never drain */
    else if (what < 380) allocate(w, e, e == top(w));
    else if (what < 630) release(w, e);
    else if (what < 680) resize(w, e);
    else if (what < 770) enter(w, e);
    else switch_to(w, e);
    unlock(e);
  } else if (what < 850) leave(w);
  else if (what < 860) unwind(w, (int)draw(w, (uint64_t)w->depth + 1));
  else if (what < 955) open_one(w);
  else if (what < 970) end_one(w);
  else if (what < 985) use_stale(w);
  else if (what < 988) {
    e = share(top(w));
    burst(w, e);
    unlock(e);
  } else if (what < 999) request(w);
  else visit_all(w);
}

static void *work(void *argument) {
  struct worker *const w = argument;
  while (!atomic_load_explicit(&stop, memory_order_relaxed)) step(w);
  pthread_barrier_wait(&stopped); /* a thread that died is inside no more; the model learns it in clean_up */
  if (w->dies_inside) return NULL;
  unwind(w, 0);
  share(&epochs[0]);
  switch_to(w, &epochs[0]);
  unlock(&epochs[0]);
  return NULL;
}

static void begin(struct worker *w, unsigned index, unsigned round) {
  *w = (struct worker){.index = index, .random = round * 1000 + index + 1, .dies_inside = round % 2 && index % 4 == 1};
  w->scopes[0] = &epochs[0];
}

/* The threads are gone. Blocks are freed before or after the close of their epoch. */
static void clean_up(struct worker *w) {
  for (struct epoch *e = epochs; e < epochs + EPOCHS; e++)
    for (unsigned i = 0; i < THREADS; i++)
      if (e->inside[i] > 0) {
        e->inside[i] = 0;
        close_begins(e, true); /* AUTO_CLOSE may follow a thread's end */
        e->switched = 1;
      }
  for (struct epoch *e = epochs + 1; e < epochs + EPOCHS; e += 2) CHECK(inspect(w, e, true));
  for (struct epoch *e = epochs; e < epochs + EPOCHS; e++)
    for (unsigned i = 0; i < CELLS; i++) {
      if (e->cells[i].state != HELD) continue;
      EXPECT(w, e, &e->cells[i].b, used(e), "no block in an epoch that has drained");
      give_back(w, e, &e->cells[i].b);
      e->cells[i].state = EMPTY;
    }
  for (struct epoch *e = epochs + 1; e < epochs + EPOCHS; e++)
    for (unsigned i = 0; used(e) && i < 20; i++) CHECK(inspect(w, e, true)); /* some destroys are refused */
  for (struct epoch *e = epochs + 1; e < epochs + EPOCHS; e++) {
    CHECK(inspect(w, e, false)); /* a parent whose children were still there */
    EXPECT(w, e, NULL, !used(e), "drained: it is closed, and all blocks are freed");
  }
}

static int count_visits(const tslab_epoch_status *s, void *argument) {
  dprintf(2, "still there: epoch %#llx \"%s\", state %llu, %llu threads inside, %llu live blocks\n",
          (unsigned long long)s->epoch, s->label, (unsigned long long)s->state, (unsigned long long)s->threads_inside,
          (unsigned long long)s->live_blocks);
  ++*(unsigned *)argument;
  return 0;
}

static void run(unsigned round, unsigned seconds, uint64_t *total) {
  tslab_stats_global before, after;
  unsigned visits = 0;
  uint64_t allocations = 0;
  CHECK(tslab_stats(&before, sizeof before) == 0);
  atomic_store(&stop, 0);
  for (unsigned i = 0; i <= THREADS; i++) begin(&workers[i], i, round);
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
  atomic_store(&stop, 1);
  for (unsigned i = 0; i < THREADS; i++) CHECK(pthread_join(workers[i].thread, NULL) == 0);
  clean_up(&workers[MAIN]);
  for (unsigned i = 0; i <= THREADS; i++) {
    allocations += workers[i].allocations;
    for (unsigned call = 0; call < CALLS; call++) total[call] += workers[i].calls[call];
  }
  CHECK(tslab_epoch_each(count_visits, &visits) == 0);
  CHECK_COUNT(visits, ==, 0);
  CHECK_COUNT(bytes_in_use, ==, 0);

  tslab_purge();
  CHECK(tslab_stats(&after, sizeof after) == 0);
  const size_t resident = shadow_resident();
  printf("round %u: %llu allocations; then %llu KiB in use, %llu KiB dirty, %zu KiB resident\n", round,
         (unsigned long long)allocations, (unsigned long long)after.in_use_bytes >> 10,
         (unsigned long long)after.free_dirty_bytes >> 10, resident >> 10);
  CHECK_COUNT(after.live_blocks, ==, before.live_blocks);
  CHECK_COUNT(after.live_bytes, ==, before.live_bytes);
  CHECK_COUNT(after.allocations - before.allocations, ==, allocations);
  CHECK_COUNT(after.frees - before.frees, ==, allocations);
  CHECK_COUNT(after.free_dirty_bytes, <=, 1 << 20);
  /* Heaps of threads and slots of epochs stay for the next ones; a hardened heap has a quarantine. */
  CHECK_COUNT(resident, <=, TSLAB_HARDENED ? 4 << 19 : 3 << 19);
}

int main(int argc, char **argv) {
  const bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
  const unsigned rounds = is_long ? 60 : 4, seconds = is_long ? 10 : TEST_SCALE > 1 ? 2 : 4;
  uint64_t total[CALLS] = {0};
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (unsigned i = 0; i < EPOCHS; i++) CHECK(pthread_rwlock_init(&epochs[i].lock, NULL) == 0);
  CHECK(pthread_barrier_init(&stopped, NULL, THREADS) == 0);
  for (unsigned round = 1; round <= rounds; round++) run(round, seconds, total);
  for (unsigned call = 0; call < CALLS; call++) {
    printf("%12llu %s\n", (unsigned long long)total[call], names[call]);
    CHECK_COUNT(total[call], >, 0); /* a mix that never came here would prove nothing */
  }
  return 0;
}
