/* collect: adds the statistics up when someone reads them.                                          floor: stats
 *
 * Each value is as its owner left it; the values of one row may come from moments some microseconds apart. No counter
 * falls from one reading to the next. All are exact if no thread allocates meanwhile. Thread: any, without a lock. */
#ifndef TSLAB_STATS_COLLECT_H
#define TSLAB_STATS_COLLECT_H

#include "base/attr.h"
#include "tslab/tslab.h"

/* Fills all fields but resident_bytes, which would take a descriptor for a moment. */
HIDDEN void collect_global(tslab_stats_global *out);
HIDDEN void collect_class(unsigned class, tslab_class_stats *out);
HIDDEN bool collect_path(unsigned path, tslab_path_stats *out); /* false: no path has that number */
HIDDEN bool collect_label(unsigned index, tslab_label_stats *out);
HIDDEN void collect_this_thread(tslab_thread_stats *out); /* zeros if the thread never allocated */

/* Fill rows of stats/tables.h, at most `most`, and return how many. */
HIDDEN size_t collect_process(void *rows, size_t most);
HIDDEN size_t collect_classes(void *rows, size_t most);
HIDDEN size_t collect_paths(void *rows, size_t most);
HIDDEN size_t collect_threads(void *rows, size_t most);
HIDDEN size_t collect_labels(void *rows, size_t most);
HIDDEN size_t collect_epochs(void *rows, size_t most);
HIDDEN size_t collect_locks(void *rows, size_t most);
HIDDEN size_t collect_samples(void *rows, size_t most);

/* Fills *out with the status of an epoch; epoch 0 has all memory that no other epoch has. Returns 0, or ESTALE if no
 * epoch has that id. */
HIDDEN int collect_epoch(uint64_t id, tslab_epoch_status *out);

#endif
