/* scenarios: each is a few calls of two or three threads on few blocks, with the conditions after every schedule.
 *
 * Blocks are of 8 KiB, eight to a slab, which are linked one by one and pass every border within a few calls; in epochs
 * of 32 KiB, eight to a slab of four granules, of 5,000 bytes in chunks, or of 4,000 in chunks of a quarter. */
#include "explore.h"

#include "base/bits.h"
#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/epoch.h"
#include "heap/bump.h"
#include "heap/check.h"
#include "heap/chunk_cache.h"
#include "heap/quarantine.h"
#include "heap/remote.h"
#include "heap/span.h"
#include "heap/tcache.h"
#include "heap/totals.h"
#include "slab/quarter.h"
#include "slab/reserve.h"
#include "stats/collect.h"
#include "stats/publish.h"
#include "stats/segment.h"
#include "stats/tables.h"
#include "tslab/tslab.h"

#define SMALL  ((size_t)8 << 10)
#define MEDIUM ((size_t)32 << 10)
#define BUMPED ((size_t)5000)
#define SOME   ((size_t)4000) /* four to a quarter of a granule */
#define HELD   12

/* The blocks of each thread; the last row is the main thread's. */
static struct held {
  void *block;
  size_t size;
} held[THREADS + 1][HELD];

static unsigned me(void) { return explore_self() < 0 ? THREADS : (unsigned)explore_self(); }

static uint64_t pattern_of(const void *block) { return (uintptr_t)block * 3 + 1; }

/* Both ends of the block, which is what its neighbours or a list could reach. */
static void mark(void *block, size_t size) {
  uint64_t *words = block;
  words[0] = words[1] = words[size / 8 - 1] = pattern_of(block);
}

static void *keep(unsigned i, void *block, size_t size) {
  EXPECT(block != NULL && held[me()][i].block == NULL);
  mark(block, size);
  held[me()][i] = (struct held){block, size};
  return block;
}

static void take(unsigned i, size_t size) { keep(i, tslab_malloc(size), size); }

static void give_of(unsigned thread, unsigned i) {
  struct held h = held[thread][i];
  const uint64_t *words = h.block;
  EXPECT(h.block != NULL);
  uint64_t pattern = pattern_of(h.block);
  EXPECT(words[0] == pattern && words[1] == pattern && words[h.size / 8 - 1] == pattern);
  held[thread][i].block = NULL;
  tslab_free(h.block);
}

static void give(unsigned i) { give_of(me(), i); }

/* Another thread's, which does not wait for company. */
static void send_to_owner(unsigned thread, unsigned i) {
  give_of(thread, i);
  heap_flush_remote(current_heap);
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static unsigned count_held(void) {
  unsigned count = 0;
  for (unsigned t = 0; t <= THREADS; t++)
    for (unsigned i = 0; i < HELD; i++) {
      if (!held[t][i].block) continue;
      count++;
      EXPECT(*(uint64_t *)held[t][i].block == pattern_of(held[t][i].block));
      for (unsigned u = 0; u <= t; u++)
        for (unsigned j = 0; j < (u == t ? i : HELD); j++) EXPECT(held[u][j].block != held[t][i].block);
    }
  return count;
}

/* Those that are not folded: of threads, then of epochs. */
static struct heap *next_heap(struct heap *heap) {
  if (heap && heap->of_epochs) return heaps_next_of_epochs(heap);
  struct heap *next = heap ? heap->next_active : atomic_load_explicit(&active_heaps, memory_order_relaxed);
  return next ? next : heaps_first_of_epochs();
}

static uint64_t live_in_quarters(size_t granule) {
  uint64_t live = 0;
  for (unsigned i = 0; i < QUARTERS; i++) {
    const struct run *quarter = quarter_at(granule, i);
    if (quarter->kind == RUN_CHUNK) live += chunk_live(quarter).blocks;
  }
  return live;
}

/* Blocks that programs hold: in slabs, less those that lists keep, in chunks, and large ones. */
static uint64_t count_live(void) {
  uint64_t live = 0;
  for (struct run *run = pages_first_run(); run; run = pages_next_run(run)) {
    uint64_t word = atomic_load_explicit(&run->word, memory_order_relaxed);
    if (run->kind == RUN_SLAB) live += slab_linked(word) - slab_count(word);
    else if (run->kind == RUN_CHUNK) live += chunk_live(run).blocks;
    else if (run->kind == RUN_SPLIT) live += live_in_quarters(run_index(run));
    else if (run->kind == RUN_LARGE) live++;
    if (run->kind != RUN_SLAB) continue;
    EXPECT(!(word & SLAB_PENDING));
    bool has_some = slab_count(word) >= run->threshold || run->unlinked || slab_all_free(word);
    if (has_some) EXPECT(word & SLAB_LISTED);
  }
  for (struct heap *p = next_heap(NULL); p; p = next_heap(p)) {
    uint64_t in_quarantine[CLASSES] = {0}; /* on their way to other heaps */
    if (TSLAB_HARDENED) quarantine_count_remote(p, in_quarantine);
    if (heap_has_store(p)) live -= p->store->remote.count;
    for (unsigned class = 0; class < CLASSES; class++)
      live -= tcache_totals(p, class).length + heap_bin(p, class)->magazine_blocks + in_quarantine[class];
  }
  return live;
}

/* Calls of malloc less calls of free, as they were counted on the way. */
static uint64_t count_calls(void) {
  uint64_t live = bump_allocations();
  for (unsigned class = 0; class < CLASSES; class++) {
    struct class_totals totals = {0};
    for (struct heap *p = atomic_load_explicit(&active_heaps, memory_order_relaxed); p; p = p->next_active)
      heap_totals(p, class, &totals);
    heap_epoch_totals(class, &totals);
    live += totals.allocations - totals.frees - unowned_frees_of(class);
  }
  return live;
}

/* Checks that each thread claims all that it keeps. Otherwise the reserve could grow beyond its bound. */
static void check_claims(void) {
  size_t kept = reserve_ready_bytes();
  for (struct heap *p = atomic_load_explicit(&all_heaps, memory_order_relaxed); p; p = p->next_heap) {
    size_t granules = chunk_cache_granules(&p->store->chunks);
    EXPECT(granules <= p->store->chunks.claimed);
    kept += granules * GRANULE;
    const struct thread *t = thread_of_plain(p);
    const struct epoch *e = t ? atomic_load_explicit(&t->cached_epoch, memory_order_relaxed) : NULL;
    if (!e) continue;
    EXPECT(e->kept_granules == 0 || chunk_cache_has_claimed(t->plain, e->arena.index, e->kept_granules));
    kept += e->kept_granules * GRANULE;
  }
  EXPECT(kept <= reserve_bytes());
}

static void check_all(void) {
  check_claims();
  for (struct heap *p = atomic_load_explicit(&all_heaps, memory_order_relaxed); p; p = p->next_heap) {
    heap_check(p);
    for (unsigned class = 0; class < CLASSES; class++) EXPECT(!p->folded || p->bins[class].listed == 0);
  }
  for (struct heap *p = heaps_first_of_epochs(); p; p = heaps_next_of_epochs(p)) heap_check(p);
  heap_check(&common_heap);
  quarters_check();
  for (uint32_t i = 1; i <= arenas_made(); i++) epoch_check(epoch_at(i));
  pages_check();
}

/* Every block is where it should be; then all go, threads too, and nothing may stay. */
static void finish(void) {
  unsigned count = count_held();
  check_all();
  EXPECT(count_live() == count);
  if (bump_allocations() == 0) EXPECT(count_calls() == count);
  for (unsigned t = 0; t <= THREADS; t++)
    for (unsigned i = 0; i < HELD; i++)
      if (held[t][i].block) give_of(t, i);
  for (int t = 0; t < THREADS; t++) {
    explore_as(t);
    explore_thread_ends();
  }
  explore_as(-1);
  for (uint32_t i = 1; i <= arenas_made(); i++)
    if (epoch_state(epoch_at(i)) == EPOCH_OPEN) EXPECT(tslab_epoch_close(epoch_id(epoch_at(i)), NULL) == 0);
  tslab_purge();
  check_all();
  EXPECT(count_live() == 0);
  for (uint32_t i = 1; i <= arenas_made(); i++) {
    EXPECT(epoch_state(epoch_at(i)) == EPOCH_ENDED);
    EXPECT(atomic_load_explicit(&epoch_at(i)->arena.own, memory_order_relaxed) == 0);
    EXPECT(atomic_load_explicit(&epoch_at(i)->arena.charged, memory_order_relaxed) == 0);
  }
  for (struct run *run = pages_first_run(); run; run = pages_next_run(run))
    if (run->kind != RUN_FREE && run->kind != RUN_UNMAPPED && run->kind != RUN_META)
      explore_fail("a run of kind %u of epoch %u was not given back: class %u, word %llx", run->kind, run->epoch,
                   run->class, (unsigned long long)run->word);
  EXPECT(pages_free_dirty() == 0 && reserve_bytes() == 0);
}

/* ---- preparing --------------------------------------------------------------------------------------------------- */

static void be_born(int thread) {
  explore_as(thread);
  tslab_free(tslab_malloc(16));
}

static void all_born(void) {
  options.sample = 0;
  options.quarantine_bytes = 0; /* a hardened build's blocks come where the shipped one's do */
  options.publish = 0;
  for (int t = 0; t < THREADS; t++) be_born(t);
}

/* ---- remote free: the owner allocates and frees while two others bring back blocks of its slab ------------------- */

static void remote_free_setup(void) {
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 6; i++) take(i, SMALL);
}
static void remote_free_0(void) {
  give(0);
  take(6, SMALL);
  take(7, SMALL);
}
static void remote_free_1(void) { /* two at a time */
  give_of(0, 1);
  send_to_owner(0, 2);
}
static void remote_free_2(void) {
  give_of(0, 3);
  send_to_owner(0, 4);
}

/* ---- kept: two threads free each other's blocks of a class that they use, so each reuses the other's; a third brings
 * back the rest ---- */

static void kept_setup(void) {
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 3; i++) take(i, MEDIUM);
  explore_as(1);
  for (unsigned i = 0; i < 3; i++) take(i, MEDIUM);
}
static void kept_0(void) {
  give_of(1, 0);
  take(3, MEDIUM);
  take(4, MEDIUM);
  give(0);
}
static void kept_1(void) {
  give_of(0, 1);
  take(3, MEDIUM);
  take(4, MEDIUM);
}
static void kept_2(void) {
  send_to_owner(0, 2);
  send_to_owner(1, 1);
}

/* ---- slab release: a slab that was all handed out gets blocks back from two threads, while its owner wants one
 * ---- */

static void slab_release_setup(void) {
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 8; i++) take(i, MEDIUM);
}
static void slab_release_0(void) {
  take(8, MEDIUM);
  give(0);
}
static void slab_release_1(void) {
  send_to_owner(0, 1);
  send_to_owner(0, 2);
}
static void slab_release_2(void) {
  send_to_owner(0, 3);
  send_to_owner(0, 4);
}

/* ---- slab claim: the owner links a slab's last unit and lets go of it, while blocks of it come back -------------- */

static void slab_claim_setup(void) {
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 7; i++) take(i, MEDIUM);
}
static void slab_claim_0(void) { take(7, MEDIUM); }
static void slab_claim_1(void) { send_to_owner(0, 1); }
static void slab_claim_2(void) { send_to_owner(0, 2); }

/* ---- adoption: the first of two slabs that a dead thread left is adopted while its last block comes back --------- */

static void adoption_setup(void) {
  all_born();
  explore_as(2);
  for (unsigned i = 0; i < 9; i++) take(i, MEDIUM);
  explore_as(1);
  for (unsigned i = 0; i < 7; i++) send_to_owner(2, i);
  explore_as(2);
  explore_thread_ends();
}
static void adoption_0(void) {
  take(0, MEDIUM);
  take(1, MEDIUM);
}
static void adoption_1(void) {
  send_to_owner(2, 7);
  send_to_owner(2, 8);
}

/* ---- thread death: one ends, one is born and takes over what it left, one flushes what dead threads left --------- */

static void thread_death_setup(void) {
  options.sample = 0;
  options.quarantine_bytes = 0;
  options.publish = 0;
  be_born(0);
  be_born(2);
  explore_as(0);
  for (unsigned i = 0; i < 3; i++) take(i, SMALL);
}
static void thread_death_0(void) {
  give(0);
  explore_thread_ends();
}
static void thread_death_1(void) {
  take(3, SMALL);
  give_of(0, 1);
}
static void thread_death_2(void) {
  tslab_purge();
  give_of(0, 2);
}

/* ---- folding: a dead thread's heap is folded and taken again while blocks of its full slab come back ------------- */

static void folding_setup(void) {
  all_born();
  explore_as(2);
  for (unsigned i = 0; i < 9; i++) take(i, MEDIUM);
  explore_thread_ends();
}
static void folding_0(void) { tslab_purge(); }
static void folding_1(void) {
  send_to_owner(2, 0);
  send_to_owner(2, 8);
}
static void folding_2(void) { take(9, MEDIUM); }

/* ---- trimming: pages between live blocks are given back while the owner and another allocate and free ------------ */

static void trimming_setup(void) {
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 3; i++) take(i, MEDIUM);
  explore_as(1);
  send_to_owner(0, 0);
}
static void trimming_0(void) { take(3, MEDIUM); }
static void trimming_1(void) {
  send_to_owner(0, 1);
  send_to_owner(0, 2);
}
static void trimming_2(void) { tslab_purge(); }

/* ---- dying: a thread ends and folds its heap while pages of its slab are given back ------------------------------ */

static void dying_setup(void) {
  options.scavenger = 0; /* or it would do that, after the purge */
  all_born();
  explore_as(0);
  for (unsigned i = 0; i < 3; i++) take(i, MEDIUM);
  explore_as(1);
  send_to_owner(0, 0);
}
static void dying_0(void) { explore_thread_ends(); }
static void dying_1(void) { tslab_purge(); }

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

static tslab_epoch epoch, child;
static tslab_epoch_report report;
static bool closed; /* the close has returned; atomic */

static tslab_epoch open_epoch(uint32_t flags, tslab_epoch parent) {
  tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "e", .flags = flags, .parent = parent};
  tslab_epoch opened = tslab_epoch_open_with(&wanted);
  EXPECT(opened != 0);
  return opened;
}

static void take_in(tslab_epoch e, unsigned i, size_t size) { keep(i, tslab_epoch_malloc(e, size), size); }

/* The thread has a part of the epoch, which it is not inside of. */
static void visit(int thread, tslab_epoch e) {
  explore_as(thread);
  EXPECT(tslab_epoch_enter(e) == 0);
  EXPECT(tslab_epoch_leave(e) == 0);
}

static unsigned held_in(tslab_epoch e) {
  unsigned count = 0;
  for (unsigned t = 0; t <= THREADS; t++)
    for (unsigned i = 0; i < HELD; i++) count += held[t][i].block && tslab_epoch_of(held[t][i].block) == e;
  return count;
}

/* A closed epoch has ended if and only if nothing of it lives. */
static void check_ended(tslab_epoch e) {
  tslab_epoch_status status;
  unsigned live = held_in(e);
  int error = tslab_epoch_info(e, &status);
  EXPECT(error == (live ? 0 : ESTALE));
  if (!live) return;
  EXPECT(status.state == TSLAB_EPOCH_CLOSING && status.live_blocks == live && status.threads_inside == 0);
}

/* And its report counted no less than what outlived it, and no more than `most`. */
static void check_closed(tslab_epoch e, unsigned most) {
  check_ended(e);
  EXPECT(report.epoch == e);
  EXPECT(report.live_blocks >= (report.threads_inside ? 0 : held_in(e)) && report.live_blocks <= most);
}

static void close_it(void) {
  EXPECT(tslab_epoch_close(epoch, &report) == 0);
  __atomic_store_n(&closed, true, __ATOMIC_RELEASE);
}

/* Enters if it still may, and takes a block there. */
static void visit_once(unsigned i, size_t size) {
  int error = tslab_epoch_enter(epoch);
  EXPECT(error == 0 || error == ESHUTDOWN || error == ESTALE);
  if (error != 0) return;
  bool was_closed = __atomic_load_n(&closed, __ATOMIC_ACQUIRE);
  take(i, size);
  tslab_epoch where = tslab_epoch_of(held[me()][i].block);
  EXPECT(where == epoch || where == 0);
  if (was_closed) EXPECT(where == 0);
  EXPECT(tslab_epoch_leave(epoch) == 0);
}

/* ---- entering: a thread enters, allocates and leaves while it closes --------------------------------------------- */

static void entering_setup(void) {
  all_born();
  explore_as(1);
  epoch = open_epoch(0, 0);
  visit(0, epoch);
}
static void entering_fenced_setup(void) { /* where the kernel has no membarrier */
  kernel_has_barrier = false;
  entering_setup();
}
static void entering_0(void) { visit_once(0, BUMPED); }
static void entering_1(void) { close_it(); }
static void entering_finish(void) {
  check_closed(epoch, 1);
  finish();
}

/* ---- by id: a thread allocates and frees there by calls that name it, without a scope, while it closes ----------- */

static void by_id_setup(void) {
  all_born();
  explore_as(1);
  epoch = open_epoch(0, 0);
  explore_as(0);
  for (unsigned i = 0; i < 2; i++) take_in(epoch, i, BUMPED); /* from now on the thread need not look it up */
  take_in(epoch, 2, BUMPED);
}
static void by_id_0(void) {
  give(0);
  give(1);
  void *block = tslab_epoch_malloc(epoch, BUMPED);
  if (block) keep(0, block, BUMPED);
}
static void by_id_1(void) { close_it(); }
static void by_id_fenced_setup(void) {
  kernel_has_barrier = false;
  by_id_setup();
}
/* A call that the close saw inside did what was left to it, so no thread has a heap any more. */
static void by_id_finish(void) {
  const struct epoch *e = epoch_slot(epoch);
  check_closed(epoch, 4);
  for (const struct heap *p = epoch_id(e) == epoch ? e->heaps : NULL; p; p = p->next_of_epoch) EXPECT(!p->thread);
  finish();
}

/* ---- slot again: an epoch closes and another begins in its slot, while a thread enters the one or the other ------ */

static void slot_again_setup(void) {
  all_born();
  explore_as(1);
  epoch = open_epoch(0, 0);
  visit(1, epoch); /* the slot leads to this thread's heap, a table to the other's */
  visit(0, epoch);
}
static void slot_again_0(void) {
  tslab_epoch which = __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
  int error = tslab_epoch_enter(which);
  EXPECT(error == 0 || error == ESHUTDOWN || error == ESTALE);
  if (error != 0) return;
  take(0, BUMPED);
  EXPECT(tslab_epoch_leave(which) == 0);
}
static void slot_again_1(void) {
  tslab_epoch before = epoch;
  EXPECT(tslab_epoch_close(before, NULL) == 0);
  child = open_epoch(0, 0);
  __atomic_store_n(&epoch, child, __ATOMIC_RELEASE);
  take_in(child, 0, BUMPED);
  give(0);
}

/* ---- epoch close: two threads enter, allocate and leave while it closes ------------------------------------------ */

static void epoch_close_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  take_in(epoch, 0, BUMPED);
  visit(0, epoch);
  visit(1, epoch);
}
static void epoch_close_0(void) { visit_once(0, BUMPED); }
static void epoch_close_1(void) {
  visit_once(0, BUMPED);
  if (held[1][0].block) give(0);
}
static void epoch_close_2(void) { close_it(); }
static void epoch_close_finish(void) {
  check_closed(epoch, 3);
  finish();
}

/* ---- detaching: the heap of a thread that is not inside is taken apart, blocks on its lists and all -------------- */

static void detaching_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  for (int t = 1; t >= 0; t--) {
    explore_as(t);
    EXPECT(tslab_epoch_enter(epoch) == 0);
    take(0, MEDIUM);
    take(1, MEDIUM);
    give(0);
    EXPECT(tslab_epoch_leave(epoch) == 0);
  }
}
static void detaching_0(void) {
  if (tslab_epoch_enter(epoch) == 0) {
    take(0, MEDIUM);
    give(0);
    EXPECT(tslab_epoch_leave(epoch) == 0);
  }
  give(1);
}
static void detaching_1(void) { give(1); }
static void detaching_2(void) { close_it(); }

/* ---- halting: a thread is inside and allocates from chunk to chunk while it closes ------------------------------- */

static void halting_setup(void) {
  all_born();
  explore_as(1);
  epoch = open_epoch(TSLAB_EPOCH_DESTROYABLE, 0);
  EXPECT(tslab_epoch_reset(epoch, NULL) == 0); /* or it would turn to slabs */
  explore_as(0);
  EXPECT(tslab_epoch_enter(epoch) == 0);
  for (unsigned i = 0; i < 3; i++) take(i, 15 * KiB);
}
static void halting_0(void) {
  for (unsigned i = 3; i < 6; i++) {
    bool was_closed = __atomic_load_n(&closed, __ATOMIC_ACQUIRE);
    take(i, 15 * KiB);
    if (was_closed) EXPECT(tslab_epoch_of(held[0][i].block) == 0);
  }
  EXPECT(tslab_epoch_leave(epoch) == 0);
}
static void halting_1(void) { close_it(); }
static void halting_fenced_setup(void) {
  kernel_has_barrier = false;
  halting_setup();
}
static void halting_finish(void) {
  check_closed(epoch, 6);
  EXPECT(held_in(epoch) >= 3);
  finish();
}

/* ---- last free: the last blocks of a closed epoch come back at once, one more asks how it is --------------------- */

static void last_free_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  for (unsigned i = 0; i < 2; i++) take_in(epoch, i, BUMPED);
  close_it();
}
static void last_free_0(void) { give_of(2, 0); }
static void last_free_1(void) { give_of(2, 1); }
static void last_free_2(void) {
  tslab_epoch_status status;
  int error = tslab_epoch_info(epoch, &status);
  EXPECT(error == 0 || error == ESTALE);
  child = open_epoch(0, 0); /* its slot, if it is free already */
  EXPECT(child != epoch);
}
static void last_free_finish(void) {
  check_ended(epoch);
  finish();
}

/* ---- last free in a slab: the first of its eight blocks comes back while another thread brings the rest */

static void last_free_slab_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  for (unsigned i = 0; i < 8; i++) take_in(epoch, i, MEDIUM);
  close_it();
}
static void last_free_slab_0(void) { give_of(2, 0); }
static void last_free_slab_1(void) {
  for (unsigned i = 1; i < 8; i++) give_of(2, i);
}

/* ---- the same while it closes, with a slab, a chunk and a large block -------------------------------------------- */

static void last_free_closing_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  take_in(epoch, 0, BUMPED);
  take_in(epoch, 1, MEDIUM);
  take_in(epoch, 2, 64 * KiB);
}
static void last_free_closing_0(void) {
  give_of(2, 0);
  give_of(2, 1);
}
static void last_free_closing_1(void) { give_of(2, 2); }
static void last_free_closing_2(void) { close_it(); }
static void closed_of_3_finish(void) {
  check_closed(epoch, 3);
  finish();
}

/* ---- automatic close: the last scope ends while another thread is inside for a moment */

static void auto_close_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(TSLAB_EPOCH_AUTO_CLOSE, 0);
  EXPECT(tslab_epoch_enter(epoch) == 0);
  take(0, BUMPED);
  explore_as(1);
  take_in(epoch, 1, BUMPED);
  give(1);
}
static void auto_close_0(void) { EXPECT(tslab_epoch_leave(epoch) == 0); }
static void auto_close_1(void) { /* inside it for one call, which it may see closed */
  void *block = tslab_epoch_malloc(epoch, BUMPED);
  if (block) keep(0, block, BUMPED);
}
static void auto_close_2(void) { give_of(0, 0); }

/* ---- cached epoch: an epoch ends and is kept for its thread, while somebody ends cached epochs ------------------- */

static void epoch_cache_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(0, 0);
  take_in(epoch, 0, BUMPED);
}
static void epoch_cache_fenced_setup(void) {
  kernel_has_barrier = false;
  epoch_cache_setup();
}
static void epoch_cache_0(void) {
  give(0);
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
  epoch = open_epoch(0, 0);
  take_in(epoch, 1, BUMPED);
  explore_thread_ends();
}
static void epoch_cache_1(void) {
  epoch_caches_age(false);
  epoch_caches_age(true);
}

/* ---- cached epoch again: a thread takes its cached epoch, keeps it again, and ends, while another one claims it -- */

static void epoch_cache_again_setup(void) {
  all_born();
  explore_as(1);
  epoch = open_epoch(0, 0);
  take_in(epoch, 0, BUMPED);
  give(0);
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
}
static void epoch_cache_again_fenced_setup(void) {
  kernel_has_barrier = false;
  epoch_cache_again_setup();
}
static void epoch_cache_again_0(void) { epoch_caches_age(true); }
static void epoch_cache_again_1(void) {
  EXPECT(tslab_epoch_close(open_epoch(0, 0), NULL) == 0);
  explore_thread_ends();
}

/* ---- cached epoch opens: a thread opens its cached epoch again while another one finds it, enters and closes it
 * ---- */

static void epoch_cache_opens_setup(void) {
  epoch_cache_setup();
  explore_as(0);
  give(0);
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
}
static void epoch_cache_opens_0(void) { open_epoch(0, 0); }
static void epoch_cache_opens_1(void) {
  const uint64_t found = epoch_id(epoch_slot(epoch)); /* as tslab_epoch_each finds it */
  if (tslab_epoch_enter(found) != 0) return;
  EXPECT(tslab_epoch_close(found, NULL) == 0);
  EXPECT(tslab_epoch_leave(found) == 0);
}

/* ---- cached epoch slabs: the same, of an epoch that keeps its slabs, while somebody trims and ends cached epochs
 * ---- */

static void use_slabs(void) {
  EXPECT(tslab_epoch_enter(epoch) == 0);
  take(0, BUMPED);
  take(1, SMALL);
  give(1);
  give(0);
  EXPECT(tslab_epoch_leave(epoch) == 0);
}
static void epoch_cache_slabs_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(0, 0);
  epoch_slot(epoch)->drained = UINT16_MAX; /* as after as many ends */
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
  epoch = open_epoch(0, 0);
  EXPECT(epoch_slot(epoch)->arena.by_slabs);
  use_slabs();
}
static void epoch_cache_slabs_0(void) {
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
  epoch = open_epoch(0, 0);
  use_slabs();
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
  explore_thread_ends();
}
static void epoch_cache_slabs_1(void) {
  epoch_caches_age(false);
  epoch_caches_age(true);
}
static void epoch_cache_slabs_2(void) { tslab_purge(); }

/* ---- cached epoch claim: the scavenger ends the claim for an epoch that stays open, while its thread keeps it again
 * ---- */

static void epoch_cache_claim_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(0, 0);
  take_in(epoch, 0, BUMPED);
  give(0);
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
  epoch = open_epoch(0, 0);
}
static void epoch_cache_claim_0(void) {
  take_in(epoch, 0, BUMPED);
  give(0);
  EXPECT(tslab_epoch_close(epoch, NULL) == 0);
}
static void epoch_cache_claim_1(void) {
  struct heap *const plain = epoch_slot(epoch)->heaps->plain;
  for (int look = 0; look < 3; look++) epoch_cache_update_claim(plain);
}

/* ---- quarters: of one granule, which two epochs give back at once while somebody takes another ------------------- */

static void take_quarter(unsigned i) {
  atomic_store(&current_heap->plain->store->chunks.attached, BUMP_WHOLE_CHUNKS + 1); /* it has many epochs open */
  keep(i, tslab_epoch_malloc(epoch, SOME), SOME);
  EXPECT(run_is_quarter(pages_run_of(held[me()][i].block)));
}

static uint64_t quarter_epochs[2];
static void quarters_setup(void) {
  all_born();
  options.reserve_bytes = 0; /* so that no thread keeps any */
  for (int t = 0; t < 2; t++) {
    explore_as(t);
    quarter_epochs[t] = epoch = open_epoch(0, 0);
    take_quarter(0);
    give(0);
  }
}
static void quarters_0(void) { EXPECT(tslab_epoch_close(quarter_epochs[0], NULL) == 0); }
static void quarters_1(void) { EXPECT(tslab_epoch_close(quarter_epochs[1], NULL) == 0); }
static void quarters_2(void) {
  struct returning returning = {0};
  struct run *quarter = quarter_take();
  if (quarter) returning_keep(&returning, quarter);
  returning_flush(&returning);
}

/* ---- quarter sealed: one is full just when its last blocks come back, and a thread fills another ----------------- */

static void quarter_sealed_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(0, 0);
  epoch_slot(epoch)->arena.first_of_label = false; /* else it turns to slabs sooner or later */
  for (unsigned i = 0; i < 4; i++) take_quarter(i);
  give(0);
  give(1);
}
static void quarter_sealed_0(void) { take_quarter(4); }
static void quarter_sealed_1(void) { give_of(0, 2); }
static void quarter_sealed_2(void) {
  give_of(0, 3);
  take_quarter(0);
}

/* ---- taking back: a thread's last block goes, and those before it that are free, while another frees one of them */

static void taking_back_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(0, 0);
  epoch_slot(epoch)->arena.first_of_label = false; /* else it turns to slabs sooner or later */
  for (unsigned i = 0; i < 4; i++) take_in(epoch, i, BUMPED);
}
static void taking_back_0(void) {
  give(2);
  give(3);
  if (tslab_epoch_enter(epoch) != 0) return;
  for (unsigned i = 2; i < 4; i++) take(i, BUMPED);
  give(3);
  EXPECT(tslab_epoch_leave(epoch) == 0);
}
static void taking_back_1(void) { give_of(0, 1); }
static void taking_back_2(void) { close_it(); }

/* ---- leaving threads: one ends with a heap of an epoch that closes ----------------------------------------------- */

static void thread_leaves_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  explore_as(0);
  take_in(epoch, 0, BUMPED);
  take_in(epoch, 1, MEDIUM);
  take_in(epoch, 2, MEDIUM);
  give(1);
}
static void thread_leaves_0(void) { explore_thread_ends(); }
static void thread_leaves_1(void) { give_of(0, 2); }
static void thread_leaves_2(void) { close_it(); }

/* ---- waiting heaps: a thread attaches what a dead one left in an epoch, while it is tidied ----------------------- */

static void waiting_heap_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(0, 0);
  for (unsigned i = 0; i < 3; i++) take_in(epoch, i, MEDIUM);
  give(0);
}
static void waiting_heap_0(void) { explore_thread_ends(); }
static void waiting_heap_1(void) { take_in(epoch, 0, MEDIUM); }
static void waiting_heap_2(void) { tslab_purge(); }

/* ---- destroy: it is done while nobody is inside, or not at all --------------------------------------------------- */

static int destroyed;

static void destroy_setup(void) {
  all_born();
  explore_as(1);
  epoch = open_epoch(TSLAB_EPOCH_DESTROYABLE, 0);
  visit(0, epoch);
  visit(2, epoch);
}
static void destroy_0(void) {
  int error = tslab_epoch_enter(epoch);
  if (error != 0) return;
  take(0, BUMPED);
  give(0);
  EXPECT(tslab_epoch_leave(epoch) == 0);
}
static void destroy_1(void) {
  destroyed = tslab_epoch_destroy(epoch, &report);
  EXPECT(destroyed == 0 || destroyed == EBUSY);
}
static void destroy_2(void) {
  int error = tslab_epoch_enter(epoch);
  if (error == 0) EXPECT(tslab_epoch_leave(epoch) == 0);
}
static void destroy_finish(void) {
  tslab_epoch_status status;
  EXPECT(tslab_epoch_info(epoch, &status) == (destroyed == 0 ? ESTALE : 0));
  finish();
}

/* ---- owners: an epoch with slabs, whose end needs an owner, is reset while one enters and one trims it ----------- */

static void owners_setup(void) {
  all_born();
  explore_as(0);
  epoch = open_epoch(TSLAB_EPOCH_DESTROYABLE, 0);
  take_in(epoch, 0, MEDIUM);
}
static void owners_0(void) {
  int error = tslab_epoch_reset(epoch, NULL);
  EXPECT(error == 0 || error == EBUSY);
  if (error == 0) held[0][0].block = NULL;
}
static void owners_1(void) {
  tslab_epoch_status status;
  EXPECT(tslab_epoch_info(epoch, &status) == 0);
  EXPECT(status.live_blocks == (status.era == 0 ? 1 : 0) && status.slabs <= 1);
  EXPECT(tslab_epoch_enter(epoch) == 0 && tslab_epoch_leave(epoch) == 0);
}
static void owners_2(void) { tslab_purge(); }

/* ---- owned parents: a child is opened while its parent, which frees what it takes, is kept as a cached epoch ----- */

static void owned_parents_setup(void) {
  epoch_cache_slabs_setup();
  explore_as(0);
  EXPECT(!epoch_slot(epoch)->kept_granules);
}
static void owned_parents_0(void) { EXPECT(tslab_epoch_close(epoch, NULL) == 0); }
static void owned_parents_1(void) {
  tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "child", .parent = epoch};
  child = tslab_epoch_open_with(&wanted);
}
static void owned_parents_finish(void) {
  tslab_epoch_status status;
  if (child) EXPECT(tslab_epoch_info(child, &status) == ESTALE); /* it was closed first */
  EXPECT(tslab_epoch_info(epoch, &status) == ESTALE);
  finish();
}

/* ---- parents: one closes while its child loses its last block, and a new epoch takes a slot that is free then */

static tslab_epoch other;

static void parents_setup(void) {
  all_born();
  explore_as(2);
  epoch = open_epoch(0, 0);
  child = open_epoch(0, epoch);
  take_in(child, 0, BUMPED);
}
static void parents_0(void) { give_of(2, 0); }
static void parents_1(void) {
  other = open_epoch(0, 0);
  take_in(other, 0, BUMPED);
}
static void parents_2(void) { close_it(); }
static void parents_finish(void) {
  tslab_epoch_status status;
  check_ended(child);
  check_ended(epoch);
  EXPECT(tslab_epoch_info(other, &status) == 0);
  EXPECT(status.state == TSLAB_EPOCH_OPEN && status.live_blocks == 1);
  finish();
}

/* ---- opened below: a tree closes while its middle epoch gets a child, and another thread closes that middle one */

static void opened_below_setup(void) {
  all_born();
  epoch = open_epoch(0, 0);
  child = open_epoch(0, epoch);
  other = 0;
}
static void opened_below_1(void) {
  tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "grandchild", .parent = child};
  other = tslab_epoch_open_with(&wanted);
}
static void opened_below_2(void) {
  int error = tslab_epoch_close(child, NULL);
  EXPECT(error == 0 || error == ESHUTDOWN || error == ESTALE);
}
static void opened_below_finish(void) {
  if (other) check_ended(other);
  check_ended(child);
  check_ended(epoch);
  finish();
}

/* ---- publication: a reader outside looks while snapshots are written; it believes only whole ones ---------------- */

#define WORDS  6
#define LOOKS  3
#define PUBLISHED 5
static struct {
  uint64_t number, words[WORDS];
} looks[LOOKS];
static uint64_t published[PUBLISHED][WORDS]; /* the contents, by number */

static const uint64_t *word_of_snapshot(uint64_t number, unsigned i) {
  const struct segment_header *header = (const void *)kernel_shared;
  const char *at = kernel_shared + header->snapshot_offset[number % 2];
  const struct segment_table *rows = (const void *)(kernel_shared + header->tables_offset);
  const struct segment_snapshot *head = (const void *)at;
  const tslab_stats_global *process = (const void *)(at + rows[TABLE_PROCESS].offset);
  const tslab_class_stats *classes = (const void *)(at + rows[TABLE_CLASS].offset);
  const void *all[WORDS] = {&head->monotonic_ns, &head->realtime_ns,       &head->rows[TABLE_CLASS],
                            &process->clock_ns,  &process->allocations, &classes[class_of(SMALL)].allocations};
  return all[i];
}

static void publish(void) {
  const struct segment_header *header = (const void *)kernel_shared;
  EXPECT(publish_now());
  uint64_t number = atomic_load_explicit(&header->latest, memory_order_relaxed);
  EXPECT(number < PUBLISHED);
  for (unsigned i = 0; i < WORDS; i++) published[number][i] = *word_of_snapshot(number, i);
}

static void publication_setup(void) {
  all_born();
  options.publish = 1;
  explore_as(0);
  take(0, SMALL);
  EXPECT(publish_now());
  publish();
  EXPECT(published[2][4] != 0);
}
static void publication_0(void) { /* the second into the snapshot that was the latest before */
  take(1, SMALL);
  publish();
  take(2, SMALL);
  publish();
}
static void publication_1(void) {
  const struct segment_header *header = (const void *)kernel_shared;
  for (unsigned n = 0; n < LOOKS; n++) {
    uint64_t number = atomic_load_explicit(&header->latest, memory_order_acquire);
    const struct segment_snapshot *head = (const void *)(kernel_shared + header->snapshot_offset[number % 2]);
    if (atomic_load_explicit(&head->number, memory_order_acquire) != number) continue;
    for (unsigned i = 0; i < WORDS; i++)
      looks[n].words[i] = __atomic_load_n(word_of_snapshot(number, i), __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&head->number, memory_order_relaxed) == number) looks[n].number = number;
  }
}
static void publication_finish(void) {
  for (unsigned n = 0; n < LOOKS; n++)
    for (unsigned i = 0; i < WORDS && looks[n].number != 0; i++)
      EXPECT(looks[n].words[i] == published[looks[n].number][i]);
  finish();
}

/* ---- collecting: the statistics are read while the owner refills; they never go back, and end exact -------------- */

static void collecting_setup(void) {
  all_born();
  explore_as(0);
  take(0, SMALL);
}
static void collecting_0(void) {
  for (unsigned i = 1; i < 4; i++) take(i, SMALL);
}
static tslab_class_stats collected(void) {
  tslab_class_stats row;
  collect_class(class_of(SMALL), &row);
  return row;
}
static uint64_t served(const tslab_class_stats *row) {
  return row->from_list + row->from_magazine + row->from_slab + row->from_remote + row->from_fresh + row->from_adopted +
         row->from_reserve + row->from_run + row->from_map;
}
static void collecting_1(void) {
  const tslab_class_stats first = collected(), second = collected();
  EXPECT(first.from_list <= second.from_list && first.allocations <= second.allocations);
}
static void collecting_finish(void) {
  const tslab_class_stats row = collected();
  EXPECT(row.allocations == served(&row));
  finish();
}

/* ---- the lock itself: a waiter sleeps in the kernel, and a release wakes it -------------------------------------- */

static struct lock lock;
static unsigned inside;

static void locked(void) {
  if (!lock_word_try(&lock)) shipped_lock_take_slow(&lock);
  EXPECT(inside++ == 0);
  inside--;
  if (atomic_exchange_explicit(&lock.word, 0, memory_order_release) & 1) shipped_lock_release_slow(&lock);
}
static void lock_finish(void) {
  EXPECT(atomic_load_explicit(&lock.word, memory_order_relaxed) == 0);
  finish();
}

const struct scenario scenarios[] = {
    {.name = "remote-free", .setup = remote_free_setup, .run = {remote_free_0, remote_free_1, remote_free_2},
     .finish = finish, .bound = 2},
    {.name = "kept", .setup = kept_setup, .run = {kept_0, kept_1, kept_2}, .finish = finish, .bound = 1},
    {.name = "slab-release", .setup = slab_release_setup, .run = {slab_release_0, slab_release_1, slab_release_2},
     .finish = finish, .bound = 2},
    {.name = "slab-claim", .setup = slab_claim_setup, .run = {slab_claim_0, slab_claim_1, slab_claim_2},
     .finish = finish, .bound = 2},
    {.name = "adoption", .setup = adoption_setup, .run = {adoption_0, adoption_1}, .finish = finish, .bound = 2},
    {.name = "thread-death", .setup = thread_death_setup, .run = {thread_death_0, thread_death_1, thread_death_2},
     .finish = finish, .bound = 1},
    {.name = "folding", .setup = folding_setup, .run = {folding_0, folding_1, folding_2},
     .finish = finish, .bound = 1},
    {.name = "trimming", .setup = trimming_setup, .run = {trimming_0, trimming_1, trimming_2},
     .finish = finish, .bound = 1},
    {.name = "dying", .setup = dying_setup, .run = {dying_0, dying_1}, .finish = finish, .bound = 1},
    {.name = "entering", .setup = entering_setup,
     .run = {entering_0, entering_1}, .finish = entering_finish, .bound = 2},
    {.name = "entering-fenced", .setup = entering_fenced_setup, .run = {entering_0, entering_1},
     .finish = entering_finish, .bound = 2},
    {.name = "by-id", .setup = by_id_setup, .run = {by_id_0, by_id_1}, .finish = by_id_finish, .bound = 2},
    {.name = "by-id-fenced", .setup = by_id_fenced_setup, .run = {by_id_0, by_id_1}, .finish = by_id_finish,
     .bound = 2},
    {.name = "slot-again", .setup = slot_again_setup, .run = {slot_again_0, slot_again_1}, .finish = finish,
     .bound = 2},
    {.name = "epoch-close", .setup = epoch_close_setup, .run = {epoch_close_0, epoch_close_1, epoch_close_2},
     .finish = epoch_close_finish, .bound = 1},
    {.name = "detaching", .setup = detaching_setup, .run = {detaching_0, detaching_1, detaching_2},
     .finish = closed_of_3_finish, .bound = 1},
    {.name = "halting", .setup = halting_setup, .run = {halting_0, halting_1}, .finish = halting_finish, .bound = 2},
    {.name = "halting-fenced", .setup = halting_fenced_setup, .run = {halting_0, halting_1},
     .finish = halting_finish, .bound = 2},
    {.name = "last-free", .setup = last_free_setup, .run = {last_free_0, last_free_1, last_free_2},
     .finish = last_free_finish, .bound = 1},
    {.name = "last-free-slab", .setup = last_free_slab_setup, .run = {last_free_slab_0, last_free_slab_1},
     .finish = last_free_finish, .bound = 2},
    {.name = "last-free-closing", .setup = last_free_closing_setup,
     .run = {last_free_closing_0, last_free_closing_1, last_free_closing_2}, .finish = closed_of_3_finish, .bound = 1},
    {.name = "auto-close", .setup = auto_close_setup, .run = {auto_close_0, auto_close_1, auto_close_2},
     .finish = last_free_finish, .bound = 1},
    {.name = "cached-epoch", .setup = epoch_cache_setup, .run = {epoch_cache_0, epoch_cache_1},
     .finish = finish, .bound = 2},
    {.name = "cached-epoch-fenced", .setup = epoch_cache_fenced_setup, .run = {epoch_cache_0, epoch_cache_1},
     .finish = finish, .bound = 2},
    {.name = "cached-again", .setup = epoch_cache_again_setup, .run = {epoch_cache_again_0, epoch_cache_again_1},
     .finish = finish, .bound = 2},
    {.name = "cached-again-fenced", .setup = epoch_cache_again_fenced_setup,
     .run = {epoch_cache_again_0, epoch_cache_again_1}, .finish = finish, .bound = 3},
    {.name = "cached-opens", .setup = epoch_cache_opens_setup, .run = {epoch_cache_opens_0, epoch_cache_opens_1},
     .finish = finish, .bound = 2},
    {.name = "cached-slabs", .setup = epoch_cache_slabs_setup,
     .run = {epoch_cache_slabs_0, epoch_cache_slabs_1, epoch_cache_slabs_2},
     .finish = finish, .bound = 1},
    {.name = "cached-claim", .setup = epoch_cache_claim_setup, .run = {epoch_cache_claim_0, epoch_cache_claim_1},
     .finish = finish, .bound = 2},
    {.name = "quarters", .setup = quarters_setup, .run = {quarters_0, quarters_1, quarters_2}, .finish = finish,
     .bound = 1},
    {.name = "taking-back", .setup = taking_back_setup, .run = {taking_back_0, taking_back_1, taking_back_2},
     .finish = finish, .bound = 1},
    {.name = "quarter-sealed", .setup = quarter_sealed_setup,
     .run = {quarter_sealed_0, quarter_sealed_1, quarter_sealed_2}, .finish = finish, .bound = 1},
    {.name = "thread-leaves", .setup = thread_leaves_setup, .run = {thread_leaves_0, thread_leaves_1, thread_leaves_2},
     .finish = closed_of_3_finish, .bound = 1},
    {.name = "waiting-heap", .setup = waiting_heap_setup, .run = {waiting_heap_0, waiting_heap_1, waiting_heap_2},
     .finish = finish, .bound = 1},
    {.name = "destroy", .setup = destroy_setup, .run = {destroy_0, destroy_1, destroy_2},
     .finish = destroy_finish, .bound = 1},
    {.name = "owners", .setup = owners_setup, .run = {owners_0, owners_1, owners_2}, .finish = finish, .bound = 1},
    {.name = "owned-parents", .setup = owned_parents_setup, .run = {owned_parents_0, owned_parents_1},
     .finish = owned_parents_finish, .bound = 2},
    {.name = "parents", .setup = parents_setup, .run = {parents_0, parents_1, parents_2},
     .finish = parents_finish, .bound = 1},
    {.name = "opened-below", .setup = opened_below_setup, .run = {close_it, opened_below_1, opened_below_2},
     .finish = opened_below_finish, .bound = 1},
    {.name = "publication", .setup = publication_setup, .run = {publication_0, publication_1},
     .finish = publication_finish, .bound = 1},
    {.name = "collecting", .setup = collecting_setup, .run = {collecting_0, collecting_1}, .finish = collecting_finish,
     .bound = 2},
    {.name = "lock", .setup = all_born, .run = {locked, locked, locked},
     .finish = lock_finish, .bound = 1, .spins = true},
    {.name = NULL},
};
