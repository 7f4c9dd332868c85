/* options: see options.h.                                                                            floor: base */
#include "base/options.h"

#include "base/bits.h"
#include "base/log.h"
#include <string.h>

struct options options = {
    .on_misuse = MISUSE_ABORT,
    .scavenger = 1,
    .publish = 1,
    .cache_bytes = 2 * MiB,
    .quarantine_bytes = 256 * KiB,
    .on_destroy = DESTROY_DESTROYS,
    .reserve_bytes = 1 * MiB,
    .report_rss = 0,
    .stats_at_exit = NULL,
    .sample = 1024,
    .sample_cpu = 16,
    .lock_times = 0,
};

struct choice {
  const char *word;
  size_t value;
};

enum kind { WORDS, BYTES, PATH };

static const struct choice on_misuse_words[] = {{"abort", MISUSE_ABORT}, {"report", MISUSE_REPORT}, {NULL, 0}};
static const struct choice on_destroy_words[] = {
    {"destroy", DESTROY_DESTROYS}, {"check", DESTROY_CHECKS}, {"trap", DESTROY_TRAPS}, {NULL, 0}};
static const struct choice switch_words[] = {{"0", 0}, {"1", 1}, {NULL, 0}};

static const struct row {
  const char *name; /* after "TSLAB_" */
  enum kind kind;
  void *target;
  const struct choice *words; /* WORDS */
  size_t most;                /* BYTES */
  const char *expected;
} rows[] = {
    {"ON_MISUSE", WORDS, &options.on_misuse, on_misuse_words, 0, "abort or report"},
    {"SCAVENGER", WORDS, &options.scavenger, switch_words, 0, "0 or 1"},
    {"PUBLISH", WORDS, &options.publish, switch_words, 0, "0 or 1"},
    {"CACHE", BYTES, &options.cache_bytes, NULL, 64 * MiB, "bytes up to 64M, with K or M after the number if you like"},
#if TSLAB_HARDENED /* elsewhere it is a setting that does nothing, and said to be unknown */
    {"QUARANTINE", BYTES, &options.quarantine_bytes, NULL, 32 * MiB, "bytes up to 32M, with K or M after the number"},
#endif
    {"ON_DESTROY", WORDS, &options.on_destroy, on_destroy_words, 0, "destroy, check or trap"},
    {"RESERVE", BYTES, &options.reserve_bytes, NULL, 1024 * MiB, "bytes up to 1024M, K or M after it if you like"},
    {"REPORT_RSS", WORDS, &options.report_rss, switch_words, 0, "0 or 1"},
    {"SAMPLE", BYTES, &options.sample, NULL, 1 * MiB, "a number up to 1M, 0 for no samples"},
    {"SAMPLE_CPU", BYTES, &options.sample_cpu, NULL, 1 * MiB, "a number up to 1M, 0 for never"},
    {"LOCK_TIMES", WORDS, &options.lock_times, switch_words, 0, "0 or 1"},
    {"STATS_AT_EXIT", PATH, &options.stats_at_exit, NULL, 0, "the path of a file"},
};

static bool read_bytes(const char *text, size_t most, size_t *out) {
  size_t n = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++) {
    if (n > most) return false;
    n = n * 10 + (size_t)(*at - '0');
  }
  if (at == text || n > most) return false;
  if (*at == 'K') n *= KiB, at++;
  else if (*at == 'M') n *= MiB, at++;
  if (*at != 0 || n > most) return false;
  *out = n;
  return true;
}

/* A copy: some servers write their title over the environment. */
static bool take_path(const char **target, const char *value) {
  static char kept[4096]; /* PATH_MAX; there is one path */
  if (value[0] == 0 || strlen(value) >= sizeof kept) return false;
  *target = strcpy(kept, value);
  return true;
}

static bool take(const struct row *row, const char *value) {
  switch (row->kind) {
  case WORDS:
    for (const struct choice *c = row->words; c->word; c++)
      if (strcmp(c->word, value) == 0) {
        *(size_t *)row->target = c->value;
        return true;
      }
    return false;
  case BYTES: return read_bytes(value, row->most, row->target);
  case PATH: return take_path(row->target, value);
  }
  return false;
}

/* What is told of a name or value, however long: the line must have room for what to do. */
#define SHOWN 64

static const char *show(char shown[SHOWN], const char *text, size_t length) {
  length = min_size(length, SHOWN - 1);
  memcpy(shown, text, length);
  shown[length] = 0;
  return shown;
}

static void tell_refused(const struct row *row, const char *value) {
  char shown[SHOWN];
  show(shown, value, strlen(value));
  if (row->kind != WORDS) {
    log_line("TSLAB_%s=%s: expected %s; using the default", row->name, shown, row->expected);
    return;
  }
  const char *used = "the default";
  for (const struct choice *c = row->words; c->word; c++)
    if (c->value == *(size_t *)row->target) used = c->word;
  log_line("TSLAB_%s=%s: expected %s; using %s", row->name, shown, row->expected, used);
}

static void read_one(const char *name, const char *value) {
  size_t length = (size_t)(value - 1 - name);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (strlen(rows[i].name) != length || memcmp(rows[i].name, name, length) != 0) continue;
    if (!take(&rows[i], value)) tell_refused(&rows[i], value);
    return;
  }
  char shown[SHOWN];
  log_line("unknown setting TSLAB_%s (see docs/settings.md)", show(shown, name, length));
}

void options_read(char **environment) {
  for (; environment && *environment; environment++) {
    if (strncmp(*environment, "TSLAB_", 6) != 0) continue;
    const char *equals = strchr(*environment, '=');
    if (equals) read_one(*environment + 6, equals + 1);
  }
}
