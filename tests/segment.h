/* segment.h: a reader of published statistics that knows src/stats/segment.h and nothing else of the library. */
#ifndef TSLAB_TESTS_SEGMENT_H
#define TSLAB_TESTS_SEGMENT_H

#include "check.h"

#include "stats/segment.h"
#include <fcntl.h>
#include <sys/stat.h>

struct published {
  size_t bytes;
  char *file; /* a copy: the writer may be gone */
  const struct segment_header *header;
  const struct segment_snapshot *snapshot;
};

static inline const char *published_path(pid_t process) {
  static char path[64];
  snprintf(path, sizeof path, SEGMENT_NAME "%d", (int)process);
  return path;
}

static inline bool is_published(pid_t process) { return access(published_path(process), F_OK) == 0; }

/* Uses libc's malloc in tests of the prefixed library, so that the reading does not change the figures. */
static inline bool read_published(pid_t process, struct published *out) {
  for (int tries = 0; tries < 1000; tries++) {
    const int file = open(published_path(process), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0) return false;
    CHECK(fstat(file, &status) == 0);
    *out = (struct published){.bytes = (size_t)status.st_size, .file = malloc((size_t)status.st_size + 1)};
    CHECK(out->file != NULL);
    out->header = (const void *)out->file;
    uint64_t number = 0, after = 0;
    bool whole = pread(file, out->file, out->bytes, 0) == (ssize_t)out->bytes &&
                 out->bytes >= sizeof *out->header && memcmp(out->header->magic, SEGMENT_MAGIC, 8) == 0;
    if (whole) number = out->header->latest;
    if (number != 0) {
      /* The header was read before the rest: only what is read after it is of that number or newer. */
      const uint64_t offset = out->header->snapshot_offset[number % 2];
      CHECK_COUNT(offset + out->header->snapshot_bytes, <=, out->bytes);
      out->snapshot = (const void *)(out->file + offset);
      CHECK(pread(file, &after, sizeof after, (off_t)offset) == sizeof after);
      whole = out->snapshot->number == number && after == number;
    }
    close(file);
    if (whole && number != 0) return true;
    free(out->file);
    usleep(1000);
  }
  return false;
}

static inline void forget_published(struct published *p) { free(p->file); }

static inline const char *published_string(const struct published *p, uint32_t offset) {
  CHECK_COUNT(offset, <, p->header->strings_bytes);
  const char *text = p->file + p->header->strings_offset + offset;
  CHECK(memchr(text, 0, p->header->strings_bytes - offset) != NULL);
  return text;
}

static inline const struct segment_table *published_table(const struct published *p, unsigned index) {
  CHECK_COUNT(index, <, p->header->tables);
  return (const void *)(p->file + p->header->tables_offset + (size_t)index * p->header->table_bytes);
}

static inline const struct segment_field *published_field(const struct published *p, const struct segment_table *t,
                                                          unsigned index) {
  CHECK_COUNT(index, <, t->fields);
  return (const void *)(p->file + p->header->fields_offset + (size_t)(t->first_field + index) * p->header->field_bytes);
}

static inline unsigned published_index(const struct published *p, const char *table) {
  unsigned index = 0;
  while (strcmp(published_string(p, published_table(p, index)->name), table) != 0) index++;
  return index;
}

static inline uint64_t published_rows(const struct published *p, const char *table) {
  return p->snapshot->rows[published_index(p, table)];
}

static inline const char *published_row(const struct published *p, const char *table, uint64_t row) {
  const struct segment_table *t = published_table(p, published_index(p, table));
  CHECK_COUNT(row, <, published_rows(p, table));
  return (const char *)p->snapshot + t->offset + row * t->row_bytes;
}

static inline uint64_t published_value(const struct published *p, const char *table, uint64_t row, const char *field) {
  const struct segment_table *t = published_table(p, published_index(p, table));
  unsigned index = 0;
  while (strcmp(published_string(p, published_field(p, t, index)->name), field) != 0) index++;
  uint64_t value;
  memcpy(&value, published_row(p, table, row) + published_field(p, t, index)->offset, sizeof value);
  return value;
}

#endif
