/* tables: every row of every table lies inside its struct and beside the others, and every statistic of a public struct
 * has one; the row calls refuse wrong arguments with the right error. */
#include "unit.h"

#include "heap/timing.h"
#include "stats/collect.h"
#include "stats/profile.h"
#include "stats/tables.h"
#include <ctype.h>

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct statistic *f) { return f->kind == TEXT ? f->count : f->count * sizeof(uint64_t); }

static bool is_identifier(const char *name) {
  if (!islower((unsigned char)*name)) return false;
  for (; *name; name++)
    if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '_') return false;
  return true;
}

/* One sentence, lower case unless it begins with a name, without its point. */
static bool is_help(const char *help) {
  const size_t length = help ? strlen(help) : 0;
  if (length == 0 || help[length - 1] == '.' || help[0] == ' ' || help[length - 1] == ' ') return false;
  return !isupper((unsigned char)help[0]) || isupper((unsigned char)help[1]);
}

static void check_field(const struct statistics *table, const struct statistic *f) {
  CHECK(memchr(f->name, 0, sizeof f->name) && memchr(f->help, 0, sizeof f->help)); /* compilers cut the 0 silently */
  CHECK(is_identifier(f->name) && is_help(f->help));
  CHECK(f->kind <= HISTOGRAM && f->unit <= UNIT_NANOSECONDS);
  CHECK_COUNT(f->count, >=, 1);
  CHECK((f->kind == TEXT || f->kind == HISTOGRAM) || f->count == 1);
  CHECK_COUNT(f->offset + bytes_of(f), <=, table->row_bytes);
  if (f->kind != TEXT) CHECK_COUNT(f->offset % sizeof(uint64_t), ==, 0);
  for (const struct statistic *other = table->fields; other < f; other++) {
    CHECK(strcmp(other->name, f->name) != 0);
    CHECK(other->offset + bytes_of(other) <= f->offset || f->offset + bytes_of(f) <= other->offset);
  }
}

#define RESERVED(row) sizeof ((row *)NULL)->reserved
static const struct {
  size_t row, reserved;
} structs[TABLES] = {
    [TABLE_PROCESS] = {sizeof(tslab_stats_global), RESERVED(tslab_stats_global)},
    [TABLE_CLASS] = {sizeof(tslab_class_stats), RESERVED(tslab_class_stats)},
    [TABLE_PATH] = {sizeof(tslab_path_stats), RESERVED(tslab_path_stats)},
    [TABLE_THREAD] = {sizeof(tslab_thread_stats), RESERVED(tslab_thread_stats)},
    [TABLE_LABEL] = {sizeof(tslab_label_stats), 0},
    [TABLE_EPOCH] = {sizeof(tslab_epoch_status), RESERVED(tslab_epoch_status)},
    [TABLE_LOCK] = {sizeof(tslab_lock_stats), RESERVED(tslab_lock_stats)},
    [TABLE_SAMPLE] = {sizeof(struct sample), 0},
    [TABLE_PROFILE] = {sizeof(struct profile_row), 0},
    [TABLE_SITE] = {sizeof(struct site_row), 0},
    [TABLE_HOLDER] = {sizeof(struct holder_row), 0},
    [TABLE_LIFESPAN] = {sizeof(struct lifespan_row), 0},
    [TABLE_SPREAD] = {sizeof(struct spread_row), 0},
};

static void check_tables(void) {
  for (enum table i = 0; i < TABLES; i++) {
    const struct statistics *const table = &tables[i];
    size_t bytes = 0;
    CHECK(is_identifier(table->name) && is_help(table->help) && table->collect && table->most >= 1);
    CHECK_COUNT(table->row_bytes, ==, structs[i].row);
    if (i < TABLE_SAMPLE) CHECK_COUNT(table->row_bytes % 64, ==, 0);
    for (size_t j = 0; j < table->count; j++) {
      check_field(table, &table->fields[j]);
      bytes += bytes_of(&table->fields[j]);
    }
    CHECK_COUNT(bytes + structs[i].reserved, ==, table->row_bytes); /* so that no field is missing */
    for (enum table j = 0; j < i; j++) CHECK(strcmp(tables[j].name, table->name) != 0);
  }
}

/* No collect writes past the rows that it got, and reserved fields stay zero. */
static void check_gathers(void) {
  for (enum table i = 0; i < TABLES; i++) {
    const size_t bytes = (size_t)tables[i].row_bytes * tables[i].most;
    unsigned char *const rows = malloc(bytes + tables[i].row_bytes);
    CHECK(rows != NULL);
    for (uint32_t most = 0; most <= tables[i].most; most += most < 3 ? 1 : tables[i].most) {
      memset(rows, 0xee, bytes + tables[i].row_bytes);
      const size_t count = tables[i].collect(rows, most);
      CHECK_COUNT(count, <=, most);
      for (size_t at = most * tables[i].row_bytes; at < bytes + tables[i].row_bytes; at++)
        CHECK_COUNT(rows[at], ==, 0xee);
      for (size_t row = 0; row < count && i != TABLE_EPOCH; row++) { /* there the label comes last */
        size_t named = 0;
        for (size_t j = 0; j < tables[i].count; j++) {
          const size_t end = tables[i].fields[j].offset + bytes_of(&tables[i].fields[j]);
          if (end > named) named = end;
        }
        if (i == TABLE_PATH) named = offsetof(tslab_path_stats, reserved); /* the only one with statistics behind it */
        for (size_t at = 0; at < structs[i].reserved; at++)
          CHECK_COUNT(rows[row * structs[i].row + named + at], ==, 0);
      }
    }
    free(rows);
  }
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int call_path(unsigned i, void *out, size_t size) { return tslab_stats_path(i, out, size); }
static int call_label(unsigned i, void *out, size_t size) { return tslab_stats_label(i, out, size); }
static int call_lock(unsigned i, void *out, size_t size) { return tslab_stats_lock(i, out, size); }
static int call_class(unsigned i, void *out, size_t size) { return tslab_stats_class(i, out, size); }
static int call_thread(unsigned i, void *out, size_t size) { return i == 0 ? tslab_stats_thread(out, size) : ERANGE; }

static void check_call(int (*call)(unsigned, void *, size_t), size_t row_bytes, unsigned least_rows) {
  static unsigned char out[8192];
  unsigned rows = 0;
  CHECK(call(0, NULL, 128) == EINVAL);
  CHECK(call(0, out, 0) == EINVAL);
  CHECK(call(0, out, 127) == EINVAL);
  CHECK(call(0, out, 200) == EINVAL);
  CHECK(call(UINT_MAX, out, 128) == ERANGE);
  memset(out, 0xee, sizeof out);
  CHECK(call(0, out, 128) == 0); /* an older caller: the call writes nothing past its struct */
  for (size_t i = 128; i < sizeof out; i++) CHECK_COUNT(out[i], ==, 0xee);
  CHECK(call(0, out, 4096) == 0); /* a newer caller: fields that the library does not know read as zero */
  for (size_t i = row_bytes; i < 4096; i++) CHECK_COUNT(out[i], ==, 0);
  CHECK_COUNT(out[4096], ==, 0xee);
  while (call(rows, out, 128) == 0) rows++;
  CHECK_COUNT(rows, >=, least_rows);
  CHECK(call(rows, out, 128) == ERANGE && call(rows + 1, out, 128) == ERANGE);
}

static void check_epoch_call(const tslab_epoch epoch) {
  tslab_epoch_status status;
  CHECK(tslab_stats_epoch(epoch, NULL, sizeof status) == EINVAL);
  CHECK(tslab_stats_epoch(epoch, &status, 0) == EINVAL);
  CHECK(tslab_stats_epoch(epoch, &status, 100) == EINVAL);
  CHECK(tslab_stats_epoch(epoch, &status, sizeof status) == 0);
  CHECK(status.epoch == epoch && strcmp(status.label, "a \"label\"\n\\ of \xc3\xa9") == 0);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
  CHECK(tslab_stats_epoch(epoch, &status, sizeof status) == ESTALE);
  CHECK(tslab_stats_epoch(UINT64_MAX, &status, sizeof status) == ESTALE);
}

int main(void) {
  check_tables();
  void *const block = tslab_malloc(100);
  const tslab_epoch epoch = tslab_epoch_open("a \"label\"\n\\ of \xc3\xa9");
  CHECK(block != NULL && epoch != 0);
  check_gathers();
  check_call(call_class, sizeof(tslab_class_stats), CLASSES);
  check_call(call_path, sizeof(tslab_path_stats), PATHS);
  check_call(call_label, sizeof(tslab_label_stats), 2);
  check_call(call_lock, sizeof(tslab_lock_stats), LOCK_KINDS);
  check_call(call_thread, sizeof(tslab_thread_stats), 1);
  check_epoch_call(epoch);
  tslab_free(block);
  return 0;
}
