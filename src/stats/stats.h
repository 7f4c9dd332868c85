/* stats: writes the statistics as text to a file.                                                   floor: stats */
#ifndef TSLAB_STATS_STATS_H
#define TSLAB_STATS_STATS_H

#include "base/attr.h"

HIDDEN void stats_write_file(const char *path);

#endif
