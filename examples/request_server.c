/* An epoch for each request: the memory of a request lies together, and goes back together when the epoch is closed.
 * The report says whether anything outlived it. Here every hundredth request leaks one string; the server goes on, and
 * knows. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tslab/tslab.h>

enum { REQUESTS = 1000, LEAK_EVERY = 100 };

static char *leaked; /* the last of them */

/* An ordinary handler. It does not know about epochs; nor do the libraries that it calls. */
static size_t handle(const char *request, int number) {
  char *const copy = strdup(request), *rest = copy;
  size_t words = 0;
  while (strsep(&rest, " ") != NULL) words++;
  if (number % LEAK_EVERY == 0) leaked = strdup("forgotten");
  free(copy);
  return words;
}

int main(void) {
  uint64_t outlived = 0, given_back = 0;
  size_t words = 0;
  for (int number = 1; number <= REQUESTS; number++) {
    const tslab_epoch request = tslab_epoch_open("request");
    tslab_epoch_enter(request);
    words += handle("GET /index.html HTTP/1.1", number);
    tslab_epoch_leave(request);

    tslab_epoch_report report;
    if (tslab_epoch_close(request, &report) != 0) return 1;
    outlived += report.live_blocks;
    given_back += report.bytes_recycled + report.bytes_returned;
  }
  printf("%d requests of %zu words in all; %llu bytes were given back by closes\n", REQUESTS, words,
         (unsigned long long)given_back);
  printf("%llu blocks outlived their request; the last of them still reads \"%s\"\n", (unsigned long long)outlived,
         leaked);
  return outlived == REQUESTS / LEAK_EVERY ? 0 : 1;
}
