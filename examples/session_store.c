/* Short lives beside a long one: sessions live in an epoch of their own, requests in theirs. A request
 * allocates in the sessions' epoch the blocks that it keeps, so that they pin nothing of the request's memory. */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tslab/tslab.h>

enum { REQUESTS = 1000, SESSIONS = 50 };

static tslab_epoch sessions; /* lives as long as the process */
static char *names[SESSIONS];

/* Two ways into another epoch: a scope, which also catches what strdup and other libraries allocate... */
static void remember(int session, const char *name) {
  tslab_epoch_enter(sessions);
  names[session] = strdup(name);
  tslab_epoch_leave(sessions);
}

/* ...and an explicit call. */
static void remember_upper(int session, const char *name) {
  char *const upper = tslab_epoch_malloc(sessions, strlen(name) + 1);
  if (upper == NULL) return;
  for (size_t i = 0; i <= strlen(name); i++) upper[i] = (char)toupper(name[i]);
  free(names[session]);
  names[session] = upper;
}

static void serve(int number) {
  char *const text = malloc(64); /* the request's */
  if (text == NULL) return;
  snprintf(text, 64, "user-%d", number % SESSIONS);
  if (number <= SESSIONS) remember(number % SESSIONS, text);
  if (number > SESSIONS && number <= 2 * SESSIONS) remember_upper(number % SESSIONS, text);
  free(text);
}

int main(void) {
  sessions = tslab_epoch_open("sessions");
  uint64_t outlived = 0;
  for (int number = 1; number <= REQUESTS; number++) {
    const tslab_epoch request = tslab_epoch_open("request");
    tslab_epoch_enter(request);
    serve(number);
    tslab_epoch_leave(request);
    tslab_epoch_report report;
    if (tslab_epoch_close(request, &report) != 0) return 1;
    outlived += report.live_blocks;
  }
  tslab_epoch_status status;
  if (tslab_epoch_info(sessions, &status) != 0) return 1;
  printf("%d requests, of which %llu blocks outlived theirs; \"%s\" holds %llu blocks, the first reads %s\n", REQUESTS,
         (unsigned long long)outlived, status.label, (unsigned long long)status.live_blocks, names[0]);

  for (int i = 0; i < SESSIONS; i++) free(names[i]);
  tslab_epoch_report report;
  if (tslab_epoch_close(sessions, &report) != 0) return 1;
  return outlived == 0 && status.live_blocks == SESSIONS && report.live_blocks == 0 ? 0 : 1;
}
