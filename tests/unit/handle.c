/* handle: a number is valid until its block is claimed or its epoch forgets it, and no other number ever is; slots
 * are used again under other numbers. */
#include "unit.h"

#include "epoch/handle.h"
#include "epoch/open.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MANY = 5000 };

static tslab_handle handles[MANY];
static char blocks[MANY];

static struct epoch *open_one(void) {
  int error;
  const uint64_t id = epoch_open(&(tslab_epoch_options){.label = "handles"}, &error);
  CHECK(id != 0);
  return epoch_slot(id);
}

static void claim(tslab_handle handle, void *block, uint32_t index) {
  uint32_t owner;
  CHECK(handle_get(handle) == block && handle_claim(handle, &owner) == block && owner == index);
  CHECK(handle_get(handle) == NULL && handle_claim(handle, &owner) == NULL);
  handle_freed(index);
}

static void forget(struct epoch *e) {
  handle_lock_quiet(e);
  handle_forget_all(e);
  epoch_unlock(e);
}

static void numbers(uint32_t index) {
  for (int i = 0; i < MANY; i++) {
    handles[i] = handle_make(index, &blocks[i]);
    CHECK(handles[i] != 0);
  }
  for (int i = 0; i < MANY; i++) CHECK(handle_get(handles[i]) == &blocks[i]);
  /* A number with one changed bit belongs to no block; one in 65,536 would pass the check by chance, and then leads to
     no live slot. */
  for (unsigned bit = 0; bit < 64; bit++) CHECK(handle_get(handles[7] ^ (uint64_t)1 << bit) == NULL);
  CHECK(handle_get(0) == NULL && handle_get(UINT64_MAX) == NULL);
  for (int i = 0; i < MANY; i += 2) claim(handles[i], &blocks[i], index);
  for (int i = 0; i < MANY; i++) CHECK(handle_get(handles[i]) == (i % 2 ? &blocks[i] : NULL));
}

/* The slots that were released serve again, so no new one is made, and the old numbers stay stale. */
static void slots_again(uint32_t index) {
  static tslab_handle again[MANY];
  for (int i = 0; i < MANY; i += 2) {
    again[i] = handle_make(index, &blocks[i]);
    CHECK((again[i] & ((1 << 26) - 1)) < MANY + 64);
    CHECK(handle_get(handles[i]) == NULL && handle_get(again[i]) == &blocks[i]);
  }
  for (int i = 0; i < MANY; i++) claim(i % 2 ? handles[i] : again[i], &blocks[i], index);
}

/* The end of an epoch ends its own handles and no others; its tables serve the next epoch. */
static void forgetting(void) {
  struct epoch *const one = open_one(), *const other = open_one();
  const uint32_t index = one->arena.index;
  const tslab_handle stays = handle_make(other->arena.index, &blocks[1]), zero = handle_make(0, &blocks[2]);
  for (int i = 0; i < 100; i++) handles[i] = handle_make(index, &blocks[i]);
  forget(one);
  CHECK(one->handles == 0);
  for (int i = 0; i < 100; i++) CHECK(handle_get(handles[i]) == NULL);
  const tslab_handle next = handle_make(other->arena.index, &blocks[3]);
  CHECK(handle_get(stays) == &blocks[1] && handle_get(zero) == &blocks[2] && handle_get(next) == &blocks[3]);
  forget(other);
  CHECK(handle_get(stays) == NULL && handle_get(next) == NULL);
  claim(zero, &blocks[2], 0);
}

/* A slot that has used up its numbers is never used again. */
static void generations(void) {
  enum { ROUNDS = (1 << 22) / (TEST_SCALE > 1 ? 16 : 1) };
  struct epoch *const e = open_one();
  const uint32_t index = e->arena.index;
  const tslab_handle first = handle_make(index, &blocks[0]);
  tslab_handle last = first;
  uint32_t owner;
  for (int i = 0; i < ROUNDS; i++) {
    CHECK(handle_claim(last, &owner) == &blocks[0]);
    handle_freed(owner);
    last = handle_make(index, &blocks[0]);
    CHECK(last != first);
  }
  CHECK(handle_get(first) == NULL && handle_get(last) == &blocks[0]);
  if (ROUNDS == 1 << 22) CHECK(((first ^ last) & ((1 << 26) - 1)) != 0); /* in another slot by now */
  forget(e);
}

/* An old handle, whose table was given to an epoch that its thread never heard of, leads to that epoch's lock. Only the
   table orders the two threads: a sanitizer reports a missing order there. */
static tslab_handle old;
static atomic_bool passed_on;

static void *follow_old(void *unused) {
  while (!atomic_load_explicit(&passed_on, memory_order_relaxed)) sched_yield();
  CHECK(handle_get(old) == NULL);
  return unused;
}

static void to_an_unknown_epoch(void) {
  struct epoch *const e = open_one();
  pthread_t other;
  old = handle_make(e->arena.index, &blocks[1]);
  forget(e);
  CHECK(pthread_create(&other, NULL, follow_old, NULL) == 0);
  CHECK(handle_make(open_one()->arena.index, &blocks[2]) != 0);
  atomic_store_explicit(&passed_on, true, memory_order_relaxed);
  CHECK(pthread_join(other, NULL) == 0);
}

int main(void) {
  start_floors();
  to_an_unknown_epoch();
  numbers(0);
  slots_again(0);
  struct epoch *const e = open_one();
  numbers(e->arena.index);
  forget(e);
  for (int i = 0; i < MANY; i++) CHECK(handle_get(handles[i]) == NULL);
  forgetting();
  generations();
  return 0;
}
