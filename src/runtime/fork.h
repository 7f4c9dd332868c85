/* fork: a child of any kind of fork is right from its first call.                                   floor: runtime */
#ifndef TSLAB_RUNTIME_FORK_H
#define TSLAB_RUNTIME_FORK_H

#include "base/attr.h"

HIDDEN void fork_start(void); /* once, by the library's constructor: children are right from then on */

#endif
