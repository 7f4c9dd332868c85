/* profile_large: a heap of a gigabyte, or of ten in the long form, with a tenth in small blocks and the rest in blocks
 * of up to one MiB. At the usual number of samples the estimate is near the truth, no sample finds the tables full, and
 * the profile takes as little memory as it says. With more samples than it has room for, it counts those, and takes no
 * more. The blocks are touched at one place each, so most of the heap takes no memory.
 *
 *  profile_large [long] */
#include "../check.h"

#include "heap/profile.h"
#include "os/os.h"
#include "stats/profile.h"

#define GIB         ((uint64_t)1 << 30)
#define MOST_BYTES  ((uint64_t)8 << 20)
enum { SMALL = 32000, LEAST_LARGE = 100000, MOST_LARGE = 1 << 20, MOST_BLOCKS = 64000 };
enum { EVERY = 4096, EACH = 64 * EVERY, EACH_MOST = PROFILE_SAMPLES + 1000, SIGMAS = 5 };

static void *blocks[MOST_BLOCKS];
static size_t sizes[MOST_BLOCKS];
static unsigned count;

static struct profile_totals totals(void) {
  lock_take(&profile_lock);
  const struct profile_totals now = profile_totals();
  lock_release(&profile_lock);
  CHECK_COUNT(now.bytes, <, MOST_BYTES);
  CHECK_COUNT(now.samples, ==, now.frees + now.live + now.lost);
  return now;
}

struct sums {
  uint64_t bytes;
  double squares;
};

static int add(const tslab_profile_site *site, void *arg) {
  struct sums *const sums = arg;
  sums->bytes += site->live_bytes;
  sums->squares += (double)site->error_bytes * (double)site->error_bytes;
  return 0;
}

static void check_estimate(uint64_t truth) {
  struct sums sums = {0, 0};
  CHECK(tslab_profile_each(add, &sums) == 0);
  const double away = (double)sums.bytes - (double)truth;
  const struct profile_totals now = totals();
  printf("%.2f GiB in %u blocks: %.2f GiB estimated, %llu samples, %llu lost, %llu bytes\n", (double)truth / GIB, count,
         (double)sums.bytes / GIB, (unsigned long long)now.live, (unsigned long long)now.lost,
         (unsigned long long)now.bytes);
  CHECK(away * away <= SIGMAS * SIGMAS * sums.squares);
}

/* Readers look at slabs of plain malloc, too: in a large heap at one in several. */
static void check_spreads(void) {
  static struct spread_row rows[CLASSES];
  uint64_t used = 0;
  const size_t classes = profile_collect_spreads(rows, CLASSES);
  for (size_t i = 0; i < classes; i++) used += rows[i].used_bytes;
  CHECK_COUNT(used, >=, (uint64_t)SMALL * MOST_BLOCKS / 8);
}

static void take(size_t size) {
  char *const block = tslab_malloc(size);
  if (!block) exit(77); /* the machine has no room for that */
  *block = 1;
  CHECK(count < MOST_BLOCKS);
  sizes[count] = size;
  blocks[count++] = block;
}

static uint64_t fill(uint64_t heap) {
  uint64_t random = 1, truth = 0;
  while (truth < heap / 10 && count < MOST_BLOCKS / 2) {
    take(SMALL);
    truth += SMALL;
  }
  while (truth < heap) {
    take(LEAST_LARGE + check_random(&random) % (MOST_LARGE - LEAST_LARGE));
    truth += sizes[count - 1];
  }
  return truth;
}

static uint64_t free_half(void) {
  uint64_t freed = 0;
  for (unsigned i = 0; i < count; i += 2) {
    tslab_free(blocks[i]);
    freed += sizes[i];
  }
  return freed;
}

static void more_than_room(void) {
  static void *more[EACH_MOST];
  const struct profile_totals before = totals();
  CHECK(tslab_profile_interval(EVERY, NULL) == 0);
  for (unsigned i = 0; i < EACH_MOST; i++) CHECK((more[i] = tslab_malloc(EACH)) != NULL);
  const struct profile_totals full = totals();
  CHECK_COUNT(full.live, ==, PROFILE_SAMPLES);
  CHECK_COUNT(full.lost, ==, EACH_MOST - (PROFILE_SAMPLES - before.live));
  printf("full: %llu lost, %llu bytes\n", (unsigned long long)full.lost, (unsigned long long)full.bytes);
  for (unsigned i = 0; i < EACH_MOST; i++) tslab_free(more[i]);
  CHECK_COUNT(totals().live, ==, before.live);
}

int main(int argc, char **argv) {
  const bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
  CHECK(tslab_profile_interval(is_long ? 512 << 10 : 64 << 10, NULL) == 0);
  const uint64_t truth = fill(is_long ? 10 * GIB : GIB);
  check_estimate(truth);
  CHECK_COUNT(totals().lost, ==, 0);
  if (is_long) check_spreads();
  check_estimate(truth - free_half());
  more_than_room();
  for (unsigned i = 1; i < count; i += 2) tslab_free(blocks[i]);
  CHECK_COUNT(totals().live, ==, 0);
  return 0;
}
