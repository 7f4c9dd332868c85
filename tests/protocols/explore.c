/* explore: see explore.h.
 *
 * Everything that changes here lies in `w`, apart from what the sources own: their data and the arena are restored
 * before each schedule, by blocks of 1 KiB that were written to. */
#include "explore.h"

#include "epoch/scope.h"
#include "heap/fast.h"
#include "runtime/birth.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

void *__real_memset(void *at, int byte, size_t bytes);
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);

#define ARENA       ((size_t)24 << 20)
#define ARENA_START ((uintptr_t)0x210000000000) /* always the same, so that a schedule means the same in each run */
#define DATA_MOST   ((size_t)4 << 20)
#define SPACE       (ARENA + DATA_MOST)
#define BLOCK_SHIFT 10
#define BLOCKS      (SPACE >> BLOCK_SHIFT)
#define STACK       ((size_t)512 << 10)

#define SPIN_LOADS   16      /* a loop that waits has no more */
#define SPINS        2       /* so often it sees the same before others must go on */
#define DELAYED      8       /* stores in a thread's buffer */
#define STEPS_MOST   20000   /* of one schedule: more is a livelock */
#define DECISIONS    50000   /* of one schedule */
#define REPLAY_SLOWER 1000   /* every access is a step there */
#define SEEN_LOG     22      /* states remembered */
#define TRACE_MOST   20000

/* ---- what is known ----------------------------------------------------------------------------------------------- */

/* Of each 8 bytes. */
struct cell {
  uint32_t stamp;    /* the schedule that what follows `visible` is of */
  uint8_t visible;   /* accesses are points; learned, and never forgotten */
  uint8_t write_mask, write_thread, write_atomic;
  uint16_t write_clock;
  uint8_t read_mask[THREADS], read_atomic; /* a bit for each thread */
  uint16_t read_clock[THREADS];
  uint16_t sync[THREADS]; /* an acquire here learns these clocks */
  uint32_t write_pc, read_pc[THREADS];
  uint64_t version; /* which history wrote it last */
};

struct delayed {
  uintptr_t at;
  uint64_t value, history;
  uint32_t pc;
  uint8_t size;
  uint16_t sync[THREADS];
};

struct fiber {
  jmp_buf context;
  ucontext_t start;
  char *stack;
  struct heap *heap;
  struct thread *thread;
  uint8_t heap_state;    /* src keeps these three in thread-local variables, too */
  uint8_t frees_unborn;
  unsigned locks;
  int error;
  bool begun, done, yielded, sleeps; /* sleeps: waits_for is woken, and not by a write */
  const void *waits_for;
  uint16_t clock[THREADS], released[THREADS], seen[THREADS]; /* up to the last release fence; by relaxed loads */
  struct delayed delayed[DELAYED];
  unsigned delayed_count;
  uint64_t history, time;
  uint32_t accesses;
  unsigned priority;
  struct {
    uint64_t what;
    unsigned times;
  } loads[SPIN_LOADS]; /* since somebody wrote last */
  unsigned load_count;
  uint64_t writes_then;
};

struct decision {
  uint32_t costly; /* a bit for each option */
  uint8_t options, chosen, spent; /* spent: before it */
};

enum access { LOAD, STORE, EXCHANGE, CAS, CAS_FAILED, ADD, SUB, AND, OR, XOR, FENCE, BARRIER, PLAIN_READ, PLAIN_WRITE,
              DELAYED_STORE, FLUSH, SWITCH, WAITS, YIELDS };
static const char *const access_names[] = {
    "load", "store", "exchange", "compare-exchange", "compare-exchange, failed", "add", "sub", "and", "or", "xor",
    "fence", "membarrier", "plain read", "plain write", "store, delayed", "delayed store arrives", "-- goes on",
    "waits for a lock", "yields"};

struct traced {
  uint8_t thread, access;
  uint32_t pc;
  uintptr_t at;
  uint64_t value;
};

enum mode { SEARCH, WALK, REPLAY };

/* A schedule is a list of deviations; without one, the running thread goes on. The list does not depend on the set of
 * accesses that were known to be points, so a run that knows more or fewer of them can replay it. */
struct deviation {
  uint8_t thread, what, target;
  uint32_t access; /* of the thread: before which one */
};
enum { STARTS = 's', GOES = '>', DELAYS_IT = 'd', ARRIVES = 'f' };
#define DEVIATIONS 4096

static struct world {
  const struct scenario *scenario;
  struct fiber fibers[THREADS], main_fiber;
  int current; /* -1: main */
  unsigned threads;
  bool active;
  enum mode mode;
  jmp_buf explorer;
  uint32_t stamp, pc;

  struct decision path[DECISIONS];
  unsigned prefix, depth; /* decisions that are given, and made so far */
  struct deviation log[DEVIATIONS], plan[DEVIATIONS];
  unsigned logged, planned, plan_at;
  unsigned bound, spent;
  unsigned steps;
  bool grew;

  uint64_t generation; /* of `seen` */
  uint64_t writes;
  uint64_t random, memory; /* memory: sum of versions */
  unsigned changes[8], change_count;

  uint64_t schedules, cut_short, total_steps, restarts;
  unsigned longest, locations;

  bool tracing;
  unsigned trace_count;
  char failure[512];
  bool failed;

  uintptr_t data_start;
  size_t data_bytes;
  size_t arena_used;
  void (*thread_ends)(void *);
  uint32_t dirty_blocks[BLOCKS];
  unsigned dirty_count;
  uint8_t dirty[BLOCKS], touched[BLOCKS];
} *w;

static struct cell *cells;
static char *snapshot;
static struct traced *trace;
static struct {
  uint64_t key;
  uint64_t left;
} *seen;

extern char __data_start[], _end[], __executable_start[];

static void world_begin(void);

INLINE struct fiber *self_fiber(void) { return w->current < 0 ? &w->main_fiber : &w->fibers[w->current]; }

/* Where an address lies in what is restored; false for stacks and what is the system's. */
INLINE bool locate(uintptr_t a, size_t *offset) {
  if (a - ARENA_START < ARENA) {
    *offset = a - ARENA_START;
    return true;
  }
  *offset = a - w->data_start + ARENA;
  return a - w->data_start < w->data_bytes;
}

INLINE char *address_of(size_t offset) {
  return offset < ARENA ? (char *)ARENA_START + offset : (char *)w->data_start + (offset - ARENA);
}

INLINE void dirty_block(size_t block) {
  if (w->dirty[block]) return;
  w->dirty[block] = w->touched[block] = 1;
  w->dirty_blocks[w->dirty_count++] = (uint32_t)block;
}

INLINE void dirty(size_t offset, size_t bytes) {
  for (size_t b = offset >> BLOCK_SHIFT, last = (offset + bytes - 1) >> BLOCK_SHIFT; b <= last; b++) dirty_block(b);
}

INLINE uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static uint64_t next_random(void) {
  w->random ^= w->random >> 12;
  w->random ^= w->random << 25;
  w->random ^= w->random >> 27;
  return w->random * UINT64_C(0x2545F4914F6CDD1D);
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

enum { RAN = 1, CUT, FAILED };

void explore_fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(w->failure, sizeof w->failure, format, arguments);
  va_end(arguments);
  w->failed = true;
  if (w->scenario && w->stamp) _longjmp(w->explorer, FAILED);
  dprintf(2, "%s\n", w->failure);
  _exit(2);
}

static void note(enum access access, uintptr_t at, uint64_t value, uint32_t pc) {
  if (w->tracing && w->trace_count < TRACE_MOST)
    trace[w->trace_count++] = (struct traced){(uint8_t)w->current, (uint8_t)access, pc, at, value};
}

/* ---- the baton --------------------------------------------------------------------------------------------------- */

static void save_identity(struct fiber *f) {
  f->heap = current_heap;
  f->thread = current_thread;
  f->heap_state = thread_heap_state;
  f->frees_unborn = thread_frees_unborn;
  f->locks = locks_held;
  f->error = errno;
}

static void take_identity(const struct fiber *f) {
  current_heap = f->heap;
  current_thread = f->thread;
  thread_heap_state = f->heap_state;
  thread_frees_unborn = f->frees_unborn;
  locks_held = f->locks;
  errno = f->error;
}

static void thread_done(void);

static void begin_fiber(void) {
  w->scenario->run[w->current]();
  thread_done();
}

static void go_to(int t) {
  struct fiber *from = self_fiber(), *to = &w->fibers[t];
  if (from == to) return;
  save_identity(from);
  w->current = t;
  note(SWITCH, 0, 0, 0);
  if (_setjmp(from->context)) return;
  take_identity(to);
  if (to->begun) _longjmp(to->context, 1);
  to->begun = true;
  setcontext(&to->start);
}

static bool can_run(const struct fiber *f) { return !f->done && !f->waits_for; }

static bool others_can_run(int but) {
  for (unsigned t = 0; t < w->threads; t++)
    if ((int)t != but && can_run(&w->fibers[t]) && !w->fibers[t].yielded) return true;
  return false;
}

static bool enabled(int t) {
  return can_run(&w->fibers[t]) && !(w->fibers[t].yielded && others_can_run(t));
}

static void wake(uintptr_t at) {
  w->writes++;
  for (unsigned t = 0; t < w->threads; t++) {
    struct fiber *f = &w->fibers[t];
    if (!f->sleeps && (uintptr_t)f->waits_for >> 3 == at >> 3) f->waits_for = NULL;
    if ((int)t != w->current) f->yielded = false;
  }
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

/* Returns the same number for all orders of independent accesses that lead to one state. It describes each thread by
 * its accesses and the values that it saw. */
static uint64_t signature(unsigned kind) {
  uint64_t sum = w->memory + kind;
  for (unsigned t = 0; t < w->threads; t++) {
    const struct fiber *f = &w->fibers[t];
    sum += mix(f->history, t * 128 + f->delayed_count * 8 + f->sleeps * 4 + f->yielded * 2 + f->done);
  }
  return mix(sum, (uint64_t)self_fiber()->accesses << 8 | (uint64_t)(w->current + 1)) | 1;
}

/* Returns true if this state was explored with at least this many deviations left. */
static bool seen_before(unsigned kind) {
  uint64_t key = signature(kind), left = w->generation << 8 | (w->bound - w->spent);
  for (size_t i = key & (((size_t)1 << SEEN_LOG) - 1), tries = 0; tries < 64;
       i = (i + 1) & (((size_t)1 << SEEN_LOG) - 1), tries++) {
    bool stale = seen[i].left >> 8 != w->generation;
    if (!stale && seen[i].key != key) continue;
    if (!stale && seen[i].left >= left) return true;
    seen[i].key = key;
    seen[i].left = left;
    return false;
  }
  return false; /* full: it will be explored again */
}

/* Option 0 costs nothing. */
enum kind { WHO, DELAYS, FIRST };
static unsigned decide(enum kind kind, unsigned options, uint32_t costly, unsigned by_chance) {
  if (options == 1 || w->mode == REPLAY) return 0;
  if (w->depth == DECISIONS) explore_fail("more than %u decisions in one schedule", DECISIONS);
  struct decision *d = &w->path[w->depth];
  if (w->depth >= w->prefix) {
    if (w->mode == SEARCH && seen_before(kind)) _longjmp(w->explorer, CUT);
    *d = (struct decision){.chosen = (uint8_t)(w->mode == WALK ? by_chance : 0)};
  }
  d->costly = costly;
  d->options = (uint8_t)options;
  d->spent = (uint8_t)w->spent;
  w->spent += costly >> d->chosen & 1;
  w->depth++;
  return d->chosen;
}

static void log_deviation(char what, int target) {
  uint32_t access = w->current < 0 ? 0 : self_fiber()->accesses;
  if (w->logged < DEVIATIONS)
    w->log[w->logged++] = (struct deviation){(uint8_t)w->current, (uint8_t)what, (uint8_t)target, access};
}

/* The next deviation of a replay, when it is due here. */
static const struct deviation *due(void) {
  const struct deviation *d = &w->plan[w->plan_at];
  if (w->plan_at == w->planned || d->thread != w->current || d->access != self_fiber()->accesses) return NULL;
  return d;
}

static void arrive(int t);

static unsigned highest(const int *threads, unsigned count) {
  unsigned best = 0;
  for (unsigned i = 1; i < count; i++)
    if (w->fibers[threads[i]].priority > w->fibers[threads[best]].priority) best = i;
  return best;
}

/* Somebody goes on: the running thread, when it can, or another. Returns when the running thread does. */
static void point(void) {
  if (!w->active || w->current < 0) return;
  struct fiber *me = self_fiber();
  int my_number = w->current;
  if (++w->steps > (w->mode == REPLAY ? REPLAY_SLOWER * STEPS_MOST : STEPS_MOST))
    explore_fail("livelock: more than %u steps", STEPS_MOST);
  if (w->mode == WALK)
    for (unsigned i = 0; i < w->change_count; i++)
      if (w->changes[i] == w->steps) me->priority = w->change_count - i; /* below those who did not change */
  while (w->mode == REPLAY) {
    const struct deviation *d = due();
    if (d && d->what == ARRIVES) {
      w->plan_at++;
      arrive(d->target);
    } else if (d && d->what == GOES) {
      w->plan_at++;
      go_to(d->target);
      return;
    } else if (can_run(me)) {
      return;
    } else {
      break;
    }
  }
  for (;;) {
    int threads[THREADS], flushes[THREADS];
    unsigned count = 0, flush_count = 0;
    bool goes_on = enabled(my_number);
    if (goes_on) threads[count++] = my_number;
    for (unsigned t = 0; t < w->threads; t++) {
      if ((int)t != my_number && enabled((int)t)) threads[count++] = (int)t;
      if (w->fibers[t].delayed_count) flushes[flush_count++] = (int)t;
    }
    if (count == 0) {
      if (flush_count) {
        arrive(flushes[0]);
        continue;
      }
      bool all_done = true;
      for (unsigned t = 0; t < w->threads; t++) all_done &= w->fibers[t].done;
      if (all_done) _longjmp(w->explorer, RAN);
      explore_fail("deadlock: every thread waits");
    }
    unsigned options = count + flush_count, chance = 0;
    uint32_t costly = (((uint32_t)1 << options) - 1) & ~(((uint32_t)1 << (goes_on ? 1 : count)) - 1);
    if (w->mode == WALK) {
      chance = highest(threads, count);
      if (flush_count && next_random() % 8 == 0) chance = count + (unsigned)(next_random() % flush_count);
    }
    unsigned chosen = decide(WHO, options, costly, chance);
    if (chosen >= count) {
      log_deviation(ARRIVES, flushes[chosen - count]);
      arrive(flushes[chosen - count]);
      continue;
    }
    me->yielded &= threads[chosen] != my_number;
    if (threads[chosen] != my_number) log_deviation(GOES, threads[chosen]);
    go_to(threads[chosen]);
    return;
  }
}

static void thread_done(void) {
  struct fiber *me = self_fiber();
  me->accesses++;
  if (me->delayed_count) point();
  while (me->delayed_count) arrive(w->current);
  me->accesses++;
  me->done = true;
  wake(0);
  point();
}

/* ---- who knows of what: happens-before --------------------------------------------------------------------------- */

INLINE void join(uint16_t *to, const uint16_t *from) {
  for (unsigned t = 0; t < THREADS; t++)
    if (from[t] > to[t]) to[t] = from[t];
}

INLINE bool acquires(int order) { return order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE; }
INLINE bool releases(int order) {
  return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static struct cell *cell_at(size_t offset) {
  struct cell *c = &cells[offset >> 3];
  if (c->stamp != w->stamp) {
    uint8_t visible = c->visible;
    *c = (struct cell){.stamp = w->stamp, .visible = visible};
  }
  return c;
}

static void place(char *to, size_t size, uint32_t pc) { /* "a+1234", for explain() */
  snprintf(to, size, "@%x", pc);
}

static NOINLINE void race(const struct cell *c, uint32_t other, bool write) {
  char here[24], there[24];
  place(here, sizeof here, w->pc);
  place(there, sizeof there, other);
  (void)c;
  explore_fail("data race: a plain %s at %s, and a plain access at %s that it is not ordered with",
               write ? "write" : "read", here, there);
}

/* An access of the running thread, to bytes `mask` of the cell. */
static void order_access(struct cell *c, uint8_t mask, bool write, bool atomic) {
  struct fiber *me = self_fiber();
  unsigned t = (unsigned)w->current;
  bool conflict = false;
  if ((c->write_mask & mask) && c->write_thread != t && c->write_clock > me->clock[c->write_thread]) {
    if (!atomic && !c->write_atomic) race(c, c->write_pc, write);
    conflict = true;
  }
  for (unsigned u = 0; write && u < w->threads; u++) {
    if (u == t || !(c->read_mask[u] & mask) || c->read_clock[u] <= me->clock[u]) continue;
    if (!atomic && !(c->read_atomic >> u & 1)) race(c, c->read_pc[u], write);
    conflict = true;
  }
  if (conflict && !c->visible) {
    c->visible = 1;
    w->grew = true;
    w->locations++;
  }
  if (write) {
    c->write_mask = mask;
    c->write_thread = (uint8_t)t;
    c->write_atomic = atomic;
    c->write_clock = me->clock[t];
    c->write_pc = w->pc;
  } else {
    c->read_mask[t] = mask;
    c->read_clock[t] = me->clock[t];
    c->read_atomic = (uint8_t)((c->read_atomic & ~(1u << t)) | ((unsigned)atomic << t));
    c->read_pc[t] = w->pc;
  }
}

static void remember(enum access access, struct cell *c, uintptr_t at, uint64_t value) {
  if (!c->visible) return;
  struct fiber *me = self_fiber();
  bool reads = access == LOAD || access == CAS_FAILED || access == PLAIN_READ;
  me->history = mix(me->history, mix(c->version, (at << 5) + access));
  if (!reads) {
    w->memory -= mix(c->version, at >> 3);
    c->version = me->history;
    w->memory += mix(c->version, at >> 3);
  }
  note(access, at, value, w->pc);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

INLINE uint64_t get(uintptr_t at, unsigned size) {
  switch (size) {
  case 1: return *(volatile uint8_t *)at;
  case 2: return *(volatile uint16_t *)at;
  case 4: return *(volatile uint32_t *)at;
  default: return *(volatile uint64_t *)at;
  }
}

INLINE void put(uintptr_t at, unsigned size, uint64_t value) {
  size_t offset;
  if (locate(at, &offset)) dirty(offset, size);
  switch (size) {
  case 1: *(volatile uint8_t *)at = (uint8_t)value; return;
  case 2: *(volatile uint16_t *)at = (uint16_t)value; return;
  case 4: *(volatile uint32_t *)at = (uint32_t)value; return;
  default: *(volatile uint64_t *)at = value;
  }
}

/* The oldest of the thread's delayed stores is done. */
static void arrive(int t) {
  struct fiber *f = &w->fibers[t];
  struct delayed d = f->delayed[0];
  size_t offset = 0;
  f->delayed_count--;
  for (unsigned i = 0; i < f->delayed_count; i++) f->delayed[i] = f->delayed[i + 1];
  locate(d.at, &offset);
  struct cell *c = cell_at(offset);
  put(d.at, d.size, d.value);
  __real_memcpy(c->sync, d.sync, sizeof c->sync);
  w->memory -= mix(c->version, d.at >> 3);
  c->version = mix(d.history, c->version);
  w->memory += mix(c->version, d.at >> 3);
  int running = w->current;
  w->current = t;
  note(FLUSH, d.at, d.value, d.pc);
  w->current = running;
  wake(d.at);
}

static void arrive_all(int t) {
  while (t >= 0 && w->fibers[t].delayed_count) arrive(t);
}

/* The youngest of its delayed stores to these bytes, or NULL; *mixed when one overlaps in another way. */
static struct delayed *delayed_at(struct fiber *f, uintptr_t at, size_t size, bool *overlaps) {
  for (unsigned i = f->delayed_count; i-- > 0;) {
    struct delayed *d = &f->delayed[i];
    if (d->at == at && d->size == size) return d;
    if (d->at < at + size && at < d->at + d->size) *overlaps = true;
  }
  return NULL;
}

INLINE uint8_t mask_of(uintptr_t at, size_t size) { return (uint8_t)(((1u << size) - 1) << (at & 7)); }

/* A cell where threads meet, or NULL: nobody else sees the access. */
static struct cell *meet(uintptr_t at) {
  size_t offset;
  if (!w || !w->active || w->current < 0 || !locate(at, &offset)) return NULL;
  return cell_at(offset);
}

/* ---- atomic accesses --------------------------------------------------------------------------------------------- */

/* A thread that waits in a loop for what another will write sees the same again and again: it yields. */
static void notice_spin(struct fiber *f, const struct cell *c, uintptr_t at) {
  uint64_t what = mix(c->version + at, w->pc);
  if (f->writes_then != w->writes) f->load_count = 0;
  f->writes_then = w->writes;
  unsigned i = 0;
  while (i < f->load_count && f->loads[i].what != what) i++;
  if (i == SPIN_LOADS) return;
  if (i == f->load_count) {
    f->loads[f->load_count].what = what;
    f->loads[f->load_count++].times = 0;
  }
  if (++f->loads[i].times > SPINS && !w->scenario->spins) f->yielded = true;
}

static uint64_t do_load(uintptr_t at, unsigned size, int order) {
  struct cell *c = meet(at);
  if (!c) return get(at, size);
  struct fiber *me = self_fiber();
  uint32_t pc = w->pc;
  me->accesses++;
  if (c->visible && w->mode != REPLAY) notice_spin(me, c, at);
  if (c->visible || w->mode == REPLAY) point();
  w->pc = pc;
  order_access(c, mask_of(at, size), false, true);
  bool overlaps = false;
  struct delayed *own = delayed_at(me, at, size, &overlaps);
  if (overlaps) arrive_all(w->current);
  else if (own) {
    me->history = mix(me->history, own->history);
    note(LOAD, at, own->value, pc);
    return own->value;
  }
  uint64_t value = get(at, size);
  join(acquires(order) ? me->clock : me->seen, c->sync);
  remember(LOAD, c, at, value);
  return value;
}

static void do_store(uintptr_t at, unsigned size, uint64_t value, int order) {
  struct cell *c = meet(at);
  if (!c) {
    put(at, size, value);
    return;
  }
  struct fiber *me = self_fiber();
  uint32_t pc = w->pc;
  unsigned t = (unsigned)w->current;
  me->accesses++;
  if (c->visible || w->mode == REPLAY) point();
  w->pc = pc;
  order_access(c, mask_of(at, size), true, true);
  struct delayed d = {at, value, 0, pc, (uint8_t)size, {0}};
  __real_memcpy(d.sync, releases(order) ? me->clock : me->released, sizeof d.sync);
  if (releases(order)) me->clock[t]++;
  if (order == __ATOMIC_SEQ_CST) arrive_all((int)t);
  else if (c->visible || w->mode == REPLAY) {
    const struct deviation *d_due = w->mode == REPLAY ? due() : NULL;
    bool delays = w->mode == REPLAY ? d_due && d_due->what == DELAYS_IT : me->delayed_count != 0;
    if (w->mode == REPLAY) w->plan_at += delays;
    else if (!delays) delays = decide(DELAYS, 2, 2, next_random() % 4 == 0) == 1;
    if (delays) {
      log_deviation(DELAYS_IT, 0);
      if (me->delayed_count == DELAYED) arrive((int)t);
      me->history = mix(me->history, at * 4 + 3);
      d.history = me->history;
      me->delayed[me->delayed_count++] = d;
      note(DELAYED_STORE, at, value, pc);
      return;
    }
  }
  bool overlaps = false;
  if (delayed_at(me, at, size, &overlaps) || overlaps) arrive_all((int)t);
  put(at, size, value);
  __real_memcpy(c->sync, d.sync, sizeof c->sync);
  remember(STORE, c, at, value);
  wake(at);
}

/* The order of what is read and of what is written are the same, but for a compare-exchange that fails. */
static uint64_t do_change(uintptr_t at, unsigned size, enum access access, uint64_t operand, uint64_t expected,
                          int order, int failure_order) {
  struct cell *c = meet(at);
  struct fiber *me = c ? self_fiber() : NULL;
  uint32_t pc = w ? w->pc : 0;
  if (c) {
    bool overlaps = false;
    me->accesses++;
    if (c->visible || (me->delayed_count && releases(order)) || w->mode == REPLAY) point();
    w->pc = pc;
    if (releases(order) || delayed_at(me, at, size, &overlaps) || overlaps) arrive_all(w->current);
  }
  uint64_t before = get(at, size), after = before;
  uint64_t all = size == 8 ? ~(uint64_t)0 : ((uint64_t)1 << (size * 8)) - 1;
  switch (access) {
  case EXCHANGE: after = operand; break;
  case CAS:
    if (before != (expected & all)) access = CAS_FAILED;
    else after = operand;
    break;
  case ADD: after = before + operand; break;
  case SUB: after = before - operand; break;
  case AND: after = before & operand; break;
  case OR: after = before | operand; break;
  default: after = before ^ operand;
  }
  bool writes = access != CAS_FAILED;
  if (!writes) order = failure_order;
  if (writes) put(at, size, after & all);
  if (!c) return before;
  order_access(c, mask_of(at, size), writes, true);
  join(acquires(order) ? me->clock : me->seen, c->sync);
  if (writes) {
    join(c->sync, releases(order) ? me->clock : me->released); /* earlier releases still hold */
    if (releases(order)) me->clock[w->current]++;
  }
  remember(access, c, at, after & all);
  if (writes) wake(at);
  return before;
}

static void do_fence(int order) {
  if (!w || !w->active || w->current < 0) return;
  struct fiber *me = self_fiber();
  me->accesses++;
  if (releases(order)) {
    if (me->delayed_count) point();
    arrive_all(w->current);
    note(FENCE, 0, 0, w->pc);
  }
  if (acquires(order)) join(me->clock, me->seen);
  if (releases(order)) {
    __real_memcpy(me->released, me->clock, sizeof me->released);
    me->clock[w->current]++;
  }
}

/* ---- plain accesses ---------------------------------------------------------------------------------------------- */

static void plain(uintptr_t at, size_t bytes, bool write) {
  size_t offset;
  if (!w || bytes == 0 || !locate(at, &offset)) return;
  if (write) dirty(offset, bytes);
  if (!w->active || w->current < 0) return;
  struct fiber *me = self_fiber();
  uint32_t pc = w->pc;
  for (uintptr_t end = at + bytes, a = at; a < end;) {
    size_t here = 8 - (a & 7);
    if (here > end - a) here = end - a;
    locate(a, &offset);
    struct cell *c = cell_at(offset);
    bool overlaps = false;
    me->accesses++;
    if (c->visible || w->mode == REPLAY) point();
    w->pc = pc;
    if (me->delayed_count && (delayed_at(me, a, here, &overlaps) || overlaps)) arrive_all(w->current);
    order_access(c, mask_of(a, here), write, false);
    remember(write ? PLAIN_WRITE : PLAIN_READ, c, a, write ? 0 : get(a & ~(uintptr_t)7, 8));
    if (write && c->visible) wake(a);
    a += here;
  }
}

/* ---- what the compiler calls ------------------------------------------------------------------------------------- */

#define PC ((uint32_t)((uintptr_t)__builtin_return_address(0) - (uintptr_t)__executable_start - 1))
#define HERE() do { if (w) w->pc = PC; } while (0)
#define READ(p, size) do { if (w && w->active) { w->pc = PC; plain((uintptr_t)(p), size, false); } } while (0)

void __tsan_init(void);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_init(void) { world_begin(); }
void __tsan_func_entry(void *pc) { (void)pc; }
void __tsan_func_exit(void) {}

#define PLAIN(size)                                                                                        \
  void __tsan_read##size(void *p);                                                                         \
  void __tsan_write##size(void *p);                                                                        \
  void __tsan_unaligned_read##size(void *p);                                                               \
  void __tsan_unaligned_write##size(void *p);                                                              \
  void __tsan_read##size(void *p) { READ(p, size); }                                                       \
  void __tsan_write##size(void *p) { HERE(); plain((uintptr_t)p, size, true); }                            \
  void __tsan_unaligned_read##size(void *p) { READ(p, size); }                                             \
  void __tsan_unaligned_write##size(void *p) { HERE(); plain((uintptr_t)p, size, true); }
PLAIN(1) PLAIN(2) PLAIN(4) PLAIN(8) PLAIN(16)

void __tsan_read_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void __tsan_read_range(void *p, size_t bytes) { READ(p, bytes); }
void __tsan_write_range(void *p, size_t bytes) { HERE(); plain((uintptr_t)p, bytes, true); }

void *__wrap_memset(void *at, int byte, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memmove(void *to, const void *from, size_t bytes);
void *__wrap_memset(void *at, int byte, size_t bytes) {
  HERE();
  plain((uintptr_t)at, bytes, true);
  return __real_memset(at, byte, bytes);
}
void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
  HERE();
  plain((uintptr_t)from, bytes, false);
  plain((uintptr_t)to, bytes, true);
  return __real_memcpy(to, from, bytes);
}
void *__wrap_memmove(void *to, const void *from, size_t bytes) {
  HERE();
  plain((uintptr_t)from, bytes, false);
  plain((uintptr_t)to, bytes, true);
  return __real_memmove(to, from, bytes);
}

#define CHANGE(bits, name, access)                                                                         \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile void *p, uint##bits##_t v, int order);              \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile void *p, uint##bits##_t v, int order) {             \
    HERE();                                                                                                \
    return (uint##bits##_t)do_change((uintptr_t)p, bits / 8, access, v, 0, order, order);                  \
  }
#define ATOMIC(bits)                                                                                       \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile void *p, int order);                            \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile void *p, int order) {                           \
    HERE();                                                                                                \
    return (uint##bits##_t)do_load((uintptr_t)p, bits / 8, order);                                         \
  }                                                                                                        \
  void __tsan_atomic##bits##_store(volatile void *p, uint##bits##_t v, int order);                         \
  void __tsan_atomic##bits##_store(volatile void *p, uint##bits##_t v, int order) {                        \
    HERE();                                                                                                \
    do_store((uintptr_t)p, bits / 8, v, order);                                                            \
  }                                                                                                        \
  CHANGE(bits, exchange, EXCHANGE) CHANGE(bits, fetch_add, ADD) CHANGE(bits, fetch_sub, SUB)               \
  CHANGE(bits, fetch_and, AND) CHANGE(bits, fetch_or, OR) CHANGE(bits, fetch_xor, XOR)                     \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile void *p, void *expected, uint##bits##_t v,    \
                                                    int order, int failure);                               \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile void *p, void *expected, uint##bits##_t v,    \
                                                    int order, int failure) {                              \
    HERE();                                                                                                \
    uint##bits##_t wanted = *(uint##bits##_t *)expected;                                                   \
    uint##bits##_t found =                                                                                 \
        (uint##bits##_t)do_change((uintptr_t)p, bits / 8, CAS, v, wanted, order, failure);                 \
    if (found != wanted) *(uint##bits##_t *)expected = found;                                              \
    return found == wanted;                                                                                \
  }                                                                                                        \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile void *p, void *expected, uint##bits##_t v,      \
                                                  int order, int failure);                                 \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile void *p, void *expected, uint##bits##_t v,      \
                                                  int order, int failure) {                                \
    HERE();                                                                                                \
    uint##bits##_t wanted = *(uint##bits##_t *)expected;                                                   \
    uint##bits##_t found =                                                                                 \
        (uint##bits##_t)do_change((uintptr_t)p, bits / 8, CAS, v, wanted, order, failure);                 \
    if (found != wanted) *(uint##bits##_t *)expected = found;                                              \
    return found == wanted;                                                                                \
  }
ATOMIC(8) ATOMIC(16) ATOMIC(32) ATOMIC(64)

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_thread_fence(int order) { HERE(); do_fence(order); }
void __tsan_atomic_signal_fence(int order) { (void)order; }

/* ---- what the kernel and the scenario call ----------------------------------------------------------------------- */

char *explore_arena(size_t bytes) {
  if (w->arena_used + bytes > ARENA) return NULL;
  char *at = (char *)ARENA_START + w->arena_used;
  w->arena_used += bytes;
  return at;
}

void explore_zero(void *at, size_t bytes) {
  size_t offset;
  w->pc = PC;
  if (!locate((uintptr_t)at, &offset)) return;
  for (size_t b = offset >> BLOCK_SHIFT, end = (offset + bytes) >> BLOCK_SHIFT; b < end; b++) {
    if (!w->touched[b]) continue;
    plain((uintptr_t)address_of(b << BLOCK_SHIFT), (size_t)1 << BLOCK_SHIFT, true);
    __real_memset(address_of(b << BLOCK_SHIFT), 0, (size_t)1 << BLOCK_SHIFT);
  }
}

void explore_wait(const void *word) {
  if (w->current < 0) explore_fail("the main thread waits for a lock");
  self_fiber()->waits_for = word;
  self_fiber()->accesses++;
  note(WAITS, (uintptr_t)word, 0, w->pc);
  point();
}

void explore_sleep(const void *word) {
  if (w->current < 0) explore_fail("the main thread sleeps");
  self_fiber()->sleeps = true;
  explore_wait(word);
}

void explore_wake(const void *word, int most) {
  if (!w || !w->active) return;
  for (unsigned t = 0; t < w->threads && most > 0; t++) {
    struct fiber *f = &w->fibers[t];
    if (!f->sleeps || f->waits_for != word) continue;
    f->sleeps = false;
    f->waits_for = NULL;
    f->history = mix(f->history, 7);
    most--;
  }
}

void explore_yield(void) {
  if (w->current < 0) explore_fail("the main thread waits");
  if (!w->active) explore_fail("a thread waits in setup or finish");
  note(YIELDS, 0, 0, PC);
  self_fiber()->yielded = true;
  self_fiber()->accesses++;
  self_fiber()->history = mix(self_fiber()->history, 5);
  point();
}

void explore_barrier(void) {
  if (!w->active || w->current < 0) return;
  unsigned delayed = 0;
  self_fiber()->accesses++;
  for (unsigned t = 0; t < w->threads; t++) delayed += w->fibers[t].delayed_count;
  if (delayed) point();
  for (unsigned t = 0; t < w->threads; t++) arrive_all((int)t);
  note(BARRIER, 0, 0, PC);
}

uint64_t explore_clock(void) { return w ? self_fiber()->time += 1000 : 0; }
int explore_self(void) { return w ? w->current : -1; }

int explored_key_create(pthread_key_t *key, void (*ends)(void *));
int explored_setspecific(pthread_key_t key, const void *value);
int explored_thread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument);
int explored_key_create(pthread_key_t *key, void (*ends)(void *)) {
  *key = 1;
  w->thread_ends = ends;
  return 0;
}
int explored_setspecific(pthread_key_t key, const void *value) {
  (void)key, (void)value;
  return 0;
}
int explored_thread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument) {
  (void)thread, (void)how, (void)run, (void)argument;
  return EAGAIN;
}

void explore_as(int thread) {
  save_identity(self_fiber());
  w->current = thread;
  take_identity(self_fiber());
}

void explore_thread_ends(void) {
  if (current_heap != &empty_heap) w->thread_ends(current_heap);
}

void explore_write(void *at, size_t bytes, uint64_t pattern) {
  w->pc = PC;
  plain((uintptr_t)at, bytes, true);
  for (size_t i = 0; i + 8 <= bytes; i += 8) *(uint64_t *)((uintptr_t)at + i) = pattern;
}

void explore_read(const void *at, size_t bytes, uint64_t pattern) {
  w->pc = PC;
  plain((uintptr_t)at, bytes, false);
  for (size_t i = 0; i + 8 <= bytes; i += 8)
    if (*(const uint64_t *)((uintptr_t)at + i) != pattern) explore_fail("a block in use was written to by others");
}

/* ---- one schedule ------------------------------------------------------------------------------------------------ */

static void restore(void) {
  for (unsigned i = 0; i < w->dirty_count; i++) {
    size_t b = w->dirty_blocks[i];
    __real_memcpy(address_of(b << BLOCK_SHIFT), snapshot + (b << BLOCK_SHIFT), (size_t)1 << BLOCK_SHIFT);
    w->dirty[b] = 0;
  }
  w->dirty_count = 0;
}

static struct fiber prepared[THREADS], prepared_main; /* as setup left them */
static size_t prepared_arena;

static void begin_schedule(void) {
  restore();
  w->stamp++;
  w->depth = w->spent = w->steps = w->trace_count = w->logged = w->plan_at = 0;
  w->memory = 0;
  w->failed = false;
  w->main_fiber.heap = prepared_main.heap;
  w->main_fiber.thread = prepared_main.thread;
  w->main_fiber.heap_state = prepared_main.heap_state;
  w->main_fiber.frees_unborn = prepared_main.frees_unborn;
  w->main_fiber.locks = prepared_main.locks;
  w->main_fiber.time = prepared_main.time;
  w->arena_used = prepared_arena;
  w->writes = 0;
  for (unsigned t = 0; t < THREADS; t++) {
    struct fiber *f = &w->fibers[t];
    f->heap = prepared[t].heap;
    f->thread = prepared[t].thread;
    f->heap_state = prepared[t].heap_state;
    f->frees_unborn = prepared[t].frees_unborn;
    f->locks = prepared[t].locks;
    f->error = 0;
    f->begun = f->done = f->yielded = f->sleeps = false;
    f->waits_for = NULL;
    f->delayed_count = 0;
    f->history = t + 1;
    f->accesses = 0;
    f->load_count = 0;
    f->writes_then = 0;
    f->time = prepared[t].time;
    for (unsigned u = 0; u < THREADS; u++) f->clock[u] = f->released[u] = f->seen[u] = 0;
    f->clock[t] = 1;
    getcontext(&f->start);
    f->start.uc_stack.ss_sp = f->stack;
    f->start.uc_stack.ss_size = STACK;
    f->start.uc_link = NULL;
    makecontext(&f->start, begin_fiber, 0);
  }
  take_identity(&w->main_fiber);
}

/* RAN, CUT or FAILED. */
static int run_schedule(void) {
  begin_schedule();
  w->current = -1;
  int how = _setjmp(w->explorer);
  if (how == 0) {
    w->active = true;
    unsigned first = 0;
    if (w->mode == WALK) {
      int all[THREADS];
      for (unsigned t = 0; t < w->threads; t++) {
        all[t] = (int)t;
        w->fibers[t].priority = 100 + (unsigned)(next_random() % 100);
      }
      first = highest(all, w->threads);
    }
    if (w->mode == REPLAY && w->planned) first = w->plan[w->plan_at++].target;
    else if (w->mode != REPLAY) first = decide(FIRST, w->threads, 0, first);
    log_deviation(STARTS, (int)first);
    w->current = (int)(first % w->threads);
    struct fiber *f = self_fiber();
    f->begun = true;
    take_identity(f);
    note(SWITCH, 0, 0, 0);
    setcontext(&f->start);
  }
  w->active = false;
  if (how == RAN) {
    save_identity(self_fiber());
    w->current = -1;
    take_identity(&w->main_fiber);
    int after = _setjmp(w->explorer);
    if (after == 0) w->scenario->finish();
    else how = after;
  }
  w->current = -1;
  w->schedules += how != CUT;
  w->cut_short += how == CUT;
  w->total_steps += w->steps;
  if (w->steps > w->longest) w->longest = w->steps;
  return how;
}

/* The next schedule in order: the last decision that has an option left which the bound allows. */
static bool advance(void) {
  while (w->depth > 0) {
    struct decision *d = &w->path[w->depth - 1];
    unsigned left = w->bound - d->spent, next = d->chosen + 1u;
    while (next < d->options && (d->costly >> next & 1) > left) next++;
    if (next < d->options) {
      d->chosen = (uint8_t)next;
      w->prefix = w->depth;
      return true;
    }
    w->depth--;
  }
  return false;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- exploring --------------------------------------------------------------------------------------------------- */

/* All schedules with at most `bound` deviations. 0: all ran; 1: the deadline came first; FAILED. */
static int search(unsigned bound, double deadline) {
  w->mode = SEARCH;
  w->bound = bound;
again:
  w->generation++;
  w->prefix = w->depth = 0;
  w->grew = false;
  do {
    if (run_schedule() == FAILED) return FAILED;
    if (w->grew) { /* where nobody was known to look, points were missing until now */
      w->restarts++;
      goto again;
    }
    if (seconds() > deadline) return 1;
  } while (advance());
  return 0;
}

/* By chance: threads have priorities, which change at a few steps (Burckhardt, Kothari, Musuvathi and Nagarakatte
 * 2010). */
static int walk(unsigned count, uint64_t seed) {
  w->mode = WALK;
  w->bound = DECISIONS;
  w->prefix = 0;
  w->random = mix(seed, 1) | 1;
  for (unsigned i = 0; i < count; i++) {
    unsigned length = w->longest > 10 ? w->longest : 200;
    w->change_count = (unsigned)(next_random() % 7);
    for (unsigned c = 0; c < w->change_count; c++) w->changes[c] = 1 + (unsigned)(next_random() % length);
    if (run_schedule() == FAILED) return FAILED;
  }
  return 0;
}

static void on_signal(int number) {
  if (w->failed) _exit(3);
  explore_fail("signal %d (%s), perhaps an invariant that broke, or a misuse that was told", number,
               strsignal(number));
}

static void *map(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    perror("mmap");
    _exit(2);
  }
  return at;
}

/* Before the first constructor of the sources. */
static void world_begin(void) {
  if (w) return;
  struct world *made = map(sizeof *w);
  cells = map(SPACE / 8 * sizeof *cells);
  snapshot = map(SPACE);
  trace = map(TRACE_MOST * sizeof *trace);
  seen = map(sizeof *seen << SEEN_LOG);
  void *arena = mmap((void *)ARENA_START, ARENA, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (arena != (void *)ARENA_START) {
    perror("the arena's place is taken");
    _exit(2);
  }
  made->current = -1;
  made->data_start = (uintptr_t)__data_start & ~(((uintptr_t)1 << BLOCK_SHIFT) - 1);
  made->data_bytes = (size_t)((uintptr_t)_end - made->data_start);
  made->main_fiber.heap = &empty_heap;
  for (unsigned t = 0; t < THREADS; t++) {
    made->fibers[t].stack = map(STACK);
    made->fibers[t].heap = &empty_heap;
  }
  w = made;
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

/* "s1,1@40>0,0@7d,0@9f1": thread 1 starts, before its access 40 thread 0 goes on, whose store 7 is delayed, and before
 * whose access 9 the oldest of thread 1's delayed stores arrives. */
static void print_schedule(char *to, size_t size) {
  size_t at = 0;
  to[0] = 0;
  for (unsigned i = 0; i < w->logged && at + 32 < size; i++) {
    const struct deviation *d = &w->log[i];
    if (i) to[at++] = ',';
    if (d->what == STARTS) at += (size_t)snprintf(to + at, size - at, "s%u", d->target);
    else at += (size_t)snprintf(to + at, size - at, "%u@%u%c%u", d->thread, d->access, d->what, d->target);
  }
}

static void read_schedule(const char *from) {
  w->planned = 0;
  for (; *from && w->planned < DEVIATIONS; from += *from == ',') {
    struct deviation *d = &w->plan[w->planned++];
    char *end;
    *d = (struct deviation){.what = STARTS};
    if (*from == 's') {
      d->target = (uint8_t)strtoul(from + 1, &end, 10);
    } else {
      d->thread = (uint8_t)strtoul(from, &end, 10);
      d->access = (uint32_t)strtoul(*end ? end + 1 : end, &end, 10);
      d->what = (uint8_t)*end;
      d->target = (uint8_t)(*end ? strtoul(end + 1, &end, 10) : 0);
    }
    if (d->thread >= w->threads || d->target >= w->threads || end == from) {
      w->planned = 0;
      return;
    }
    from = end;
  }
}

/* Where each access of a trace stands: "function (file:line)", innermost first when inlined, and the line itself. */
static struct location {
  uint32_t pc;
  char place[800], source[200];
} *locations;
static unsigned location_count;

static struct location *location_of(uint32_t pc) {
  for (unsigned i = 0; i < location_count; i++)
    if (locations[i].pc == pc) return &locations[i];
  return NULL;
}

static void add_location(uint32_t pc) {
  if (pc && !location_of(pc)) locations[location_count++].pc = pc;
}

static void read_source(const char *file, int line, char *to, size_t size) {
  FILE *text = fopen(file, "r");
  for (; text && line > 0 && fgets(to, (int)size, text); line--) {}
  if (text) fclose(text);
  to[strcspn(to, "\n")] = 0;
  size_t blank = strspn(to, " ");
  memmove(to, to + blank, strlen(to + blank) + 1);
}

/* One call for all, because reading the program's debug information takes long. */
static void find_locations(void) {
  size_t size = 100 + location_count * 12, at = 0;
  char *command = malloc(size), line[300], function[90];
  at += (size_t)snprintf(command, size, "addr2line -a -f -i -e /proc/%d/exe", (int)getpid());
  for (unsigned i = 0; i < location_count; i++)
    at += (size_t)snprintf(command + at, size - at, " 0x%x", locations[i].pc);
  FILE *out = popen(command, "r");
  free(command);
  struct location *current = NULL;
  while (out && fgets(line, sizeof line, out)) {
    if (strncmp(line, "0x", 2) == 0) {
      current = location_of((uint32_t)strtoul(line, NULL, 16));
      continue;
    }
    snprintf(function, sizeof function, "%.*s", (int)strcspn(line, "\n"), line);
    if (!fgets(line, sizeof line, out) || !current) break;
    line[strcspn(line, " \n")] = 0;
    const char *base = strrchr(line, '/'), *colon = strrchr(line, ':');
    size_t used = strlen(current->place);
    snprintf(current->place + used, sizeof current->place - used, "%s%s (%s)", used ? " < " : "", function,
             base ? base + 1 : line);
    if (used || !colon) continue;
    line[colon - line] = 0;
    read_source(line, atoi(colon + 1), current->source, sizeof current->source);
  }
  if (out) pclose(out);
}

static void print_location(uint32_t pc) {
  const struct location *l = location_of(pc);
  if (l) printf("      %s\n      | %s\n", l->place, l->source);
}

/* Prints the last run, step by step, and why it failed. It replaces addresses like @1234 by source lines. */
static void print_trace(void) {
  locations = calloc(w->trace_count + 4u, sizeof *locations);
  location_count = 0;
  for (unsigned i = 0; i < w->trace_count; i++) add_location(trace[i].pc);
  for (const char *at = w->failure; (at = strchr(at, '@')) != NULL; at++)
    add_location((uint32_t)strtoul(at + 1, NULL, 16));
  find_locations();
  for (unsigned i = 0; i < w->trace_count; i++) {
    const struct traced *t = &trace[i];
    if (t->access == SWITCH) {
      printf("  ---- thread %u\n", t->thread);
      continue;
    }
    printf("  %u: %s", t->thread, access_names[t->access]);
    if (t->at) printf(" %" PRIxPTR " = %" PRIx64, t->at, t->value);
    printf("\n");
    print_location(t->pc);
  }
  printf("  %s\n", w->failure);
  for (const char *at = w->failure; (at = strchr(at, '@')) != NULL; at++)
    print_location((uint32_t)strtoul(at + 1, NULL, 16));
}

/* Runs the schedule that failed again, step by step. Returns true if it fails in the same way. */
static bool replay(const char *schedule) {
  char before[sizeof w->failure];
  strcpy(before, w->failure);
  w->failure[0] = 0;
  read_schedule(schedule);
  w->mode = REPLAY;
  w->bound = DECISIONS;
  w->tracing = true;
  int how = run_schedule();
  w->tracing = false;
  print_trace();
  return how == FAILED && strcmp(before, w->failure) == 0;
}

/* And begins to count anew. */
static void print_figures(const char *what, double since) {
  printf("%-18s %-20s %7" PRIu64 " schedules, %7" PRIu64 " cut short, %9" PRIu64
         " steps, longest %4u, %3u places, %6.2f s\n",
         w->scenario->name, what, w->schedules, w->cut_short, w->total_steps, w->longest, w->locations,
         seconds() - since);
  fflush(stdout);
  w->schedules = w->cut_short = w->total_steps = 0;
}

/* Nothing but what was written to came by here, or a schedule would begin with what another left. */
static void check_restored(void) {
  restore();
  for (size_t b = 0; b < BLOCKS; b++) {
    if (b << BLOCK_SHIFT >= ARENA + w->data_bytes) break;
    if (b << BLOCK_SHIFT >= ARENA && !w->touched[b]) continue; /* the explorer's own, and libc's */
    if (memcmp(address_of(b << BLOCK_SHIFT), snapshot + (b << BLOCK_SHIFT), (size_t)1 << BLOCK_SHIFT) != 0) {
      const char *now = address_of(b << BLOCK_SHIFT), *then = snapshot + (b << BLOCK_SHIFT);
      size_t first = 0;
      while (now[first] == then[first]) first++;
      printf("%s: memory at %p, %#tx in the program, changed and nobody saw it\n", w->scenario->name,
             (const void *)(now + first), now + first - __executable_start);
      fflush(stdout);
      _exit(2);
    }
  }
}

static void prepare(const struct scenario *s) {
  w->scenario = s;
  w->threads = 0;
  while (w->threads < THREADS && s->run[w->threads]) w->threads++;
  s->setup();
  explore_as(-1);
  save_identity(&w->main_fiber);
  prepared_main = w->main_fiber;
  prepared_arena = w->arena_used;
  for (unsigned t = 0; t < THREADS; t++) prepared[t] = w->fibers[t];
  for (size_t b = 0; b < BLOCKS; b++) {
    w->dirty[b] = 0;
    if (w->touched[b] || (b << BLOCK_SHIFT >= ARENA && b << BLOCK_SHIFT < ARENA + w->data_bytes))
      memcpy(snapshot + (b << BLOCK_SHIFT), address_of(b << BLOCK_SHIFT), (size_t)1 << BLOCK_SHIFT);
  }
  w->dirty_count = 0;
}

static int found(void) {
  static char schedule[DEVIATIONS * 8];
  print_schedule(schedule, sizeof schedule);
  printf("%s: FAILED, in schedule %" PRIu64 "; replay %s %s\n  %s\n", w->scenario->name, w->schedules,
         w->scenario->name, schedule, w->failure);
  fflush(stdout);
  bool same = replay(schedule);
  if (!same) printf("%s: the replay did not fail in the same way\n", w->scenario->name);
  fflush(stdout);
  return same ? FAILED : 4;
}

/* Until so many schedules showed no new place where threads meet. */
#define LEARNING 300

static int learn(void) {
  double since = seconds();
  for (uint64_t seed = 1; seed <= 20; seed++) {
    w->grew = false;
    if (walk(LEARNING, seed) == FAILED) return FAILED;
    if (!w->grew) break;
  }
  print_figures("by chance, to learn", since);
  return 0;
}

/* All schedules with 0, 1, ... deviations, `bound` at the most; then some by chance, and again should these show that
 * threads meet at places that the search did not know of. */
static int explore(unsigned bound, double search_seconds, double walk_seconds, uint64_t seed) {
  double start = seconds(), search_end = start + search_seconds;
  if (learn() == FAILED) return found();
  check_restored();
  do {
    double since = seconds();
    int how = 0;
    for (unsigned b = 0; b <= bound && how == 0; b++) {
      char what[64];
      how = search(b, search_end);
      if (how == FAILED) return found();
      snprintf(what, sizeof what, "%u deviations, %s", b, how == 0 ? "all" : "part");
      if (b == bound || how != 0) print_figures(what, since);
    }
    if (walk_seconds == 0) break;
    since = seconds();
    w->grew = false;
    while (seconds() < since + walk_seconds)
      if (walk(LEARNING, seed++) == FAILED) return found();
    print_figures("by chance", since);
  } while (w->grew && seconds() < search_end);
  check_restored();
  return 0;
}

#define LONG_SEARCH_S 60 /* for each scenario, at the most */

static int in_a_process(const struct scenario *s, const char *mode, const char *argument) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    stack_t stack = {.ss_sp = map(STACK), .ss_size = STACK};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaltstack(&stack, NULL);
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
    prepare(s);
    int how = 0;
    if (strcmp(mode, "replay") == 0) how = learn() == FAILED ? 0 : (replay(argument), 0);
    else if (strcmp(mode, "long") == 0)
      how = explore(s->bound + 3, LONG_SEARCH_S, strtod(argument, NULL), (uint64_t)time(NULL) << 20);
    else how = explore(s->bound, 1e9, 0, 0);
    fflush(stdout);
    _exit(how);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "", *name = count > 2 ? arguments[2] : NULL;
  const char *argument = count > 3 ? arguments[3] : "30";
  int result = 0, wanted = strcmp(mode, "finds") == 0 ? FAILED : 0;
  bool known = false;
  for (const struct scenario *s = scenarios; s->name; s++) {
    if (name && strcmp(name, s->name) != 0) continue;
    known = true;
    int how = in_a_process(s, mode, argument);
    if (how != wanted) {
      printf("%s: %s\n", s->name, wanted ? "the bug was not found" : "see above");
      result = 1;
    }
  }
  if (!known) {
    dprintf(2, "usage: %s [run | finds | long | replay] [SCENARIO] [SCHEDULE or SECONDS by chance]\n",
            arguments[0]);
    return 2;
  }
  fflush(stdout);
  _exit(result);
}
