/* tables: every statistic, by name.                                                                 floor: stats */
#ifndef TSLAB_STATS_TABLES_H
#define TSLAB_STATS_TABLES_H

#include "base/statistics.h"

/* In the order of publication. */
enum table { TABLE_PROCESS, TABLE_CLASS, TABLE_PATH, TABLE_THREAD, TABLE_LABEL, TABLE_EPOCH, TABLE_LOCK, TABLE_SAMPLE,
             TABLE_PROFILE, TABLE_SITE, TABLE_HOLDER, TABLES };
HIDDEN extern const struct statistics tables[TABLES];

#define LOCK_KINDS 11
#define TABLE_THREADS_MOST 128 /* the newest threads; one row has the others */
#define TABLE_LABELS_MOST  257 /* 256, and one for all others */
#define TABLE_EPOCHS_MOST  64
#define TABLE_SAMPLES_MOST 512 /* the newest */

/* table_room returns memory for the rows of a table, which no statistic counts, or NULL without memory. table_room_end
 * gives it back. */
HIDDEN void *table_room(const struct statistics *table);
HIDDEN void table_room_end(const struct statistics *table, void *room);

#endif
