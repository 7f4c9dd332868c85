/* exempt: counts by label what threads allocate in epoch 0 inside a scope.                           floor: epoch
 *
 *   enter(request) ... enter(0)  malloc  malloc  leave(0) ... leave(request)
 *                      begin ->  an exempt scope  <- end: its bytes count for "request"
 *
 * A scope of epoch 0 is exempt if a scope around it is of another epoch. Its bytes count for the label of the nearest
 * such epoch. They are all blocks that the thread's heap of epoch 0 hands out there, whether the program freed them
 * since or not. The heap counts these anyway, so an exempt scope reads its sums twice and malloc does nothing for it.
 * While the thread is in a scope of another epoch inside an exempt one, the count rests.
 *
 * Threads: each calls these for itself. */
#ifndef TSLAB_EPOCH_EXEMPT_H
#define TSLAB_EPOCH_EXEMPT_H

#include "epoch/attach.h"

/* Called when the thread's innermost scope is one of epoch 0 with a scope around it. `is_new` says that the thread
 * entered it just now. Does nothing if no scope around it is of another epoch. */
HIDDEN COLD void exempt_begin(struct thread *thread, bool is_new);

/* Adds what the thread allocated since exempt_begin. Caller has checked that thread->exempt is set. */
HIDDEN COLD void exempt_end(struct thread *thread);

#endif
