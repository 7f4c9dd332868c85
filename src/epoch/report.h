/* report: what an end tells its caller, who may want no report: then `out` is NULL.                  floor: epoch */
#ifndef TSLAB_EPOCH_REPORT_H
#define TSLAB_EPOCH_REPORT_H

#include "epoch/epoch.h"

/* Every end begins and ends with these. `error` is what the call returns. */
HIDDEN void report_begin(tslab_epoch_report *out, uint64_t id);
HIDDEN void report_end(tslab_epoch_report *out, int error);

HIDDEN void report_live(tslab_epoch_report *out, struct epoch *e); /* what still lives; by the owner */
HIDDEN void report_given_up(tslab_epoch_report *out, struct chunk_live given_up);
HIDDEN void report_bytes(tslab_epoch_report *out, const struct epoch *e);

#endif
