/* huge: dense memory that stays moves to huge pages and grows by nothing; small heaps, holes and memory that a child
 * shares stay where they are; a purge of a part divides a huge page. */
#include "unit.h"

#include "base/options.h"
#include "os/os.h"
#include "pages/huge.h"
#include "runtime/scavenger.h"

enum { SIZE = 1000, BLOCKS = 96 << 10, LOOKS = 200 };
static void *blocks[BLOCKS];

static void *must(size_t size) {
  void *const block = tslab_malloc(size);
  CHECK(block != NULL);
  return block;
}

/* Returns the bytes on a line of a file of /proc. */
static size_t line_of(const char *path, const char *name) {
  char line[256];
  size_t value = 0;
  FILE *const file = fopen(path, "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) value = strtoul(line + strlen(name), NULL, 10);
  fclose(file);
  return value;
}
static size_t on_huge_pages(void) { return line_of("/proc/self/smaps_rollup", "AnonHugePages:") << 10; }
static size_t resident(void) { return line_of("/proc/self/smaps_rollup", "Rss:") << 10; }
static size_t divided(void) { return line_of("/proc/vmstat", "thp_split_page "); }

static void look(void) {
  huge_start(true);
  for (unsigned i = 0; i < LOOKS; i++) huge_look(true);
}

static void fill(void) {
  for (unsigned i = 0; i < BLOCKS; i++) memset(blocks[i] = must(SIZE), 1, SIZE);
}

static void see_nothing_moved(void) {
  look();
  CHECK_COUNT(huge_moved_bytes(), ==, 0);
}

static void small_heaps_stay(void) {
  for (size_t bytes = 0; bytes < HUGE_LEAST_HEAP * 3 / 4; bytes += SIZE) memset(must(SIZE), 1, SIZE);
  see_nothing_moved();
}

static void the_setting_refuses(void) {
  options.huge = 0;
  fill();
  see_nothing_moved();
}

static void shared_memory_stays(void) {
  fill();
  CHECK(in_child(see_nothing_moved) == 0);
}

/* Each second block of 4 KiB is free, and its pages go back. */
static void holes_stay(void) {
  for (unsigned i = 0; i < BLOCKS / 4; i++) memset(blocks[i] = must(4 * SIZE), 1, 4 * SIZE);
  for (unsigned i = 0; i < BLOCKS / 4; i++)
    if (i / 8 % 2) tslab_free(blocks[i]);
  scavenger_purge();
  const size_t before = resident();
  look();
  CHECK_COUNT(resident(), <=, before + HUGE_PAGE);
}

static void dense_memory_moves(void) {
  fill();
  const size_t before = resident();
  look();
  CHECK_COUNT(huge_moved_bytes(), >=, (size_t)BLOCKS * SIZE * 3 / 4);
  CHECK_COUNT(on_huge_pages(), >=, huge_moved_bytes() * 3 / 4);
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.huge_moved_bytes, ==, huge_moved_bytes());
  CHECK_COUNT(resident(), <=, before + MiB);
  for (unsigned i = 0; i < BLOCKS; i++) CHECK(*(char *)blocks[i] == 1);
  const size_t divisions = divided(), huge = on_huge_pages();
  for (unsigned i = 0; i < BLOCKS; i++)
    if (i / 640 % 2) tslab_free(blocks[i]); /* ten granules stay, ten go */
  scavenger_purge();
  CHECK_COUNT(divided(), >, divisions);
  CHECK_COUNT(on_huge_pages(), <, huge);
  CHECK_COUNT(resident(), <, before * 3 / 4);
}

static bool kernel_collapses(void) {
  char *const room = mmap(NULL, 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(room != MAP_FAILED);
  char *const at = (char *)round_up((uintptr_t)room, HUGE_PAGE);
  memset(at, 1, HUGE_PAGE);
  return os_allows_huge() && os_open_page_table() && os_is_all_here(at) && os_collapse(at) == OS_COLLAPSED;
}

int main(void) {
  options.scavenger = 0;
  tslab_free(must(1));
  if (emulated() || SANITIZED || TSLAB_HARDENED || !kernel_collapses()) return 77;
  CHECK(in_child(small_heaps_stay) == 0);
  CHECK(in_child(the_setting_refuses) == 0);
  CHECK(in_child(shared_memory_stays) == 0);
  CHECK(in_child(holes_stay) == 0);
  CHECK(in_child(dense_memory_moves) == 0);
  return 0;
}
