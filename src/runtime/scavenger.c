/* scavenger: gives memory back without waiting for the next malloc.                                 floor: runtime
 *
 * A slow path starts the scavenger's thread once more than NOTICE bytes are free, or, in a process of several threads,
 * once the process holds more than HELD_NOTICE. The thread sleeps after a second with nothing to do. At every tick it
 * visits each heap that did something or has something to give back (heap_notice). The blocks of its magazines go to
 * the slabs. Slabs that stood still are retired, or their holes are purged. The heap of a dead thread is folded. Then
 * free runs older than AGE go back to the kernel. So memory that no thread uses again within about a second goes back.
 * Threads at rest, dead threads and blank heaps of epochs cost nothing, however many there are. The scavenger takes the
 * locks of slow paths, one at a time and for a moment. Through a whole round it also holds round_lock, which only calls
 * that collect all free memory take. If the library cannot make a thread, slow paths purge when more than INLINE_NOTICE
 * is free, and one of them tries again a minute later.
 *
 * The scavenger also publishes (stats/publish.h). Three rules make sure that a reader outside the process finds every
 * heap of PUBLISH_LEAST bytes or more, whatever the program does next:
 *   - The slow path that brings the heap to that size makes the thread, which publishes at its first tick. A smaller
 *     program gets its thread from the first slow path after `due`, a second later: most programs have ended by then.
 *     A heap that grew before the library's constructor is looked at there.
 *   - While the thread is awake it publishes at every tick, and stays awake as long as slow paths run.
 *   - Before it sleeps it says so (ASLEEP) and then publishes once more. A slow path that did not see ASLEEP is in
 *     those statistics; one that sees it wakes the thread.
 * For `due` slow paths read the time stamp counter and not libc's clocks, whose pages a small process has not
 * touched. */
#include "runtime/scavenger.h"

#include "base/log.h"
#include "base/options.h"
#include "epoch/cache.h"
#include "epoch/finish.h"
#include "process/limits.h"
#include "stats/pace.h"
#include "stats/publish.h"
#include "heap/bump.h"
#include "heap/chunk_cache.h"
#include "heap/flush.h"
#include "heap/large_cache.h"
#include "heap/profile.h"
#include "heap/registry.h"
#include "heap/span.h"
#include "heap/store.h"
#include "os/os.h"
#include "os/ticks.h"
#include "pages/huge.h"
#include "slab/quarter.h"
#include "process/process.h"
#include "runtime/birth.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#if defined(__GLIBC__)
#include <sys/single_threaded.h>
#endif
#include <unistd.h>

#define NOTICE        (512 * KiB)
#define MAGAZINE_NOTICE  (256 * KiB)
#define DEAD_NOTICE   16        /* heaps of dead threads that wait for it, or */
#define SLABS_NOTICE  (4 * MiB) /* bytes of slabs of one such heap */
#define INLINE_NOTICE (32 * MiB)
#define UNMAP_NOTICE  (4 * MiB)
#define UNMAP_SHARE   32        /* one part of so many of a limit may be free and mapped until the next round */
#define HELD_NOTICE   (2 * MiB) /* the most that frees may leave free while they start no scavenger */
#define AGE           2 /* ticks */
#define IDLE_TICKS    4
#define WAITING_TICKS 16 /* while memory lies free that the kernel does not take back */
#define PUBLISH_S     1  /* the first slow path after so many seconds publishes a smaller heap */
#define PUBLISH_LEAST (1 * MiB)
#define PUBLISH_SHARE 50 /* the scavenger collects for at most two hundredths of the time */
#define RELIEF_SHARE  20
#define RELIEF_LEAST  (1 * MiB)
#define RELIEF_GROWTH 128
#define RETRY_S       60 /* seconds after a failure to publish, or to make the thread */
#define STACK_BYTES   (256 * KiB) /* the static TLS of every loaded library lies in it, too */
#define STACK_LEAST   (32 * KiB)  /* without static TLS; about four times the most that was ever seen in use */

/* ASKED: busy, and a slow path wants memory ahead of need. LEAVING: another thread waits for the scavenger's end.
 * DISMISSED: it ends by itself. */
enum state { UNBORN, STARTING, BUSY, ASKED, ASLEEP, IMPOSSIBLE, LEAVING, DISMISSED };
static _Atomic uint32_t state;
static pthread_t scavenger; /* written while STARTING */
static _Atomic uint32_t maker; /* the id of the thread that makes it now; 0: none */
static _Atomic uint32_t scavenger_id;
static uint64_t tick = 1;
static bool visited; /* a thread took a slow path since the last tick */
static _Atomic uint64_t due; /* ticks; 0: not known yet; UINT64_MAX: never */
static _Atomic uint64_t inherited; /* in a fork child: the least heap_bytes() since the fork */
static _Atomic bool is_forbidden; /* for good; children inherit it */
static _Atomic uint64_t try_again_ns; /* of IMPOSSIBLE, on the coarse clock; 0: never */

/* The outermost lock. A round over all heaps holds a slab, or blocks of a magazine, for moments. A second round at that
 * time would miss these, and so leave free memory or refuse a call. A fork does not wait for this lock. */
static struct lock round_lock;

static void look_for_visits(struct heap *heap) {
  lock_take(&heap->lock);
  uint64_t visits = __atomic_load_n(&heap->visits, __ATOMIC_RELAXED);
  visited |= heap->live && visits != heap->seen_visits;
  heap->seen_visits = visits;
  lock_release(&heap->lock);
}

static bool is_dead(struct heap *heap) { return !heap_is_nobodys(heap) && !heap_is_live(heap); }

static bool keeps_chunks(const struct heap_store *store) {
  return store->chunks.claimed != 0 || store->chunks.cached_epoch != 0;
}

/* Notices a heap that the next round must look at again. */
static void notice_again(struct heap *heap) {
  if (LOAD_RACING(heap->folded)) return;
  lock_take(&heap->lock);
  const struct heap_store *store = heap->store;
  bool dies = !heap->live && !heap->of_epochs && !heap_is_nobodys(heap);
  if (dies || store->restless_slabs || heap->magazine_bytes || store->large.count || keeps_chunks(store))
    heap_notice(heap);
  lock_release(&heap->lock);
}

/* Tidies a heap of an epoch; of its magazines it flushes about *piece bytes, and sets *piece to what it flushed. The
 * caller becomes the epoch's owner for that, because a thread that counts the epoch's blocks, or destroys it, must find
 * each on a list or in its slab. The last block that comes free here ends the epoch. Before this thread is the owner,
 * the heap may come to serve another epoch or none. */
static size_t tidy_piece_of_epoch(struct heap *heap, bool now, size_t *piece) {
  struct arena *arena = __atomic_load_n(&heap->arena, __ATOMIC_ACQUIRE); /* pairs with heap_take_blank */
  struct epoch *e = (struct epoch *)(void *)arena;
  size_t freed = 0, most = *piece;
  *piece = 0;
  if (!e) return 0;
  struct lock *gate = epoch_take(e);
  if (__atomic_load_n(&heap->arena, __ATOMIC_RELAXED) == arena && heap_has_store(heap)) {
    if (!now) look_for_visits(heap);
    freed += heap_flush_dead(heap);
    freed += *piece = heap_flush_magazines(heap, most);
    if (*piece < most) freed += heap_trim(heap, now);
    notice_again(heap);
  }
  bool ended = epoch_finish_locked(e);
  epoch_release(e, gate);
  if (ended) epoch_retire(e);
  return freed;
}

/* A close waits while this owns the epoch, so it takes pieces of some 20 microseconds: at most as many as the magazines
 * may hold, because a thread may go on filling them. */
static size_t tidy_of_epoch(struct heap *heap, bool now) {
  size_t freed = 0, flushed = 0, piece = MAGAZINE_PIECE;
  while (piece >= MAGAZINE_PIECE && flushed <= options.cache_bytes) {
    piece = MAGAZINE_PIECE;
    freed += tidy_piece_of_epoch(heap, now, &piece);
    flushed += piece;
  }
  return freed;
}

static size_t tidy_of_thread(struct heap *heap, bool now) {
  size_t freed = chunk_cache_flush(heap, now);
  epoch_cache_update_claim(heap);
  if (!now) look_for_visits(heap);
  if (is_dead(heap)) return freed + heaps_fold_dead(heap);
  if (heap_is_nobodys(heap)) freed += heap_flush_dead(heap);
  /* Without a scavenger, deaths of threads bring rounds at any rate. */
  if (now || scavenger_is_there()) freed += heap_flush_magazines(heap, SIZE_MAX);
  freed += heap_trim(heap, now) + large_cache_flush(heap, now);
  if (!options.scavenger && is_dead(heap)) freed += heaps_fold_dead(heap); /* its thread could not fold it meanwhile */
  return freed;
}

static size_t tidy_noticed_one(struct heap *heap) {
  if (heap->of_epochs) return tidy_of_epoch(heap, false);
  if (LOAD_RACING(heap->folded)) {
    heap_fold(heap); /* it lost its last slab */
    return 0;
  }
  size_t freed = tidy_of_thread(heap, false);
  notice_again(heap);
  return freed;
}

/* Tidies the heaps that were noticed since the last round. */
static size_t tidy_noticed(void) {
  size_t freed = 0;
  struct notice *notice = atomic_exchange_explicit(&notices, NULL, memory_order_acquire), *next;
  for (; notice; notice = next) {
    next = notice->next;
    atomic_store_explicit(&notice->is_given, false, memory_order_release); /* pairs with heap_notice_first */
    struct heap *heap = notice_heap(notice);
    if (heap) freed += tidy_noticed_one(heap);
  }
  return freed;
}

/* Tidies every heap that may hold something. */
static size_t tidy_all(void) {
  heap_begin_common();
  size_t freed = tidy_of_thread(&common_heap, true);
  for (struct stored *s = stored_first(); s; s = s->next) {
    struct heap *heap = stored_heap(s);
    if (heap) freed += tidy_of_epoch(heap, true);
  }
  for (struct heap *p = atomic_load_explicit(&all_heaps, memory_order_acquire); p; p = p->next_heap)
    if (!LOAD_RACING(p->folded)) freed += tidy_of_thread(p, true);
  if (profile_is_on()) freed += tidy_of_thread(&sampled_heap, true);
  return freed + tidy_of_thread(&common_heap, true);
}

#define CHUNKS_A_TICK 64 /* of one epoch, under its arena's lock */

/* Takes no lock of an epoch, because its slot stays in the table for ever. */
static size_t purge_dead_pages(void) {
  size_t freed = 0;
  for (uint32_t i = 1, made = arenas_made(); i <= made; i++) {
    struct arena *arena = arena_at(i);
    if (atomic_load_explicit(&arena->own, memory_order_relaxed) > GRANULE)
      freed += bump_purge_dead(arena, CHUNKS_A_TICK);
  }
  return freed;
}

static bool is_leaving(void) { return atomic_load(&state) >= LEAVING; }

/* Gives old free memory back, until the thread is to leave: a call that sets the process's user, for instance, waits
 * for that. */
#define PURGED_A_TIME (16 * MiB)
static size_t purge_old(void) {
  size_t freed = 0, piece;
  do freed += piece = pages_purge(tick - AGE + 1, PURGED_A_TIME);
  while (piece != 0 && !is_leaving());
  return freed;
}

static size_t tick_once(void) {
  lock_take(&round_lock);
  size_t freed = reserve_trim(++tick);
  visited = false;
  epoch_caches_age(false);
  pages_set_tick(tick);
  freed += tidy_noticed();
  freed += heaps_trim(false) + stores_trim(false);
  freed += purge_dead_pages();
  freed += purge_old();
  pages_unmap_clean();
  lock_release(&round_lock);
  return freed;
}

/* Wakes the scavenger for memory ahead of need. A malloc makes this system call at most once for each mebibyte, or at a
 * limit. */
static COLD void ask(void) {
  uint32_t busy = BUSY;
  if (atomic_compare_exchange_strong(&state, &busy, ASKED)) os_wake(&state, 1);
}

static void collect_free(void);

/* At the soft limit, or when the control group is short of memory: takes back the free memory that threads keep. If
 * that is little, the program stays beyond its limit. Then this takes at most one part of RELIEF_SHARE of the time, and
 * makes a round each time that the heap has grown by one part of RELIEF_GROWTH of the limit. */
static void relieve(void) {
  static uint64_t not_before;
  static size_t held_after;
  lock_take(&round_lock);
  uint64_t start = ticks_now();
  struct pages_totals before = pages_totals();
  bool has_grown_on = before.held > held_after + before.soft_limit / RELIEF_GROWTH;
  if (pages_is_pressed() && (start >= not_before || has_grown_on)) {
    collect_free();
    pages_relieve();
    uint64_t end = ticks_now();
    struct pages_totals after = pages_totals();
    bool is_worth_it = after.returned - before.returned >= RELIEF_LEAST;
    not_before = is_worth_it ? end : end + (end - start) * RELIEF_SHARE;
    held_after = after.held;
  }
  lock_release(&round_lock);
}

/* If the scavenger does not keep up, a thread that takes memory beyond the soft limit waits for a round, or makes
 * it. */
static COLD void press(void) {
  ask();
  if (pages_is_far_beyond() && process_is_ready() && locks_held == 0) relieve();
}

/* Returns the tick in so many seconds; 0 until the length of a tick is known. */
static uint64_t ticks_after(uint64_t now, uint64_t seconds) {
  uint64_t scale = atomic_load_explicit(&ticks_scale, memory_order_relaxed);
  return scale ? now + seconds * ((UINT64_C(1000000000) << 32) / scale) : 0;
}

/* Publishes. Returns true if that succeeded. */
static bool publish_and_time(uint64_t *not_before) {
  uint64_t start = ticks_now();
  bool done = publish_now();
  uint64_t end = ticks_now();
  *not_before = end + (end - start) * PUBLISH_SHARE; /* collecting may take long */
  atomic_store_explicit(&due, ticks_after(end, done ? PUBLISH_S : RETRY_S), memory_order_relaxed);
  return done;
}

/* Publishes unless it is too early. Returns true if a slow path may bring news before the next tick. */
static bool publish(void) {
  static uint64_t not_before;
  static bool is_told; /* the last publication came after a quiet tick */
  if (ticks_now() < not_before && (visited || is_told)) return visited; /* the first quiet tick publishes */
  is_told = !visited;
  return publish_and_time(&not_before) && visited;
}

static const struct thread_calls *libc_calls;
void scavenger_use(const struct thread_calls *calls) { libc_calls = calls; }

/* Makes and ends the scavenger by libc's own functions. A program may stand in for them, and make a thread, or call
 * malloc, while it holds a lock that its function takes, too. But a sanitizer's runtime must know each thread. */
static const struct thread_calls *thread_calls(void) {
  static const struct thread_calls by_name = {pthread_create, pthread_join, pthread_detach};
  return libc_calls && !os_has_sanitizer() ? libc_calls : &by_name;
}

/* Ends the process, with the exit status of its first thread, if the scavenger is the last thread. A thread that ends
 * by the bare system call runs no destructor, so it does not stop the scavenger even as the program's last thread. A
 * program under seccomp's strict mode can only end like this. The kernel keeps the first thread as a zombie (Z) as long
 * as the process has another thread. Without /proc, libc may know that the first thread has ended, but not if the
 * program has other threads. Then the scavenger ends, and such threads make a new one when they need it. */
static void end_with_the_last(void) {
  int ended_with;
  uint32_t asleep = ASLEEP;
  char first = thread_state(os_process_id(), &ended_with);
  unsigned threads = process_threads();
  if (first == 'Z' && threads == 2) {
    publish_end();
    /* The process's status is that of its last thread, on newer kernels even if the first thread had another one. */
    kernel_call(SYS_exit_group, ended_with >> 8 & 0xff, 0, 0, 0, 0, 0);
  }
  if ((first == 0 || threads == 0) && process_first_has_ended())
    atomic_compare_exchange_strong(&state, &asleep, DISMISSED);
}

#define LONGEST_PAUSE_MS 64000 /* a process that rested for days must not take days to end */

/* Looks if the process should end. The pause doubles after each look, so that a process at rest hardly ever wakes
 * up. */
static void wait_while_asleep(void) {
  end_with_the_last();
  for (unsigned pause = IDLE_TICKS * (unsigned)options.tick_ms; atomic_load(&state) == ASLEEP;) {
    if (os_wait(&state, ASLEEP, pause)) continue;
    if (pause < LONGEST_PAUSE_MS) pause *= 2;
    end_with_the_last();
  }
}

static void sleep_until_woken(void) {
  uint32_t busy = BUSY;
  if (!atomic_compare_exchange_strong(&state, &busy, ASLEEP)) return;
  if (publish_now()) atomic_store_explicit(&due, 1, memory_order_relaxed); /* any slow path from now on has news */
  publish_rest();
  uint32_t asleep = ASLEEP; /* a notice between the last tick and the exchange was lost */
  if (pages_free_dirty() + large_cache_total() > NOTICE) atomic_compare_exchange_strong(&state, &asleep, BUSY);
  wait_while_asleep();
}

static void populate(void) {
  lock_take(&round_lock); /* not while a thread gives all free memory back */
  pages_populate();
  lock_release(&round_lock);
}

/* Waits until the next tick. Whenever a slow path asks, it relieves the limit and makes memory resident ahead of
 * need. */
static void wait_for_tick(void) {
  uint64_t now = os_now_coarse_ns(), end = now + options.tick_ms * UINT64_C(1000000);
  for (; now < end && !is_leaving(); now = os_now_coarse_ns()) {
    uint32_t asked = ASKED;
    if (atomic_compare_exchange_strong(&state, &asked, BUSY)) relieve(), populate();
    else os_wait(&state, BUSY, (unsigned)divide_up(end - now, 1000000));
  }
}

/* Returns false if the stack is too short: libc makes a thread even if static TLS leaves only two kilobytes of its
 * stack. Below the stack lies a guard of a page or more. */
static bool has_stack(void) {
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  for (size_t depth = os_page_size; depth < STACK_LEAST + os_page_size; depth += os_page_size)
    if (os_is_unreadable((const void *)(here - depth))) return false;
  return true;
}

/* Ends the scavenger from its own thread, unless another thread stops it just now and waits for its end. */
static void give_up(void) {
  uint32_t seen = atomic_load(&state);
  while (seen < LEAVING && !atomic_compare_exchange_weak(&state, &seen, DISMISSED)) {}
  if (seen == LEAVING) return;
  thread_calls()->detach(scavenger);
  atomic_store(&try_again_ns, 0);
  atomic_store(&state, IMPOSSIBLE);
}

static void leave(void) {
  thread_calls()->detach(scavenger);
  publish_end();
  atomic_store(&state, UNBORN);
  os_wake(&state, INT_MAX);
}

/* The thread has left the program's descriptors, or will not. */
static _Atomic uint32_t files_are_left;
static void say_files_are_left(void) {
  atomic_store(&files_are_left, true);
  os_wake(&files_are_left, 1);
}

/* For a moment the thread has copies of the program's descriptors. A program of one thread that closes one of its own
 * then expects what the last close does: a lock or a port is free, a pipe ends. A filter may end the thread before it
 * says so. */
#define FILES_PATIENCE_MS 100
static void wait_for_files(void) {
  for (int tries = 0; tries < FILES_PATIENCE_MS && !atomic_load(&files_are_left); tries++)
    os_wait(&files_are_left, false, 1);
}

/* A limit may be as old as the process, or set by another one. */
static void look_for_limits(bool has_own_files) {
  size_t limit = os_address_space_limit();
  bool counts = limit != SIZE_MAX || os_data_is_limited() || (has_own_files && os_promises_strictly());
  if (counts) pages_count_mapped(limit);
}

static void *run(void *unused) {
  while (atomic_load(&state) == STARTING) os_wait(&state, STARTING, 1);
  bool may_run = has_stack(), has_own_files = may_run && os_leave_files();
  if (may_run) look_for_limits(has_own_files);
  say_files_are_left();
  if (!may_run) {
    give_up();
    return unused;
  }
  os_run_also_where(os_process_id()); /* its maker may have a processor to itself, and never rest there */
  log_borrow(has_own_files);
  huge_start(has_own_files);
  pace_start();
  atomic_store_explicit(&scavenger_id, os_thread_id(), memory_order_relaxed);
  birth_keep_no_heap(); /* a heap here would hide the end of the program's last */
  if (atomic_load_explicit(&live_heaps, memory_order_relaxed) == 0) scavenger_stop(); /* it has ended */
  for (unsigned idle = 0; !is_leaving();) {
    wait_for_tick();
    limits_tick(tick);
    pace_look(os_now_coarse_ns());
    if (pages_is_pressed()) relieve();
    bool freed = tick_once() != 0, seen = publish(), moves = huge_look(visited);
    bool waits = pages_free_dirty() + large_cache_total() + reserve_bytes() != 0;
    if (freed || seen || moves) idle = 0;
    else idle++;
    if (idle < (waits ? WAITING_TICKS : IDLE_TICKS)) continue;
    sleep_until_woken();
    idle = 0;
  }
  log_borrow(false);
  if (atomic_load(&state) == DISMISSED) leave();
  return unused;
}

static bool had_sequences; /* at the start of the process */

/* If glibc could register the process's first thread for restartable sequences, it ends the process if another thread
 * may not register. A seccomp filter may forbid that in between, so this asks first. */
static bool may_create_thread(void) { return !had_sequences || os_has_sequences(); }

/* Makes the thread. Caller blocks signals, which are for the program's own threads. */
static bool create_thread(void) {
  if (!may_create_thread()) return false;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  struct counters *counters = counters_here(); /* making a thread calls malloc inside a slow call */
  uint32_t stages = counters->stages;
  uint64_t waited = counters->waited;
  atomic_store_explicit(&maker, os_thread_id(), memory_order_relaxed);
  bool done = thread_calls()->create(&scavenger, &attributes, run, NULL) == 0;
  atomic_store_explicit(&maker, 0, memory_order_relaxed);
  counters->stages = stages;
  counters->waited = waited;
  pthread_attr_destroy(&attributes);
  return done;
}

bool scavenger_is_made_here(void) {
  uint32_t by = atomic_load_explicit(&maker, memory_order_relaxed);
  return UNLIKELY(by != 0) && by == os_thread_id();
}

/* Returns true if it is time to publish. Small processes call this, too, so it touches no other memory. */
static bool is_due(void) {
  uint64_t when = atomic_load_explicit(&due, memory_order_relaxed);
  if (when == UINT64_MAX) return false;
  uint64_t now = ticks_now();
  if (when == 0) atomic_store_explicit(&due, ticks_after(now, PUBLISH_S), memory_order_relaxed);
  return when != 0 && now >= when;
}

static size_t slab_bytes_of(const struct heap *heap) {
  return (size_t)atomic_load_explicit(&heap->slab_granules, memory_order_relaxed) << GRANULE_SHIFT;
}

/* Returns the bytes of the full slabs of folded heaps; 0 if another thread changes these just now. */
static size_t folded_bytes(void) {
  size_t bytes = 0;
  if (!lock_try(&common_heap.lock)) return 0;
  for (unsigned class = 0; class < CLASSES; class++) bytes += folded_slabs[class] * slab_bytes(class);
  lock_release(&common_heap.lock);
  return bytes;
}

/* Returns the bytes that the program has or could take without a slow path. Of slabs it counts the blocks that ever
 * left them, because granules say little: a program with one block of each of 20 sizes has 20 granules and uses 20
 * pages. Caller holds walk_lock, or is the only thread. */
static size_t heap_bytes(void) {
  struct pages_totals totals = pages_totals();
  size_t bytes = totals.committed - totals.free_clean - totals.free_dirty;
  size_t used = LOAD_RACING(stores_folded.first_use_bytes), slabs = slab_bytes_of(&common_heap);
  slabs += folded_bytes();
  for (struct heap *p = heaps_first_of_threads(); p; p = heaps_next_of_threads(p)) {
    slabs += slab_bytes_of(p);
    used += LOAD_RACING(p->store->first_use_bytes);
  }
  for (struct stored *s = stored_first(); s; s = s->next) {
    const struct heap *heap = stored_heap(s);
    if (heap) slabs += slab_bytes_of(heap);
    used += LOAD_RACING(s->store->first_use_bytes);
  }
  return bytes - min_size(slabs, bytes) + min_size(used, slabs);
}

/* Returns true once the heap is so large that the library publishes it at once. A fork child counts only its own
 * growth, because most children soon execute another program and should not make a thread for their parent's memory. */
static bool has_grown(void) {
  if (atomic_load_explicit(&due, memory_order_relaxed) == UINT64_MAX || !lock_try(&walk_lock)) return false;
  size_t bytes = heap_bytes(), before = atomic_load_explicit(&inherited, memory_order_relaxed);
  lock_release(&walk_lock);
  if (bytes < before) atomic_store_explicit(&inherited, bytes, memory_order_relaxed);
  return bytes >= before + PUBLISH_LEAST;
}

static COLD bool is_wanted(void) {
  bool wanted = publish_is_wanted();
  if (!wanted) atomic_store_explicit(&due, UINT64_MAX, memory_order_relaxed);
  return wanted;
}

static void purge_inline(void) {
  if (lock_try(&walk_lock)) { /* no free waits for it */
    for (struct heap *p = heaps_first_of_threads(); p; p = heaps_next_of_threads(p)) large_cache_flush(p, true);
    lock_release(&walk_lock);
  }
  pages_purge(UINT64_MAX, pages_free_dirty());
  pages_unmap_clean();
  pages_relieve();
}

/* Makes the thread. Sets STARTING before, because the creation itself allocates, and so calls notice(). */
static void start_now(uint32_t seen) {
  struct heap *heap = current_heap;
  if (!atomic_compare_exchange_strong(&state, &seen, STARTING)) return;
  atomic_store_explicit(&scavenger_id, 0, memory_order_relaxed); /* it is not known to have gone */
  atomic_store(&files_are_left, false);
  current_heap = current_thread->plain; /* libc's memory for the thread outlives every scope */
  if (create_thread()) {
    atomic_store(&state, BUSY);
    os_wake(&state, 1);
    if (!birth_had_threads()) wait_for_files();
  } else {
    atomic_store(&try_again_ns, os_now_coarse_ns() + RETRY_S * UINT64_C(1000000000));
    atomic_store(&state, IMPOSSIBLE);
  }
  current_heap = heap;
}

/* Starts the scavenger, with signals blocked: a signal handler could fork in between, and its child, which is UNBORN,
 * would go on here when the handler returns. Only a thread whose heap will end starts it, so that this end, or a later
 * one, stops it. */
static void start(uint32_t seen) {
  if (!birth_heap_will_end()) return;
  if (!options.scavenger || atomic_load(&is_forbidden)) {
    atomic_store(&try_again_ns, 0);
    atomic_compare_exchange_strong(&state, &seen, IMPOSSIBLE);
    return;
  }
  if (process_is_visitor()) return;
  signal_set before = os_block_signals();
  start_now(seen);
  os_restore_signals(before);
}

/* Does the work of a slow path if the library could make no thread. Tries again after a while, unless the user wants no
 * thread. */
static void do_without(void) {
  uint64_t now = ticks_now(), when = atomic_load_explicit(&try_again_ns, memory_order_relaxed);
  atomic_store_explicit(&due, when ? ticks_after(now, RETRY_S) : UINT64_MAX, memory_order_relaxed);
  if (atomic_load_explicit(&unfolded_heaps, memory_order_relaxed) >= DEAD_NOTICE && lock_try(&round_lock)) {
    tidy_noticed(); /* no other thread would find the heaps of dead threads */
    lock_release(&round_lock);
  }
  if (pages_free_dirty() + large_cache_total() > INLINE_NOTICE || pages_is_pressed()) purge_inline();
  uint32_t impossible = IMPOSSIBLE;
  if (when == 0 || os_now_coarse_ns() < when) return;
  atomic_store_explicit(&due, 1, memory_order_relaxed);
  atomic_compare_exchange_strong(&state, &impossible, UNBORN);
}

static COLD void start_or_wake(uint32_t seen) {
  int kept = errno;
  if (seen == ASLEEP) {
    if (atomic_compare_exchange_strong(&state, &seen, BUSY)) os_wake(&state, 1);
  } else if (seen == UNBORN) {
    start(seen);
  } else if (seen == IMPOSSIBLE) {
    do_without();
  }
  errno = kept;
}

/* glibc frees the thread-local storage of an ended thread under a lock that the creation of a thread takes, too. So a
 * free makes the scavenger only in a process of one thread, which cannot be joining another one. Nor do mallocs of libc
 * make it while a thread gets its heap, perhaps by a free. With more threads, malloc's slow paths make it as soon as
 * much memory is free. */
#if defined(__GLIBC__)
static bool may_be_under_stack_lock(void) { return !__libc_single_threaded; }
static bool has_one_thread(void) { return __libc_single_threaded; }
#else
static bool may_be_under_stack_lock(void) { return false; }
static bool has_one_thread(void) { return false; }
#endif

/* Returns true if a thread of the parent may have held that lock at the fork. The scavenger holds it only while another
 * thread makes it or waits for its end. */
static bool may_find_lock_held(void) {
  return !has_one_thread() && birth_may_have_had_threads();
}

static bool holds_much(void) {
  struct pages_totals totals = pages_totals();
  return totals.committed - totals.free_clean > HELD_NOTICE;
}

enum caller { BY_FREE, BY_MALLOC };

/* glibc's loader calls malloc while its lists of thread-local storage are half changed, and ends the process if a
 * thread is made then. A later slow path makes the scavenger. */
static bool is_malloc_of_loader(const struct heap *heap) {
  const uintptr_t *frame = heap->counters->caller; /* the word above it is the return address */
  return frame && os_is_in_loader(frame[1]);
}

static size_t free_and_mapped(void) { return pages_free_dirty() + pages_newly_clean() + large_cache_total(); }

/* A limit of this process may leave no room for a stack that grows, and the kernel then ends the process. So this
 * unmaps at once what is free, if that is a good part of the limit. */
static COLD void unmap_at_once(void) {
  if (locks_held != 0 || !process_is_ready()) return;
  if (free_and_mapped() > pages_mapping_limit() / UNMAP_SHARE) purge_inline();
}

/* `heap` is that of a malloc, or NULL. */
static void start_or_wake_for(size_t magazine_bytes, enum caller caller, const struct heap *heap) {
  if (UNLIKELY(pages_is_pressed()) && caller == BY_MALLOC) press();
  uint32_t seen = atomic_load_explicit(&state, memory_order_relaxed);
  if (LIKELY(seen == BUSY) && caller == BY_MALLOC && UNLIKELY(pages_growth_is_foreseen())) ask();
  if (LIKELY(seen == BUSY) || seen == ASKED || seen == STARTING || thread_heap_state != HEAP_IS_KEPT) return;
  bool is_locked = seen == UNBORN && may_be_under_stack_lock();
  if (is_locked && (caller == BY_FREE || birth_is_under_way())) return;
  bool publishes = seen == UNBORN ? caller == BY_MALLOC && (is_due() || has_grown()) : is_due();
  publishes = publishes && is_wanted();
  bool enough = magazine_bytes > MAGAZINE_NOTICE || pages_is_pressed() ||
                pages_free_dirty() + large_cache_total() + reserve_bytes() > NOTICE;
  if (!publishes && !enough && !(is_locked && holds_much())) return;
  if (seen == UNBORN && heap && is_malloc_of_loader(heap)) return;
  if (process_is_ready()) start_or_wake(seen);
}

static void notice(size_t magazine_bytes, enum caller caller, const struct heap *heap) {
  start_or_wake_for(magazine_bytes, caller, heap);
  bool counts = UNLIKELY(pages_mapping_limit() != SIZE_MAX);
  if (counts && free_and_mapped() > UNMAP_NOTICE) unmap_at_once();
}

static size_t magazine_bytes_of(const struct heap *heap) {
  return __atomic_load_n(&heap->magazine_bytes, __ATOMIC_RELAXED);
}

void scavenger_notice(const struct heap *heap) { notice(magazine_bytes_of(heap), BY_FREE, NULL); }

void scavenger_notice_malloc(const struct heap *heap) { notice(magazine_bytes_of(heap), BY_MALLOC, heap); }

/* Does nothing for a small heap, whose second begins with its first slow path. */
void scavenger_notice_start(void) {
  if (options.scavenger) had_sequences = os_has_sequences();
  if (has_grown()) notice(0, BY_MALLOC, NULL);
}

void scavenger_notice_death(const struct heap *heap) {
  size_t slabs = slab_bytes_of(heap);
  unsigned waiting = atomic_load_explicit(&unfolded_heaps, memory_order_relaxed);
  bool much = waiting >= DEAD_NOTICE || slabs > SLABS_NOTICE;
  notice(much ? SIZE_MAX : heap->granted_bytes + magazine_bytes_of(heap), BY_MALLOC, NULL);
}

void scavenger_notice_thread(void) {
  if (atomic_load_explicit(&state, memory_order_relaxed) == UNBORN && holds_much()) notice(SIZE_MAX, BY_MALLOC, NULL);
}

#define START_TRIES 100   /* a millisecond each */
#define LEAVE_TRIES 10000 /* a millisecond each */
#define GONE_YIELDS 100 /* most times it is gone by then */
#define GONE_TRIES  100 /* a millisecond each */

static uint32_t scavenger_now(void) { return atomic_load_explicit(&scavenger_id, memory_order_relaxed); }

/* Returns true, to one caller alone, if a seccomp filter has ended the dismissed thread. One that leaves says so in
 * `state` before it is gone, and whoever starts the next one forgets the id before that one can be dismissed. */
static bool was_ended(uint32_t id) {
  return !os_process_exists(id) && atomic_load(&state) == DISMISSED &&
         atomic_compare_exchange_strong(&scavenger_id, &id, 0);
}

/* Waits while the thread is dismissed. Returns its id, which the caller may not know yet, and then gives 0. If the
 * thread was ended, this process has no scavenger any more. Once the thread has left, another may be started and
 * dismissed, which is not the one waited for. */
static uint32_t wait_while_dismissed(uint32_t id) {
  for (int i = 0; i < LEAVE_TRIES && atomic_load(&state) == DISMISSED; i++, os_wait(&state, DISMISSED, 1)) {
    uint32_t now = scavenger_now();
    if (id == 0) id = now;
    if (now != id) break;
    if (was_ended(id)) atomic_store(&state, IMPOSSIBLE);
  }
  return id != 0 ? id : scavenger_now();
}

/* The kernel wakes who joins a thread before it counts the thread no longer. */
static void see_it_go(uint32_t id) {
  for (int i = 0; i < GONE_YIELDS && os_process_exists(id); i++) kernel_call(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
  for (int i = 0; i < GONE_TRIES && os_process_exists(id); i++) os_rest();
}

static void wait_until_gone(uint32_t id) { see_it_go(wait_while_dismissed(id)); }

static void stop(void) {
  uint32_t seen = atomic_load(&state);
  do {
    while (seen == STARTING) { /* a thread that got a heap meanwhile starts it */
      os_rest();
      seen = atomic_load(&state);
    }
    if (seen == DISMISSED && scavenger_now() != os_thread_id())
      wait_until_gone(scavenger_now()); /* it has no descriptors, with which the last thread's exit could write */
    if (seen != BUSY && seen != ASKED && seen != ASLEEP) return;
  } while (!atomic_compare_exchange_weak(&state, &seen, LEAVING));
  if (pthread_equal(scavenger, pthread_self())) { /* its own heap was the last */
    atomic_store(&state, DISMISSED);
    return;
  }
  os_wake(&state, 1);
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* malloc may have come here */
  thread_calls()->join(scavenger, NULL);
  pthread_setcancelstate(before, &before);
  see_it_go(scavenger_now());
  publish_end();
  atomic_store(&state, UNBORN);
}

bool scavenger_is_there(void) {
  uint32_t seen = atomic_load(&state);
  return seen != UNBORN && seen != IMPOSSIBLE;
}

/* Blocks signals, because the child of a signal handler that forks has no thread to join. */
void scavenger_stop(void) {
  if (!scavenger_is_there()) return;
  signal_set before = os_block_signals();
  stop();
  os_restore_signals(before);
}

static bool dismiss(void) {
  uint32_t seen = atomic_load(&state);
  while (seen == BUSY || seen == ASKED || seen == ASLEEP)
    if (atomic_compare_exchange_weak(&state, &seen, DISMISSED)) {
      os_wake(&state, 1);
      return true;
    }
  return seen == DISMISSED;
}

/* The kernel counts a thread before its maker says that it is there. */
static void wait_while_starting(void) {
  for (int i = 0; i < START_TRIES && atomic_load(&state) == STARTING; i++) os_rest();
}

bool scavenger_dismiss(bool waits) {
  signal_set before = os_block_signals();
  if (waits) wait_while_starting();
  uint32_t id = scavenger_now();
  bool done = dismiss() && waits;
  if (done) wait_until_gone(id);
  os_restore_signals(before);
  return done;
}

void scavenger_after_fork_child(void) {
  lock_reset(&round_lock);
  limits_after_fork_child();
  os_forget_moves();
  atomic_store_explicit(&maker, 0, memory_order_relaxed);
  atomic_store(&due, 0);
  atomic_store(&try_again_ns, 0);
  atomic_store(&state, may_find_lock_held() ? IMPOSSIBLE : UNBORN);
  atomic_store(&inherited, heap_bytes());
  if (atomic_load(&is_forbidden)) scavenger_forbid();
}

void scavenger_forbid(void) {
  uint32_t unborn = UNBORN;
  atomic_store(&is_forbidden, true);
  atomic_store(&try_again_ns, 0);
  atomic_compare_exchange_strong(&state, &unborn, IMPOSSIBLE);
  if (unborn == UNBORN) atomic_store(&due, UINT64_MAX);
}

void scavenger_may_start(void) {
  uint32_t impossible = IMPOSSIBLE;
  if (atomic_load(&is_forbidden)) return;
  atomic_store(&due, 0);
  atomic_compare_exchange_strong(&state, &impossible, UNBORN);
}

/* Caller holds round_lock. */
static void collect_free(void) {
  if (current_heap != &empty_heap) heap_flush_lists(current_heap);
  if (tidy_all() != 0) tidy_all(); /* a heap may hold the last block of another heap's slab */
  epoch_caches_age(true);
  reserve_empty();
  heaps_trim(true);
  stores_trim(true);
}

/* Counts what this thread freed since its last visit. Returns true if the thread has lists that the last round did not
 * see, because another thread made that round. */
static bool has_unseen(struct heap *heap) {
  if (heap == &empty_heap || !heap_has_store(heap)) return false;
  if (heap->opened) tcache_sums(heap);
  return heap->store->flushed_round != pages_round();
}

bool scavenger_reclaim(size_t wanted) {
  if (UNLIKELY(locks_held != 0)) return false; /* the holder of round_lock may wait for a lock of this thread */
  size_t bytes = wanted == SIZE_MAX ? GRANULE : wanted;
  if (UNLIKELY(bytes > pages_memory())) return false; /* no round finds so much */
  struct heap *heap = current_heap;
  if (wanted <= large_cache_total()) large_cache_suspend(); /* larger calls do not fail because of these */
  bool unseen = has_unseen(heap);
  bool is_needed = unseen || pages_round_is_due(bytes);
  if (!is_needed && lock_try(&round_lock)) { /* and no round holds free memory just now */
    lock_release(&round_lock);
    return false;
  }
  lock_take(&round_lock);
  if (pages_round_is_due(bytes)) {
    pages_begin_round();
    collect_free();
    pages_end_round(bytes);
  } else if (unseen) {
    heap_flush_lists(heap);
  }
  if (heap != &empty_heap && heap_has_store(heap)) heap->store->flushed_round = pages_round();
  lock_release(&round_lock);
  return true;
}

size_t scavenger_purge(void) {
  if (!process_has_started() || locks_held != 0) return 0;
  lock_take(&round_lock);
  size_t before = pages_totals().returned;
  pages_forget_growth();
  collect_free();
  pages_purge(UINT64_MAX, pages_free_dirty()); /* not what others free meanwhile: they may go on for ever */
  pages_unmap_clean();
  if (TSLAB_CHECK_LEVEL >= 2) pages_check(), quarters_check();
  size_t returned = pages_totals().returned - before;
  lock_release(&round_lock);
  return returned;
}
