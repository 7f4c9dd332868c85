/* leaks: a server for test_profile.py whose requests, an epoch each, leak at three places, and which keeps one in a
 * thousand of its replies, in plain malloc. Then it sleeps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tslab/optional.h"

enum { REQUESTS = 600, REPLIES = 1000, SCRATCH = 20 };

#define SITE __attribute__((noinline))
#define DEFINE_SITE(name, size) \
  SITE static char *name(void) { \
    char *p = malloc(size); \
    __asm__ volatile("" : "+r"(p) : : "memory"); \
    return memset(p, 1, size); \
  }
DEFINE_SITE(leak_session, 3000)
DEFINE_SITE(leak_header, 1500)
DEFINE_SITE(leak_buffer, 5000)
DEFINE_SITE(make_reply, 2000)
DEFINE_SITE(work, 400)

static char *cache[REQUESTS * REPLIES / 1000 + 1], *volatile leaked;

static void serve(void) {
  tslab_epoch e = tslab_epoch_open("request");
  char *scratch[SCRATCH];
  tslab_epoch_enter(e);
  for (int i = 0; i < SCRATCH; i++) scratch[i] = work();
  leaked = leak_session();
  leaked = leak_header();
  leaked = leak_header();
  leaked = leak_buffer();
  for (int i = 0; i < SCRATCH; i++) free(scratch[i]);
  tslab_epoch_leave(e);
  tslab_epoch_close(e, NULL);
}

int main(void) {
  for (int request = 0, reply = 0; request < REQUESTS; request++) {
    serve();
    for (int i = 0; i < REPLIES; i++, reply++) {
      char *p = make_reply();
      if (reply % 1000 == 0) cache[reply / 1000] = p;
      else free(p);
    }
  }
  puts("ready");
  fflush(stdout);
  for (const pid_t parent = getppid(); getppid() == parent;) usleep(100000);
  return cache[0] == NULL;
}
