/* bins: see bins.h.                                                                                 floor: heap */
#include "heap/bins.h"

#include "heap/arena.h"
#include "heap/label.h"
#include "heap/misuse.h"
#include "heap/tcache.h"
#include <string.h>

/* ---- a bin's list of slabs; caller holds heap->lock -------------------------------------------------------------- */

static struct run *slab_at(uint32_t granule) { return pages.runs + granule; }

static uint64_t word_of(struct run *slab) { return atomic_load_explicit(&slab->word, memory_order_relaxed); }

static struct heap *heap_of(struct run *slab) { return atomic_load_explicit(&slab->heap, memory_order_relaxed); }

/* Atomic, because adopt_from reads it without the lock. */
static void set_first(struct bin *bin, uint32_t granule) { __atomic_store_n(&bin->first, granule, __ATOMIC_RELAXED); }

/* A signal handler that forks may interrupt a change of the list, and the child empties the list before it goes on with
 * that change. Then one end may lead nowhere. */
static bool is_empty(const struct bin *bin) { return bin->first == 0 || bin->last == 0; }

static void insert_only(struct bin *bin, struct run *slab) {
  slab->next = slab->previous = 0;
  bin->last = (uint32_t)run_index(slab);
  set_first(bin, bin->last);
  bin->listed = 1;
}

static void insert_first(struct bin *bin, struct run *slab) {
  if (is_empty(bin)) {
    insert_only(bin, slab);
    return;
  }
  uint32_t g = (uint32_t)run_index(slab);
  slab->previous = 0;
  slab->next = bin->first;
  slab_at(bin->first)->previous = g;
  set_first(bin, g);
  bin->listed++;
}

static void insert_last(struct bin *bin, struct run *slab) {
  if (is_empty(bin)) {
    insert_only(bin, slab);
    return;
  }
  uint32_t g = (uint32_t)run_index(slab);
  slab->next = 0;
  slab->previous = bin->last;
  slab_at(bin->last)->next = g;
  bin->last = g;
  bin->listed++;
}

static void unlink_slab(struct bin *bin, struct run *slab) {
  if (slab->previous) slab_at(slab->previous)->next = slab->next;
  else set_first(bin, slab->next);
  if (slab->next) slab_at(slab->next)->previous = slab->previous;
  else bin->last = slab->previous;
  slab->next = slab->previous = 0;
  bin->listed--;
}

static void set_owner(struct heap *heap, struct run *slab) {
  atomic_store_explicit(&slab->heap, heap, memory_order_relaxed);
  slab_set_owner(slab, heap == &sampled_heap ? 0 : heap_entry(heap, slab->class));
  STORE_RACING(heap->bins[slab->class].slabs, heap->bins[slab->class].slabs + 1);
  atomic_fetch_add_explicit(&heap->slab_granules, slab->granules, memory_order_relaxed);
}

/* A thread that has filled this many slabs of a class probably fills the next ones, too. This does not hold for epochs,
 * of which there may be many with little in each slab. In the hardened build guards lie between slabs. */
#define GROWS_FROM 4

static void note_growth(const struct heap *heap, const struct run *slab, int sign) {
  bool fills = !heap->arena && heap->bins[slab->class].born > GROWS_FROM;
  if (fills && !TSLAB_HARDENED) pages_note_growth(sign * (ptrdiff_t)slab->granules);
}

static void lose(struct heap *heap, struct run *slab) {
  STORE_RACING(heap->bins[slab->class].slabs, heap->bins[slab->class].slabs - 1);
  atomic_fetch_sub_explicit(&heap->slab_granules, slab->granules, memory_order_relaxed);
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

/* Ends LISTED, unless enough blocks came back meanwhile: their threads saw LISTED and rely on it. */
static bool unlist(struct run *slab) {
  uint64_t old = word_of(slab);
  do {
    if (slab_count(old) >= slab->threshold) return false;
  } while (!atomic_compare_exchange_weak_explicit(&slab->word, &old, old & ~SLAB_LISTED, memory_order_relaxed,
                                                  memory_order_relaxed));
  return true;
}

/* Counts a take. Thread: the heap's own. */
static void count_take(const struct heap *heap, unsigned class, struct slab_how how) {
  struct refill_counters *counters = &heap->counters->refills[class];
  counters_stage(heap->counters, how.remote ? PATH_REMOTE : PATH_SLAB);
  counter_add(&counters->take_attempts, 1);
  if (LIKELY(how.retries == 0)) return;
  counter_add(&counters->take_retries, how.retries);
  if (heap->arena) shared_add(&labels[heap->arena->label].take_retries, how.retries);
}

/* The least number of blocks, or a page of them, to take at a time from memory that was not in use before. Each new
 * page is a fault, and one call should not take several. */
#define FRESH 8

/* Returns true unless the slab's next pages went back to the kernel and the memory limit has no room for them. */
static bool may_be_linked(const struct run *slab) {
  return LIKELY(slab->moved != SLAB_HAS_HOLES) || pages_may_be_present(FRESH * class_size(slab->class));
}

/* Takes the free blocks of the list's first slab, or links one more unit of it if there are none. A slab that keeps
 * unlinked units stays in the list, behind those with free blocks, so that touched pages are used up first. */
static struct chain take_from(struct heap *heap, struct bin *bin, struct run *slab, unsigned wanted, bool *refused) {
  bool stays = slab->unlinked != 0;
  struct slab_how how = {0};
  struct chain chain = slab_take(slab, stays, &how);
  slab->seen = 0; /* the word may take its old value again with other blocks free */
  count_take(heap, slab->class, how);
  *refused = chain.count == 0 && stays && !may_be_linked(slab);
  if (chain.count == 0 && stays && !*refused) {
    counters_stage(heap->counters, PATH_FRESH);
    chain = slab_link(slab, (unsigned)min_size(wanted, FRESH));
    STORE_RACING(heap->store->first_use_bytes, heap->store->first_use_bytes + chain.count * class_size(slab->class));
    stays = slab->unlinked != 0 || !unlist(slab);
  }
  unlink_slab(bin, slab);
  if (stays) insert_last(bin, slab);
  return chain;
}

/* Moves the list's first slab to its end. After one turn of the list its order is as before, so no position need be
 * remembered while the lock is free. */
static struct run *turn(struct bin *bin) {
  struct run *slab = slab_at(bin->first);
  unlink_slab(bin, slab);
  insert_last(bin, slab);
  return slab;
}

/* At a limit that lets no more pages be touched: takes the blocks of the first slab that has any. A call looks at so
 * many slabs at most, and the next one goes on there, since a program at its limit may fail often. */
#define TOUCHED_LOOKS 128
static COLD struct chain take_touched(struct heap *heap, struct bin *bin, unsigned wanted) {
  bool refused;
  for (size_t left = min_size(bin->listed, TOUCHED_LOOKS); left > 0 && bin->first; left--) {
    struct run *slab = slab_at(bin->first);
    if (slab_count(word_of(slab)) != 0) return take_from(heap, bin, slab, wanted, &refused);
    turn(bin);
  }
  return EMPTY_CHAIN;
}

static struct chain take_own(struct heap *heap, unsigned class, unsigned wanted) {
  struct bin *bin = &heap->bins[class];
  struct chain chain = EMPTY_CHAIN;
  bool refused = false;
  while (chain.count == 0 && bin->first && !refused)
    chain = take_from(heap, bin, slab_at(bin->first), wanted, &refused);
  return LIKELY(!refused) ? chain : take_touched(heap, bin, wanted);
}

/* Gives a listed slab to another heap. The threads of its live blocks now free them remotely, which is slower but
 * correct. Caller holds both locks. */
static void change_owner(struct heap *from, struct heap *to, struct run *slab) {
  unlink_slab(&from->bins[slab->class], slab);
  lose(from, slab);
  set_owner(to, slab);
  if (slab_count(word_of(slab)) && to == &common_heap) insert_first(&to->bins[slab->class], slab);
  else insert_last(&to->bins[slab->class], slab);
}

/* Takes the first listed slab of a heap that no thread has. */
static bool adopt_from(struct heap *from, struct heap *heap, unsigned class) {
  struct class_counters *counters = &heap->counters->classes[class];
  if (__atomic_load_n(&heap_bin(from, class)->first, __ATOMIC_RELAXED) == 0) return false;
  struct bin *bin = &from->bins[class];
  counter_add(&counters->adopt_attempts, 1);
  bool locked = from == &common_heap || lock_try(&from->lock), adopted = false;
  if (from == &common_heap) counters_wait(heap->counters, lock_take(&from->lock));
  if (locked) {
    adopted = bin->first && !from->live && !from->arena;
    if (adopted) change_owner(from, heap, slab_at(bin->first));
    lock_release(&from->lock);
  }
  if (adopted) counters_stage(heap->counters, PATH_ADOPTED);
  else counter_add(&counters->adopt_failures, 1);
  return adopted;
}

/* Adopts a slab of a dead thread. common_heap has the slabs of all dead threads except the last one, until the
 * scavenger's next look. So this asks only two heaps, however many threads are dead. */
static bool adopt(struct heap *heap, unsigned class) {
  if (heap->arena || heap == &sampled_heap) return false;
  if (adopt_from(&common_heap, heap, class)) return true;
  struct heap *dead = atomic_load_explicit(&last_dead_heap, memory_order_acquire);
  return dead && adopt_from(dead, heap, class);
}

static struct run *new_slab(struct arena *arena, unsigned class, struct pages_how *how) {
  if (!arena) return slab_new(class, 0, how);
  if (arena_is_closing(arena) || !arena_charge(arena, slab_bytes(class))) return NULL;
  struct run *slab = slab_new(class, arena->index, how);
  if (slab) arena_add(arena, slab);
  else arena_discharge(arena, slab_bytes(class));
  return slab;
}

static bool make_slab(struct heap *heap, unsigned class) {
  struct pages_how how = {0};
  struct run *slab = new_slab(heap->arena, class, &how);
  counters_stage(heap->counters, how.mapped ? PATH_MAP : how.ready ? PATH_RESERVE : PATH_RUN);
  counters_wait(heap->counters, how.waited);
  if (!slab) return false;
  atomic_fetch_or_explicit(&slab->word, SLAB_LISTED, memory_order_relaxed);
  set_owner(heap, slab);
  STORE_RACING(heap->bins[class].born, heap->bins[class].born + 1);
  note_growth(heap, slab, 1);
  insert_last(&heap->bins[class], slab);
  return true;
}

struct chain bins_take(struct heap *heap, unsigned class, unsigned wanted) {
  struct chain chain = take_own(heap, class, wanted);
  if (chain.count == 0 && (adopt(heap, class) || make_slab(heap, class))) chain = take_own(heap, class, wanted);
  return chain;
}

/* Takes the first blocks of common_heap's list, up to a damaged one. The thread that gets that one reports it, and all
 * blocks behind it are lost. */
static struct chain cut_shared(unsigned class, unsigned most) {
  struct chain all = tcache_chain(&common_heap, class), first = {all.head, 1};
  void *last = all.head;
  while (first.count < most && first.count < all.count && block_is_intact(last)) {
    last = block_next(last);
    first.count++;
  }
  struct chain rest = {CHAIN_END, 0};
  if (block_is_intact(last)) {
    if (first.count < all.count) rest = (struct chain){block_next(last), all.count - first.count};
    block_link(last, CHAIN_END);
  }
  tcache_set(&common_heap, class, rest);
  return first;
}

struct chain bins_take_shared(struct heap *heap, unsigned class, unsigned most) {
  struct chain chain = EMPTY_CHAIN;
  counters_wait(heap->counters, lock_take(&common_heap.lock));
  common_heap.counters = heap->counters; /* the thread counts what this takes */
  if (common_heap.list[class] == CHAIN_END) tcache_set(&common_heap, class, bins_take(&common_heap, class, most));
  if (common_heap.list[class] != CHAIN_END) chain = cut_shared(class, most);
  common_heap.counters = &shared_counters;
  heap_notice(&common_heap);
  lock_release(&common_heap.lock);
  return chain;
}

bool bins_share(struct heap *heap, unsigned class) {
  struct bin *bin = &heap->bins[class];
  if (!bin->first) return false;
  change_owner(heap, &common_heap, slab_at(bin->first));
  heap_notice(&common_heap);
  return true;
}

/* ---- returning --------------------------------------------------------------------------------------------------- */

/* Neighbours in a list mostly come from few slabs. A group touches its slab's line once for all its blocks. */
#define GROUPS 64

struct group {
  struct run *slab;
  void *head, *tail;
  unsigned count;
};

/* Groups on their way to their slabs. */
struct pushes {
  struct group groups[GROUPS];
  unsigned count;
  uint8_t last[GROUPS]; /* by remainder of the slab's index: 1 plus the last such group; 0: none */
};

static void count_push(unsigned class, uint32_t epoch, struct slab_how how) {
  struct class_counters *counters = &counters_here()->classes[class];
  if (how.remote) counter_add(&counters->push_attempts, 1);
  if (LIKELY(how.retries == 0)) return;
  counter_add(&counters->push_retries, how.retries);
  if (epoch) shared_add(&labels[LOAD_RACING(arena_at(epoch)->label)].push_retries, how.retries);
}

/* Returns true if the caller must relist the slab. `tries` have failed. */
static NOINLINE bool push_counted(struct lock *gate, const struct group *group, unsigned tries) {
  struct run *slab = group->slab;
  struct slab_how how = {.retries = tries, .remote = gate != &heap_of(slab)->lock};
  unsigned class = slab->class; /* after the push the slab may belong to another heap, or be gone */
  uint32_t epoch = slab->epoch;
  if (how.remote) pages_note_freed(group->count * (class_size(class) + os_page_size));
  bool relist = slab_push(slab, group->head, group->tail, group->count, &how);
  if (UNLIKELY(how.remote || how.retries)) count_push(class, epoch, how);
  return relist;
}

/* The usual push counts nothing: to a slab of the thread's own heap, at the first try. */
INLINE bool push_group(struct lock *gate, const struct group *group) {
  struct run *slab = group->slab;
  if (UNLIKELY(gate != &heap_of(slab)->lock)) return push_counted(gate, group, 0);
  enum slab_pushed pushed = slab_try_push(slab, group->head, group->tail, group->count, 0);
  if (UNLIKELY(pushed == SLAB_BUSY)) return push_counted(gate, group, 1);
  return pushed == SLAB_PUSHED_PENDING;
}

/* Holds the lock, although a push needs none: fork waits for it, so that a child finds each block that left a heap in
 * its slab. A thread without a heap pushes a single block, and a child loses at most that one. */
static void push_all(struct lock *gate, struct pushes *pushes) {
  struct run *relist[GROUPS];
  unsigned relisting = 0;
  if (pushes->count == 0) return;
  if (gate) counters_wait(counters_here(), lock_take(gate));
  for (unsigned i = 0; i < pushes->count; i++)
    if (push_group(gate, &pushes->groups[i])) relist[relisting++] = pushes->groups[i].slab;
  if (gate) lock_release(gate);
  for (unsigned i = 0; i < relisting; i++) bins_relist(relist[i]);
}

static void start_pushes(struct pushes *pushes) {
  pushes->count = 0;
  memset(pushes->last, 0, sizeof pushes->last);
}

/* Returns the slab's group, to which the caller adds a block. */
static struct group *group_of(struct lock *gate, struct pushes *pushes, struct run *slab) {
  uint8_t *last = &pushes->last[run_index(slab) % GROUPS];
  struct group *group = *last ? &pushes->groups[*last - 1] : NULL;
  if (group && group->slab == slab) return group;
  if (pushes->count == GROUPS) {
    push_all(gate, pushes);
    start_pushes(pushes);
  }
  group = &pushes->groups[pushes->count++];
  *group = (struct group){slab, CHAIN_END, NULL, 0};
  *last = (uint8_t)pushes->count;
  return group;
}

INLINE void join_group(struct group *group, void *block) {
  block_link(block, group->head);
  if (group->count++ == 0) group->tail = block;
  group->head = block;
}

static bool is_block(const void *p) {
  const struct run *run = pages_run_of(p);
  return run && run->kind == RUN_SLAB && slab_starts_block(run, p);
}

/* Marks all blocks, so that it notices one that it meets again. It cuts the chain before the first such block and
 * reports it; the rest of the chain is not safe to use and lost. It also prefetches the slabs' lines all at once,
 * because each compare-and-swap would wait for its own. */
static void cut_at_double(struct chain *chain) {
  void *before = NULL;
  for (void *block = chain->head; block != CHAIN_END; before = block, block = block_next(block)) {
    bool leads_astray = TSLAB_HARDENED && UNLIKELY(!is_block(block)); /* 1 in 65,536 gets here */
    if (LIKELY(!leads_astray && block_is_intact(block))) {
      block_mark_met(block);
      __builtin_prefetch(&pages.runs[granule_of(block)], 1);
      continue;
    }
    if (before) block_link(before, CHAIN_END);
    else chain->head = CHAIN_END;
    misuse_freed(leads_astray && before ? before : block);
    return;
  }
}

/* Returns a short chain to its slabs. Blocks that follow each other in one granule stay linked as they are, and are
 * pushed together; only the last of such a stretch is written to. A chain that ends after `count` blocks holds none
 * twice. Returns false, and has done nothing, if it does not end there. */
static bool return_stretches(struct lock *gate, struct chain chain) {
  struct pushes pushes;
  struct group *group = NULL;
  size_t granule = SIZE_MAX;
  void *block = chain.head;
  pushes.count = 0;
  for (unsigned left = chain.count; left > 0; left--, block = block_next(block)) {
    if (UNLIKELY(!block_is_intact(block))) return false;
    if (granule_of(block) != granule) {
      granule = granule_of(block);
      struct run *slab = pages_run_holding(block);
      __builtin_prefetch(slab, 1);
      group = &pushes.groups[pushes.count++];
      *group = (struct group){.slab = slab, .head = block};
    }
    group->tail = block;
    group->count++;
  }
  if (UNLIKELY(block != CHAIN_END)) return false;
  push_all(gate, &pushes);
  return true;
}

void bins_return(struct lock *gate, struct chain chain) {
  struct pushes pushes;
  if (chain.count == 0) return;
  if (!TSLAB_HARDENED && chain.count <= GROUPS && LIKELY(return_stretches(gate, chain))) return;
  start_pushes(&pushes);
  cut_at_double(&chain);
  for (void *block = chain.head, *next; block != CHAIN_END; block = next) {
    next = block_next(block);
    block_mark_free(block);
    join_group(group_of(gate, &pushes, pages_run_holding(block)), block);
  }
  push_all(gate, &pushes);
}

/* Reports a block of a batch, and takes back its count, which the free added. */
static COLD void refuse_freed(struct heap *heap, const struct run *run, void *block) {
  unsigned class = !run ? CLASSES : run->kind == RUN_SLAB ? run->class : run->was - 1u;
  struct bin *bin = class < CLASSES ? &heap->bins[class] : NULL;
  if (bin && bin->remote_frees > 0) counter_add_release(&bin->remote_frees, (uint64_t)-1);
  if (TSLAB_HARDENED) misuse_freed(block);
  else misuse_batch(block);
}

/* Facts that neighbours in a batch share, because they mostly lie in one granule. */
struct place {
  size_t granule; /* SIZE_MAX: unknown */
  struct run *slab;
  struct group *group; /* NULL: unknown */
  const char *last;    /* no block starts behind it */
  uint64_t unlinked;
  unsigned unit_shift;
};

/* Returns the run that holds the block, and sets `place` if that is a slab of epoch 0. If not, a second free has ended
 * the slab. */
static struct run *find_place(struct place *place, void *block) {
  struct run *slab = slab_at((uint32_t)granule_of(block));
  if (UNLIKELY(slab->kind != RUN_SLAB)) slab = pages_run_of(block);
  place->granule = SIZE_MAX;
  if (UNLIKELY(!slab || slab->kind != RUN_SLAB || slab->epoch != 0)) return slab;
  place->granule = granule_of(block);
  place->slab = slab;
  place->group = NULL;
  place->last = run_start(slab) + run_bytes(slab) - class_size(slab->class);
  place->unlinked = LOAD_RACING(slab->unlinked);
  place->unit_shift = log2_floor(slab_unit_bytes(slab));
  return slab;
}

/* Returns true if the block was in use when it was freed. The free has checked that the address is one of a block; the
 * hardened build has also checked the block, and marked it free. */
INLINE bool was_in_use(const struct place *place, void *block) {
  if (UNLIKELY(place->granule == SIZE_MAX)) return false;
  if (TSLAB_HARDENED) return block_is_intact(block);
  size_t unit = (size_t)((char *)block - run_start(place->slab)) >> place->unit_shift;
  return (const char *)block <= place->last && !(place->unlinked >> unit & 1) && !block_has_key(block);
}

void bins_return_batch(struct heap *heap, void *const *blocks, unsigned count) {
  struct pushes pushes;
  struct place place = {.granule = SIZE_MAX};
  start_pushes(&pushes);
  for (unsigned i = 0; i < count; i++) {
    void *block = blocks[i];
    struct run *run = granule_of(block) == place.granule ? place.slab : find_place(&place, block);
    if (UNLIKELY(!was_in_use(&place, block))) {
      refuse_freed(heap, run, block);
      continue;
    }
    if (!place.group) place.group = group_of(&heap->lock, &pushes, place.slab);
    block_mark_free(block);
    join_group(place.group, block);
  }
  push_all(&heap->lock, &pushes);
}

/* ---- relisting --------------------------------------------------------------------------------------------------- */

/* Takes the lock that protects the slab's heap. Returns both, or NULL if the slab is gone: see is_pending. */
static struct lock *lock_heap_of(struct run *slab, struct heap **heap) {
  for (;;) {
    *heap = heap_of(slab);
    if (UNLIKELY(!*heap)) return NULL;
    struct lock *guard = heap_lock(*heap);
    if (heap_of(slab) == *heap) return guard;
    lock_release(guard); /* another heap adopted the slab in between */
  }
}

static void retire(struct heap *heap, struct run *slab) {
  struct bin *bin = &heap->bins[slab->class];
  if (word_of(slab) & SLAB_LISTED) unlink_slab(bin, slab);
  lose(heap, slab);
  STORE_RACING(bin->retired, bin->retired + 1);
  note_growth(heap, slab, -1);
  unsigned class = slab->class;
  slab_wipe(slab);
  bool clean = slab_retire(slab);
  if (!heap->arena) pages_free(slab, clean);
  else if (arena_release(heap->arena, slab, clean)) counter_add(&counters_here()->classes[class].recycled, 1);
}

/* Returns true for the one empty slab that may stay listed while its epoch is open. Without it a thread at a slab's
 * border would make and retire slabs all the time. */
static bool is_cached(const struct heap *heap, const struct bin *bin, struct run *slab) {
  uint32_t g = (uint32_t)run_index(slab);
  return !heap->closing && (bin->first == 0 || bin->first == g) && (bin->last == 0 || bin->last == g);
}

/* Lists or retires a slab and ends PENDING. Returns true if the slab is retired. Caller holds the lock. */
static bool relist_locked(struct heap *heap, struct run *slab, bool empty_may_stay) {
  struct bin *bin = &heap->bins[slab->class];
  INVARIANT(1, !heap->folded); /* a folded heap lists no slab, and this lock would not protect it */
  for (uint64_t old = word_of(slab);;) {
    if (slab_all_free(old) && !(empty_may_stay && is_cached(heap, bin, slab))) {
      /* All blocks are here, and none leaves without the lock, so the word does not change. Acquire pairs with the
       * pushes. */
      (void)atomic_load_explicit(&slab->word, memory_order_acquire);
      retire(heap, slab);
      return true;
    }
    bool worth_listing = slab_count(old) >= slab->threshold || slab->unlinked || slab_all_free(old);
    if (worth_listing && !(old & SLAB_LISTED)) {
      insert_first(bin, slab);
      old = atomic_fetch_or_explicit(&slab->word, SLAB_LISTED, memory_order_relaxed) | SLAB_LISTED;
      continue; /* blocks that came meanwhile count, too */
    }
    if (atomic_compare_exchange_weak_explicit(&slab->word, &old, old & ~SLAB_PENDING, memory_order_relaxed,
                                              memory_order_relaxed))
      return false;
  }
}

/* Returns false if this is a fork child since the thread set PENDING: bins_after_fork relisted the slab, and the signal
 * handler that forked returned. */
static bool is_pending(struct run *slab) { return slab->kind == RUN_SLAB && (word_of(slab) & SLAB_PENDING); }

void bins_relist(struct run *slab) {
  if (UNLIKELY(pages_is_frozen(slab))) return; /* it stays PENDING, so no thread relists it again */
  struct heap *heap;
  struct lock *guard = lock_heap_of(slab, &heap);
  if (UNLIKELY(!guard)) return;
  if (UNLIKELY(!is_pending(slab))) {
    lock_release(guard);
    return;
  }
  if (UNLIKELY(heap->folded)) { /* the slab was full, and any thread may have it now; `guard` is common_heap's lock */
    folded_slabs[slab->class]--;
    lose(heap, slab);
    if (!heap_has_slabs(heap)) heap_notice(heap); /* its pages may go back */
    set_owner(&common_heap, slab);
    heap = &common_heap;
  }
  relist_locked(heap, slab, true);
  heap_notice(heap);
  lock_release(guard);
}

void bins_after_fork(void) {
  for (struct run *run = pages_first_run(); run; run = pages_next_run(run))
    if (run->kind == RUN_SLAB && (word_of(run) & SLAB_PENDING)) bins_relist(run);
}

void bins_count_used(uint64_t used[CLASSES]) {
  for (struct run *run = pages_first_run(); run; run = pages_next_run(run))
    if (run->kind == RUN_SLAB) used[run->class] += slab_linked(word_of(run)) - slab_count(word_of(run));
}

#define SLABS_A_LOCK 32 /* slabs to look at before another thread may take the lock */

/* Returns true if another thread should have the lock now. */
static bool has_looked_long(unsigned *looked) {
  if (++*looked < SLABS_A_LOCK) return false;
  lock_count_steps(*looked);
  *looked = 0;
  return true;
}

/* Returns true if the slab is retired. Caller holds the lock. */
static bool retire_if_empty(struct heap *heap, struct run *slab) {
  if (!slab_all_free(word_of(slab))) return false;
  if (atomic_fetch_or_explicit(&slab->word, SLAB_PENDING, memory_order_relaxed) & SLAB_PENDING) return false;
  return relist_locked(heap, slab, false);
}

/* Turns each list round, so the next call goes on where this one stopped. */
unsigned bins_retire_empty(struct heap *heap, unsigned most) {
  unsigned retired = 0, looked = 0;
  lock_take(&heap->lock);
  for (unsigned class = 0; class < CLASSES; class++) {
    struct bin *bin = &heap->bins[class];
    for (uint32_t left = bin->listed; left > 0 && bin->first && retired < most; left--) {
      bool is_retired = retire_if_empty(heap, turn(bin));
      if (is_retired) retired++, looked += SLABS_A_LOCK / 8; /* it was wiped */
      if (!has_looked_long(&looked)) continue;
      lock_release(&heap->lock);
      lock_take(&heap->lock);
    }
  }
  lock_release(&heap->lock);
  return retired;
}

/* ---- trimming ---------------------------------------------------------------------------------------------------- */

/* The holes are purged without the lock: the slab is off the list and PENDING, so no thread takes from it or
 * retires it. The caller holds the lock at each of these two calls, which come before the purge and after it. */
static void begin_purge(struct heap *heap, struct run *slab) {
  unlink_slab(&heap->bins[slab->class], slab);
  heap->store->unlisted_slabs++; /* so that the heap is not folded meanwhile */
}

static size_t end_purge(struct heap *heap, struct run *slab, struct slab_purge purge) {
  heap->store->unlisted_slabs -= heap->store->unlisted_slabs != 0; /* 0: as in is_pending */
  if (!is_pending(slab) || relist_locked(heap, slab, false)) return purge.bytes;
  uint64_t word = word_of(slab);
  bool is_all = slab->moved && slab_count(word) == purge.kept; /* otherwise blocks came back meanwhile */
  slab->seen = is_all ? word : ~word;
  if (word & SLAB_LISTED) { /* behind the slabs that this round has not reached */
    unlink_slab(&heap->bins[slab->class], slab);
    insert_last(&heap->bins[slab->class], slab);
  }
  return purge.bytes;
}

#define HAS_HOLES SIZE_MAX

/* A free block of this size or more is a page or several that may go back. */
#define TRIM_BLOCK (4 * KiB)

/* Returns the bytes that became free; HAS_HOLES if the slab is PENDING and the caller must purge its holes.
 *
 * Has a slab purged once its word stood still from one look to the next, and only once for that word. A slab of large
 * blocks need not stand still: it is enough that no thread took a block from it. `seen` is the word at the purge, or
 * the complement of the word at the last look; 0: a thread took blocks since. At the look after the purge the slab
 * becomes QUIET, and no look meets it until its next block comes back. */
static size_t trim_slab(struct heap *heap, struct run *slab, bool now) {
  uint64_t word = word_of(slab);
  if (word & SLAB_QUIET) return 0;
  bool purged = slab->seen == word, is_large = class_size(slab->class) >= TRIM_BLOCK;
  bool still = purged || slab->seen == ~word || (is_large && slab->seen != 0);
  if (!purged) slab->seen = ~word;
  if (purged && !slab_all_free(word)) {
    if (atomic_compare_exchange_strong_explicit(&slab->word, &word, word | SLAB_QUIET, memory_order_relaxed,
                                                memory_order_relaxed))
      return 0;
  }
  heap->store->restless_slabs++;
  if (!(now || still) || (purged && !slab_all_free(word))) return 0;
  if (atomic_fetch_or_explicit(&slab->word, SLAB_PENDING, memory_order_relaxed) & SLAB_PENDING) return 0;
  if (!slab_all_free(word_of(slab))) return HAS_HOLES;
  size_t bytes = run_bytes(slab);
  return relist_locked(heap, slab, false) ? bytes : 0;
}

void bins_leave(struct heap *heap) {
  for (bool more = true; more;) {
    unsigned moved = 0;
    lock_take(&heap->lock);
    for (unsigned class = 0; class < CLASSES && !heap->live && moved < SLABS_A_LOCK; class++) {
      struct bin *bin = &heap->bins[class];
      if (!bin->first) continue;
      lock_take(&common_heap.lock);
      for (; bin->first && moved < SLABS_A_LOCK; moved++) change_owner(heap, &common_heap, slab_at(bin->first));
      heap_notice(&common_heap);
      lock_release(&common_heap.lock);
    }
    more = moved == SLABS_A_LOCK;
    lock_release(&heap->lock);
  }
}

static size_t trim_class(struct heap *heap, unsigned class, bool now) {
  struct bin *bin = &heap->bins[class];
  size_t freed = 0;
  unsigned looked = 0;
  lock_take(&heap->lock);
  for (uint32_t left = bin->listed; left > 0 && bin->first; left--) {
    struct run *slab = turn(bin);
    size_t bytes = trim_slab(heap, slab, now);
    if (bytes == HAS_HOLES) {
      begin_purge(heap, slab);
      lock_release(&heap->lock);
      struct slab_purge purge = slab_purge_holes(slab);
      if (purge.damaged) misuse_freed(purge.damaged);
      lock_take(&heap->lock);
      bytes = end_purge(heap, slab, purge);
    }
    freed += bytes;
    if (!has_looked_long(&looked)) continue;
    lock_release(&heap->lock);
    lock_take(&heap->lock);
  }
  lock_release(&heap->lock);
  return freed;
}

static uint64_t begin_trim(struct heap *heap) {
  uint64_t classes = 0;
  lock_take(&heap->lock);
  heap->store->restless_slabs = 0;
  for (unsigned class = 0; class < CLASSES; class++)
    if (heap->bins[class].listed) classes |= (uint64_t)1 << class;
  lock_release(&heap->lock);
  return classes;
}

size_t bins_trim(struct heap *heap, bool now) {
  size_t freed = 0;
  for (uint64_t left = begin_trim(heap); left; left &= left - 1) freed += trim_class(heap, lowest_bit(left), now);
  return freed;
}
