/* json: writes all statistics as one JSON object; docs/observability.md has the schema.             floor: stats */
#include "base/log.h"
#include "heap/profile.h"
#include "heap/timing.h"
#include "os/os.h"
#include "process/process.h"
#include "stats/tables.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct json {
  int (*write)(const char *, size_t, void *);
  void *arg;
  int error; /* the first error that it returned */
  size_t length;
  char piece[1024];
};

static void flush(struct json *to) {
  if (to->error == 0 && to->length != 0) to->error = to->write(to->piece, to->length, to->arg);
  to->length = 0;
}

static __attribute__((format(printf, 2, 3))) void put(struct json *to, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  size_t length = log_format_list(text, sizeof text, format, arguments);
  va_end(arguments);
  if (to->length + length > sizeof to->piece) flush(to);
  memcpy(to->piece + to->length, text, length);
  to->length += length;
}

/* Returns the bytes of the UTF-8 character that starts there; 0 if there is none. */
static unsigned utf8_length(const unsigned char *text) {
  unsigned length = text[0] >= 0xf0 && text[0] < 0xf5 ? 4 : text[0] >= 0xe0 ? 3 : 2;
  if (text[0] < 0xc2 || text[0] >= 0xf5) return 0;
  for (unsigned i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80) return 0; /* also at the end of the text */
  bool overlong = (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xf0 && text[1] < 0x90);
  bool surrogate = text[0] == 0xed && text[1] >= 0xa0, beyond = text[0] == 0xf4 && text[1] >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

/* A label may hold any bytes. Those that are not UTF-8 become the replacement character. */
static void put_string(struct json *to, const char *text, size_t most) {
  static const char digits[] = "0123456789abcdef";
  put(to, "\"");
  for (size_t i = 0; i < most && text[i]; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 0x80) {
      unsigned length = utf8_length((const unsigned char *)text + i);
      char whole[5] = {0};
      memcpy(whole, text + i, length);
      put(to, "%s", length ? whole : "\\ufffd");
      i += length ? length - 1 : 0;
      continue;
    }
    char plain[2] = {(char)c, 0}, escaped[7] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15], 0};
    put(to, "%s", c < 0x20 || c == 0x7f || c == '"' || c == '\\' ? escaped : plain);
  }
  put(to, "\"");
}

static void put_field(struct json *to, const void *row, const struct statistic *field) {
  if (field->kind == TEXT) {
    put_string(to, (const char *)row + field->offset, field->count);
  } else if (field->kind == HISTOGRAM) {
    put(to, "[");
    for (unsigned i = 0; i < field->count; i++) {
      put(to, "%s{\"le_ns\":", i ? "," : "");
      if (bucket_bound(i) == UINT64_MAX) put(to, "null");
      else put(to, "%zu", bucket_bound(i));
      put(to, ",\"count\":%zu}", statistic_value(row, field, i));
    }
    put(to, "]");
  } else {
    put(to, "%zu", statistic_value(row, field, 0));
  }
}

static void put_row(struct json *to, const struct statistics *table, const void *row) {
  put(to, "{");
  for (size_t i = 0; i < table->count; i++) {
    put(to, "%s\"%s\":", i ? "," : "", table->fields[i].name);
    put_field(to, row, &table->fields[i]);
  }
  put(to, "}");
}

static int put_table(struct json *to, const struct statistics *table) {
  char *rows = table_room(table);
  if (!rows) return ENOMEM;
  size_t count = table->collect(rows, table->most);
  bool one = table->most == 1;
  if (table == &tables[TABLE_PROCESS]) ((tslab_stats_global *)(void *)rows)->resident_bytes = os_resident_bytes();
  const char *plural = one ? "" : table->name[strlen(table->name) - 1] == 's' ? "es" : "s";
  put(to, ",\"%s%s\":%s", table->name, plural, one ? "" : "[");
  for (size_t i = 0; i < count; i++) {
    if (i) put(to, ",");
    put_row(to, table, rows + i * table->row_bytes);
  }
  if (!one) put(to, "]");
  table_room_end(table, rows);
  return 0;
}

/* Writes the tables whose bits are set in `which`. */
static int write_tables(uint32_t which, int (*write)(const char *, size_t, void *), void *arg) {
  struct json to = {.write = write, .arg = arg};
  put(&to, "{\"schema_version\":1,\"pid\":%d,\"timestamp_ns\":%zu,\"library\":", (int)getpid(), os_now_real_ns());
  put_string(&to, tslab_version(), SIZE_MAX);
  for (enum table i = 0; i < TABLES && to.error == 0; i++) {
    if (!(which >> i & 1)) continue;
    int error = put_table(&to, &tables[i]);
    if (error != 0) return error;
  }
  put(&to, "}\n");
  flush(&to);
  return to.error;
}

int tslab_stats_json(int (*write)(const char *, size_t, void *), void *arg) {
  if (!write) return EINVAL;
  return process_start() ? write_tables(UINT32_MAX, write, arg) : ENOMEM;
}

int tslab_holders_json(int (*write)(const char *, size_t, void *), void *arg) {
  uint32_t which = 1u << TABLE_PROFILE | 1u << TABLE_SITE | 1u << TABLE_HOLDER | 1u << TABLE_EPOCH;
  if (!write) return EINVAL;
  return profile_is_on() ? write_tables(which, write, arg) : ENODATA;
}
