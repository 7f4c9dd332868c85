/* scope_misuse: counts failed calls on scopes and epochs, and reports them on demand.                floor: stats
 *
 * Such a call returns an errno value and changes nothing. A program that ignores the value goes on in another epoch
 * than it believes. Under TSLAB_ON_SCOPE=report a line for each call site names the call, the epoch and the site.
 *
 * Threads: any. Only calls that failed come here. */
#ifndef TSLAB_STATS_SCOPE_MISUSE_H
#define TSLAB_STATS_SCOPE_MISUSE_H

#include "base/attr.h"
#include <stdint.h>

/* The return address of the public function that uses this. */
#define CALL_SITE __builtin_extract_return_addr(__builtin_return_address(0))

/* Counts that `call` failed with `error` on epoch `id`, and returns the error. It does not count errors that say
 * nothing about scopes (ENOMEM, EPERM, EBUSY). */
HIDDEN COLD int scope_misused(const char *call, uint64_t id, int error, const void *site);

/* Counts that the calling thread ends inside a scope. */
HIDDEN COLD void scope_misused_at_exit(void);

HIDDEN uint64_t scope_misuse_count(void);

#endif
