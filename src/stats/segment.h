/* segment: layout of the statistics in shared memory, for readers outside the process.              floor: stats
 *
 *   [ header | tables | fields | bounds | strings | snapshot 0 | snapshot 1 ]
 *
 *   snapshot: [ head | rows of tables[0] | rows of tables[1] | ... ]         each table has room for rows_most rows
 *
 * The file describes itself: a reader needs only the header. The writer fills the snapshot that is not the latest, and
 * then makes it the latest. A reader takes header.latest = n and copies snapshot n % 2. The copy is whole if
 * head.number was n before and after; otherwise the reader starts again. A process that is killed while it writes
 * leaves the other snapshot whole. Numbers are little-endian. Offsets are bytes from the start of the file, or of the
 * part that the comment names. Strings end with 0.
 *
 * The file is /dev/shm/tslab.PID, with the process's id in its own namespace. Later releases may append fields: a
 * reader skips all bytes past the sizes that it knows, and refuses another version. */
#ifndef TSLAB_STATS_SEGMENT_H
#define TSLAB_STATS_SEGMENT_H

#include "base/attr.h"

#define SEGMENT_MAGIC    "TSLABSEG"
#define SEGMENT_VERSION  1
#define SEGMENT_NAME     "/dev/shm/tslab." /* and the process id in decimal */
#define SEGMENT_TABLES   16
#define SEGMENT_AUTO     UINT32_MAX /* in profile_request */

struct segment_header {
  char magic[8];
  uint32_t version, header_bytes;
  uint64_t total_bytes;
  uint64_t pid;
  uint64_t pid_namespace;       /* inode of /proc/self/ns/pid; 0 if /proc does not say */
  uint64_t started_realtime_ns; /* when the segment was made */
  uint32_t tables, fields, bounds;
  uint32_t table_bytes, field_bytes; /* of one descriptor */
  uint32_t snapshot_head_bytes;
  uint64_t tables_offset, fields_offset, bounds_offset, strings_offset, strings_bytes;
  uint64_t snapshot_offset[2], snapshot_bytes;
  _Atomic uint64_t latest; /* number of the latest whole snapshot, from 1; 0: none yet */
  char library[128];       /* tslab_version() */
  /* A reader writes here how often the heap profile samples from now on (tslab_profile_interval): the low 32 bits are
   * the interval in bytes, or SEGMENT_AUTO for TSLAB_PROFILE_AUTO; the others count such requests. The library looks
   * when it publishes. 0: none yet. */
  _Atomic uint64_t profile_request;
};

struct segment_table {
  uint32_t name, help; /* offsets from strings_offset */
  uint32_t first_field, fields;
  uint32_t row_bytes, rows_most;
  uint64_t offset; /* of row 0, from the start of the snapshot */
};

struct segment_field {
  uint32_t name, help;
  uint32_t offset;     /* in the row */
  uint32_t count;      /* values of 8 bytes; of text: bytes */
  uint32_t kind, unit; /* enum statistic_kind, enum statistic_unit */
};

/* bounds: one uint64_t for each bucket of a histogram, its upper bound in nanoseconds; the last one is 2^64 - 1. */

struct segment_snapshot {
  _Atomic uint64_t number; /* 0 while it is being written */
  uint64_t monotonic_ns, realtime_ns;
  uint64_t collect_ns; /* how long it took to collect */
  uint64_t rows[SEGMENT_TABLES];
};

#endif
