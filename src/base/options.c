/* options: see options.h.                                                                           floor: base */
#include "base/options.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/parent.h"
#include <string.h>

struct options options = {
    .on_misuse = MISUSE_ABORT,
    .scavenger = 1,
    .ahead = 1,
    .huge = 1,
    .publish = 1,
    .policy = RETURN_BALANCED,
    .tick_ms = 250,
    .list_bytes = 2 * MiB,
    .cache_bytes = 2 * MiB,
    .quarantine_bytes = 256 * KiB,
    .on_destroy = DESTROY_DESTROYS,
    .on_scope = SCOPE_IS_SILENT,
    .reserve_bytes = RESERVE_DEFAULT,
    .report_rss = 0,
    .stats_at_exit = NULL,
    .sample = 1024,
    .profile_bytes = PROFILE_AUTO,
    .lock_times = 0,
    .memory_limit = 0,
    .memory_soft_limit = 0,
};

/* OTHERS: a setting of the other build, which does nothing here. */
enum kind {
  BYTES, PATH, OTHERS, LIMIT, INTERVAL, BUDGETS,
  WORDS, SWITCH = WORDS, ON_MISUSE, ON_DESTROY, ON_SCOPE, RETURN,
  KINDS
};

#define CHOICES 3
static const struct choice {
  char word[12];
  uint8_t value;
} words[KINDS][CHOICES] = {
    [SWITCH] = {{"0", 0}, {"1", 1}},
    [ON_MISUSE] = {{"abort", MISUSE_ABORT}, {"report", MISUSE_REPORT}},
    [ON_DESTROY] = {{"destroy", DESTROY_DESTROYS}, {"check", DESTROY_CHECKS}, {"trap", DESTROY_TRAPS}},
    [ON_SCOPE] = {{"return", SCOPE_IS_SILENT}, {"report", SCOPE_REPORTS}},
    [RETURN] = {{"lean", RETURN_LEAN}, {"balanced", RETURN_BALANCED}, {"fast", RETURN_FAST}},
};

#define AT(field) offsetof(struct options, field)

/* The texts lie in the rows themselves, as in base/statistics.h: a pointer would cost a relocation at every start. */
static const struct row {
  char name[20]; /* after "TSLAB_" */
  uint8_t kind;
  uint16_t offset; /* in options */
  uint32_t most;   /* BYTES */
  char expected[64];
} rows[] = {
    {"ON_MISUSE", ON_MISUSE, AT(on_misuse), 0, "abort or report"},
    {"SCAVENGER", SWITCH, AT(scavenger), 0, "0 or 1"},
    {"RETURN", RETURN, AT(policy), 0, "lean, balanced or fast"},
    {"AHEAD", SWITCH, AT(ahead), 0, "0 or 1"},
    {"HUGE", SWITCH, AT(huge), 0, "0 or 1"},
    {"PUBLISH", SWITCH, AT(publish), 0, "0 or 1"},
    {"CACHE", BYTES, AT(cache_bytes), 64 * MiB, "bytes up to 64M, with K or M after the number"},
#if TSLAB_HARDENED
    {"QUARANTINE", BYTES, AT(quarantine_bytes), 32 * MiB, "bytes up to 32M, with K or M after the number"},
#else
    {"QUARANTINE", OTHERS, 0, 0, "does nothing here: only the hardened library has a quarantine"},
#endif
    {"ON_DESTROY", ON_DESTROY, AT(on_destroy), 0, "destroy, check or trap"},
    {"ON_SCOPE", ON_SCOPE, AT(on_scope), 0, "return or report"},
    {"RESERVE", BYTES, AT(reserve_bytes), 1024 * MiB, "bytes up to 1G, with K, M or G after the number"},
    {"REPORT_RSS", SWITCH, AT(report_rss), 0, "0 or 1"},
    {"SAMPLE", BYTES, AT(sample), 1 * MiB, "a number up to 1M, 0 for no samples"},
    {"SAMPLE_CPU", BYTES, AT(sample_cpu), 1 * MiB, "a number up to 1M, 0 for never"},
    {"PROFILE", INTERVAL, AT(profile_bytes), 1024 * MiB, "bytes up to 1G, with K, M or G after the number, auto, or 0"},
    {"GUARD", BYTES, AT(guard_bytes), 1024 * MiB, "bytes up to 1G, with K, M or G after the number; 0 for none"},
    {"LOCK_TIMES", SWITCH, AT(lock_times), 0, "0 or 1"},
    {"STATS_AT_EXIT", PATH, AT(stats_at_exit), 0, "the path of a file"},
    {"MEMORY_LIMIT", LIMIT, AT(memory_limit), 0, "at least 1M, with K, M or G after the number, auto, or 0"},
    {"MEMORY_SOFT_LIMIT", LIMIT, AT(memory_soft_limit), 0, "at least 1M, with K, M or G after the number, auto, or 0"},
    {"BUDGETS", BUDGETS, AT(budgets), 0, "up to 32 as request=64M,session=1G, each at least 64K"},
};

/* Returns the text behind the number, or NULL if there is no number of at most `most`, which is at most PTRDIFF_MAX. */
static const char *read_number(const char *text, size_t most, size_t *out) {
  size_t n = 0, unit = 1;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++)
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (size_t)(*at - '0'), &n)) return NULL;
  if (at == text) return NULL;
  if (*at == 'K') unit = KiB, at++;
  else if (*at == 'M') unit = MiB, at++;
  else if (*at == 'G') unit = GiB, at++;
  return __builtin_mul_overflow(n, unit, out) || *out > most ? NULL : at;
}

static bool read_bytes(const char *text, size_t most, size_t *out) {
  size_t bytes;
  const char *end = read_number(text, most, &bytes);
  if (!end || *end != 0) return false;
  *out = bytes;
  return true;
}

/* A limit below a mebibyte would refuse everything. Its author probably forgot the M. */
static bool read_limit(const char *text, size_t *out) {
  size_t bytes = LIMIT_AUTO;
  bool is_auto = strcmp(text, "auto") == 0;
  if (!is_auto && (!read_bytes(text, PTRDIFF_MAX, &bytes) || (bytes != 0 && bytes < MiB))) return false;
  *out = bytes;
  return true;
}

static bool read_interval(const char *text, size_t most, size_t *out) {
  if (strcmp(text, "auto") != 0) return read_bytes(text, most, out);
  *out = PROFILE_AUTO;
  return true;
}

/* ---- budgets by label -------------------------------------------------------------------------------------------- */

#define BUDGETS_MOST  32
#define LABEL_MOST    63 /* bytes: longer labels are cut */
#define LEAST_BUDGET  (64 * KiB)

static struct budget {
  char label[LABEL_MOST + 1];
  size_t bytes;
} budgets[BUDGETS_MOST];

/* Returns the text behind the pair, or NULL if `text` does not begin with one. */
static const char *read_budget(const char *text, struct budget *out) {
  const char *equals = strchr(text, '=');
  size_t length = equals ? (size_t)(equals - text) : 0;
  if (length == 0 || length > LABEL_MOST || memchr(text, ',', length)) return NULL;
  memcpy(out->label, text, length);
  out->label[length] = 0;
  const char *end = read_number(equals + 1, PTRDIFF_MAX, &out->bytes);
  return end && out->bytes >= LEAST_BUDGET && (*end == 0 || *end == ',') ? end : NULL;
}

static bool read_budgets(const char *text, size_t *count) {
  size_t found = 0;
  for (const char *at = text;; at++) {
    if (found == BUDGETS_MOST || !(at = read_budget(at, &budgets[found]))) {
      *count = 0; /* the budgets of an earlier setting are overwritten by now */
      return false;
    }
    found++;
    if (*at == 0) break;
  }
  *count = found;
  return true;
}

size_t options_budget_of(const char *label) {
  if (!label) return 0;
  for (size_t i = 0; i < options.budgets; i++)
    if (strncmp(budgets[i].label, label, LABEL_MOST) == 0) return budgets[i].bytes;
  return 0;
}

/* Keeps a copy, because some servers write their title over the environment. */
static bool take_path(const char **target, const char *value) {
  static char kept[4096]; /* PATH_MAX; there is one path */
  if (value[0] == 0 || strlen(value) >= sizeof kept) return false;
  *target = strcpy(kept, value);
  return true;
}

static void *target_of(const struct row *row) { return (char *)&options + row->offset; }

static bool take(const struct row *row, const char *value) {
  if (row->kind == OTHERS) return false;
  if (row->kind == BYTES) return read_bytes(value, row->most, target_of(row));
  if (row->kind == LIMIT) return read_limit(value, target_of(row));
  if (row->kind == INTERVAL) return read_interval(value, row->most, target_of(row));
  if (row->kind == BUDGETS) return read_budgets(value, target_of(row));
  if (row->kind == PATH) return take_path(target_of(row), value);
  for (const struct choice *c = words[row->kind]; c < words[row->kind] + CHOICES && c->word[0]; c++)
    if (strcmp(c->word, value) == 0) {
      *(size_t *)target_of(row) = c->value;
      return true;
    }
  return false;
}

/* A message shows so many characters of a name or value, so that the line has room for its advice. */
#define SHOWN 64

static void show(char shown[SHOWN], const char *text, size_t length) {
  length = min_size(length, SHOWN - 1);
  memcpy(shown, text, length);
  shown[length] = 0;
}

static void tell_refused(const struct row *row, const char *value) {
  char shown[SHOWN];
  if (row->kind == OTHERS) {
    log_line("TSLAB_%s %s (see docs/settings.md)", row->name, row->expected);
    return;
  }
  show(shown, value, strlen(value));
  if (row->kind < WORDS) {
    log_line("TSLAB_%s=%s: expected %s; using the default", row->name, shown, row->expected);
    return;
  }
  const char *used = "the default";
  for (const struct choice *c = words[row->kind]; c < words[row->kind] + CHOICES && c->word[0]; c++)
    if (c->value == *(size_t *)target_of(row)) used = c->word;
  log_line("TSLAB_%s=%s: expected %s; using %s", row->name, shown, row->expected, used);
}

static const struct row *row_named(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0) return &rows[i];
  return NULL;
}

/* Returns the number of letters to insert, delete or replace between a name and that of a row; upper and lower case are
 * alike. It computes the table of Wagner and Fischer row by row. */
static size_t distance(const char *name, size_t length, const char *known) {
  size_t row[sizeof rows[0].name + 1];
  const size_t columns = strlen(known);
  for (size_t i = 0; i <= columns; i++) row[i] = i;
  for (size_t n = 0; n < length; n++) {
    size_t diagonal = row[0];
    row[0] = n + 1;
    for (size_t i = 0; i < columns; i++) {
      char letter = name[n] >= 'a' && name[n] <= 'z' ? (char)(name[n] - 'a' + 'A') : name[n];
      size_t replaced = diagonal + (letter != known[i]);
      diagonal = row[i + 1];
      row[i + 1] = min_size(replaced, min_size(row[i], diagonal) + 1);
    }
  }
  return row[columns];
}

/* Returns the row that the user probably meant: at most a third of the name's letters differ. NULL: none. */
static const struct row *row_meant(const char *name, size_t length) {
  const struct row *meant = NULL;
  if (length >= sizeof rows[0].name + 4) return NULL;
  size_t least = length / 3 + 1;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t letters = distance(name, length, rows[i].name);
    if (letters < least) least = letters, meant = &rows[i];
  }
  return meant;
}

static void tell_unknown(const char *name, size_t length) {
  char shown[SHOWN];
  const struct row *meant = row_meant(name, length);
  show(shown, name, length);
  if (meant) log_line("unknown setting TSLAB_%s: did you mean TSLAB_%s? (see docs/settings.md)", shown, meant->name);
  else log_line("unknown setting TSLAB_%s (see docs/settings.md)", shown);
}

static void read_one(const char *setting, const char *value) {
  const char *name = setting + strlen("TSLAB_");
  size_t length = (size_t)(value - 1 - name);
  const struct row *row = row_named(name, length);
  if (row && take(row, value)) return;
  if (parent_has(setting)) return; /* the parent has reported it */
  if (row) tell_refused(row, value);
  else tell_unknown(name, length);
}

/* Sets the other settings that belong to the policy; the environment may overwrite them. */
static void take_policy(void) {
  if (options.policy == RETURN_LEAN) {
    options.cache_bytes = 128 * KiB;
    options.reserve_bytes = 0;
    options.ahead = 0;
    options.tick_ms = 100;
    options.list_bytes = 256 * KiB;
  } else if (options.policy == RETURN_FAST) {
    options.cache_bytes = 16 * MiB;
    options.reserve_bytes = 16 * MiB;
    options.tick_ms = 1000;
    options.list_bytes = 8 * MiB;
  }
}

static void read_those(char **environment, bool of_policy) {
  for (; *environment; environment++) {
    if (strncmp(*environment, "TSLAB_", 6) != 0) continue;
    const char *equals = strchr(*environment, '=');
    bool is_policy = strncmp(*environment, "TSLAB_RETURN=", 13) == 0;
    if (equals && is_policy == of_policy) read_one(*environment, equals + 1);
  }
}

void options_read(char **environment) {
  if (!environment) return;
  read_those(environment, true);
  take_policy();
  read_those(environment, false);
}
