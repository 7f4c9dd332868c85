/* parent: whether the parent process has reported a wrong setting already.                          floor: base
 *
 * Every process that a shell or a build starts inherits a wrong setting. The first process that has it reports it; the
 * others find that their parent has it, and is served by the same library, and stay silent. A program that another one
 * executes in its own process (exec) reports it again, and so does a child whose parent has ended, or may not be looked
 * at. A mark in the environment would reach those too, but glibc takes over the environment only after our constructor
 * has run, and no program's environment should change because there is a mistake in it. */
#ifndef TSLAB_BASE_PARENT_H
#define TSLAB_BASE_PARENT_H

#include "base/attr.h"

/* Returns true if the parent began with `setting` (NAME=value) in its environment, and has mapped the file that holds
 * this code. Reads /proc; false where that says nothing. */
HIDDEN COLD bool parent_has(const char *setting);

#endif
