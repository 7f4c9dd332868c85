/* parent: finds out if the parent process has reported a wrong setting already.                     floor: base
 *
 * Every process that a shell or a build starts inherits a wrong setting. The first process that has it reports it. The
 * others find that their parent has the setting and runs under the same library, and stay silent. A program that
 * another one executes in its own process (exec) reports the setting again. So does a child whose parent has ended, or
 * does not let the child read its /proc. A mark in the environment would reach those, too. But glibc takes over the
 * environment only after our constructor has run, and a mistake in a setting should not change a program's
 * environment. */
#ifndef TSLAB_BASE_PARENT_H
#define TSLAB_BASE_PARENT_H

#include "base/attr.h"

/* Returns true if the parent began with `setting` (NAME=value) in its environment, and has mapped the file that holds
 * this code. Returns false if /proc does not say. */
HIDDEN COLD bool parent_has(const char *setting);

#endif
