/* tree: parents and children of epochs, and walks over all epochs below one.                         floor: epoch
 *
 * The children of a parent form a list through their siblings. tree_lock protects it; a thread takes tree_lock before
 * any epoch's lock.
 *
 * A tree may have any number of epochs, and every open and every end of a child takes tree_lock. So a walk holds the
 * lock for TREE_STEPS steps at a time, and hands out the epochs that it found without the lock:
 *
 *   struct tree_look look = tree_look(root, id, TREE_OPEN, 0);
 *   while (tree_look_on(&look)) ... look.found[0 .. look.count) ...
 *
 * A walk is one loop, so the stack that it needs does not grow with the depth of the tree.
 *
 * Between two holds epochs come and go. An epoch that has children does not end. So while the epoch from which the walk
 * goes on has its id, it is in the tree below the root. Once that epoch is gone, the walk begins again and finds some
 * epochs twice. It may miss an epoch that is opened meanwhile.
 *
 * Threads: each walk belongs to one thread. */
#ifndef TSLAB_EPOCH_TREE_H
#define TSLAB_EPOCH_TREE_H

#include "epoch/epoch.h"

HIDDEN extern struct lock tree_lock;

HIDDEN void tree_join(struct epoch *e, struct epoch *parent); /* caller holds tree_lock */
HIDDEN struct epoch *tree_leave(struct epoch *e);             /* returns its parent, or NULL */

#define TREE_STEPS 64
#define TREE_FOUND 32 /* they must fit on any thread's stack */

enum tree_what {
  TREE_ALL,   /* every epoch below the root, parents first */
  TREE_OPEN,  /* every open epoch, parents first */
  TREE_UNMET, /* every open epoch that no walk with this mark has met, children first */
};

struct tree_look {
  struct epoch *root;
  uint64_t root_id, at_id;
  uint32_t at; /* index of the epoch to go on from; 0: the walk begins */
  uint32_t mark;
  enum tree_what what;
  bool is_over;
  unsigned count;
  uint64_t found[TREE_FOUND]; /* ids */
};

INLINE struct tree_look tree_look(struct epoch *root, uint64_t id, enum tree_what what, uint32_t mark) {
  return (struct tree_look){.root = root, .root_id = id, .what = what, .mark = mark};
}

/* Finds the next epochs. Returns false at the end of the walk. Caller holds no lock. */
HIDDEN bool tree_look_on(struct tree_look *look);

/* Calls `visit` with the id of each epoch that the walk finds, until a call returns another value than 0. Returns that
 * value, or 0. Caller holds no lock. */
HIDDEN int tree_each(struct epoch *root, uint64_t id, enum tree_what what, uint32_t mark,
                     int (*visit)(uint64_t id, void *arg), void *arg);

#endif
