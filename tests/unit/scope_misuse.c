/* scope_misuse: counts the failed calls that it should, and reports each call site once. */
#include "../epochs.h"

#include "base/options.h"
#include "stats/scope_misuse.h"
#include <fcntl.h>

static const char places[1024]; /* stand in for call sites */

/* Returns the lines on standard error that `sites` failed calls at different sites write, made twice over. */
static size_t lines_of(size_t first, size_t count) {
  char text[256];
  size_t lines = 0;
  ssize_t length;
  const int file = open("/tmp", O_TMPFILE | O_RDWR, 0600), before = dup(STDERR_FILENO);
  CHECK(file >= 0 && dup2(file, STDERR_FILENO) >= 0);
  for (int round = 0; round < 2; round++)
    for (size_t i = first; i < first + count; i++)
      CHECK(scope_misused("call", 1, ESTALE, &places[i]) == ESTALE);
  CHECK(dup2(before, STDERR_FILENO) >= 0 && lseek(file, 0, SEEK_SET) == 0);
  while ((length = read(file, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
  close(before), close(file);
  return lines;
}

static void only_some_errors_count(void) {
  static const int counted[] = {ESTALE, ESHUTDOWN, EOVERFLOW, EINVAL}, others[] = {ENOMEM, EPERM, EBUSY, EAGAIN};
  for (int i = 0; i < 4; i++) {
    const uint64_t before = scope_misuse_count();
    CHECK(scope_misused("call", 1, counted[i], places) == counted[i]);
    CHECK_COUNT(scope_misuse_count(), ==, before + 1);
    CHECK(scope_misused("call", 1, others[i], places) == others[i]);
    CHECK_COUNT(scope_misuse_count(), ==, before + 1);
  }
}

int main(void) {
  only_some_errors_count();
  CHECK_COUNT(lines_of(0, 10), ==, 0); /* by default the library reports nothing */
  options.on_scope = SCOPE_REPORTS;
  CHECK_COUNT(lines_of(0, 100), ==, 100);
  CHECK_COUNT(lines_of(50, 100), ==, 50);
  CHECK_COUNT(lines_of(0, 1024), ==, 256 - 150); /* the table of sites is full then */
  CHECK_COUNT(lines_of(0, 1024), ==, 0);
  return 0;
}
