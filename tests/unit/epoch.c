/* epoch: an id is a slot and an incarnation, and no id appears twice; labels are cut; children are in their parent's
   list, and only an open epoch gets children. */
#include "unit.h"

#include "epoch/epoch.h"
#include "epoch/finish.h"
#include "epoch/open.h"
#include <pthread.h>

static struct epoch *slot(uint64_t id) { return epoch_slot(id); }

static uint64_t open_under(uint64_t parent, const char *label, uint32_t flags) {
  int error;
  const uint64_t id = epoch_open(&(tslab_epoch_options){.label = label, .flags = flags, .parent = parent}, &error);
  CHECK(id != 0 && error == 0);
  struct epoch *const e = slot(id);
  CHECK(e != NULL && epoch_at(epoch_index(id)) == e && epoch_id(e) == id && atomic_load(&e->open_id) == id);
  CHECK(e->flags == flags && e->heaps == NULL && e->era == 0 && e->arena.index == epoch_index(id));
  epoch_check(e);
  return id;
}

static struct epoch *end(uint64_t id) {
  struct epoch *const e = slot(id), *const parent = (struct epoch *)(void *)e->arena.parent;
  epoch_lock(e);
  atomic_store(&e->open_id, 0);
  epoch_end(e);
  epoch_unlock(e);
  epoch_retire(e);
  CHECK_COUNT(epoch_error(e, id), ==, ESTALE);
  return parent;
}

static void ids(void) {
  uint64_t last = open_under(0, "first", 0);
  CHECK(slot(0) == NULL && slot(epoch_index(UINT64_MAX)) == NULL && epoch_error(NULL, last) == ESTALE);
  CHECK_COUNT(epoch_error(slot(last), last), ==, 0);
  for (int i = 0; i < 100; i++) {
    CHECK(end(last) == NULL);
    const uint64_t next = open_under(0, NULL, TSLAB_EPOCH_DESTROYABLE);
    CHECK(slot(next) == slot(last)); /* the slot that was freed last, one incarnation on */
    CHECK_COUNT(next - last, ==, (uint64_t)1 << EPOCH_INDEX_BITS);
    CHECK_COUNT(epoch_error(slot(last), last), ==, ESTALE);
    CHECK_COUNT(slot(next)->label[0], ==, 0);
    last = next;
  }
  atomic_store(&slot(last)->state, EPOCH_CLOSING);
  CHECK_COUNT(epoch_error(slot(last), last), ==, ESHUTDOWN);
  atomic_store(&slot(last)->state, EPOCH_CACHED);
  CHECK_COUNT(epoch_error(slot(last), last), ==, ESTALE);
  end(last);
}

static void labels(void) {
  char longest[2 * TSLAB_EPOCH_LABEL];
  memset(longest, 'x', sizeof longest);
  longest[sizeof longest - 1] = 0;
  const uint64_t id = open_under(0, longest, 0);
  CHECK_COUNT(strlen(slot(id)->label), ==, TSLAB_EPOCH_LABEL - 1);
  CHECK(strncmp(slot(id)->label, longest, TSLAB_EPOCH_LABEL - 1) == 0);
  end(id);
}

static void check_children(uint64_t parent, unsigned count, const uint64_t *children) {
  uint32_t previous = 0, index = slot(parent)->children;
  for (unsigned i = count; i-- > 0; previous = index, index = epoch_at(index)->next_sibling) {
    CHECK_COUNT(index, ==, epoch_index(children[i]));
    CHECK_COUNT(epoch_at(index)->previous_sibling, ==, previous);
    CHECK(epoch_at(index)->arena.parent == &slot(parent)->arena);
  }
  CHECK_COUNT(index, ==, 0);
  CHECK_COUNT(epoch_has_children(slot(parent)), ==, count > 0);
}

static void children(void) {
  const uint64_t parent = open_under(0, "parent", 0);
  uint64_t ids[4];
  check_children(parent, 0, ids);
  for (unsigned i = 0; i < 4; i++) {
    ids[i] = open_under(parent, "child", 0);
    check_children(parent, i + 1, ids);
  }
  CHECK(end(ids[1]) == slot(parent)); /* from the middle, the end and the start */
  check_children(parent, 3, (const uint64_t[]){ids[0], ids[2], ids[3]});
  CHECK(end(ids[0]) == slot(parent));
  check_children(parent, 2, (const uint64_t[]){ids[2], ids[3]});
  CHECK(end(ids[3]) == slot(parent) && end(ids[2]) == slot(parent));
  check_children(parent, 0, ids);
  end(parent);
}

static void refused(void) {
  const uint64_t parent = open_under(0, "parent", 0);
  const uint32_t made = arenas_made();
  int error;
  atomic_store(&slot(parent)->state, EPOCH_CLOSING);
  CHECK(epoch_open(&(tslab_epoch_options){.parent = parent}, &error) == 0 && error == ESHUTDOWN);
  end(parent);
  CHECK(epoch_open(&(tslab_epoch_options){.parent = parent}, &error) == 0 && error == ESTALE);
  CHECK(epoch_open(&(tslab_epoch_options){.parent = UINT64_MAX}, &error) == 0 && error == ESTALE);
  CHECK(epoch_open(&(tslab_epoch_options){.budget_bytes = GRANULE, .prefault_bytes = GRANULE + 1}, &error) == 0);
  CHECK_COUNT(error, ==, ENOMEM);
  for (int i = 0; i < 100; i++) CHECK(epoch_open(&(tslab_epoch_options){.parent = parent}, &error) == 0);
  CHECK_COUNT(arenas_made(), <=, made + 1); /* no slot is lost */
}

static uint64_t owned_id;
static struct lock *gate;
static _Atomic bool got_it;

static void *wait_for_it(void *nothing) {
  epoch_lock(slot(owned_id));
  atomic_store(&got_it, true);
  epoch_unlock(slot(owned_id));
  return nothing;
}

/* An epoch that may hold much has an owner: other threads wait for it without its lock, which other epochs share. */
static void owners(void) {
  uint64_t others[EPOCH_LOCKS];
  pthread_t thread;
  owned_id = open_under(0, "owned", 0);
  struct epoch *const e = slot(owned_id);
  CHECK(epoch_take(e) == NULL && !epoch_is_owned(e)); /* it holds nothing */
  epoch_release(e, NULL);

  atomic_store(&e->arena.spilled, 3 * GRANULE);
  gate = epoch_take(e);
  CHECK(gate != NULL && gate->word != 0 && epoch_is_owned(e) && epoch_lock_of(e)->word == 0);
  CHECK(pthread_create(&thread, NULL, wait_for_it, NULL) == 0);
  while (atomic_load(&e->arena.owned) != 2) os_rest();
  for (int i = 0; i < EPOCH_LOCKS; i++) others[i] = open_under(0, "another", 0); /* one of the threads has its lock */
  for (int i = 0; i < EPOCH_LOCKS; i++) CHECK(end(others[i]) == NULL);
  CHECK(!atomic_load(&got_it));
  epoch_release(e, gate);
  CHECK(gate->word == 0);
  CHECK(pthread_join(thread, NULL) == 0 && atomic_load(&got_it));
  atomic_store(&e->arena.spilled, 0);
  end(owned_id);
}

int main(void) {
  start_floors();
  ids();
  labels();
  children();
  refused();
  owners();
  return 0;
}
