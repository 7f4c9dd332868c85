/* json: tslab_stats_json writes valid JSON with every table and field, and stops at an error of its caller. */
#include "unit.h"

#include "stats/tables.h"
#include <ctype.h>

/* ---- a reader of JSON, as strict as RFC 8259 --------------------------------------------------------------------- */

static struct {
  char text[4 << 20];
  size_t length;
} json;

static const char *at;

static void space(void) {
  while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
}

static void expect(char c) {
  CHECK_COUNT(*at, ==, c);
  at++;
}

static void skip_value(void);

static void skip_string(void) {
  expect('"');
  for (; *at != '"'; at++) {
    CHECK_COUNT((unsigned char)*at, >=, 0x20);
    CHECK_COUNT((unsigned char)*at, !=, 0x7f);
    if (*at != '\\') continue;
    at++;
    CHECK(strchr("\"\\/bfnrtu", *at) != NULL && *at != 0);
    for (int i = 0; *at == 'u' && i < 4; i++) CHECK(isxdigit((unsigned char)at[1 + i]));
    if (*at == 'u') at += 4;
  }
  at++;
}

static void skip_number(void) {
  if (*at == '-') at++;
  CHECK(isdigit((unsigned char)*at) && !(at[0] == '0' && isdigit((unsigned char)at[1])));
  while (isdigit((unsigned char)*at)) at++;
}

/* Members of an object or elements of an array. */
static void skip_many(char open, char close) {
  expect(open);
  space();
  if (*at == close) {
    at++;
    return;
  }
  for (;;) {
    space();
    if (open == '{') {
      skip_string();
      space();
      expect(':');
    }
    skip_value();
    space();
    if (*at == close) break;
    expect(',');
  }
  at++;
}

static void skip_value(void) {
  space();
  if (*at == '{') skip_many('{', '}');
  else if (*at == '[') skip_many('[', ']');
  else if (*at == '"') skip_string();
  else if (strncmp(at, "null", 4) == 0) at += 4;
  else skip_number();
}

/* Returns where the value of a member of the object at `object` begins; the object must have it exactly once. */
static const char *member(const char *object, const char *name) {
  const char *found = NULL;
  at = object;
  expect('{');
  for (;;) {
    const char *const key = at + 1;
    skip_string();
    const bool is_it = strlen(name) == (size_t)(at - 1 - key) && memcmp(key, name, strlen(name)) == 0;
    expect(':');
    CHECK(!is_it || found == NULL);
    if (is_it) found = at;
    skip_value();
    if (*at == '}') break;
    expect(',');
  }
  if (!found) dprintf(2, "no member \"%s\"\n", name);
  CHECK(found != NULL);
  return found;
}

static int keep_piece(const char *piece, size_t length, void *unused) {
  (void)unused;
  CHECK(length > 0 && json.length + length < sizeof json.text);
  memcpy(json.text + json.length, piece, length);
  json.length += length;
  return 0;
}

static void check_row(const struct statistics *table, const char *row) {
  for (size_t i = 0; i < table->count; i++) {
    const struct statistic *const f = &table->fields[i];
    const char *const value = member(row, f->name);
    CHECK_COUNT(*value, ==, f->kind == TEXT ? '"' : f->kind == HISTOGRAM ? '[' : *value);
    if (f->kind != TEXT && f->kind != HISTOGRAM) CHECK(isdigit((unsigned char)*value));
    if (f->kind != HISTOGRAM) continue;
    at = value + 1;
    for (unsigned bucket = 0; bucket < f->count; bucket++) {
      const char *const object = at;
      char bound[32];
      snprintf(bound, sizeof bound, "%llu", (unsigned long long)tslab_bucket_ns(bucket));
      const char *const le = member(object, "le_ns");
      if (bucket + 1 == f->count) CHECK(strncmp(le, "null", 4) == 0);
      else CHECK(strncmp(le, bound, strlen(bound)) == 0 && !isdigit((unsigned char)le[strlen(bound)]));
      CHECK(isdigit((unsigned char)*member(object, "count")));
      at = object;
      skip_value();
      expect(bucket + 1 < f->count ? ',' : ']');
    }
  }
}

static size_t check_rows(const struct statistics *table, const char *value) {
  size_t count = 0;
  if (table->most == 1) {
    check_row(table, value);
    return 1;
  }
  CHECK_COUNT(*value, ==, '[');
  at = value + 1;
  while (*at != ']') {
    const char *const row = at;
    check_row(table, row);
    at = row;
    skip_value();
    if (*at == ',') at++;
    count++;
  }
  return count;
}

static void check_json(void) {
  json.length = 0;
  CHECK(tslab_stats_json(keep_piece, NULL) == 0);
  json.text[json.length] = 0;
  at = json.text;
  skip_value();
  space();
  CHECK(*at == 0 && at == json.text + json.length); /* one object, and nothing else */
  CHECK(*member(json.text, "schema_version") == '1');
  CHECK((pid_t)strtol(member(json.text, "pid"), NULL, 10) == getpid());
  CHECK(*member(json.text, "library") == '"' && isdigit((unsigned char)*member(json.text, "timestamp_ns")));
  for (enum table i = 0; i < TABLES; i++) {
    char name[64];
    const size_t length = strlen(tables[i].name);
    snprintf(name, sizeof name, "%s%s", tables[i].name,
             tables[i].most == 1 ? "" : tables[i].name[length - 1] == 's' ? "es" : "s");
    CHECK_COUNT(check_rows(&tables[i], member(json.text, name)), <=, tables[i].most);
  }
}

static int refuse(const char *piece, size_t length, void *calls) {
  (void)piece, (void)length;
  ++*(int *)calls;
  return 17;
}

/* `write` may allocate. */
static int allocate(const char *piece, size_t length, void *unused) {
  (void)unused;
  void *copy = tslab_malloc(length);
  CHECK(copy != NULL);
  memcpy(copy, piece, length);
  tslab_free(copy);
  return 0;
}

int main(void) {
  check_json(); /* of a process without any call yet */
  void *const block = tslab_malloc(100);
  const tslab_epoch epoch = tslab_epoch_open("a \"label\"\n\\ of \xc3\xa9");
  CHECK(block != NULL && epoch != 0);
  check_json();
  int calls = 0;
  CHECK(tslab_stats_json(NULL, NULL) == EINVAL);
  CHECK(tslab_stats_json(refuse, &calls) == 17 && calls == 1);
  CHECK(tslab_stats_json(allocate, NULL) == 0);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
  tslab_free(block);
  return 0;
}
