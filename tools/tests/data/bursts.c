/* bursts: a service for test_advise.py that works in bursts. Blocks of two call sites, parse_node and render_piece, fill
 * slabs and die together, and blocks that stay lie between them. With the argument "epochs" these two allocate in an
 * epoch for each burst. Then it rests.
 *
 * Four call sites beside them would gain nothing by an epoch: count_word frees each block at once, cache_entry replaces
 * its blocks one by one, write_line has a class to itself, and shrink_table gives up a part of what it holds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tslab/optional.h"

enum { BURSTS = 5, NODES = 160000, PIECES = 30000, LINES = 60000, CACHED = 4000, TABLE = 6000 };

#define SITE __attribute__((noinline))
#define DEFINE_SITE(name, size) \
  SITE static char *name(void) { \
    char *p = malloc(size); \
    __asm__ volatile("" : "+r"(p) : : "memory"); \
    return memset(p, 1, size); \
  }
DEFINE_SITE(keep_session, 240)
DEFINE_SITE(keep_row, 1000)
DEFINE_SITE(count_word, 240)
DEFINE_SITE(cache_entry, 1000)
DEFINE_SITE(shrink_table, 1000)
DEFINE_SITE(write_line, 90)

SITE static char *take(tslab_epoch e, size_t size) {
  char *p = e ? tslab_epoch_malloc(e, size) : malloc(size);
  __asm__ volatile("" : "+r"(p) : : "memory");
  return memset(p, 1, size);
}
SITE static char *parse_node(tslab_epoch e) { char *p = take(e, 240); __asm__ volatile("" : "+r"(p)); return p; }
SITE static char *render_piece(tslab_epoch e) { char *p = take(e, 1000); __asm__ volatile("" : "+r"(p)); return p; }

static char *nodes[NODES], *pieces[PIECES], *lines[LINES], *cache[CACHED], *table[TABLE], *volatile kept;
static uint64_t state = 4711;

static uint32_t next(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return (uint32_t)(state * 2685821657736338717u >> 32);
}

static void replace(char **place) {
  free(*place);
  *place = cache_entry();
}

static void burst(int with_epochs) {
  tslab_epoch e = with_epochs ? tslab_epoch_open("burst") : 0;
  for (int i = 0; i < NODES; i++) {
    nodes[i] = parse_node(e);
    if (next() % 20 == 0) kept = keep_session();
    free(count_word());
  }
  for (int i = 0; i < PIECES; i++) {
    pieces[i] = render_piece(e);
    if (next() % 20 == 0) kept = keep_row();
    if (i % 8 == 0) replace(&cache[next() % CACHED]);
  }
  for (int i = 0; i < LINES; i++) lines[i] = write_line();
  for (int i = 0; i < LINES; i++) free(lines[i]);
  for (int i = 0; i < NODES; i++) free(nodes[i]);
  for (int i = 0; i < PIECES; i++) free(pieces[i]);
  if (e) tslab_epoch_close(e, NULL);
}

int main(int count, char **arguments) {
  int with_epochs = count > 1 && strcmp(arguments[1], "epochs") == 0;
  for (int i = 0; i < CACHED; i++) cache[i] = cache_entry();
  for (int i = 0; i < TABLE; i++) table[i] = shrink_table();
  for (int i = 0; i < BURSTS; i++) burst(with_epochs);
  for (int i = 0; i < TABLE / 3; i++) free(table[i]);
  puts("ready");
  fflush(stdout);
  for (const pid_t parent = getppid(); getppid() == parent;) {
    usleep(100000);
    free(malloc(100000));
  }
  return kept == NULL;
}
