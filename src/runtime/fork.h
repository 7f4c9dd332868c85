/* fork: makes the heap of a fork child right before the child's first call.                         floor: runtime */
#ifndef TSLAB_RUNTIME_FORK_H
#define TSLAB_RUNTIME_FORK_H

#include "base/attr.h"

/* The first heap's birth calls this, perhaps before any constructor. From then on a child repairs its heap at its first
 * lock, as after _Fork, even if no fork handler runs there. */
HIDDEN void fork_watch(void);
HIDDEN void fork_start(void); /* the library's constructor calls it once, and so registers the fork handlers */

#endif
