/* profile_stacks: a program that allocates from a million different stacks does not make the profile's memory grow
 * beyond its bound. Every sample counts: by its call site while there is room for stacks, then by the call site whose
 * stack is not known, and the statistics say how many of these there are. Samples that find no room among those in use
 * are counted, too. Nothing is left when all blocks are free.
 *
 *  profile_stacks [long] */
#include "../check.h"

#include "heap/profile.h"
#include "os/os.h"
#include "stats/profile.h"

enum { INTERVAL = 4096, CERTAIN = 64 * INTERVAL, MANY = PROFILE_SAMPLES + 5000 };
enum { STACKS = (1 << 20) / TEST_SCALE, DEPTH = 12, PATHS_MOST = 1 << (2 * DEPTH) };
#define MOST_BYTES ((uint64_t)8 << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_MEASURED = 0 }; /* their own memory grows, too */
#else
enum { IS_MEASURED = 1 };
#endif

#if defined(__clang__) /* a function that the compiler does not clone */
#define SITE __attribute__((noinline))
#else
#define SITE __attribute__((noinline, noclone))
#endif
/* The call is a call and no jump, and calls of another number are not the same code. */
#define BARRIER(number) __asm__ volatile("# %c0" : : "i"(number) : "memory")
#define STEP(number)                                   \
  do {                                                 \
    BARRIER(number);                                   \
    block = descend(path / 4, depth - 1, size);        \
    BARRIER(number);                                   \
    return block;                                      \
  } while (0)

/* ---- one stack for each path ------------------------------------------------------------------------------------- */

/* Each level has one frame, with one of four return addresses. */
SITE static void *descend(unsigned path, unsigned depth, size_t size) {
  void *block;
  if (depth == 0) {
    block = tslab_malloc(size);
    BARRIER(4);
    CHECK(block != NULL);
    return block;
  }
  switch (path % 4) {
    case 0: STEP(0);
    case 1: STEP(1);
    case 2: STEP(2);
    default: STEP(3);
  }
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static struct profile_totals totals(void) {
  lock_take(&profile_lock);
  const struct profile_totals now = profile_totals();
  lock_release(&profile_lock);
  return now;
}

static size_t resident(void) {
  tslab_stats_global now;
  CHECK(tslab_stats(&now, sizeof now) == 0);
  return now.resident_bytes;
}

static struct {
  uint64_t sites, samples, live, stackless;
} seen;

static int add(const tslab_profile_site *site, void *unused) {
  (void)unused;
  seen.sites++;
  seen.samples += site->allocated_samples;
  seen.live += site->live_samples;
  if (site->depth == 0) seen.stackless += site->allocated_samples;
  return 0;
}

/* The program's readers and the published figures say the same as the tables. */
static struct profile_totals check_readers(void) {
  struct profile_row row;
  const struct profile_totals now = totals();
  memset(&seen, 0, sizeof seen);
  CHECK(tslab_profile_each(add, NULL) == 0 && profile_collect(&row, 1) == 1);
  CHECK_COUNT(seen.samples, ==, now.samples);
  CHECK_COUNT(seen.live, ==, now.live);
  CHECK_COUNT(seen.stackless, ==, now.stackless);
  CHECK_COUNT(seen.sites + 1, >=, now.sites); /* nobody may have used the first site */
  CHECK_COUNT(row.stackless, ==, now.stackless);
  CHECK_COUNT(row.memory_bytes, ==, now.bytes);
  CHECK_COUNT(now.samples, ==, now.frees + now.live + now.lost);
  return now;
}

/* ---- hostile programs -------------------------------------------------------------------------------------------- */

static void many_stacks(unsigned stacks) {
  const struct profile_totals before = totals();
  const size_t resident_before = resident();
  struct profile_totals half = before;
  for (unsigned i = 0; i < stacks; i++) {
    tslab_free(descend(i, DEPTH, CERTAIN));
    if (i == stacks / 2) half = totals();
  }
  const struct profile_totals now = check_readers();
  CHECK_COUNT(now.samples, ==, before.samples + stacks);
  CHECK_COUNT(now.live, ==, before.live);
  CHECK_COUNT(now.lost, ==, 0);
  CHECK_COUNT(now.sites, <=, PROFILE_SITES);
  CHECK_COUNT(now.sites + now.stackless, ==, before.sites + stacks); /* each of the others had a site of its own */
  CHECK_COUNT(now.bytes, <, MOST_BYTES);
  CHECK_COUNT(now.bytes, ==, half.bytes);
  printf("%u stacks: %llu sites, %llu samples without one, %llu bytes\n", stacks, (unsigned long long)now.sites,
         (unsigned long long)now.stackless, (unsigned long long)now.bytes);
  if (IS_MEASURED) CHECK_COUNT(resident(), <=, resident_before + MOST_BYTES);
}

/* More blocks in use than the profile has room for. Each is a sample. */
static void many_samples(void) {
  static void *blocks[MANY];
  const struct profile_totals before = totals();
  for (unsigned i = 0; i < MANY; i++) blocks[i] = descend(i, DEPTH, CERTAIN);
  const struct profile_totals full = check_readers();
  CHECK_COUNT(full.live, ==, PROFILE_SAMPLES);
  CHECK_COUNT(full.lost, ==, MANY - PROFILE_SAMPLES);
  CHECK_COUNT(full.bytes, <, MOST_BYTES);
  printf("%u samples: %llu lost, %llu bytes\n", MANY, (unsigned long long)full.lost, (unsigned long long)full.bytes);
  for (unsigned i = 0; i < MANY; i++) tslab_free(blocks[i]);
  const struct profile_totals now = check_readers();
  CHECK_COUNT(now.live, ==, before.live);
  CHECK_COUNT(now.bytes, ==, full.bytes);
}

int main(int argc, char **argv) {
  const bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
  CHECK(tslab_profile_interval(INTERVAL, NULL) == 0);
  many_stacks(is_long ? PATHS_MOST : STACKS);
  many_samples();
  return 0;
}
