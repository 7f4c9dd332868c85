/* glibc's reports and controls: mallinfo2, malloc_info, malloc_stats, mallopt, malloc_trim. */
#include "../check.h"

#include <ctype.h>

enum { COUNT = 4000, SIZE = 1000, LARGE = 5 << 20 };
static void *blocks[COUNT];

/* The sum of uordblks and hblkhd is the memory in use, whichever of them counts the large block. */
static void mallinfo_follows_what_is_in_use(void) {
  const struct tslab_mallinfo before = tslab_mallinfo2();
  for (size_t i = 0; i < COUNT; i++) {
    blocks[i] = tslab_malloc(SIZE);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, SIZE);
  }
  void *large = tslab_malloc(LARGE);
  CHECK(large != NULL);
  const struct tslab_mallinfo full = tslab_mallinfo2();
  const size_t grown = full.uordblks + full.hblkhd - before.uordblks - before.hblkhd;
  CHECK_COUNT(grown, >=, COUNT * SIZE + LARGE);
  CHECK_COUNT(grown, <=, 2 * (COUNT * SIZE + LARGE));
  CHECK_COUNT(full.arena + full.hblkhd, >=, full.uordblks);

  tslab_free(large);
  for (size_t i = 0; i < COUNT; i++) tslab_free(blocks[i]);
  const struct tslab_mallinfo after = tslab_mallinfo2();
  /* glibc counts the few blocks in a thread's own list as in use. */
  CHECK_COUNT(after.uordblks + after.hblkhd, <=, before.uordblks + before.hblkhd + 16 * SIZE);
}

static void trim_says_whether_it_gave_something_back(void) {
  enum { TRIMMED = 64 << 20 };
  static void *many[TRIMMED / SIZE];
  for (size_t i = 0; i < TRIMMED / SIZE; i++) {
    many[i] = tslab_malloc(SIZE);
    CHECK(many[i] != NULL);
    memset(many[i], 1, SIZE);
  }
  for (size_t i = 0; i < TRIMMED / SIZE; i += 2) tslab_free(many[i]);
  for (size_t i = 1; i < TRIMMED / SIZE; i += 2) tslab_free(many[i]);
  CHECK(tslab_malloc_trim(0) == 1);
  /* The scavenger may just have made memory resident ahead of growth (docs/decisions/0041), which the next call gives
     back. No later event makes it do so again. */
  unsigned more = 0;
  while (tslab_malloc_trim(0) == 1) CHECK(++more <= 3);
}

/* Well-formed: every tag is closed by its own name in order, attributes are quoted, one root. */
static void check_xml(const char *text) {
  char open[32][64];
  int depth = 0, roots = 0;
  for (const char *p = text; *p;) {
    if (*p != '<') {
      CHECK(depth > 0 || isspace((unsigned char)*p));
      p++;
      continue;
    }
    const char *const end = strchr(p, '>');
    CHECK(end != NULL);
    if (p[1] == '?') {
      CHECK(p == text && end[-1] == '?');
    } else if (p[1] == '/') {
      CHECK(depth > 0);
      depth--;
      CHECK(strncmp(p + 2, open[depth], (size_t)(end - p - 2)) == 0 && open[depth][end - p - 2] == 0);
    } else {
      const size_t length = strcspn(p + 1, " \t\n/>");
      CHECK(length > 0 && length < sizeof *open && depth < 32);
      int quotes = 0;
      for (const char *q = p + 1 + length; q < end; q++) {
        if (*q == '"') quotes++;
        if (*q == '=') CHECK(q[1] == '"');
      }
      CHECK(quotes % 2 == 0);
      if (depth == 0) roots++;
      if (end[-1] != '/') {
        memcpy(open[depth], p + 1, length);
        open[depth++][length] = 0;
      }
    }
    p = end + 1;
  }
  CHECK(depth == 0 && roots == 1);
}

static void malloc_info_is_xml(void) {
  static char text[1 << 20];
  FILE *stream = tmpfile();
  CHECK(stream != NULL);
  CHECK(tslab_malloc_info(1, stream) == EINVAL);
  CHECK(ftell(stream) == 0);
  CHECK(tslab_malloc_info(0, stream) == 0);
  rewind(stream);
  const size_t length = fread(text, 1, sizeof text - 1, stream);
  CHECK_COUNT(length, >, 0);
  CHECK_COUNT(length, <, sizeof text - 1);
  CHECK(strncmp(text, "<malloc version=\"", 17) == 0);
  check_xml(text);
  fclose(stream);
}

static void malloc_stats_writes_to_standard_error(void) {
  FILE *stream = tmpfile();
  CHECK(stream != NULL);
  const int saved = dup(2);
  CHECK(dup2(fileno(stream), 2) == 2);
  tslab_malloc_stats();
  fflush(stderr);
  CHECK(dup2(saved, 2) == 2);
  static char text[1 << 20];
  rewind(stream);
  CHECK_COUNT(fread(text, 1, sizeof text - 1, stream), >, 40);
  CHECK(strncmp(text, tslab_version(), strlen(tslab_version())) == 0);
  CHECK(strstr(text, "\nin use bytes     = ") && strstr(text, "\nmax mmap bytes   = ")); /* as in glibc's report */
  fclose(stream);
  close(saved);
}

int main(void) {
  mallinfo_follows_what_is_in_use();
  trim_says_whether_it_gave_something_back();
  malloc_info_is_xml();
  malloc_stats_writes_to_standard_error();
  return 0;
}
