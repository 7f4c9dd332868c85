/* fork: makes the heap of a fork child right before the child's first call.                         floor: runtime */
#ifndef TSLAB_RUNTIME_FORK_H
#define TSLAB_RUNTIME_FORK_H

#include "base/attr.h"

HIDDEN void fork_start(void); /* the library's constructor calls it once */

#endif
