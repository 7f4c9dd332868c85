/* tree: an epoch's parent and children, and walks over the epochs below one.                         floor: epoch
 *
 * Children of one parent are a list through their siblings, under tree_lock, which comes before any epoch's lock.
 *
 * A tree may have any number of epochs, and every open and every end of a child wants tree_lock. So a walk holds it for
 * TREE_STEPS steps at a time, and hands out what it found without it:
 *
 *   struct tree_look look = tree_look(root, id, TREE_OPEN, 0);
 *   while (tree_look_on(&look)) ... look.found[0 .. look.count) ...
 *
 * Between two holds epochs come and go. An epoch that has children does not end, so as long as the epoch that the walk
 * goes on from has its id, it is in the tree below the root. When it has gone the walk begins again, and finds some
 * twice. One that is opened meanwhile may be missed.
 *
 * Threads: a walk is its thread's own. */
#ifndef TSLAB_EPOCH_TREE_H
#define TSLAB_EPOCH_TREE_H

#include "epoch/epoch.h"

HIDDEN extern struct lock tree_lock;

HIDDEN void tree_join(struct epoch *e, struct epoch *parent); /* under tree_lock */
HIDDEN struct epoch *tree_leave(struct epoch *e);             /* its parent, or NULL */

#define TREE_STEPS 64
#define TREE_FOUND 32 /* what walks inside walks, one for each parent, have room for on the stack of any thread */

enum tree_what {
  TREE_ALL,      /* every epoch below the root, parents first */
  TREE_OPEN,     /* every open one, but what lies below an open one */
  TREE_CHILDREN, /* every open child that no walk with that mark has met */
};

struct tree_look {
  struct epoch *root;
  uint64_t root_id, at_id;
  uint32_t at; /* by index: where to go on. 0: the walk begins */
  uint32_t mark;
  enum tree_what what;
  bool is_over;
  unsigned count;
  uint64_t found[TREE_FOUND]; /* ids */
};

INLINE struct tree_look tree_look(struct epoch *root, uint64_t id, enum tree_what what, uint32_t mark) {
  return (struct tree_look){.root = root, .root_id = id, .what = what, .mark = mark};
}

/* Looks for more. Returns false, and has found none, at the end of the walk. Caller holds no lock. */
HIDDEN bool tree_look_on(struct tree_look *look);

/* Calls `visit` with the id of each epoch that the walk finds, until one call returns anything but 0. Returns that, or
 * 0. Caller holds no lock. */
HIDDEN int tree_each(struct epoch *root, uint64_t id, enum tree_what what, uint32_t mark,
                     int (*visit)(uint64_t id, void *arg), void *arg);

#endif
