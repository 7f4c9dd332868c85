/* statistics: a row for each statistic, with its name, place and meaning.                           floor: base
 *
 * A table describes the rows of one kind: the process, a size class, an epoch. Publication, JSON, text, metric names
 * and the list in docs/observability.md are walks over these tables, so each statistic is named only here. All values
 * are uint64_t, except TEXT, a char array that ends with 0. */
#ifndef TSLAB_BASE_STATISTICS_H
#define TSLAB_BASE_STATISTICS_H

#include "base/attr.h"

enum statistic_kind {
  COUNTER,   /* only grows */
  GAUGE,     /* as it is now */
  TEXT,      /* names the row */
  HISTOGRAM, /* `count` counters, by upper bound */
};
enum statistic_unit { UNIT_NONE, UNIT_BYTES, UNIT_NANOSECONDS };

/* The texts lie inside, because pointers to them would cost relocations at every start of a process. */
struct statistic {
  char name[32];
  uint16_t offset; /* in the row */
  uint16_t count;  /* values; of TEXT: bytes */
  uint8_t kind, unit;
  char help[146]; /* one sentence, lower case, without its point */
};

struct statistics {
  const char *name; /* of one row: "class" */
  const char *help;
  const struct statistic *fields;
  uint32_t count;     /* fields */
  uint32_t row_bytes; /* a multiple of 8 */
  uint32_t most;      /* rows */
  /* Fills at most `most` rows and returns how many. Thread: any, without a lock. */
  size_t (*collect)(void *rows, size_t most);
};

INLINE uint64_t statistic_value(const void *row, const struct statistic *field, unsigned index) {
  uint64_t value;
  __builtin_memcpy(&value, (const char *)row + field->offset + index * sizeof value, sizeof value);
  return value;
}

#endif
