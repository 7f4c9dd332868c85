/* collect: the statistics, put together when they are read.                                         floor: stats
 *
 * Each value by itself is as its owner left it; those of one row may be of moments some microseconds apart. No
 * counter goes back from one reading to the next, and all are exact when nobody allocates meanwhile. From any thread,
 * no lock held. */
#ifndef TSLAB_STATS_COLLECT_H
#define TSLAB_STATS_COLLECT_H

#include "base/attr.h"
#include "tslab/tslab.h"

/* All but resident_bytes, which takes a descriptor for a moment. */
HIDDEN void collect_global(tslab_stats_global *out);
HIDDEN void collect_class(unsigned class, tslab_class_stats *out);
HIDDEN bool collect_path(unsigned path, tslab_path_stats *out); /* false: there is none of that number */
HIDDEN bool collect_label(unsigned index, tslab_label_stats *out);
HIDDEN void collect_this_thread(tslab_thread_stats *out); /* zeros when it never allocated */

/* How many rows each table has at most. */
#define LOCK_KINDS 11
#define TABLE_THREADS_MOST 128 /* the newest; the rest in one row */
#define TABLE_LABELS_MOST  257 /* 256, and one for all others */
#define TABLE_EPOCHS_MOST  64
#define TABLE_SAMPLES_MOST 512 /* the newest */

/* Rows, as stats/tables.h describes them. Each fills at most `most` and returns how many. */
HIDDEN size_t collect_process(void *rows, size_t most);
HIDDEN size_t collect_classes(void *rows, size_t most);
HIDDEN size_t collect_paths(void *rows, size_t most);
HIDDEN size_t collect_threads(void *rows, size_t most);
HIDDEN size_t collect_labels(void *rows, size_t most);
HIDDEN size_t collect_epochs(void *rows, size_t most);
HIDDEN size_t collect_locks(void *rows, size_t most);
HIDDEN size_t collect_samples(void *rows, size_t most);

/* Fills *out with what an epoch holds; epoch 0 has all that no other one has. Returns 0, or ESTALE if no epoch has that
 * id. */
HIDDEN int collect_epoch(uint64_t id, tslab_epoch_status *out);

#endif
