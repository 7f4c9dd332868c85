/* tree: walks meet every epoch below one, in one of two orders, a bounded number of steps at a time, also when epochs
 * end meanwhile. */
#include "unit.h"

#include "epoch/close.h"
#include "epoch/destroy.h"
#include "epoch/open.h"
#include "epoch/tree.h"
#include "runtime/thread.h"

enum { CHILDREN = 200, GRANDCHILDREN = 3, BELOW = CHILDREN * (1 + GRANDCHILDREN) };

static uint64_t open_under(uint64_t parent) {
  int error;
  const tslab_epoch_options wanted = {.label = "tree", .flags = TSLAB_EPOCH_DESTROYABLE, .parent = parent};
  const uint64_t id = epoch_open(&wanted, &error);
  CHECK(id != 0);
  return id;
}

static uint64_t root, children[CHILDREN];

static void plant(void) {
  root = open_under(0);
  for (unsigned i = 0; i < CHILDREN; i++) {
    children[i] = open_under(root);
    for (unsigned j = 0; j < GRANDCHILDREN; j++) open_under(children[i]);
  }
}

static unsigned walk(enum tree_what what, uint32_t mark) {
  static uint8_t met[100000];
  unsigned count = 0;
  memset(met, 0, sizeof met);
  struct tree_look look = tree_look(epoch_slot(root), root, what, mark);
  while (tree_look_on(&look)) {
    CHECK_COUNT(look.count, <=, TREE_FOUND);
    for (unsigned i = 0; i < look.count; i++, count++) {
      const struct epoch *const e = epoch_slot(look.found[i]);
      CHECK(epoch_id(e) == look.found[i] && met[e->arena.index]++ == 0);
      if (e->arena.parent->index != epoch_index(root)) CHECK(met[e->arena.parent->index] == (what != TREE_UNMET));
    }
  }
  CHECK(!tree_look_on(&look));
  return count;
}

static void looking(void) {
  plant();
  CHECK_COUNT(walk(TREE_ALL, 0), ==, BELOW);
  CHECK_COUNT(walk(TREE_OPEN, 0), ==, BELOW);
  CHECK_COUNT(walk(TREE_UNMET, 1), ==, BELOW);
  CHECK_COUNT(walk(TREE_UNMET, 1), ==, 0);
  open_under(children[1]);
  CHECK_COUNT(walk(TREE_UNMET, 1), ==, 1);
  CHECK_COUNT(walk(TREE_UNMET, 2), ==, BELOW + 1);
  CHECK_COUNT(epoch_destroy(root, NULL), ==, 0);
  CHECK_COUNT(walk(TREE_ALL, 0), ==, 0); /* the root has ended */
}

/* The walk's next epoch has ended meanwhile. */
static void leaving(void) {
  plant();
  struct tree_look look = tree_look(epoch_slot(root), root, TREE_ALL, 0);
  CHECK(tree_look_on(&look) && look.at != 0);
  const struct epoch *place = epoch_at(look.at);
  while (place->arena.parent->index != epoch_index(root)) place = epoch_at(place->arena.parent->index);
  CHECK_COUNT(epoch_destroy(epoch_id(place), NULL), ==, 0);
  unsigned count = look.count, again = 0;
  while (tree_look_on(&look)) again += look.count;
  CHECK_COUNT(again, ==, BELOW - 1 - GRANDCHILDREN); /* from the start */
  CHECK_COUNT(count, <=, again);
  CHECK_COUNT(epoch_close(root, NULL), ==, 0);
}

int main(void) {
  CHECK(thread_own_heap() != NULL);
  looking();
  leaving();
  CHECK_COUNT(lock_steps_most, >=, TREE_FOUND);
  CHECK_COUNT(lock_steps_most, <=, TREE_STEPS);
  return 0;
}
