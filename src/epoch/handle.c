/* handle: see handle.h.                                                                              floor: epoch */
#include "epoch/handle.h"

#include "os/os.h"

#define INDEX_BITS      26
#define GENERATION_BITS 22
#define LAST_GENERATION (((uint32_t)1 << GENERATION_BITS) - 1)
#define TABLE_SLOTS     32

struct slot {
  void *block; /* NULL: the handle has ended */
  uint32_t generation;
};

struct table {
  _Atomic uint32_t owner; /* epoch index + 1; 0: none */
  uint32_t next;          /* table + 1, of the same owner or free */
  uint32_t next_roomy;    /* table + 1, in the list of the owner's tables that have an unused slot */
  uint32_t unused;        /* slots, one bit each */
  struct slot slots[TABLE_SLOTS];
};

/* Segments of tables, each twice as long as the one before. */
#define FIRST_LOG 4
#define SEGMENTS  (INDEX_BITS - 5 - FIRST_LOG)

struct lock handles_lock;

static struct {
  struct table *_Atomic segments[SEGMENTS];
  _Atomic uint32_t made;
  uint32_t free; /* table + 1 */
} state;

/* handles_zero_lock protects epoch 0's tables; every other epoch has its own list and lock. */
struct lock handles_zero_lock;
static struct {
  _Atomic uint32_t tables, freeing;
  uint32_t roomy;
} zero;

static struct table *table_at(uint32_t number) {
  size_t n = number + ((size_t)1 << FIRST_LOG);
  unsigned log = log2_floor(n);
  return atomic_load_explicit(&state.segments[log - FIRST_LOG], memory_order_relaxed) + (n - ((size_t)1 << log));
}

static bool make_segment(unsigned segment) {
  struct table *tables = pages_keep(sizeof(struct table) << (FIRST_LOG + segment));
  atomic_store_explicit(&state.segments[segment], tables, memory_order_relaxed);
  return tables != NULL;
}

/* Returns a new table of the owner, as table + 1, or 0 without memory. Caller holds the owner's lock. */
static uint32_t take_table(uint32_t index) {
  lock_take(&handles_lock);
  uint32_t number = state.free, made = atomic_load_explicit(&state.made, memory_order_relaxed);
  if (number) {
    state.free = table_at(number - 1)->next;
  } else {
    unsigned segment = log2_floor(made + ((size_t)1 << FIRST_LOG)) - FIRST_LOG;
    bool there = segment < SEGMENTS && (state.segments[segment] || make_segment(segment));
    if (there) {
      number = made + 1;
      table_at(made)->unused = ~(uint32_t)0;
      /* Release: a thread that sees the new number sees the segment. */
      atomic_store_explicit(&state.made, number, memory_order_release);
    }
  }
  lock_release(&handles_lock);
  /* Release: a thread that an old handle of the table leads to the epoch sees the epoch whole. */
  if (number) atomic_store_explicit(&table_at(number - 1)->owner, index + 1, memory_order_release);
  return number;
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static void lock_owner(uint32_t index) {
  if (index) epoch_lock(epoch_at(index));
  else lock_take(&handles_zero_lock);
}

static void unlock_owner(uint32_t index) {
  if (index) epoch_unlock(epoch_at(index));
  else lock_release(&handles_zero_lock);
}

static _Atomic uint32_t *tables_of(uint32_t index) { return index ? &epoch_at(index)->handles : &zero.tables; }
static uint32_t *roomy_of(uint32_t index) { return index ? &epoch_at(index)->roomy : &zero.roomy; }
static _Atomic uint32_t *freeing_of(uint32_t index) { return index ? &epoch_at(index)->freeing : &zero.freeing; }

struct lock *handle_take_quiet(struct epoch *e) {
  for (;;) {
    struct lock *gate = epoch_take(e);
    if (LIKELY(handle_is_quiet(e))) return gate;
    epoch_release(e, gate);
    os_rest();
  }
}

/* ---- the numbers ------------------------------------------------------------------------------------------------- */

static uint64_t check_of(uint64_t rest) {
  uint64_t x = rest ^ os_random();
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u; /* the finalizer of Steele, Lea and Flood's SplitMix64 */
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (x ^ x >> 31) >> (INDEX_BITS + GENERATION_BITS) << (INDEX_BITS + GENERATION_BITS);
}

static tslab_handle encode(uint32_t index, uint32_t generation) {
  uint64_t rest = (uint64_t)generation << INDEX_BITS | index;
  return rest | check_of(rest);
}

/* The slot to which a handle leads, and the owner of its table at the look-up. */
struct place {
  struct table *table;
  uint32_t slot, generation, owner;
};

/* Returns false if the number is no handle. Takes no lock. */
static bool find(tslab_handle handle, struct place *place) {
  uint64_t rest = handle & (((uint64_t)1 << (INDEX_BITS + GENERATION_BITS)) - 1);
  if (handle == 0 || (rest | check_of(rest)) != handle) return false;
  uint32_t index = (uint32_t)rest & (((uint32_t)1 << INDEX_BITS) - 1);
  if (index / TABLE_SLOTS >= atomic_load_explicit(&state.made, memory_order_acquire)) return false;
  struct table *table = table_at(index / TABLE_SLOTS);
  uint32_t seen = atomic_load_explicit(&table->owner, memory_order_acquire);
  *place = (struct place){table, index % TABLE_SLOTS, (uint32_t)(rest >> INDEX_BITS), seen - 1};
  return seen != 0;
}

/* Returns the slot, or NULL if the handle has ended. Caller holds the owner's lock. */
static struct slot *slot_locked(const struct place *place) {
  struct slot *slot = &place->table->slots[place->slot];
  bool is_valid = atomic_load_explicit(&place->table->owner, memory_order_relaxed) == place->owner + 1 &&
                  slot->block && slot->generation == place->generation;
  return is_valid ? slot : NULL;
}

/* ---- making and ending ------------------------------------------------------------------------------------------- */

/* Returns a table with an unused slot, as table + 1, or 0 without memory. Caller holds the owner's lock. */
static uint32_t roomy_table(uint32_t index) {
  uint32_t *roomy = roomy_of(index);
  if (*roomy) return *roomy;
  uint32_t number = take_table(index);
  if (!number) return 0;
  _Atomic uint32_t *tables = tables_of(index);
  table_at(number - 1)->next = atomic_load_explicit(tables, memory_order_relaxed);
  atomic_store_explicit(tables, number, memory_order_relaxed);
  table_at(number - 1)->next_roomy = 0;
  return *roomy = number;
}

tslab_handle handle_make(uint32_t index, void *block) {
  tslab_handle handle = 0;
  lock_owner(index);
  uint32_t number = roomy_table(index);
  if (number) {
    struct table *table = table_at(number - 1);
    unsigned i = lowest_bit(table->unused);
    table->unused &= table->unused - 1;
    if (table->unused == 0) *roomy_of(index) = table->next_roomy;
    struct slot *slot = &table->slots[i];
    slot->block = block;
    slot->generation++;
    handle = encode((number - 1) * TABLE_SLOTS + i, slot->generation);
  }
  unlock_owner(index);
  return handle;
}

static void end_slot(struct table *table, struct slot *slot) {
  slot->block = NULL;
  if (slot->generation < LAST_GENERATION) table->unused |= (uint32_t)1 << (slot - table->slots);
}

void *handle_get(tslab_handle handle) {
  struct place place;
  if (!find(handle, &place)) return NULL;
  lock_owner(place.owner);
  const struct slot *slot = slot_locked(&place);
  void *block = slot ? slot->block : NULL;
  unlock_owner(place.owner);
  return block;
}

static void *claim_locked(const struct place *place, tslab_handle handle) {
  struct slot *slot = slot_locked(place);
  if (!slot) return NULL;
  struct table *table = place->table;
  void *block = slot->block;
  bool was_full = table->unused == 0;
  end_slot(table, slot);
  if (was_full && table->unused != 0) {
    uint64_t rest = handle & (((uint64_t)1 << INDEX_BITS) - 1);
    table->next_roomy = *roomy_of(place->owner);
    *roomy_of(place->owner) = (uint32_t)rest / TABLE_SLOTS + 1;
  }
  atomic_fetch_add_explicit(freeing_of(place->owner), 1, memory_order_relaxed);
  return block;
}

void *handle_claim(tslab_handle handle, uint32_t *index) {
  struct place place;
  if (!find(handle, &place)) return NULL;
  *index = place.owner;
  lock_owner(place.owner);
  void *block = claim_locked(&place, handle);
  unlock_owner(place.owner);
  return block;
}

/* 0: this process is a fork child since the claim. */
void handle_freed(uint32_t index) {
  _Atomic uint32_t *freeing = freeing_of(index);
  uint32_t seen = atomic_load_explicit(freeing, memory_order_relaxed);
  while (LIKELY(seen != 0) && !atomic_compare_exchange_weak_explicit(freeing, &seen, seen - 1, memory_order_release,
                                                                     memory_order_relaxed)) {}
}

void handle_forget_tables(struct epoch *e) {
  uint32_t number = atomic_load_explicit(&e->handles, memory_order_relaxed);
  atomic_store_explicit(&e->handles, 0, memory_order_relaxed);
  e->roomy = 0;
  for (uint32_t next; number; number = next) {
    struct table *table = table_at(number - 1);
    next = table->next;
    for (unsigned i = 0; i < TABLE_SLOTS; i++)
      if (table->slots[i].block) end_slot(table, &table->slots[i]);
    atomic_store_explicit(&table->owner, 0, memory_order_relaxed);
    if (table->unused == 0) continue; /* used up for ever */
    lock_take(&handles_lock);
    table->next = state.free;
    state.free = number;
    lock_release(&handles_lock);
  }
}

void handles_after_fork(void) {
  zero.freeing = 0;
  for (uint32_t i = 1; i <= arenas_made(); i++)
    if (atomic_load_explicit(&epoch_at(i)->freeing, memory_order_relaxed)) /* spares the page of a 0 a copy */
      atomic_store_explicit(&epoch_at(i)->freeing, 0, memory_order_relaxed);
}

void handles_freeze(void) {
  handles_after_fork();
  state.free = 0;
  zero.roomy = 0;
}
