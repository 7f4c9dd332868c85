/* tree: see tree.h.                                                                                  floor: epoch */
#include "epoch/tree.h"

struct lock tree_lock;

void tree_join(struct epoch *e, struct epoch *parent) {
  e->arena.parent = &parent->arena;
  e->previous_sibling = 0;
  e->next_sibling = parent->children;
  if (parent->children) epoch_at(parent->children)->previous_sibling = e->arena.index;
  __atomic_store_n(&parent->children, e->arena.index, __ATOMIC_RELAXED);
}

struct epoch *tree_leave(struct epoch *e) {
  if (!e->arena.parent) return NULL;
  lock_take(&tree_lock);
  struct epoch *parent = (struct epoch *)(void *)e->arena.parent;
  if (parent) {
    if (e->previous_sibling) epoch_at(e->previous_sibling)->next_sibling = e->next_sibling;
    else __atomic_store_n(&parent->children, e->next_sibling, __ATOMIC_RELAXED);
    if (e->next_sibling) epoch_at(e->next_sibling)->previous_sibling = e->previous_sibling;
  }
  e->arena.parent = NULL;
  e->next_sibling = e->previous_sibling = 0;
  lock_release(&tree_lock);
  return parent;
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

/* Returns the first epoch of a walk over a list of siblings and all below. `at` and the result are indices, 0 for
 * none. */
static uint32_t first(const struct tree_look *look, uint32_t at) {
  while (look->what == TREE_UNMET && at && epoch_at(at)->children) at = epoch_at(at)->children;
  return at;
}

/* Returns the index of the next epoch of the walk; 0 after the last. Climbs or descends at most EPOCH_DEPTH steps. */
static uint32_t successor(const struct tree_look *look, const struct epoch *e) {
  bool children_first = look->what == TREE_UNMET;
  if (!children_first && e->children) return e->children;
  while (e != look->root && !e->next_sibling) {
    e = (const struct epoch *)(const void *)e->arena.parent;
    if (children_first) return e == look->root ? 0 : e->arena.index;
  }
  return e == look->root ? 0 : first(look, e->next_sibling);
}

/* Returns where the walk goes on. A root with another id has ended, and its slot serves another epoch. */
static uint32_t place(const struct tree_look *look) {
  if (epoch_id(look->root) != look->root_id) return 0;
  const struct epoch *e = look->at ? epoch_at(look->at) : NULL;
  bool is_there = e && epoch_id(e) == look->at_id && e->arena.parent;
  return is_there ? look->at : first(look, look->root->children);
}

static bool is_wanted(struct tree_look *look, struct epoch *e) {
  if (look->what == TREE_ALL) return true;
  bool is_open = epoch_state(e) == EPOCH_OPEN;
  if (look->what == TREE_OPEN) return is_open;
  bool is_new = e->reset_mark != look->mark;
  e->reset_mark = look->mark;
  return is_open && is_new;
}

bool tree_look_on(struct tree_look *look) {
  look->count = 0;
  while (look->count == 0 && !look->is_over) {
    unsigned steps = 0;
    lock_take(&tree_lock);
    uint32_t at = place(look);
    for (; at && steps < TREE_STEPS && look->count < TREE_FOUND; steps++) {
      struct epoch *e = epoch_at(at);
      if (is_wanted(look, e)) look->found[look->count++] = epoch_id(e);
      at = successor(look, e);
    }
    look->is_over = at == 0;
    look->at = at;
    look->at_id = at ? epoch_id(epoch_at(at)) : 0;
    lock_count_steps(steps);
    lock_release(&tree_lock);
  }
  return look->count != 0;
}

int tree_each(struct epoch *root, uint64_t id, enum tree_what what, uint32_t mark, int (*visit)(uint64_t, void *),
              void *arg) {
  struct tree_look look = tree_look(root, id, what, mark);
  while (tree_look_on(&look))
    for (unsigned i = 0; i < look.count; i++) {
      int result = visit(look.found[i], arg);
      if (result != 0) return result;
    }
  return 0;
}
