/* report: fills the report of an end; `out` is NULL if the caller wants none.                        floor: epoch */
#ifndef TSLAB_EPOCH_REPORT_H
#define TSLAB_EPOCH_REPORT_H

#include "epoch/epoch.h"

/* Every end calls these first and last. `error` is the result of the call. */
HIDDEN void report_begin(tslab_epoch_report *out, uint64_t id);
HIDDEN void report_end(tslab_epoch_report *out, int error);

HIDDEN void report_live(tslab_epoch_report *out, struct epoch *e); /* live blocks; caller owns the epoch */
HIDDEN void report_given_up(tslab_epoch_report *out, struct chunk_live given_up);
HIDDEN void report_bytes(tslab_epoch_report *out, const struct epoch *e);

#endif
