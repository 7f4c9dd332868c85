/* limits: their sources, and the message at the first refusal. The stress test `limits` runs programs at a limit. */
#include "unit.h"

#include "base/options.h"
#include "process/limits.h"

#include <fcntl.h>
#include <sys/stat.h>

static char root[64], self[96];

static void put(const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", root, name);
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
  close(file);
}

static void *block;
static void ask_for_much(void) { block = tslab_malloc(32 * MiB + 1); }

static void a_refusal_is_told_once_and_counted(void) {
  char heard[1024];
  CHECK(tslab_memory_limit(16 * MiB, 0) == 0);
  CHECK_COUNT(hear(ask_for_much, heard, sizeof heard), ==, 1);
  CHECK(block == NULL && strstr(heard, "for 33554433 bytes"));
  CHECK(strstr(heard, "the limit is 16777216") && strstr(heard, "docs/limits.md"));
  CHECK_COUNT(hear(ask_for_much, heard, sizeof heard), ==, 0);
  CHECK(block == NULL && limits_refusals() == 2);
}

/* A round over all heaps comes before a refusal, but not once more if it freed nothing. */
static void refusals_make_few_rounds(void) {
  enum { REFUSALS = 1000, BLOCKS = 1 << 18, FREES = 2048 };
  static void *blocks[BLOCKS];
  CHECK(tslab_memory_limit(16 * MiB, 0) == 0);
  unsigned count = 0;
  while (count < BLOCKS && (blocks[count] = tslab_malloc(64)) != NULL) count++;
  CHECK_COUNT(count, >, 100000);
  const uint32_t rounds = pages_round();
  const uint64_t refused = limits_refusals();
  for (int i = 0; i < REFUSALS; i++) CHECK(tslab_malloc(4000) == NULL && tslab_malloc(MiB) == NULL);
  CHECK_COUNT(limits_refusals() - refused, ==, 2 * REFUSALS);
  CHECK_COUNT(pages_round() - rounds, <=, 1);
  /* Every second block keeps its page; each of these rounds frees nothing, and the next one waits for more. */
  for (unsigned i = 0; i < 2 * FREES; i += 2) {
    tslab_free(blocks[i]);
    CHECK(tslab_malloc(MiB) == NULL);
  }
  CHECK_COUNT(pages_round() - rounds, <=, 10 + 2 * FREES * (64 + os_page_size) / (16 * MiB / LIMIT_REST));
  for (unsigned i = 0; i < count; i++)
    if (i >= 2 * FREES || i % 2) tslab_free(blocks[i]);
  for (int i = 0; i < 8; i++) CHECK((blocks[i] = tslab_malloc(MiB)) != NULL);
  for (int i = 0; i < 8; i++) tslab_free(blocks[i]);
}

/* Memory that the group uses outside this heap does not count for this heap, nor does a sixteenth. */
static void a_group_sets_limits(void) {
  put("self", "0::/\n"), put("memory.max", "268435456\n"), put("memory.stat", "anon 33554432\nkernel 0\n");
  CHECK(tslab_memory_limit(TSLAB_LIMIT_AUTO, TSLAB_LIMIT_AUTO) == 0);
  struct pages_totals totals = pages_totals();
  CHECK_COUNT(totals.hard_limit, >=, 256 * MiB - 16 * MiB - 32 * MiB);
  CHECK_COUNT(totals.hard_limit, <=, 256 * MiB - 16 * MiB - 32 * MiB + totals.held);
  CHECK_COUNT(totals.soft_limit, ==, totals.hard_limit - totals.hard_limit / 16);
  put("memory.high", "134217728\n");
  put("memory.max", "max\n");
  limits_tick(1);
  CHECK_COUNT(pages_totals().hard_limit, ==, totals.hard_limit); /* once a second */
  limits_tick(4);
  CHECK_COUNT(pages_totals().hard_limit, ==, SIZE_MAX);
  CHECK_COUNT(pages_totals().soft_limit, <, 128 * MiB);
}

static void pressure_asks_for_relief(void) {
  pages_relieve();
  put("memory.pressure", "some avg10=5.00 avg60=0.00\n");
  limits_tick(8);
  CHECK(!pages_is_pressed());
  put("memory.pressure", "some avg10=25.00 avg60=0.00\n");
  limits_tick(12);
  CHECK(pages_is_pressed());
  tslab_free(tslab_malloc(4 * MiB));
  pages_relieve();
  CHECK(!pages_is_pressed());
}

static void settings_set_limits(void) {
  options.memory_limit = 100 * MiB;
  options.memory_soft_limit = 0;
  limits_start();
  CHECK_COUNT(pages_totals().hard_limit, ==, 100 * MiB);
  CHECK_COUNT(pages_totals().soft_limit, ==, SIZE_MAX);
}

int main(void) {
  tslab_free(tslab_malloc(1));
  strcpy(root, "/tmp/tslab-limits-XXXXXX");
  CHECK(mkdtemp(root) != NULL);
  snprintf(self, sizeof self, "%s/self", root);
  limits_self = self, limits_root = root;
  a_refusal_is_told_once_and_counted();
  refusals_make_few_rounds();
  a_group_sets_limits();
  pressure_asks_for_relief();
  settings_set_limits();
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", root);
  return system(command) == 0 ? 0 : 1;
}
