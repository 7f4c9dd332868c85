/* scope_misuse: calls on scopes and epochs that fail are counted, and named under TSLAB_ON_SCOPE=report. floor: stats
 *
 * Such a call returns an errno value and changes nothing, and a program that does not look at it goes on in another
 * epoch than it believes. Under report, one line for each call site names the call, the epoch and where it was made.
 *
 * Threads: any. All of this is on paths of calls that failed. */
#ifndef TSLAB_STATS_SCOPE_MISUSE_H
#define TSLAB_STATS_SCOPE_MISUSE_H

#include "base/attr.h"
#include <stdint.h>

/* The address to which the public function returns that this stands in. */
#define CALL_SITE __builtin_extract_return_addr(__builtin_return_address(0))

/* `call` failed with `error` on epoch `id`. Returns the error. Errors that say nothing about scopes (ENOMEM, EPERM,
 * EBUSY) are not counted. */
HIDDEN COLD int scope_misused(const char *call, uint64_t id, int error, const void *site);

/* The calling thread ends inside a scope. */
HIDDEN COLD void scope_misused_at_exit(void);

HIDDEN uint64_t scope_misuse_count(void);

#endif
