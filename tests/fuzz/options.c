/* options.c: the environment, of any bytes, against a second reading of docs/settings.md.
 *
 * The input is the environment: strings that end with a byte 0. For each, what it sets or that it is refused is known
 * here by other means than the library's, and what the library says about it is heard: a line for each, that says what
 * to do. */
#include "fuzz.h"

#include "base/options.h"

#include <sys/mman.h>

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STRINGS = 64, BYTES = 8192 };
#define A_LIMIT  (SIZE_MAX - 1)
#define BY_LABEL SIZE_MAX

static const struct setting {
  const char *name;
  size_t *target;
  const char *words[4]; /* none: a number, or what `most` says */
  size_t most;
} settings[] = {
    {"TSLAB_ON_MISUSE", &options.on_misuse, {"abort", "report"}, 0},
    {"TSLAB_SCAVENGER", &options.scavenger, {"0", "1"}, 0},
    {"TSLAB_RETURN", &options.policy, {"lean", "balanced", "fast"}, 0},
    {"TSLAB_AHEAD", &options.ahead, {"0", "1"}, 0},
    {"TSLAB_HUGE", &options.huge, {"0", "1"}, 0},
    {"TSLAB_PUBLISH", &options.publish, {"0", "1"}, 0},
    {"TSLAB_CACHE", &options.cache_bytes, {NULL}, 64 << 20},
    {"TSLAB_ON_DESTROY", &options.on_destroy, {"destroy", "check", "trap"}, 0},
    {"TSLAB_RESERVE", &options.reserve_bytes, {NULL}, 1024 << 20},
    {"TSLAB_REPORT_RSS", &options.report_rss, {"0", "1"}, 0},
    {"TSLAB_SAMPLE", &options.sample, {NULL}, 1 << 20},
    {"TSLAB_SAMPLE_CPU", &options.sample_cpu, {NULL}, 1 << 20},
    {"TSLAB_LOCK_TIMES", &options.lock_times, {"0", "1"}, 0},
    {"TSLAB_ON_SCOPE", &options.on_scope, {"return", "report"}, 0},
    {"TSLAB_PROFILE", &options.profile_bytes, {NULL}, 1024 << 20},
    {"TSLAB_GUARD", &options.guard_bytes, {NULL}, 1024 << 20},
    {"TSLAB_MEMORY_LIMIT", &options.memory_limit, {NULL}, A_LIMIT},
    {"TSLAB_MEMORY_SOFT_LIMIT", &options.memory_soft_limit, {NULL}, A_LIMIT},
    {"TSLAB_BUDGETS", &options.budgets, {NULL}, BY_LABEL},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static struct options defaults;
static size_t expected[SETTINGS], expected_tick_ms, expected_list_bytes;
static const char *expected_path;
static unsigned expected_lines;

static bool find_word(const struct setting *s, const char *value, size_t *out) {
  for (size_t i = 0; s->words[i]; i++)
    if (strcmp(s->words[i], value) == 0) {
      *out = i;
      return true;
    }
  return false;
}

static bool find_number(const char *value, size_t most, size_t *out) {
  const size_t digits = strspn(value, "0123456789");
  if (digits == 0 || strlen(value) > digits + 1) return false;
  const char *const units = "KMG", *const unit = value[digits] ? strchr(units, value[digits]) : units;
  if (!unit) return false;
  const unsigned shift = value[digits] ? 10 * (unsigned)(unit - units + 1) : 0;
  const char *at = value + strspn(value, "0");
  if ((size_t)(value + digits - at) > 19) return false; /* PTRDIFF_MAX has as many */
  const unsigned long long number = strtoull(value, NULL, 10);
  if (number > most >> shift) return false;
  *out = (size_t)number << shift;
  return true;
}

static bool find_limit(const char *value, size_t *out) {
  size_t bytes = LIMIT_AUTO;
  if (strcmp(value, "auto") != 0 && !find_number(value, PTRDIFF_MAX, &bytes)) return false;
  if (bytes > 0 && bytes < 1 << 20) return false;
  *out = bytes;
  return true;
}

/* A bad list leaves no budgets at all, whatever an earlier one said. */
static bool find_budgets(const char *value, size_t *out) {
  static char pair[BYTES + 1];
  size_t bytes, found = 0;
  *out = 0;
  for (const char *at = value;; at += strlen(pair) + 1) {
    strcpy(pair, at);
    pair[strcspn(pair, ",")] = 0;
    const size_t label = strcspn(pair, "=");
    if (label == 0 || label > 63 || pair[label] == 0 || ++found > 32) return false;
    if (!find_number(pair + label + 1, PTRDIFF_MAX, &bytes) || bytes < 64 << 10) return false;
    if (at[strlen(pair)] == 0) break;
  }
  *out = found;
  return true;
}

static bool find(const struct setting *s, const char *value, size_t *out) {
  if (s->words[0]) return find_word(s, value, out);
  if (s->most == A_LIMIT) return find_limit(value, out);
  return s->most == BY_LABEL ? find_budgets(value, out) : find_number(value, s->most, out);
}

/* Expects the effect of one string of the environment. */
static void expect(const char *string) {
  const char *const equals = strchr(string, '=');
  if (strncmp(string, "TSLAB_", 6) != 0 || !equals) return;
  const size_t length = (size_t)(equals - string);
  for (size_t i = 0; i < SETTINGS; i++) {
    const struct setting *const s = &settings[i];
    if (strlen(s->name) != length || memcmp(s->name, string, length) != 0) continue;
    if (!find(s, equals + 1, &expected[i])) expected_lines++;
    return;
  }
  if (length == 19 && memcmp(string, "TSLAB_STATS_AT_EXIT", 19) == 0 && equals[1] && strlen(equals + 1) < 4096)
    expected_path = equals + 1;
  else
    expected_lines++;
}

static bool is_policy(const char *string) { return strncmp(string, "TSLAB_RETURN=", 13) == 0; }

static size_t *expected_of(const char *name) {
  for (size_t i = 0; i < SETTINGS; i++)
    if (strcmp(settings[i].name, name) == 0) return &expected[i];
  CHECK(!"a setting of that name");
  return NULL;
}

static void expect_policy(size_t cache, size_t reserve, size_t tick_ms, size_t list_bytes) {
  *expected_of("TSLAB_CACHE") = cache;
  *expected_of("TSLAB_RESERVE") = reserve;
  expected_tick_ms = tick_ms;
  expected_list_bytes = list_bytes;
}

/* The policy comes first, wherever it stands: each other setting overrides its share of it. */
static void expect_all(char **strings) {
  for (char **at = strings; *at; at++)
    if (is_policy(*at)) expect(*at);
  const size_t policy = *expected_of("TSLAB_RETURN");
  if (policy == RETURN_FAST) expect_policy(16 << 20, 16 << 20, 1000, 8 << 20);
  if (policy == RETURN_LEAN) {
    expect_policy(128 << 10, 0, 100, 256 << 10);
    *expected_of("TSLAB_AHEAD") = 0;
  }
  for (char **at = strings; *at; at++)
    if (!is_policy(*at)) expect(*at);
}

/* ---- hearing ----------------------------------------------------------------------------------------------------- */

static int heard = -1, standard_error = -1;

static void check_line(const char *line, size_t length) {
  CHECK_COUNT(length, <=, 512);
  CHECK(strncmp(line, "tslab: ", 7) == 0);
  CHECK(memmem(line, length, "TSLAB_", 6) != NULL);
  CHECK(memmem(line, length, ": expected ", 11) != NULL || memmem(line, length, "(see docs/", 10) != NULL);
  for (size_t i = 0; i < length; i++) CHECK((unsigned char)line[i] >= ' ' && line[i] != 127);
}

static void check_heard(void) {
  static char text[STRINGS * 600];
  const ssize_t length = pread(heard, text, sizeof text, 0);
  unsigned lines = 0;
  CHECK(length >= 0 && (size_t)length < sizeof text);
  for (const char *at = text, *end = text + length, *next; at < end; at = next + 1, lines++) {
    next = memchr(at, '\n', (size_t)(end - at));
    CHECK(next != NULL);
    check_line(at, (size_t)(next - at));
  }
  CHECK_COUNT(lines, ==, expected_lines);
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
  (void)count, (void)arguments;
  defaults = options;
  heard = memfd_create("heard", MFD_CLOEXEC);
  standard_error = dup(STDERR_FILENO);
  CHECK(heard >= 0 && standard_error >= 0);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char bytes[BYTES + 1];
  char *environment[STRINGS + 1] = {NULL};
  size_t strings = 0;
  if (size > BYTES) return -1;
  memcpy(bytes, data, size);
  bytes[size] = 0;
  options = defaults;
  for (size_t i = 0; i < SETTINGS; i++) expected[i] = *settings[i].target;
  expected_tick_ms = defaults.tick_ms;
  expected_list_bytes = defaults.list_bytes;
  expected_path = NULL;
  expected_lines = 0;
  for (size_t at = 0; at < size && strings < STRINGS; at += strlen(bytes + at) + 1)
    environment[strings++] = bytes + at;
  expect_all(environment);
  CHECK(ftruncate(heard, 0) == 0 && lseek(heard, 0, SEEK_SET) == 0 && dup2(heard, STDERR_FILENO) >= 0);
  errno = 77;
  options_read(environment);
  const int error = errno;
  CHECK(dup2(standard_error, STDERR_FILENO) >= 0);
  CHECK_COUNT(error, ==, 77);
  check_heard();
  for (size_t i = 0; i < SETTINGS; i++) CHECK_COUNT(*settings[i].target, ==, expected[i]);
  CHECK_COUNT(options.tick_ms, ==, expected_tick_ms);
  CHECK_COUNT(options.list_bytes, ==, expected_list_bytes);
  CHECK((options.stats_at_exit == NULL) == (expected_path == NULL));
  CHECK(!expected_path || strcmp(options.stats_at_exit, expected_path) == 0);
  CHECK(!expected_path || options.stats_at_exit != expected_path); /* a copy */
  options = defaults; /* or the end of this process would write there */
  return 0;
}
