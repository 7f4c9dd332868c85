/* tslab_profile_each, _interval and tslab_holders_json against known truth. Blocks that are certainly samples appear
 * exactly, with sites by their stacks. Drawn samples are right in the mean while the interval changes. A pause samples
 * nothing but follows earlier samples. None of these calls allocates from the heap. */
#include "../check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tslab/tslab.h>

enum { INTERVAL = 4096, CERTAIN = 64 * INTERVAL, SMALL = 200, LEFT = 3000, KEPT = 20000, PHASE = 700, SIGMAS = 5 };
enum { SELDOM = 4 << 20 };

#if defined(__clang__) /* a function that the compiler does not clone */
#define SITE __attribute__((noinline))
#else
#define SITE __attribute__((noinline, noclone))
#endif

/* ---- sums -------------------------------------------------------------------------------------------------------- */

/* Sums all sites whose innermost function is `function`; malloc is innermost where no call became a jump. */
struct sums {
  uintptr_t from, to; /* 0: all sites */
  uint64_t sites, samples, blocks, bytes, allocated, squares, allocated_squares;
};

static bool is_from(const tslab_profile_site *site, const struct sums *sums) {
  if (!sums->from) return true;
  for (int i = 0; i < 5; i++)
    if (site->stack[i] > sums->from && site->stack[i] < sums->to) return true;
  return false;
}

static int add(const tslab_profile_site *site, void *arg) {
  struct sums *const sums = arg;
  CHECK_COUNT(site->depth, <=, TSLAB_STACK);
  for (uint64_t i = 0; i < TSLAB_STACK; i++) CHECK((site->stack[i] != 0) == (i < site->depth));
  CHECK(site->live_samples <= site->allocated_samples && site->live_bytes <= site->allocated_bytes);
  CHECK_COUNT(site->error_bytes, <=, site->allocated_error_bytes);
  if (!is_from(site, sums)) return 0;
  sums->sites++;
  sums->samples += site->live_samples;
  sums->blocks += site->live_blocks;
  sums->bytes += site->live_bytes;
  sums->allocated += site->allocated_bytes;
  sums->squares += site->error_bytes * site->error_bytes;
  sums->allocated_squares += site->allocated_error_bytes * site->allocated_error_bytes;
  return 0;
}

static struct sums sums_of(void *(*site)(size_t)) {
  struct sums sums = {.from = (uintptr_t)site, .to = (uintptr_t)site + 256};
  CHECK(tslab_profile_each(add, &sums) == 0);
  return sums;
}

/* ---- call sites: 256 bytes belong to each, and their callers lie elsewhere ------------------------------- */

#define DEFINE_SITE(name) \
  __attribute__((aligned(256), section(".sites"))) SITE static void *name(size_t size) { \
    void *volatile block = tslab_malloc(size); \
    CHECK(block != NULL); \
    return block; \
  }
DEFINE_SITE(certain)
DEFINE_SITE(kept)
DEFINE_SITE(left_over)
DEFINE_SITE(in_pause)
DEFINE_SITE(last)
DEFINE_SITE(in_slab)
DEFINE_SITE(in_turn)
DEFINE_SITE(to_the_end)
DEFINE_SITE(alone)

/* ---- the checks -------------------------------------------------------------------------------------------------- */

static int stop_at_once(const tslab_profile_site *site, void *arg) {
  (void)site;
  ++*(int *)arg;
  return 4711;
}

static int count_bytes(const char *piece, size_t length, void *arg) {
  (void)piece;
  *(size_t *)arg += length;
  return 0;
}

static void errors(void) {
  size_t before = 1, bytes = 0;
  CHECK(tslab_profile_each(add, &(struct sums){0}) == ENODATA);
  CHECK(tslab_holders_json(count_bytes, &bytes) == ENODATA && bytes == 0);
  CHECK(tslab_profile_each(NULL, NULL) == EINVAL && tslab_holders_json(NULL, NULL) == EINVAL);
  CHECK(tslab_profile_interval(((size_t)1 << 30) + 1, &before) == ERANGE && before == 1);
  CHECK(tslab_profile_interval(0, &before) == 0 && before == 0);
  CHECK(tslab_profile_each(add, &(struct sums){0}) == ENODATA);
  CHECK(tslab_profile_interval(1, NULL) == 0);
  CHECK(tslab_profile_interval(INTERVAL, &before) == 0 && before == INTERVAL);
}

static uint64_t allocations(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  return stats.allocations;
}

static void exact(void) {
  void *blocks[10];
  for (int i = 0; i < 10; i++) blocks[i] = certain(CERTAIN + (size_t)i);
  const uint64_t calls = allocations();
  struct sums sums = sums_of(certain);
  CHECK_COUNT(allocations(), ==, calls);
  CHECK_COUNT(sums.samples, ==, 10);
  CHECK_COUNT(sums.blocks, ==, 10);
  CHECK_COUNT(sums.bytes, ==, 10 * CERTAIN + 45);
  for (int i = 0; i < 7; i++) tslab_free(blocks[i]);
  sums = sums_of(certain);
  CHECK_COUNT(sums.bytes, ==, 3 * CERTAIN + 24);
  CHECK_COUNT(sums.allocated, ==, 10 * CERTAIN + 45);
  CHECK_COUNT(sums.allocated_squares, ==, 0);
  int visits = 0;
  CHECK(tslab_profile_each(stop_at_once, &visits) == 4711 && visits == 1);
  for (int i = 7; i < 10; i++) tslab_free(blocks[i]);
  CHECK_COUNT(sums_of(certain).bytes, ==, 0);
}

/* The estimate's variance is at most truth times interval. The samples' own errors do not tell: where long intervals
 * drew none, they are too small. */
static void check_near(const char *what, uint64_t bytes, uint64_t truth, size_t interval) {
  const double away = (double)bytes - (double)truth;
  printf("%s: %llu estimated, %llu true\n", what, (unsigned long long)bytes, (unsigned long long)truth);
  CHECK(away * away <= SIGMAS * SIGMAS * (double)truth * (double)interval);
}

/* The interval changes many times while one draw is out, at moments unrelated to the thread's visits. */
static void while_it_changes(void) {
  static const size_t intervals[] = {INTERVAL, 64 * INTERVAL, 2 * INTERVAL, 16 * INTERVAL}, mean = 21 * INTERVAL;
  static void *blocks[KEPT];
  tslab_epoch epoch = tslab_epoch_open("changing");
  CHECK(tslab_epoch_close(epoch, NULL) == 0); /* a label's first epoch may stay for good, and turns to slabs */
  epoch = tslab_epoch_open("changing");
  for (int i = 0; i < KEPT; i++) {
    if (i % PHASE == 0) CHECK(tslab_profile_interval(intervals[i / PHASE % 4], NULL) == 0);
    blocks[i] = kept(SMALL);
    if (i % 8) continue;
    CHECK(tslab_epoch_enter(epoch) == 0);
    left_over(LEFT);
    CHECK(tslab_epoch_leave(epoch) == 0);
  }
  check_near("plain malloc", sums_of(kept).bytes, (uint64_t)KEPT * SMALL, mean);
  check_near("an epoch", sums_of(left_over).bytes, (uint64_t)KEPT / 8 * LEFT, mean);
  CHECK(tslab_profile_interval(INTERVAL, NULL) == 0);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
  for (int i = 0; i < KEPT; i++) tslab_free(blocks[i]);
  CHECK_COUNT(sums_of(kept).samples, ==, 0);
}

/* The first epoch of a label turns from chunks to slabs. Its blocks come and go. */
/* A sample holds as much as any other block of its size. With more room it would grow where it is and keep the weight
 * of its first size. With less it would end where others grow. */
static void as_much_room_as_others(void) {
  for (size_t size = 1; size <= 32 << 10; size += size / 5 + 1) {
    void *const first = in_pause(size);
    const size_t room = tslab_malloc_usable_size(first);
    tslab_free(first);
    for (int i = 0; i < 300; i++) {
      void *const block = in_pause(size);
      CHECK_COUNT(tslab_malloc_usable_size(block), ==, room);
      char *const grown = tslab_realloc(memset(block, 7, room), room + 1);
      CHECK(grown[0] == 7 && grown[room - 1] == 7 && tslab_malloc_usable_size(grown) > room);
      tslab_free(grown);
    }
  }
}

static void in_slabs(void) {
  static void *blocks[KEPT];
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = "in slabs",
                                       .flags = TSLAB_EPOCH_DESTROYABLE};
  tslab_epoch_report report;
  const tslab_epoch epoch = tslab_epoch_open_with(&options);
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  for (int i = 0; i < 4 * KEPT; i++) {
    tslab_free(blocks[i % KEPT]);
    blocks[i % KEPT] = in_slab(SMALL);
  }
  const struct sums sums = sums_of(in_slab);
  check_near("slabs of an epoch", sums.bytes, (uint64_t)KEPT * SMALL, INTERVAL);
  const double variance = (double)KEPT * SMALL * INTERVAL;
  CHECK((double)sums.squares > 0.7 * variance && (double)sums.squares < 1.3 * variance); /* deviates by 5 % */
  check_near("all that was there", sums.allocated, (uint64_t)4 * KEPT * SMALL, INTERVAL);
  for (int i = 0; i < KEPT / 2; i++) tslab_free(blocks[i]);
  for (int i = 0; i < KEPT / 2; i++) CHECK(tslab_malloc_usable_size(blocks[KEPT / 2 + i]) >= SMALL);
  check_near("half of them", sums_of(in_slab).bytes, (uint64_t)KEPT / 2 * SMALL, INTERVAL);
  as_much_room_as_others();
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_destroy(epoch, &report) == 0);
  CHECK_COUNT(report.live_blocks, ==, KEPT / 2);
  CHECK_COUNT(sums_of(in_slab).samples, ==, 0);
}

static void paused(void) {
  static void *blocks[KEPT];
  void *const followed = certain(CERTAIN);
  size_t before;
  CHECK(tslab_profile_interval(0, &before) == 0 && before == INTERVAL);
  for (int i = 0; i < 2000; i++) tslab_free(in_pause(SMALL)); /* until the class is visited */
  const uint64_t then = sums_of(in_pause).allocated;
  for (int i = 0; i < KEPT; i++) blocks[i] = in_pause(SMALL);
  void *const large = in_pause(CERTAIN);
  CHECK_COUNT(sums_of(in_pause).allocated, ==, then);
  CHECK_COUNT(sums_of(certain).bytes, ==, CERTAIN);
  tslab_free(followed);
  CHECK_COUNT(sums_of(certain).bytes, ==, 0);
  for (int i = 0; i < KEPT; i++) tslab_free(blocks[i]);
  tslab_free(large);
  CHECK(tslab_profile_interval(INTERVAL, &before) == 0 && before == 0);
  tslab_free(last(CERTAIN));
  CHECK_COUNT(sums_of(last).allocated, ==, CERTAIN);
}

static void check_allocated(const char *what, struct sums sums, uint64_t truth) {
  CHECK_COUNT(sums.samples, ==, 0);
  check_near(what, sums.allocated, truth, SELDOM);
}

/* Blocks that an epoch frees in turn use the same bytes again and again. */
static void freed_in_turn(void) {
  enum { REQUESTS = 3000, BLOCKS = 40, TURNS = 400, SIZE = 1000 };
  const tslab_epoch_options options = {.struct_size = sizeof options, .label = "request",
                                       .flags = TSLAB_EPOCH_DESTROYABLE};
  CHECK(tslab_profile_interval(SELDOM, NULL) == 0);
  for (int i = 0; i < REQUESTS; i++) {
    const tslab_epoch epoch = tslab_epoch_open_with(&options);
    CHECK(tslab_epoch_enter(epoch) == 0);
    for (int turn = 0; turn < TURNS; turn++) {
      if (turn % (TURNS / BLOCKS) == 0) to_the_end(SIZE);
      tslab_free(in_turn(SIZE));
    }
    CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_destroy(epoch, NULL) == 0);
  }
  for (int i = 0; i < 10 * REQUESTS; i++) { /* their chunk is empty at the end */
    const tslab_epoch epoch = tslab_epoch_open_with(&options);
    CHECK(tslab_epoch_enter(epoch) == 0);
    for (int turn = 0; turn < TURNS / 10; turn++) tslab_free(alone(SIZE));
    CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_destroy(epoch, NULL) == 0);
  }
  CHECK(tslab_profile_interval(INTERVAL, NULL) == 0);
  check_allocated("to the end of requests", sums_of(to_the_end), (uint64_t)REQUESTS * BLOCKS * SIZE);
  check_allocated("freed in turn", sums_of(in_turn), (uint64_t)REQUESTS * TURNS * SIZE);
  check_allocated("freed in turn, and nothing else", sums_of(alone), (uint64_t)REQUESTS * TURNS * SIZE);
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static char text[1 << 20];
static size_t length;

static int append(const char *piece, size_t bytes, void *arg) {
  (void)arg;
  CHECK(length + bytes < sizeof text);
  memcpy(text + length, piece, bytes);
  length += bytes;
  return 0;
}

static int refuse(const char *piece, size_t bytes, void *arg) {
  (void)piece, (void)bytes, (void)arg;
  return 17;
}

static void holders(void) {
  const tslab_epoch epoch = tslab_epoch_open("keeps one");
  CHECK(tslab_epoch_enter(epoch) == 0);
  void *const block = certain(CERTAIN);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
  CHECK(tslab_holders_json(append, NULL) == 0);
  char expected[160];
  snprintf(expected, sizeof expected,
           "\"state\":2,\"epoch\":%llu,\"live_samples\":1,\"live_blocks\":1,\"live_bytes\":%d",
           (unsigned long long)epoch, CERTAIN);
  CHECK(strstr(text, expected) != NULL && strstr(text, "\"label\":\"keeps one\"") != NULL);
  CHECK(strstr(text, "\"sites\":[{") != NULL && strstr(text, "\"profiles\":[{\"interval_bytes\":4096,") != NULL);
  CHECK(strstr(text, "\"classes\"") == NULL && text[0] == '{' && strcmp(text + length - 2, "}\n") == 0);
  CHECK(tslab_holders_json(refuse, NULL) == 17);
  tslab_free(block);
}

int main(void) {
  if (tslab_profile_interval(0, NULL) == ENOTSUP) return 0; /* built without telemetry */
  errors();
  exact();
  while_it_changes();
  in_slabs();
  freed_in_turn();
  as_much_room_as_others();
  paused();
  holders();
  return 0;
}
