/* statistics: eight threads, and others that are born and die, allocate and free in all ways; meanwhile a reader takes
 * all statistics a hundred times a second. None is ever impossible: no gauge below zero, no counter that goes back, no
 * row whose heaps do not add up. When all have stopped, the statistics are the test's own, exactly. statistics [long]
 *
 * What the statistics of one reading may lack is what threads did while it was read. So where two statistics of
 * different moments are compared, the one that must not be more is compared with the other one of the next reading. */
#include "../check.h"

#include "slab/slab.h"
#include "stats/collect.h"
#include "stats/tables.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 8, SLOTS = 200, SHARED = 500, LABELS_USED = 12, LARGE = CLASSES, CHUNK, KINDS, BATCH = 400 };

/* ---- ground truth ------------------------------------------------------------------------------------------------ */

struct truth {
  uint64_t allocations[KINDS], frees[KINDS], default_allocations; /* the last: of classes, in epoch 0 */
  struct {
    uint64_t opened, ended, allocations;
  } label[LABELS_USED];
};

struct worker {
  struct truth did;
  uint64_t random;
  void *slots[SLOTS];
};

static _Atomic(void *) shared[SHARED]; /* blocks on their way to whoever frees them */
static _Atomic bool over;

static unsigned kind_of(const void *block) {
  const struct run *const run = pages_run_of(block);
  return run->kind == RUN_SLAB ? run->class : run->kind == RUN_LARGE ? LARGE : CHUNK;
}

static void *allocate(struct worker *w, size_t size) {
  void *const block = tslab_malloc(size);
  CHECK(block != NULL);
  const unsigned kind = kind_of(block);
  w->did.allocations[kind]++;
  if (kind < CLASSES && tslab_epoch_current() == 0) w->did.default_allocations++;
  return block;
}

static void release(struct worker *w, void *block) {
  if (!block) return;
  w->did.frees[kind_of(block)]++;
  tslab_free(block);
}

static size_t any_size(uint64_t *random) {
  const unsigned kind = (unsigned)(check_random(random) % 100);
  if (kind < 70) return check_random(random) % 600;
  if (kind < 90) return check_random(random) % 9000;
  if (kind < 98) return check_random(random) % 40000;
  return check_random(random) % 400000;
}

static void add_truth(struct truth *to, const struct truth *from) {
  uint64_t *const words = (uint64_t *)to;
  for (size_t i = 0; i < sizeof *to / sizeof *words; i++) words[i] += ((const uint64_t *)from)[i];
}

/* ---- what threads do --------------------------------------------------------------------------------------------- */

static void mix(struct worker *w, unsigned calls) {
  for (unsigned i = 0; i < calls; i++) {
    void **const slot = &w->slots[check_random(&w->random) % SLOTS];
    release(w, *slot);
    *slot = allocate(w, any_size(&w->random));
    if (i % 4 != 0) continue;
    *slot = atomic_exchange_explicit(&shared[check_random(&w->random) % SHARED], *slot, memory_order_acq_rel);
  }
}

static const char *name_of(unsigned label) {
  static const char *const names[LABELS_USED] = {"",     "request", "frame",  "batch", "session", "query",
                                                 "page", "job",     "upload", "cache", "parse",   "reply"};
  return names[label];
}

/* Blocks of an epoch: freed here, handed to others, or left to its end. */
static void use_epoch(struct worker *w, bool may_hand_over, unsigned label, unsigned calls) {
  void *blocks[BATCH];
  for (unsigned i = 0; i < calls; i++) blocks[i] = allocate(w, any_size(&w->random) / 4);
  w->did.label[label].allocations += calls;
  for (unsigned i = 0; i < calls; i++) {
    if (may_hand_over && i % 16 == 0)
      blocks[i] = atomic_exchange_explicit(&shared[check_random(&w->random) % SHARED], blocks[i], memory_order_acq_rel);
    if (may_hand_over || i % 3 == 0) release(w, blocks[i]);
    else w->did.frees[kind_of(blocks[i])]++; /* by the end of the epoch */
  }
}

static void live_through_epoch(struct worker *w) {
  const unsigned way = (unsigned)(check_random(&w->random) % 4);
  const unsigned label = (unsigned)(check_random(&w->random) % LABELS_USED);
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = name_of(label),
                                       .flags = way == 0 ? 0 : TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch e = tslab_epoch_open_with(&options);
  CHECK(e != 0 && tslab_epoch_enter(e) == 0);
  w->did.label[label].opened++;
  w->did.label[label].ended++;
  const unsigned calls = (unsigned)(check_random(&w->random) % (way == 1 ? 20 : BATCH));
  use_epoch(w, way == 0, label, calls);
  for (int again = 0; way == 3 && again < 3; again++) {
    CHECK(tslab_epoch_reset(e, NULL) == 0);
    use_epoch(w, false, label, calls / 2);
  }
  CHECK(tslab_epoch_leave(e) == 0);
  CHECK((way == 0 ? tslab_epoch_close(e, NULL) : tslab_epoch_destroy(e, NULL)) == 0);
}

/* Leaves its blocks to others. */
static void *be_short(void *argument) {
  struct worker *const w = argument;
  mix(w, 300);
  live_through_epoch(w);
  return NULL;
}

static void give_birth(struct worker *parent) {
  static _Thread_local struct worker child;
  pthread_t thread;
  child = (struct worker){.random = check_random(&parent->random) | 1};
  CHECK(pthread_create(&thread, NULL, be_short, &child) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  for (int i = 0; i < SLOTS; i++) release(parent, child.slots[i]);
  add_truth(&parent->did, &child.did);
}

static void *work(void *argument) {
  struct worker *const w = argument;
  while (!atomic_load_explicit(&over, memory_order_relaxed)) {
    mix(w, 2000);
    for (int i = 0; i < 20; i++) live_through_epoch(w);
    give_birth(w);
  }
  return NULL;
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

/* The impossible figures: how many, and the first one in full. */
static struct {
  const char *table, *what;
  char row[64];
  unsigned long long times, before, now;
} impossible[64];

static void tell(const char *table, const char *row, const char *what, uint64_t before, uint64_t now) {
  unsigned at = 0;
  while (at < 63 && impossible[at].times && (strcmp(impossible[at].what, what) || impossible[at].table != table)) at++;
  if (impossible[at].times++) return;
  impossible[at].table = table, impossible[at].what = what;
  impossible[at].before = before, impossible[at].now = now;
  snprintf(impossible[at].row, sizeof impossible[at].row, "%s", row);
}

static bool nothing_impossible(void) {
  for (unsigned i = 0; i < 64 && impossible[i].times; i++)
    dprintf(2, "%s: %s: impossible %llu times, first in row \"%s\" (%llu, then %llu)\n", impossible[i].table,
            impossible[i].what, impossible[i].times, impossible[i].row, impossible[i].before, impossible[i].now);
  return impossible[0].times == 0;
}

static uint64_t value(const char *row, const struct statistic *f, unsigned index) {
  uint64_t out;
  memcpy(&out, row + f->offset + index * sizeof out, sizeof out);
  return out;
}

static const char *row_name(const struct statistics *table, const char *row) {
  static char number[32];
  for (size_t i = 0; i < table->count; i++)
    if (table->fields[i].kind == TEXT) return row + table->fields[i].offset;
  snprintf(number, sizeof number, "%llu", (unsigned long long)value(row, &table->fields[0], 0));
  return number;
}

/* No gauge is below zero, and no counter less than it was. */
static void check_values(const struct statistics *table, const char *row, const char *before) {
  for (size_t i = 0; i < table->count; i++) {
    const struct statistic *const f = &table->fields[i];
    if (f->kind == TEXT) continue;
    for (unsigned j = 0; j < f->count; j++) {
      const uint64_t now = value(row, f, j);
      if (now >> 63) tell(table->name, row_name(table, row), f->name, 0, now);
      if (before && f->kind != GAUGE && now < value(before, f, j))
        tell(table->name, row_name(table, row), f->name, value(before, f, j), now);
    }
  }
}

#define HOLDS(table, row, left, relation, right)                                            \
  do {                                                                                      \
    if (!((left)relation(right))) tell(table, row, #left " " #relation " " #right, left, right); \
  } while (0)

static void check_process(const tslab_stats_global *p) {
  HOLDS("process", "", p->in_use_bytes + p->free_dirty_bytes + p->free_clean_bytes, ==, p->committed_bytes);
  HOLDS("process", "", p->frees, <=, p->allocations);
  HOLDS("process", "", p->live_blocks, ==, p->allocations - p->frees);
  HOLDS("process", "", p->large_live_blocks, <=, p->live_blocks);
  HOLDS("process", "", p->epochs_ended, <=, p->epochs_opened);
  HOLDS("process", "", p->committed_bytes, <=, p->reserved_bytes);
  HOLDS("process", "", p->purge_failures, <=, p->purge_calls);
}

enum { MEANWHILE = 1000 };

static void check_class(const tslab_class_stats *c) {
  char name[32];
  snprintf(name, sizeof name, "%llu", (unsigned long long)c->object_size);
  const uint64_t served = c->from_list + c->from_magazine + c->from_slab + c->from_remote + c->from_fresh +
                          c->from_adopted + c->from_reserve + c->from_run + c->from_map;
  HOLDS("class", name, served, >=, c->allocations);
  HOLDS("class", name, served, <=, c->allocations + MEANWHILE); /* slow paths may serve more meanwhile */
  HOLDS("class", name, c->frees, <=, c->allocations);
  HOLDS("class", name, c->live_blocks, ==, c->allocations - c->frees);
  HOLDS("class", name, c->live_bytes, ==, c->live_blocks * c->object_size);
}

static void check_path(const tslab_path_stats *p, const tslab_path_stats *before) {
  uint64_t entries = 0;
  for (unsigned i = 0; i < TSLAB_BUCKETS; i++) entries += p->buckets[i];
  HOLDS("path", p->name, entries, ==, p->entries);
  if (!before) return;
  HOLDS("path", p->name, before->cpu_ns_sum, <=, p->cpu_wall_ns_sum);
  HOLDS("path", p->name, before->cpu_ns_sum, <=, p->wall_ns_sum);
  HOLDS("path", p->name, before->wait_ns_sum, <=, p->cpu_wall_ns_sum);
  HOLDS("path", p->name, before->cpu_wall_ns_sum, <=, p->sampled_wall_ns_sum);
  HOLDS("path", p->name, before->cpu_samples, <=, p->samples);
  HOLDS("path", p->name, before->samples, <=, p->entries);
  HOLDS("path", p->name, before->wall_ns_max, <=, p->wall_ns_sum);
}

static void check_label(const tslab_label_stats *l, const tslab_label_stats *before) {
  HOLDS("label", l->label, l->ended, <=, l->opened);
  if (before) HOLDS("label", l->label, before->cpu_ns_sum, <=, l->sampled_wall_ns_sum);
}

static int check_epoch(const tslab_epoch_status *e, void *unused) {
  tslab_epoch_status again;
  (void)unused;
  check_values(&tables[TABLE_EPOCH], (const char *)e, NULL);
  const int error = tslab_stats_epoch(e->epoch, &again, sizeof again);
  CHECK(error == 0 || error == ESTALE);
  if (error == 0) {
    CHECK_COUNT(again.epoch, ==, e->epoch);
    CHECK_COUNT(again.era, >=, e->era);
    if (again.allocations < e->allocations) tell("epoch", e->label, "allocations", e->allocations, again.allocations);
  }
  return 0;
}

static void check_row(enum table which, const void *row, const void *before) {
  switch (which) {
  case TABLE_PROCESS: check_process(row); break;
  case TABLE_CLASS: check_class(row); break;
  case TABLE_PATH: check_path(row, before); break;
  case TABLE_LABEL: check_label(row, before); break;
  default: break;
  }
}

static int call(enum table which, unsigned index, void *row) {
  switch (which) {
  case TABLE_PROCESS: return index == 0 ? tslab_stats(row, sizeof(tslab_stats_global)) : ERANGE;
  case TABLE_CLASS: return tslab_stats_class(index, row, sizeof(tslab_class_stats));
  case TABLE_PATH: return tslab_stats_path(index, row, sizeof(tslab_path_stats));
  case TABLE_LABEL: return tslab_stats_label(index, row, sizeof(tslab_label_stats));
  case TABLE_LOCK: return tslab_stats_lock(index, row, sizeof(tslab_lock_stats));
  case TABLE_THREAD: return index == 0 ? tslab_stats_thread(row, sizeof(tslab_thread_stats)) : ERANGE;
  default: return ERANGE;
  }
}

/* The last reading; rows of these tables keep their places. */
struct reading {
  char *rows;
  unsigned count;
};
static struct reading last[TABLES];

static void read_table(enum table which) {
  const struct statistics *const table = &tables[which];
  struct reading *const before = &last[which];
  char row[2048];
  if (!before->rows) CHECK((before->rows = malloc((size_t)table->row_bytes * table->most)) != NULL);
  unsigned index = 0;
  for (int error; (error = call(which, index, row)) != ERANGE; index++) {
    CHECK(error == 0 && index < table->most);
    char *const kept = before->rows + (size_t)index * table->row_bytes;
    const char *const old = index < before->count ? kept : NULL;
    check_values(table, row, old);
    check_row(which, row, old);
    memcpy(kept, row, table->row_bytes);
  }
  CHECK_COUNT(index, >=, before->count);
  before->count = index;
}

/* The row of those that are gone only grows. */
static void read_departed(void) {
  static tslab_thread_stats rows[TABLE_THREADS_MOST], before;
  const size_t count = collect_threads(rows, TABLE_THREADS_MOST);
  CHECK_COUNT(count, >=, 1);
  const tslab_thread_stats *const rest = &rows[count - 1];
  CHECK_COUNT(rest->thread_id, ==, 0);
  check_values(&tables[TABLE_THREAD], (const char *)rest, (const char *)&before);
  for (size_t i = 0; i + 1 < count; i++) check_values(&tables[TABLE_THREAD], (const char *)&rows[i], NULL);
  before = *rest;
}

static void read_all(void) {
  for (enum table i = 0; i < TABLES; i++) read_table(i);
  read_departed();
  CHECK(tslab_epoch_each(check_epoch, NULL) == 0);
}

static _Atomic uint64_t readings;

static void *look(void *unused) {
  tslab_free(tslab_malloc(1));
  while (!atomic_load(&over)) {
    read_all();
    readings++;
    usleep(10000);
  }
  return unused;
}

/* ---- at rest ----------------------------------------------------------------------------------------------------- */

struct figures {
  tslab_stats_global process;
  tslab_class_stats class[CLASSES];
  tslab_label_stats label[LABELS_USED];
  uint64_t labels;
};

static void take(struct figures *f) {
  CHECK(tslab_stats(&f->process, sizeof f->process) == 0);
  for (unsigned i = 0; i < CLASSES; i++) CHECK(tslab_stats_class(i, &f->class[i], sizeof f->class[i]) == 0);
  tslab_label_stats label;
  for (f->labels = 0; tslab_stats_label((unsigned)f->labels, &label, sizeof label) == 0; f->labels++) {
    CHECK_COUNT(f->labels, <, LABELS_USED);
    f->label[f->labels] = label;
  }
}

static void compare(const struct figures *before, const struct truth *did) {
  static struct figures now;
  uint64_t allocations = 0, frees = 0, live_bytes = 0, opened = 0, ended = 0;
  take(&now);
  for (unsigned i = 0; i < KINDS; i++) allocations += did->allocations[i], frees += did->frees[i];
  for (unsigned i = 0; i < CLASSES; i++) {
    const tslab_class_stats *const c = &now.class[i];
    CHECK_COUNT(c->allocations - before->class[i].allocations, ==, did->allocations[i]);
    CHECK_COUNT(c->frees - before->class[i].frees, ==, did->frees[i]);
    CHECK_COUNT(c->live_blocks - before->class[i].live_blocks, ==, did->allocations[i] - did->frees[i]);
    live_bytes += (did->allocations[i] - did->frees[i]) * c->object_size;
  }
  CHECK_COUNT(now.process.allocations - before->process.allocations, ==, allocations);
  CHECK_COUNT(now.process.frees - before->process.frees, ==, frees);
  CHECK_COUNT(now.process.live_blocks - before->process.live_blocks, ==, allocations - frees);
  CHECK_COUNT(now.process.large_live_blocks, ==, did->allocations[LARGE] - did->frees[LARGE]);
  if (did->allocations[CHUNK] == did->frees[CHUNK])
    CHECK_COUNT(now.process.live_bytes - now.process.large_live_bytes, ==,
                before->process.live_bytes - before->process.large_live_bytes + live_bytes);
  for (unsigned i = 0; i < LABELS_USED; i++) {
    unsigned at = 0;
    while (at < now.labels && strcmp(now.label[at].label, name_of(i)) != 0) at++;
    CHECK_COUNT(at, <, now.labels);
    CHECK_COUNT(now.label[at].opened, ==, did->label[i].opened);
    CHECK_COUNT(now.label[at].allocations, ==, did->label[i].allocations);
    if (allocations == frees) CHECK_COUNT(now.label[at].ended, ==, did->label[i].ended);
    CHECK_COUNT(now.label[at].opened - now.label[at].ended, ==, now.label[at].open);
    opened += did->label[i].opened, ended += did->label[i].ended;
  }
  CHECK_COUNT(now.process.epochs_opened, ==, opened);
  CHECK_COUNT(now.process.epochs_opened - now.process.epochs_ended, ==,
              now.process.epochs_open + now.process.epochs_closing);
  CHECK_COUNT(now.process.epochs_open, ==, 0);
  if (allocations == frees) CHECK_COUNT(now.process.epochs_ended, ==, ended);
}

/* Of all threads together, gone or not, in epoch 0. */
static uint64_t default_allocations(void) {
  static tslab_thread_stats rows[TABLE_THREADS_MOST];
  uint64_t sum = 0;
  for (size_t i = collect_threads(rows, TABLE_THREADS_MOST); i-- > 0;) sum += rows[i].allocations;
  return sum;
}

int main(int count, char **arguments) {
  static struct worker workers[THREADS];
  static struct figures before;
  static struct worker all;
  const bool is_long = count > 1 && strcmp(arguments[1], "long") == 0;
  pthread_t threads[THREADS], reader;
  tslab_free(tslab_malloc(1));
  take(&before);
  const uint64_t default_before = default_allocations();
  CHECK(pthread_create(&reader, NULL, look, NULL) == 0);
  for (unsigned i = 0; i < THREADS; i++) {
    workers[i].random = i + 1;
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  sleep(is_long ? 60 : TEST_SCALE > 4 ? 5 : 20 / TEST_SCALE);
  atomic_store(&over, true);
  CHECK(pthread_join(reader, NULL) == 0);
  for (unsigned i = 0; i < THREADS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    add_truth(&all.did, &workers[i].did);
  }
  all.did.allocations[0]++, all.did.frees[0]++, all.did.default_allocations++; /* the reader's */
  last[TABLE_THREAD].count = 0; /* from now on this thread's */
  read_all();
  const bool possible = nothing_impossible();
  compare(&before, &all.did);
  CHECK_COUNT(default_allocations() - default_before, ==, all.did.default_allocations);
  for (unsigned i = 0; i < THREADS; i++)
    for (unsigned j = 0; j < SLOTS; j++) release(&all, workers[i].slots[j]);
  for (unsigned i = 0; i < SHARED; i++) release(&all, shared[i]);
  read_all();
  compare(&before, &all.did);
  printf("%llu readings\n", (unsigned long long)readings);
  CHECK(possible);
  for (enum table i = 0; i < TABLES; i++) free(last[i].rows);
  return 0;
}
