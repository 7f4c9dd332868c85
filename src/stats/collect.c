/* collect: see collect.h.                                                                           floor: stats */
#include "stats/collect.h"

#include "epoch/cache.h"
#include "epoch/handle.h"
#include "epoch/status.h"
#include "epoch/tree.h"
#include "heap/bump.h"
#include "heap/fork.h"
#include "heap/inherited.h"
#include "heap/label.h"
#include "heap/large_cache.h"
#include "heap/misuse.h"
#include "heap/remote.h"
#include "heap/span.h"
#include "heap/store.h"
#include "heap/tcache.h"
#include "heap/timing.h"
#include "heap/totals.h"
#include "os/os.h"
#include "pages/huge.h"
#include "process/limits.h"
#include "process/process.h"
#include "slab/quarter.h"
#include "stats/scope_misuse.h"
#include <string.h>

/* ---- collecting -------------------------------------------------------------------------------------------------- */

static uint64_t of(const uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED); }
static uint64_t of_atomic(const _Atomic uint64_t *counter) {
  return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns a counter that a reader adds up from parts. Counts that move between the parts meanwhile may be missed, so
 * the result is at least the largest one that was read before. */
static uint64_t at_least(_Atomic uint64_t *once, uint64_t now) {
  shared_max(once, now);
  return of_atomic(once);
}

/* Does the same for a part of a counter whose whole was read before. The part never exceeds the whole, even if another
 * reader has seen more of it since. */
static uint64_t heap_at_least(_Atomic uint64_t *once, uint64_t now, uint64_t whole) {
  return min_size(at_least(once, now), whole);
}

/* Counts the calling thread's pending samples, so that its statistics have all of them. */
static void count_own(void) {
  if (current_thread) timing_flush(current_thread->plain);
}

static void add_counters(void *out, const void *counters, size_t size) {
  uint64_t *to = out;
  const uint64_t *from = counters;
  for (size_t i = 0; i < size / sizeof *to; i++) to[i] += of(&from[i]);
}

static void sum_counters(unsigned class, struct refill_counters *refills, struct class_counters *rest) {
  *refills = (struct refill_counters){.lock_fast = 0};
  *rest = (struct class_counters){0};
  for (const struct counters *t = atomic_load_explicit(&all_counters, memory_order_acquire); t; t = t->next) {
    add_counters(refills, &t->refills[class], sizeof *refills);
    add_counters(rest, &t->classes[class], sizeof *rest);
  }
}

/* Reads the frees of all threads before the allocations of any, because any thread may free a block. */
static uint64_t frees_of(unsigned class) {
  uint64_t frees = unowned_frees_of(class);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
    frees += of(&p->bins[class].remote_frees) + tcache_totals(p, class).frees;
  frees += of(&stores_folded.bins[class].frees) + of(&stores_folded.bins[class].remote_frees);
  for (struct stored *s = stored_first(); s; s = s->next)
    frees += of(&s->store->bins[class].remote_frees) + stored_totals(s, class).frees;
  return frees;
}

/* Returns the frees. It reads them before the allocations, so they are never too many. */
static uint64_t sum_class(unsigned class, struct class_totals *totals, struct refill_counters *refills,
                          struct class_counters *counters) {
  lock_take(&walk_lock);
  uint64_t frees = frees_of(class);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
    heap_totals(p, class, totals);
  heap_epoch_totals(class, totals);
  sum_counters(class, refills, counters); /* a part of the allocations, read after them */
  lock_release(&walk_lock);
  return frees;
}

void collect_class(unsigned class, tslab_class_stats *out) {
  struct refill_counters refills;
  struct class_counters counters;
  struct class_totals totals = {0};
  static _Atomic uint64_t least_from_list[CLASSES];
  count_own();
  uint64_t slow = 0, frees = sum_class(class, &totals, &refills, &counters);
  for (unsigned i = 0; i < PATHS_OF_CLASSES; i++) slow += refills.served[i];
  uint64_t size = class_size(class);
  uint64_t live = totals.allocations - min_size(frees, totals.allocations); /* a survived double free counts too many */
  *out = (tslab_class_stats){
      .object_size = size,
      .allocations = totals.allocations,
      .frees = frees,
      .live_blocks = live,
      .live_bytes = live * size,
      .cached_blocks = totals.cached,
      .slabs = totals.slabs,
      .slabs_born = totals.born,
      .slabs_retired = totals.retired,
      .refills = totals.refills,
      .overflows = totals.overflows,
      .remote_frees = totals.remote_frees + unowned_frees_of(class),
      .from_list = heap_at_least(&least_from_list[class], totals.allocations - min_size(slow, totals.allocations),
                                 totals.allocations),
      .from_magazine = refills.served[PATH_MAGAZINE],
      .from_slab = refills.served[PATH_SLAB],
      .from_remote = refills.served[PATH_REMOTE],
      .from_fresh = refills.served[PATH_FRESH],
      .from_adopted = refills.served[PATH_ADOPTED],
      .from_reserve = refills.served[PATH_RESERVE],
      .from_run = refills.served[PATH_RUN],
      .from_map = refills.served[PATH_MAP],
      .slabs_recycled = counters.recycled,
      .lock_fast_acquire = refills.lock_fast,
      .lock_contended = refills.lock_contended,
      .slab_take_attempts = refills.take_attempts,
      .slab_take_cas_retries = refills.take_retries,
      .slab_push_attempts = counters.push_attempts,
      .slab_push_cas_retries = counters.push_retries,
      .slab_adopt_attempts = counters.adopt_attempts,
      .slab_adopt_failures = counters.adopt_failures,
      .samples = counters.samples,
      .sampled_requested_bytes = counters.requested,
      .sampled_requested_squares = counters.requested_squares,
  };
}

static uint64_t root_of(unsigned __int128 square) {
  uint64_t root = 0;
  for (uint64_t bit = (uint64_t)1 << 63; bit; bit >>= 1)
    if ((unsigned __int128)(root | bit) * (root | bit) <= square) root |= bit;
  return root;
}

/* Estimates the requested bytes of the class's live blocks by the mean request of its samples. In a class without a
 * sample all sizes that it serves count as equally likely. Returns the square of the estimate's standard error. */
static unsigned __int128 add_requested(tslab_stats_global *to, const tslab_class_stats *class, uint64_t below) {
  uint64_t n = class->samples, sum = class->sampled_requested_bytes;
  if (n == 0) {
    unsigned __int128 spread = (unsigned __int128)class->live_blocks * (class->object_size - below);
    to->requested_bytes += class->live_bytes - (uint64_t)(spread / 2);
    return spread * spread / 12;
  }
  to->requested_bytes += (uint64_t)((unsigned __int128)class->live_blocks * sum / n);
  unsigned __int128 square = (unsigned __int128)sum * sum;
  unsigned __int128 squares = (unsigned __int128)class->sampled_requested_squares * n;
  unsigned __int128 variance = squares > square ? (squares - square) / n / n : 0; /* of a single request */
  return variance * class->live_blocks / n * class->live_blocks;
}

static void add_class(tslab_stats_global *to, const tslab_class_stats *from) {
  to->allocations += from->allocations;
  to->frees += from->frees;
  to->live_bytes += from->live_bytes;
  to->cached_blocks += from->cached_blocks;
  to->cached_bytes += from->cached_blocks * from->object_size;
  to->slabs_born += from->slabs_born;
  to->slabs_retired += from->slabs_retired;
}

/* Counts blocks in the chunks of epochs, which have no class. It reads the allocations first, so that frees are never
 * too many. */
static void collect_bumped(uint64_t *allocations, uint64_t *frees, uint64_t *live_bytes) {
  static _Atomic uint64_t least_frees;
  struct chunk_live live = {0, 0};
  *allocations = bump_allocations();
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    struct arena *arena = arena_at(i);
    if (atomic_load_explicit(&arena->own, memory_order_relaxed) == 0) continue;
    struct arena_walk walk;
    unsigned steps;
    for (struct run *run = arena_walk(&walk, arena); run; run = arena_walk_on(&walk, steps)) {
      steps = run->kind == RUN_CHUNK ? ARENA_CHUNK_STEPS : 1;
      if (run->kind != RUN_CHUNK) continue;
      struct chunk_live here = bump_live(run);
      live.blocks += here.blocks;
      live.bytes += here.bytes;
    }
  }
  *frees = heap_at_least(&least_frees, *allocations - min_size(live.blocks, *allocations), *allocations);
  *live_bytes = live.bytes;
}

#if TSLAB_TELEMETRY
static void add_paths(tslab_stats_global *out) {
  for (enum path path = 0; path < PATHS; path++) {
    struct path_times times = timing_times(path);
    uint64_t entries = 0;
    for (unsigned i = 0; i < BUCKETS; i++) entries += times.buckets[i];
    out->samples += times.samples;
    if (path == PATH_FAST || path == PATH_DIVERTED) continue; /* diverted calls count in the path that served them */
    if (path < PATHS_OF_MALLOC) out->slow_allocations += entries;
    else out->slow_frees += entries;
  }
}

bool collect_path(unsigned path, tslab_path_stats *out) {
  if (path >= PATHS) return false;
  count_own();
  struct path_times times = timing_times((enum path)path);
  *out = (tslab_path_stats){.wall_ns_sum = times.wall_sum, .wall_ns_max = times.wall_max,
                            .lock_wait_ns_sum = times.lock_wait_sum, .samples = times.samples,
                            .sampled_wall_ns_sum = times.sampled_wall_sum, .cpu_samples = times.cpu_samples,
                            .cpu_wall_ns_sum = times.cpu_wall_sum, .cpu_ns_sum = times.cpu_sum,
                            .wait_ns_sum = times.wait_sum};
  memcpy(out->name, path_names[path], strlen(path_names[path]));
  memcpy(out->buckets, times.buckets, sizeof out->buckets);
  for (unsigned i = 0; i < BUCKETS; i++) out->entries += times.buckets[i];
  return true;
}
#else
static void add_paths(tslab_stats_global *out) { (void)out; }
bool collect_path(unsigned path, tslab_path_stats *out) { return (void)path, (void)out, false; }
#endif
_Static_assert(BUCKETS == TSLAB_BUCKETS, "the public number");

size_t collect_paths(void *rows, size_t most) {
  tslab_path_stats *row = rows;
  size_t count = 0;
  while (count < most && collect_path((unsigned)count, &row[count])) count++;
  return count;
}

uint64_t tslab_bucket_ns(unsigned bucket) { return bucket_bound(bucket); }

/* A thread that moves a count from an epoch to its label subtracts it first and adds it then. A reader reads the label
 * first. */
static struct least {
  _Atomic uint64_t opened, ended, allocations, recycled, returned;
} leasts[LABELS + 1];

static void add_epochs(tslab_stats_global *out) {
  for (uint32_t i = 0, made = labels_made(); i < LABELS + 1; i = i + 1 == made ? LABEL_OTHERS : i + 1) {
    out->epochs_opened += of_atomic(&labels[i].opened);
    out->bytes_recycled += of_atomic(&labels[i].recycled);
    out->bytes_returned += of_atomic(&labels[i].returned);
  }
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    const struct epoch *e = epoch_at(i);
    /* Before the state, so that no epoch ends that was not opened; acquire pairs with epoch_begin. */
    out->epochs_opened += __atomic_load_n(&e->opened_here, __ATOMIC_ACQUIRE);
    out->bytes_recycled += LOAD_RACING(e->recycled_here);
    enum epoch_state state = epoch_state(e);
    out->epochs_open += state == EPOCH_OPEN;
    out->epochs_closing += state == EPOCH_CLOSING;
  }
  static struct least least;
  out->epochs_opened = at_least(&least.opened, out->epochs_opened);
  out->bytes_recycled = at_least(&least.recycled, out->bytes_recycled);
  out->bytes_returned = at_least(&least.returned, out->bytes_returned);
  uint64_t here = min_size(out->epochs_open + out->epochs_closing, out->epochs_opened);
  out->epochs_ended = heap_at_least(&least.ended, out->epochs_opened - here, out->epochs_opened);
}

static void add_large(tslab_stats_global *out) {
  lock_take(&walk_lock);
  struct large_counts large = counters_large();
  lock_release(&walk_lock);
  out->large_live_blocks = large.allocations - large.frees;
  out->large_live_bytes = large.allocated_bytes - large.freed_bytes;
  out->allocations += large.allocations;
  out->frees += large.frees;
  out->live_bytes += out->large_live_bytes;
}

static void add_heaps(tslab_stats_global *out) {
  out->heaps = atomic_load_explicit(&heaps_here, memory_order_relaxed);
  lock_take(&walk_lock);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active) {
    lock_take(&p->lock);
    out->threads += p->live;
    out->large_cached_bytes += large_cache_bytes(p);
    lock_release(&p->lock);
  }
  lock_release(&walk_lock);
}

void collect_global(tslab_stats_global *out) {
  memset(out, 0, sizeof *out);
  if (!process_has_started()) return;
  unsigned __int128 error = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    tslab_class_stats one;
    collect_class(class, &one);
    add_class(out, &one);
    error += add_requested(out, &one, class ? class_size(class - 1) : 0);
  }
  out->requested_error = root_of(error);
  uint64_t bumped, freed, bumped_live_bytes;
  collect_bumped(&bumped, &freed, &bumped_live_bytes);
  out->allocations += bumped;
  out->frees += freed;
  out->live_bytes += bumped_live_bytes;
  add_large(out);
  out->live_blocks = out->allocations - min_size(out->frees, out->allocations);
  struct pages_totals totals = pages_totals();
  out->reserved_bytes = totals.reserved;
  out->committed_bytes = totals.committed;
  out->free_dirty_bytes = totals.free_dirty;
  out->in_use_bytes = totals.committed - totals.free_dirty - totals.free_clean;
  out->returned_bytes = totals.returned;
  out->purge_calls = totals.purge_calls;
  out->purge_failures = totals.purge_failures;
  add_heaps(out);
  out->misuses = misuse_count();
  out->scope_misuses = scope_misuse_count();
  out->leaked_at_fork = heaps_given_up;
  out->leaked_blocks = atomic_load_explicit(&leaked.blocks, memory_order_relaxed);
  out->leaked_bytes = atomic_load_explicit(&leaked.bytes, memory_order_relaxed);
  out->frozen_bytes = leaked.frozen;
  out->clock_ns = os_now_ns();
  out->clock_raw_ns = os_now_raw_ns();
  out->free_clean_bytes = totals.free_clean;
  out->limit_hard = totals.hard_limit == SIZE_MAX ? 0 : totals.hard_limit;
  out->limit_soft = totals.soft_limit == SIZE_MAX ? 0 : totals.soft_limit;
  out->limit_held = totals.held;
  out->limit_refusals = limits_refusals();
  out->limit_purged_bytes = totals.limit_purged;
  out->huge_moved_bytes = huge_moved_bytes();
  out->reserve_bytes = epoch_caches_reserve_bytes();
  add_paths(out);
  add_epochs(out);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

size_t collect_process(void *rows, size_t most) {
  if (most == 0) return 0;
  collect_global(rows);
  return 1;
}

size_t collect_classes(void *rows, size_t most) {
  tslab_class_stats *row = rows;
  size_t count = min_size(CLASSES, most);
  for (unsigned class = 0; class < count; class++) collect_class(class, &row[class]);
  return count;
}

static void add_thread_totals(tslab_thread_stats *to, const struct thread_totals *from) {
  to->slow_allocations += of(&from->slow_allocations);
  to->slow_frees += of(&from->slow_frees);
  to->slow_wall_ns_sum += of(&from->slow_ns);
  to->alloc_samples += of(&from->samples.count);
  to->alloc_wall_ns_sum += of(&from->samples.wall_sum);
  to->alloc_wall_ns_max = max_size(to->alloc_wall_ns_max, of(&from->samples.wall_max));
  to->alloc_cpu_samples += of(&from->samples.cpu_count);
  to->alloc_cpu_ns_sum += of(&from->samples.cpu_sum);
  to->alloc_cpu_ns_max = max_size(to->alloc_cpu_ns_max, of(&from->samples.cpu_max));
  to->alloc_wait_ns_sum += of(&from->samples.wait_sum);
  to->alloc_wait_ns_max = max_size(to->alloc_wait_ns_max, of(&from->samples.wait_max));
  to->repair_count += of(&from->repairs.count);
  to->repair_wall_ns_sum += of(&from->repairs.wall_sum);
  to->repair_wall_ns_max = max_size(to->repair_wall_ns_max, of(&from->repairs.wall_max));
  to->repair_cpu_samples += of(&from->repairs.cpu_count);
  to->repair_cpu_ns_sum += of(&from->repairs.cpu_sum);
  to->repair_cpu_ns_max = max_size(to->repair_cpu_ns_max, of(&from->repairs.cpu_max));
  to->repair_wait_ns_sum += of(&from->repairs.wait_sum);
  to->repair_wait_ns_max = max_size(to->repair_wait_ns_max, of(&from->repairs.wait_max));
  to->repair_reason_remote += of(&from->repair_remote);
  to->repair_reason_adopt += of(&from->repair_adopt);
  to->repair_reason_purge += of(&from->repair_purge);
  to->repair_reason_other += of(&from->repair_other);
}

/* `since`: the counters of the heap's thread, which leave out the calls of the heap's earlier threads; NULL counts
 * those, too. */
static void add_thread(tslab_thread_stats *to, struct heap *heap, const struct counters *since) {
  uint64_t allocations = 0, frees = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    struct tcache_totals list = tcache_totals(heap, class);
    allocations += list.allocations;
    frees += list.frees + of(&heap_bin(heap, class)->remote_frees);
    to->cached_bytes += (list.length + __atomic_load_n(&heap_bin(heap, class)->magazine_blocks, __ATOMIC_RELAXED)) *
                        class_size(class);
  }
  to->allocations += allocations - (since ? since->allocations_before : 0);
  to->frees += frees - (since ? since->frees_before : 0);
}

/* A row for each live thread; the last row has the threads that have ended or have no row. heaps_lock keeps threads
 * from getting a heap meanwhile. */
size_t collect_threads(void *rows, size_t most) {
  tslab_thread_stats *row = rows;
  size_t count = 0;
  if (most == 0) return 0;
  count_own();
  tslab_thread_stats rest = {0};
  lock_take(&heaps_lock);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active) {
    lock_take(&p->lock);
    bool of_thread = !p->of_epochs && p->counters, live = p->live;
    lock_release(&p->lock);
    if (!of_thread) continue;
    if (!live || count + 1 == most) {
      add_thread(&rest, p, NULL); /* common_heap has the counters of the thread that takes from it just now */
      if (!heap_is_nobodys(p)) add_thread_totals(&rest, &p->counters->thread_totals);
      rest.alive += live;
      continue;
    }
    memset(&row[count], 0, sizeof *row);
    row[count].thread_id = of(&p->counters->thread_totals.thread_id);
    row[count].alive = 1;
    add_thread(&row[count], p, p->counters);
    add_thread_totals(&row[count], &p->counters->thread_totals);
    rest.allocations += p->counters->allocations_before;
    rest.frees += p->counters->frees_before;
    count++;
  }
  add_thread_totals(&rest, &departed);
  lock_release(&heaps_lock);
  row[count] = rest;
  return count + 1;
}

void collect_this_thread(tslab_thread_stats *out) {
  count_own();
  struct heap *heap = current_thread ? current_thread->plain : NULL;
  memset(out, 0, sizeof *out);
  if (!heap) return;
  out->thread_id = of(&heap->counters->thread_totals.thread_id);
  out->alive = 1;
  add_thread(out, heap, heap->counters);
  add_thread_totals(out, &heap->counters->thread_totals);
}

static void add_label(tslab_label_stats *to, const struct label *from) {
  to->opened = of_atomic(&from->opened);
  to->allocations = of_atomic(&from->allocations);
  to->bytes_recycled = of_atomic(&from->recycled);
  to->bytes_returned = of_atomic(&from->returned);
  to->refused = of_atomic(&from->refused);
  to->diverted = of_atomic(&from->diverted);
  to->samples = of_atomic(&from->samples);
  to->sampled_wall_ns_sum = of_atomic(&from->wall_sum);
  to->sampled_wall_ns_max = of_atomic(&from->wall_max);
  to->cpu_samples = of_atomic(&from->cpu_samples);
  to->cpu_ns_sum = of_atomic(&from->cpu_sum);
  to->wait_ns_sum = of_atomic(&from->wait_sum);
  to->slow_allocations = of_atomic(&from->slow);
  to->lock_fast_acquire = of_atomic(&from->lock_fast);
  to->lock_contended = of_atomic(&from->lock_contended);
  to->slab_take_cas_retries = of_atomic(&from->take_retries);
  to->slab_push_cas_retries = of_atomic(&from->push_retries);
  to->exempt_scopes = of_atomic(&from->exempt_scopes);
  to->exempt_bytes = of_atomic(&from->exempt_bytes);
}

/* Returns true if the epoch has no memory and no heap, so its status needs no lock. */
static bool is_idle(const struct epoch *e) {
  return atomic_load_explicit(&e->arena.own, memory_order_relaxed) == 0 && !LOAD_RACING(e->heaps);
}

static void add_epoch(tslab_label_stats *to, const struct epoch *e) {
  tslab_epoch_status status;
  uint64_t id = epoch_id(e);
  to->opened += __atomic_load_n(&e->opened_here, __ATOMIC_ACQUIRE); /* as in add_epochs */
  to->allocations += LOAD_RACING(e->allocated_here);
  to->bytes_recycled += LOAD_RACING(e->recycled_here);
  enum epoch_state state = epoch_state(e);
  if (state != EPOCH_OPEN && state != EPOCH_CLOSING) return;
  to->open++;
  if (is_idle(e)) {
    to->allocations += LOAD_RACING(e->allocations);
    to->refused += atomic_load_explicit(&e->arena.refused, memory_order_relaxed);
    to->diverted += atomic_load_explicit(&e->diverted, memory_order_relaxed);
    return;
  }
  if (status_read(id, &status) != 0) return;
  to->allocations += status.allocations;
  to->live_blocks += status.live_blocks;
  to->live_bytes += status.live_bytes;
  to->committed_bytes += status.committed_bytes;
  to->refused += status.refused;
  to->diverted += status.diverted;
}

/* Returns the label of heap/label.h for the row, if `made` labels have a row of their own. */
static unsigned label_of_row(size_t row, size_t made) { return row < made ? (unsigned)row : LABEL_OTHERS; }

static void begin_label(tslab_label_stats *row, unsigned label) {
  const char *text = label == LABEL_OTHERS ? "(others)" : labels[label].text;
  memset(row, 0, sizeof *row);
  memcpy(row->label, text, strlen(text));
  add_label(row, &labels[label]);
}

static void end_label(tslab_label_stats *row, unsigned label) {
  struct least *least = &leasts[label];
  row->opened = at_least(&least->opened, row->opened);
  row->allocations = at_least(&least->allocations, row->allocations);
  row->bytes_recycled = at_least(&least->recycled, row->bytes_recycled);
  row->bytes_returned = at_least(&least->returned, row->bytes_returned);
  row->ended = heap_at_least(&least->ended, row->opened - min_size(row->open, row->opened), row->opened);
}

bool collect_label(unsigned index, tslab_label_stats *out) {
  size_t made = labels_made();
  if (index >= made + labels_has_others()) return false;
  begin_label(out, label_of_row(index, made));
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    const struct epoch *e = epoch_at(i);
    if (min_size(LOAD_RACING(e->arena.label), made) == index) add_epoch(out, e);
  }
  end_label(out, label_of_row(index, made));
  return true;
}

/* A row for each label that was ever used. */
size_t collect_labels(void *rows, size_t most) {
  tslab_label_stats *row = rows;
  size_t made = min_size(labels_made(), most), count = made;
  if (made < most && labels_has_others()) count++;
  for (size_t i = 0; i < count; i++) begin_label(&row[i], label_of_row(i, made));
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    const struct epoch *e = epoch_at(i);
    size_t at = min_size(LOAD_RACING(e->arena.label), made);
    if (at < count) add_epoch(&row[at], e);
  }
  for (size_t i = 0; i < count; i++) end_label(&row[i], label_of_row(i, made));
  return count;
}

/* ---- the epochs that get a row: the oldest, and the largest ------------------------------------------------------ */

#define OLDEST (TABLE_EPOCHS_MOST / 2)

struct choice {
  uint32_t index[TABLE_EPOCHS_MOST];
  uint64_t rank[TABLE_EPOCHS_MOST];
  unsigned count;
};

/* Keeps the `most` epochs of the highest rank. */
static void choose(struct choice *c, unsigned most, uint32_t index, uint64_t rank) {
  unsigned at = c->count;
  if (at == most && rank <= c->rank[most - 1]) return;
  if (at == most) at--;
  else c->count++;
  for (; at > 0 && c->rank[at - 1] < rank; at--) {
    c->index[at] = c->index[at - 1];
    c->rank[at] = c->rank[at - 1];
  }
  c->index[at] = index;
  c->rank[at] = rank;
}

static bool is_in(const struct choice *c, uint32_t index) {
  for (unsigned i = 0; i < c->count; i++)
    if (c->index[i] == index) return true;
  return false;
}

static size_t add_status(tslab_epoch_status *row, uint32_t index) {
  uint64_t id = epoch_id(epoch_at(index));
  return id != 0 && status_read(id, row) == 0;
}

size_t collect_epochs(void *rows, size_t most) {
  struct choice oldest = {.count = 0}, largest = {.count = 0};
  tslab_epoch_status *row = rows;
  size_t count = 0;
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    const struct epoch *e = epoch_at(i);
    enum epoch_state state = epoch_state(e);
    if (state != EPOCH_OPEN && state != EPOCH_CLOSING) continue;
    choose(&oldest, OLDEST, i, UINT64_MAX - LOAD_RACING(e->opened_ns));
    choose(&largest, TABLE_EPOCHS_MOST, i, atomic_load_explicit(&e->arena.own, memory_order_relaxed));
  }
  for (unsigned i = 0; i < oldest.count && count < most; i++) count += add_status(&row[count], oldest.index[i]);
  for (unsigned i = 0; i < largest.count && count < most; i++)
    if (!is_in(&oldest, largest.index[i])) count += add_status(&row[count], largest.index[i]);
  return count;
}

/* ---- locks and samples ------------------------------------------------------------------------------------------- */

static struct lock_totals of_heaps(void) {
  lock_take(&walk_lock);
  struct lock_totals totals = heaps_folded_locks;
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) lock_totals_add(&totals, &p->lock);
  for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_acquire); p; p = p->next_active)
    lock_totals_add(&totals, &p->lock);
  lock_release(&walk_lock);
  return totals;
}

static struct lock_totals of_epochs(void) {
  struct lock_totals totals = {0};
  for (unsigned i = 0; i < EPOCH_LOCKS; i++) lock_totals_add(&totals, &epoch_locks[i].lock);
  for (unsigned i = 0; i < EPOCH_GATES; i++) lock_totals_add(&totals, &epoch_gates[i].lock);
  return totals;
}

static struct lock_totals of_arenas(void) {
  struct lock_totals totals = {0};
  arenas_lock_totals(&totals);
  return totals;
}

static struct lock_totals of_two(const struct lock *one, const struct lock *other) {
  struct lock_totals totals = {0};
  lock_totals_add(&totals, one);
  if (other) lock_totals_add(&totals, other);
  return totals;
}

size_t collect_locks(void *rows, size_t most) {
  const struct {
    const char *name;
    struct lock_totals totals;
  } kinds[LOCK_KINDS] = {
      {"heap", of_heaps()},
      {"pages", of_two(&pages_lock, NULL)},
      {"reserve", of_two(&reserve_lock, &quarter_lock)},
      {"runs of an epoch", of_arenas()},
      {"epoch", of_epochs()},
      {"tree of epochs", of_two(&tree_lock, NULL)},
      {"slots of epochs", of_two(&slots_lock, NULL)},
      {"labels", of_two(&labels_lock, NULL)},
      {"handles", of_two(&handles_lock, &handles_zero_lock)},
      {"heaps", of_two(&heaps_lock, NULL)},
      {"threads", of_two(&threads_lock, NULL)},
  };
  tslab_lock_stats *row = rows;
  size_t count = min_size(LOCK_KINDS, most);
  memset(row, 0, count * sizeof *row);
  for (size_t i = 0; i < count; i++) {
    const struct lock_totals *from = &kinds[i].totals;
    memcpy(row[i].name, kinds[i].name, strlen(kinds[i].name));
    row[i].fast = from->taken - min_size(from->contended, from->taken);
    row[i].contended = from->contended;
    row[i].wait_ns = from->waited;
    row[i].hold_ns = from->held;
  }
  return count;
}

size_t collect_samples(void *rows, size_t most) {
  struct sample *row = rows;
  size_t count = samples_copy(row, most);
  for (size_t i = 0; i < count; i++)
    if (row[i].label == LABEL_OTHERS) row[i].label = labels_made(); /* the row after the others */
  return count;
}

/* Subtracts the memory of another epoch. */
static void subtract(const tslab_epoch_status *other, tslab_epoch_status *status) {
  status->live_blocks -= other->live_blocks;
  status->live_bytes -= other->live_bytes;
  status->slabs -= other->slabs;
  status->committed_bytes -= other->committed_bytes;
}

static void default_epoch(tslab_epoch_status *out) {
  tslab_stats_global s;
  collect_global(&s);
  *out = (tslab_epoch_status){
      .state = TSLAB_EPOCH_OPEN,
      .threads_inside = s.threads,
      .live_blocks = s.live_blocks,
      .live_bytes = s.live_bytes,
      .slabs = s.slabs_born - s.slabs_retired + s.large_live_blocks,
      .committed_bytes = s.in_use_bytes,
      .label = "default",
  };
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    tslab_epoch_status other;
    uint64_t id = epoch_id(epoch_at(i));
    if (id != 0 && status_read(id, &other) == 0) subtract(&other, out);
  }
  out->charged_bytes = out->committed_bytes;
}

int collect_epoch(uint64_t id, tslab_epoch_status *out) {
  if (id != 0) return status_read(id, out);
  default_epoch(out);
  return 0;
}
