/* Memory that glibc caches. */
#include "hazards.h"

#include <iconv.h>
#include <libintl.h>
#include <locale.h>
#include <netdb.h>
#include <pwd.h>
#include <regex.h>
#include <time.h>

/* stdout gets its buffer at the first write. */
static void stdio_buffer_first(void) { CHECK(printf("first\n") > 0); }
static void stdio_buffer_later(void) {
  CHECK(printf("later\n") > 0);
  CHECK(fflush(stdout) == 0);
}

static FILE *stream;
static void stdio_stream_first(void) {
  CHECK((stream = fopen("/proc/self/status", "r")) != NULL);
  CHECK(fgetc(stream) != EOF);
}
static void stdio_stream_later(void) {
  CHECK(fgetc(stream) != EOF);
  CHECK(fclose(stream) == 0);
}

static void locale_first(void) { CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL); }
static void locale_later(void) {
  CHECK(strstr(setlocale(LC_ALL, NULL), "C.UTF-8") != NULL);
  CHECK(setlocale(LC_ALL, "C") != NULL);
}

static void resolve(void) {
  struct addrinfo *found;
  const int error = getaddrinfo("localhost", NULL, &(struct addrinfo){.ai_family = AF_INET}, &found);
  if (error == 0) freeaddrinfo(found);
  else CHECK(access("/etc/hosts", F_OK) != 0); /* the name is unknown, yet libc keeps what it keeps */
}
static void resolver_first(void) { resolve(); }
static void resolver_later(void) { resolve(); }

static void environment_first(void) { CHECK(setenv("HAZARD", "as it was set inside", 1) == 0); }
static void environment_later(void) {
  CHECK(strcmp(getenv("HAZARD"), "as it was set inside") == 0);
  CHECK(setenv("HAZARD", "a longer value that was set outside", 1) == 0);
  CHECK(unsetenv("HAZARD") == 0);
}

static iconv_t converter;
static void converter_first(void) {
  CHECK((converter = iconv_open("UTF-16LE", "UTF-8")) != (iconv_t)-1); /* NOLINT: an error is -1 as a pointer */
}
static void converter_later(void) {
  char text[] = "text", wide[16], *in = text, *out = wide;
  size_t in_left = 4, out_left = sizeof wide;
  CHECK(iconv(converter, &in, &in_left, &out, &out_left) == 0);
  CHECK_COUNT(out_left, ==, sizeof wide - 8);
  CHECK(iconv_close(converter) == 0);
}

static regex_t pattern;
static void pattern_first(void) { CHECK(regcomp(&pattern, "^(a|b)*c{2,5}[[:digit:]]+$", REG_EXTENDED) == 0); }
static void pattern_later(void) {
  CHECK(regexec(&pattern, "ababccc42", 0, NULL, 0) == 0);
  CHECK(regexec(&pattern, "ababc42", 0, NULL, 0) == REG_NOMATCH);
  regfree(&pattern);
}

static void accounts_first(void) { CHECK(getpwuid(0) != NULL); }
static void accounts_later(void) { CHECK(strcmp(getpwuid(0)->pw_name, "root") == 0); }

static void translations_first(void) { CHECK(bindtextdomain("hazard", "/tmp/somewhere") != NULL); }
static void translations_later(void) { CHECK(strcmp(bindtextdomain("hazard", NULL), "/tmp/somewhere") == 0); }

static void time_zone_first(void) {
  CHECK(setenv("TZ", "XST-3XDT-4,M3.5.0,M10.5.0", 1) == 0);
  tzset();
}
static void time_zone_later(void) {
  const time_t epoch_of_unix = 0;
  CHECK_COUNT(localtime(&epoch_of_unix)->tm_hour, ==, 3);
  CHECK(strcmp(tzname[0], "XST") == 0);
}

static char *line;
static size_t capacity;
static FILE *lines;
static void line_buffer_first(void) {
  CHECK((lines = fopen("/proc/self/maps", "r")) != NULL);
  CHECK(getline(&line, &capacity, lines) > 0);
}
/* getline's realloc must leave the epoch that has ended. */
static void line_buffer_later(void) {
  while (getline(&line, &capacity, lines) > 0) CHECK(strlen(line) < capacity);
  CHECK((line = tslab_realloc(line, capacity * 100)) != NULL);
  CHECK_COUNT(tslab_epoch_of(line), ==, 0);
  tslab_free(line);
  CHECK(fclose(lines) == 0);
}

CACHES(stdio_buffer);
CACHES(stdio_stream);
CACHES(locale);
CACHES(resolver);
CACHES(environment);
CACHES(converter);
CACHES(pattern);
CACHES(accounts);
CACHES(translations);
CACHES(time_zone);
CACHES(line_buffer);
