/* options: each row takes its values and refuses others with its message; an unknown name gets a message; names of
 * other programs get none. */
#include "unit.h"

#include "base/options.h"

static struct options defaults;
static char **environment;

static void read_it(void) { options_read(environment); }

/* Reads one setting from the defaults on; the message must be `line`, or empty. */
static void read_setting(const char *setting, const char *line) {
  char heard[8192], expected[8192] = "";
  char copy[8192];
  environment = (char *[]){strcpy(copy, setting), NULL};
  options = defaults;
  if (line) snprintf(expected, sizeof expected, "tslab: %s\n", line);
  CHECK_COUNT(hear(read_it, heard, sizeof heard), ==, line != NULL);
  if (strcmp(heard, expected) != 0) dprintf(2, "%s: expected %sgot %s", setting, expected, heard);
  CHECK(strcmp(heard, expected) == 0);
}

static void takes(const char *setting, const size_t *target, size_t value) {
  read_setting(setting, NULL);
  CHECK_COUNT(*target, ==, value);
}

static void refuses(const char *setting, const char *rest) {
  char line[8192];
  snprintf(line, sizeof line, "%s: expected %s", setting, rest);
  read_setting(setting, line);
  CHECK(memcmp(&options, &defaults, sizeof options) == 0);
}

#define CACHE_WANTS "bytes up to 64M, with K or M after the number; using the default"

static void words_and_bytes(void) {
  takes("TSLAB_ON_MISUSE=report", &options.on_misuse, MISUSE_REPORT);
  takes("TSLAB_ON_MISUSE=abort", &options.on_misuse, MISUSE_ABORT);
  refuses("TSLAB_ON_MISUSE=Report", "abort or report; using abort");
  refuses("TSLAB_ON_MISUSE=", "abort or report; using abort");
  takes("TSLAB_SCAVENGER=0", &options.scavenger, 0);
  takes("TSLAB_SCAVENGER=1", &options.scavenger, 1);
  refuses("TSLAB_SCAVENGER=2", "0 or 1; using 1");
  takes("TSLAB_CACHE=0", &options.cache_bytes, 0);
  takes("TSLAB_CACHE=12345", &options.cache_bytes, 12345);
  takes("TSLAB_CACHE=8K", &options.cache_bytes, 8192);
  takes("TSLAB_CACHE=64M", &options.cache_bytes, 64 * MiB);
  const char *const wrong[] = {"65M", "67108865", "65537K", "", "K", "1G", "-1", "1KK", " 1", "0x10", "1k",
                               "18446744073709551616", "18014398509481985K"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char setting[64];
    snprintf(setting, sizeof setting, "TSLAB_CACHE=%s", wrong[i]);
    refuses(setting, CACHE_WANTS);
  }
}

/* Only the beginning of the longest value is printed; the advice is always printed. */
static void long_values(void) {
  char setting[4096 + 20] = "TSLAB_CACHE=", line[256];
  memset(setting + 12, '7', 4096);
  setting[12 + 4096] = 0;
  snprintf(line, sizeof line, "%.75s: expected " CACHE_WANTS, setting);
  read_setting(setting, line);
  memcpy(setting, "TSLAB_PUBLISH=", 14);
  snprintf(line, sizeof line, "%.77s: expected 0 or 1; using 1", setting);
  read_setting(setting, line);
}

/* One word sets several settings; a setting of its own wins over it, before or after it. */
static void policies(void) {
  char *const lean[] = {"TSLAB_RETURN=lean", NULL}, *const fast[] = {"TSLAB_CACHE=1M", "TSLAB_RETURN=fast", NULL};
  options = defaults;
  options_read((char **)lean);
  CHECK_COUNT(options.cache_bytes, ==, 128 * KiB);
  CHECK(options.reserve_bytes == 0 && options.ahead == 0 && options.tick_ms == 100 && options.list_bytes == 256 * KiB);
  options = defaults;
  options_read((char **)fast);
  CHECK_COUNT(options.cache_bytes, ==, 1 * MiB);
  CHECK(options.reserve_bytes == 16 * MiB && options.ahead == 1 && options.tick_ms == 1000);
  CHECK(options.list_bytes == 8 * MiB);
  takes("TSLAB_RETURN=balanced", &options.policy, RETURN_BALANCED);
  CHECK(memcmp(&options, &defaults, sizeof options) == 0);
  refuses("TSLAB_RETURN=leaner", "lean, balanced or fast; using balanced");
}

static void paths(void) {
  char path[20 + 4096] = "TSLAB_STATS_AT_EXIT=/tmp/f";
  read_setting(path, NULL); /* the environment it came from is gone by now */
  CHECK(options.stats_at_exit && strcmp(options.stats_at_exit, "/tmp/f") == 0);
  refuses("TSLAB_STATS_AT_EXIT=", "the path of a file; using the default");
  memset(path + 20, 'p', 4096); /* a line of the log is shorter, so the test checks only the refusal */
  path[20 + 4095] = 0;
  read_setting(path, NULL);
  CHECK_COUNT(strlen(options.stats_at_exit), ==, 4095);
}

#define LIMIT_WANTS   "at least 1M, with K, M or G after the number, auto, or 0; using the default"
#define BUDGETS_WANTS "up to 32 as request=64M,session=1G, each at least 64K; using the default"

static void limits(void) {
  takes("TSLAB_MEMORY_LIMIT=1M", &options.memory_limit, MiB);
  takes("TSLAB_MEMORY_LIMIT=0", &options.memory_limit, 0);
  takes("TSLAB_MEMORY_LIMIT=auto", &options.memory_limit, LIMIT_AUTO);
  takes("TSLAB_MEMORY_LIMIT=48G", &options.memory_limit, 48 * GiB);
  takes("TSLAB_MEMORY_SOFT_LIMIT=1234567890123", &options.memory_soft_limit, 1234567890123);
  const char *const wrong[] = {"256", "1023K", "Auto", "automatic", "", "max", "-1", "1T", "99999999999G"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char setting[64];
    snprintf(setting, sizeof setting, "TSLAB_MEMORY_LIMIT=%s", wrong[i]);
    refuses(setting, LIMIT_WANTS);
    snprintf(setting, sizeof setting, "TSLAB_MEMORY_SOFT_LIMIT=%s", wrong[i]);
    refuses(setting, LIMIT_WANTS);
  }
}

static void budgets(void) {
  takes("TSLAB_BUDGETS=request=64M,session=1G", &options.budgets, 2);
  CHECK_COUNT(options_budget("request"), ==, 64 * MiB);
  CHECK_COUNT(options_budget("session"), ==, GiB);
  CHECK(options_budget("sessions") == 0 && options_budget("") == 0 && options_budget(NULL) == 0);
  takes("TSLAB_BUDGETS=a b=64K", &options.budgets, 1);
  CHECK_COUNT(options_budget("a b"), ==, 64 * KiB);
  const char *const wrong[] = {"", "request", "request=", "=64M", "request=63K", "request=64M,", "request=64M,,b=1M",
                               "request=64Mb", "request=64M session=1M", "a,b=64M", "request=auto"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char setting[64];
    snprintf(setting, sizeof setting, "TSLAB_BUDGETS=%s", wrong[i]);
    refuses(setting, BUDGETS_WANTS);
    CHECK(options_budget("request") == 0);
  }
  char many[16 + 33 * 8] = "TSLAB_BUDGETS=a=64K", label[70];
  for (int i = 1; i < 32; i++) strcat(many, ",b=64K");
  takes(many, &options.budgets, 32);
  strcat(many, ",c=1M");
  char setting[128], line[256];
  snprintf(line, sizeof line, "%.77s: expected " BUDGETS_WANTS, many);
  read_setting(many, line);
  memset(label, 'l', 69), label[69] = 0; /* longer than a label may be, so it is cut as epochs cut it */
  snprintf(setting, sizeof setting, "TSLAB_BUDGETS=%.63s=64K", label);
  takes(setting, &options.budgets, 1);
  CHECK_COUNT(options_budget(label), ==, 64 * KiB);
}

static void names(void) {
  read_setting("TSLAB_FOO=1", "unknown setting TSLAB_FOO (see docs/settings.md)");
  read_setting("TSLAB_CACH=1", "unknown setting TSLAB_CACH: did you mean TSLAB_CACHE? (see docs/settings.md)");
  read_setting("TSLAB_CACHES=1", "unknown setting TSLAB_CACHES: did you mean TSLAB_CACHE? (see docs/settings.md)");
  read_setting("TSLAB_SAMPEL_CPU=1",
               "unknown setting TSLAB_SAMPEL_CPU: did you mean TSLAB_SAMPLE_CPU? (see docs/settings.md)");
  read_setting("TSLAB_STAT=1", "unknown setting TSLAB_STAT (see docs/settings.md)");
  CHECK(memcmp(&options, &defaults, sizeof options) == 0);
  if (!TSLAB_HARDENED)
    for (int right = 0; right < 2; right++)
      read_setting(right ? "TSLAB_QUARANTINE=1M" : "TSLAB_QUARANTINE=often",
                   "TSLAB_QUARANTINE does nothing here: only the hardened library has a quarantine "
                   "(see docs/settings.md)");
  CHECK(memcmp(&options, &defaults, sizeof options) == 0);
  read_setting("TSLABCACHE=1", NULL);
  read_setting("MY_TSLAB_CACHE=1", NULL);
  read_setting("TSLAB_CACHE", NULL); /* no value: no setting */
  CHECK(memcmp(&options, &defaults, sizeof options) == 0);
  options_read(NULL);
}

static void all_at_once(void) {
  char *all[] = {(char[]){"HOME=/"}, (char[]){"TSLAB_CACHE=1M"}, (char[]){"TSLAB_SCAVENGER=0"}, NULL};
  options = defaults;
  options_read(all);
  CHECK_COUNT(options.cache_bytes, ==, MiB);
  CHECK_COUNT(options.scavenger, ==, 0);
}

int main(void) {
  defaults = options;
  CHECK_COUNT(defaults.on_misuse, ==, MISUSE_ABORT);
  CHECK_COUNT(defaults.scavenger, ==, 1);
  CHECK(defaults.stats_at_exit == NULL);
  words_and_bytes();
  long_values();
  policies();
  paths();
  limits();
  budgets();
  names();
  all_at_once();
  return 0;
}
