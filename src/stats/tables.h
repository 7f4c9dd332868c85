/* tables: every statistic, by name.                                                                 floor: stats */
#ifndef TSLAB_STATS_TABLES_H
#define TSLAB_STATS_TABLES_H

#include "base/statistics.h"

/* In the order of publication. */
enum table { TABLE_PROCESS, TABLE_CLASS, TABLE_PATH, TABLE_THREAD, TABLE_LABEL, TABLE_EPOCH, TABLE_LOCK, TABLE_SAMPLE,
             TABLE_PROFILE, TABLE_SITE, TABLE_HOLDER, TABLE_LIFESPAN, TABLE_SPREAD, TABLES };
HIDDEN extern const struct statistics tables[TABLES];

/* Room for the rows of a table, which no statistic counts, and its end. NULL without memory. */
HIDDEN void *table_room(const struct statistics *table);
HIDDEN void table_room_end(const struct statistics *table, void *room);

#endif
