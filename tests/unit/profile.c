/* profile: drawn samples have the distribution that their weights assume; a site is a stack; the profile knows a sample
 * from its birth to its free, by its own thread, another one, realloc, the end of an epoch or its reset; a lifespan has
 * what a site held most in a class, how often that ebbed away, and the ages at the frees; slabs are as full as they are
 * said to be; full tables lose samples and count them, and memory stays bounded under any number of stacks. */
#include "unit.h"

#include "heap/profile.h"
#include "heap/sampled.h"
#include "os/os.h"
#include "slab/slab.h"
#include "stats/profile.h"
#include <math.h>
#include <pthread.h>

enum { INTERVAL = 4096, DRAWS = 400000 / TEST_SCALE, SIGMAS = 5, MANY = 20000 };

static struct profile_totals totals(void) {
  lock_take(&profile_lock);
  for (uint32_t i = 1; i <= profile_samples_most(); i++) profile_sample_at(i); /* drops samples of freed blocks */
  const struct profile_totals now = profile_totals();
  lock_release(&profile_lock);
  return now;
}

/* ---- draws and weights ------------------------------------------------------------------------------------------- */

static void weights(void) {
  for (size_t bytes = 16; bytes < 64 * MiB; bytes += bytes / 7 + 1) {
    const double exact = PROFILE_WEIGHT_ONE / (1 - exp(-(double)bytes / INTERVAL));
    CHECK(fabs((double)profile_weight(bytes, INTERVAL) - exact) <= 0.5 + exact * 1e-4);
  }
}

static void class_draws(unsigned class) {
  const double p = 1 - exp(-(double)class_size(class) / INTERVAL);
  double sum = 0, at_once = 0;
  for (int i = 0; i < DRAWS; i++) {
    const uint32_t drawn = profile_draw(class, INTERVAL);
    sum += drawn;
    at_once += drawn == 0;
  }
  CHECK(fabs(sum / DRAWS - (1 - p) / p) <= SIGMAS * sqrt(1 - p) / p / sqrt(DRAWS));
  CHECK(fabs(at_once / DRAWS - p) <= SIGMAS * sqrt(p * (1 - p) / DRAWS));
}

static void byte_draws(size_t most) {
  const double p = exp(-(double)most / INTERVAL);
  double beyond = 0;
  for (int i = 0; i < DRAWS; i++) beyond += profile_draw_bytes(most, INTERVAL) == most;
  CHECK(fabs(beyond / DRAWS - p) <= SIGMAS * sqrt(p * (1 - p) / DRAWS) + 1e-9);
}

/* ---- samples and sites ------------------------------------------------------------------------------------------- */

/* Stands for a call from a function at `address`. */
static void *sample_from(uintptr_t address, size_t size) {
  uintptr_t frame[2] __attribute__((aligned(16))) = {0, address};
  current_heap->counters->caller = frame;
  void *const block = sampled_take(current_heap, class_of(size), size, INTERVAL);
  CHECK(block != NULL);
  __asm__ volatile("" : : "r"(frame) : "memory");
  return block;
}

static const struct profile_site *site_of(uintptr_t address) {
  for (uint32_t i = 1; i <= profile_sites(); i++) {
    const struct profile_site *const site = profile_site_at(i);
    if (site->depth == 1 && profile_frames(site)[0] == address) return site;
  }
  return NULL;
}

/* The two samples that 0x5000 allocated have the same weight, and `live` of them are in use. */
static void check_errors(unsigned live) {
  static struct site_row rows[TABLE_SITES_MOST];
  const size_t count = profile_collect_sites(rows, TABLE_SITES_MOST);
  const double weight = (double)profile_weight(class_size(class_of(100)), INTERVAL) / PROFILE_WEIGHT_ONE;
  const double one = 100 * sqrt(weight * (weight - 1));
  for (size_t i = 0; i < count; i++) {
    if (strcmp(rows[i].stack, "5000") != 0) continue;
    CHECK(fabs((double)rows[i].allocated_error_bytes - sqrt(2) * one) < 1);
    CHECK(fabs((double)rows[i].error_bytes - sqrt(live) * one) < 1);
    return;
  }
  CHECK(false);
}

static void sites(void) {
  const struct profile_totals before = totals();
  void *const one = sample_from(0x5000, 100), *const two = sample_from(0x5000, 100);
  void *const other = sample_from(0x6000, 50);
  CHECK_COUNT(totals().sites, ==, before.sites + 2);
  CHECK_COUNT(totals().live, ==, before.live + 3);
  CHECK_COUNT(site_of(0x5000)->allocated_samples, ==, 2);
  CHECK_COUNT(site_of(0x5000)->allocated_blocks, ==, 2 * profile_weight(class_size(class_of(100)), INTERVAL));
  CHECK_COUNT(site_of(0x5000)->allocated_bytes, ==, 200 * profile_weight(class_size(class_of(100)), INTERVAL));
  CHECK(tslab_malloc_usable_size(one) == class_size(class_of(100)));
  check_errors(2);
  tslab_free(one);
  check_errors(1);
  tslab_free(two), tslab_free(other);
  CHECK_COUNT(totals().live, ==, before.live);
}

static void *free_it(void *block) {
  tslab_free(block);
  return NULL;
}

static void by_others(void) {
  const uint64_t before = totals().live;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, free_it, sample_from(0x7000, 300)) == 0 && pthread_join(thread, NULL) == 0);
  CHECK_COUNT(totals().live, ==, before);
}

/* A block this large is a sample. */
enum { LARGE = 64 * INTERVAL };

static void large_blocks(void) {
  const uint64_t before = totals().live;
  void *block = tslab_malloc(LARGE);
  CHECK_COUNT(totals().live, ==, before + 1);
  block = tslab_realloc(block, 4 * LARGE);
  CHECK_COUNT(totals().live, ==, before + 1);
  block = tslab_realloc(block, 100);
  CHECK(totals().live <= before + 1);
  tslab_free(block);
  CHECK_COUNT(totals().live, ==, before);
}

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

static unsigned samples_of(tslab_epoch e, uint64_t *blocks) {
  static struct holder_row rows[TABLE_HOLDERS_MOST];
  unsigned samples = 0;
  const size_t count = profile_collect_holders(rows, TABLE_HOLDERS_MOST);
  tslab_epoch_status status;
  CHECK(tslab_epoch_info(e, &status) == 0);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(rows[i].label, status.label) != 0) continue;
    samples += (unsigned)rows[i].live_samples;
    *blocks += rows[i].live_blocks;
  }
  return samples;
}

/* Allocates about 64 KiB of blocks, more than a chunk has. */
static void fill(tslab_epoch e, void *blocks[1000]) {
  CHECK(tslab_epoch_enter(e) == 0);
  for (int i = 0; i < 999; i++) blocks[i] = tslab_malloc(90);
  blocks[999] = tslab_malloc(LARGE);
  CHECK(tslab_epoch_leave(e) == 0);
}

static tslab_epoch open_one(const char *label) {
  tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = label, .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch e = tslab_epoch_open_with(&wanted);
  CHECK(e != 0);
  return e;
}

static void in_epochs(void) {
  static void *blocks[1000];
  const uint64_t before = totals().live;
  for (int i = 0; i < 3; i++) { /* the first of a label may turn to slabs, where no block is a sample */
    const tslab_epoch e = open_one("profiled");
    uint64_t estimate = 0;
    fill(e, blocks);
    const unsigned seen = samples_of(e, &estimate);
    CHECK(seen >= 2 && estimate > 100);
    if (i == 0) CHECK(tslab_epoch_destroy(e, NULL) == 0);
    if (i == 1) {
      CHECK(tslab_epoch_reset(e, NULL) == 0);
      CHECK_COUNT(samples_of(e, &estimate), ==, 0);
      fill(e, blocks);
      CHECK(tslab_epoch_destroy(e, NULL) == 0);
    }
    if (i == 2) {
      for (int b = 0; b < 1000; b++) tslab_free(blocks[b]);
      CHECK(tslab_epoch_close(e, NULL) == 0);
    }
    CHECK_COUNT(totals().live, ==, before);
  }
}

static void closing(void) {
  static void *blocks[1000];
  static struct holder_row rows[TABLE_HOLDERS_MOST];
  const tslab_epoch e = open_one("left");
  fill(e, blocks);
  for (int b = 0; b < 999; b++) tslab_free(blocks[b]);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  const size_t count = profile_collect_holders(rows, TABLE_HOLDERS_MOST);
  unsigned found = 0;
  for (size_t i = 0; i < count; i++) {
    if (rows[i].state != HOLDER_CLOSING) continue;
    found++;
    CHECK_COUNT(rows[i].epoch, ==, e);
    CHECK_COUNT(rows[i].live_bytes, ==, LARGE);
    CHECK_COUNT(rows[i].slabs, ==, 1);
    CHECK(strcmp(rows[i].label, "left") == 0);
  }
  CHECK_COUNT(found, ==, 1);
  tslab_free(blocks[999]);
}

/* ---- lifespans --------------------------------------------------------------------------------------------------- */

static const struct profile_lifespan *lifespan_of(uintptr_t address, unsigned class) {
  const struct profile_site *const site = site_of(address);
  for (uint32_t i = site ? site->lifespans : 0; i; i = profile_lifespan_at(i)->next)
    if (profile_lifespan_at(i)->class == class) return profile_lifespan_at(i);
  return NULL;
}

enum { BURST = 24, BURSTS = 3 };

static void check_row(uint32_t site, uint64_t bytes) {
  static struct lifespan_row rows[TABLE_LIFESPANS_MOST];
  const size_t count = profile_collect_lifespans(rows, TABLE_LIFESPANS_MOST);
  const struct lifespan_row *row = NULL;
  for (size_t i = 0; i < count; i++)
    if (rows[i].site == site && rows[i].object_size == 512) row = &rows[i];
  CHECK(row != NULL);
  CHECK_COUNT(row->peak_bytes, ==, bytes / PROFILE_WEIGHT_ONE);
  CHECK_COUNT(row->freed_bytes, ==, BURSTS * bytes / PROFILE_WEIGHT_ONE);
  CHECK_COUNT(row->ebbs, ==, BURSTS);
  CHECK(row->live_samples == 0 && row->live_bytes == 0 && row->freed_samples == BURSTS * BURST);
  CHECK(row->age_half_ns >= LIFESPAN_FIRST_NS && row->age_half_ns <= row->age_most_ns);
  CHECK_COUNT(profile_collect_lifespans(rows, 1), <=, 1);
}

static void lifespans(void) {
  void *blocks[BURST];
  const unsigned class = class_of(512);
  const uint64_t bytes = BURST * 512 * profile_weight(512, INTERVAL);
  for (int i = 0; i < BURSTS; i++) {
    for (int b = 0; b < BURST; b++) blocks[b] = sample_from(0xb000, 500);
    CHECK_COUNT(lifespan_of(0xb000, class)->live_samples, ==, BURST);
    CHECK_COUNT(lifespan_of(0xb000, class)->live, ==, bytes);
    for (int b = 0; b < BURST; b++) tslab_free(blocks[b]);
  }
  const struct profile_lifespan *const row = lifespan_of(0xb000, class);
  uint64_t aged = 0;
  for (int i = 0; i < LIFESPAN_AGES; i++) aged += row->ages[i];
  CHECK_COUNT(aged, ==, BURSTS * BURST);
  CHECK_COUNT(row->peak, ==, bytes);
  CHECK(lifespan_of(0xb000, class_of(100)) == NULL);
  check_row(row->site, bytes);
}

/* Blocks that stay have no ebb, and nor has a block that comes and goes. */
static void steady(void) {
  void *blocks[BURST];
  const unsigned class = class_of(512);
  for (int b = 0; b < BURST; b++) blocks[b] = sample_from(0xc000, 512);
  for (int b = 0; b < 4 * BURST; b++) {
    tslab_free(blocks[b % BURST]);
    blocks[b % BURST] = sample_from(0xc000, 512);
    tslab_free(sample_from(0xd000, 512));
  }
  CHECK_COUNT(lifespan_of(0xc000, class)->ebbs, ==, 0);
  CHECK_COUNT(lifespan_of(0xc000, class)->live_samples, ==, BURST);
  CHECK_COUNT(lifespan_of(0xd000, class)->ebbs, ==, 0);
  CHECK_COUNT(lifespan_of(0xd000, class)->freed_samples, ==, 4 * BURST);
  for (int b = 0; b < BURST; b++) tslab_free(blocks[b]);
}

/* Blocks that others of the class replace one by one do not die together, though none is left. */
static void replaced(void) {
  void *blocks[BURST];
  const unsigned class = class_of(512);
  for (int b = 0; b < BURST; b++) blocks[b] = sample_from(0xe000, 512);
  for (int b = 0; b < BURST; b++) {
    tslab_free(blocks[b]);
    blocks[b] = sample_from(0xf000, 512);
  }
  CHECK_COUNT(lifespan_of(0xe000, class)->live_samples, ==, 0);
  CHECK_COUNT(lifespan_of(0xe000, class)->ebbs, ==, 0);
  for (int b = 0; b < BURST; b++) tslab_free(blocks[b]);
  CHECK_COUNT(lifespan_of(0xf000, class)->ebbs, ==, 1);
}

/* ---- spreads ----------------------------------------------------------------------------------------------------- */

static struct spread_row spread_of(unsigned class) {
  struct spread_row rows[CLASSES];
  const size_t count = profile_collect_spreads(rows, CLASSES);
  for (size_t i = 0; i < count; i++)
    if (rows[i].object_size == class_size(class)) return rows[i];
  return (struct spread_row){0};
}

/* Of MOST blocks one in EVERY stays, so that each page has at most one that stays. */
enum { SPREAD = 1024, MOST = 8192 };

static void spreads(void) {
  static char *blocks[MOST];
  const unsigned class = class_of(SPREAD), every = (unsigned)max_size(2 * os_page_size / SPREAD, 8);
  const struct spread_row before = spread_of(class);
  for (int i = 0; i < MOST; i++) {
    blocks[i] = tslab_malloc(SPREAD);
    CHECK(blocks[i] != NULL);
    *blocks[i] = 1;
  }
  const struct spread_row full = spread_of(class);
  CHECK_COUNT(full.used_bytes, >=, before.used_bytes + MOST * SPREAD);
  CHECK_COUNT(full.resident_bytes, >=, full.used_bytes);
  CHECK_COUNT(full.slabs, >=, MOST * SPREAD / slab_bytes(class));
  for (unsigned i = 0; i < MOST; i++)
    if (i % every) tslab_free(blocks[i]);
  tslab_purge();
  const struct spread_row left = spread_of(class);
  CHECK_COUNT(left.used_bytes, >=, MOST / every * SPREAD);
  CHECK_COUNT(left.used_bytes, <=, full.used_bytes / 2);
  CHECK_COUNT(left.resident_bytes, >=, left.used_bytes);
  if (MOST / every * os_page_size < full.resident_bytes / 2) CHECK_COUNT(left.resident_bytes, <, full.resident_bytes);
  for (unsigned i = 0; i < MOST; i += every) tslab_free(blocks[i]);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static void many_stacks(void) {
  static void *blocks[MANY];
  for (uintptr_t i = 0; i < MANY; i++) blocks[i] = sample_from(0x100000 + i * 16, 16);
  const struct profile_totals now = totals();
  CHECK_COUNT(now.sites, <=, PROFILE_SITES);
  CHECK_COUNT(profile_lifespans(), ==, PROFILE_LIFESPANS);
  CHECK(now.bytes < 8 * MiB && now.lost == 0);
  static struct site_row rows[TABLE_SITES_MOST];
  CHECK_COUNT(profile_collect_sites(rows, TABLE_SITES_MOST), <=, TABLE_SITES_MOST);
  CHECK_COUNT(profile_collect_sites(rows, TABLE_SITES_MOST), >, 0);
  for (int i = 0; i < MANY; i++) tslab_free(blocks[i]);
}

static void too_many(void) {
  static void *blocks[PROFILE_SAMPLES + 100];
  const struct profile_totals before = totals();
  const unsigned room = PROFILE_SAMPLES - (unsigned)before.live;
  for (unsigned i = 0; i < room + 100; i++) blocks[i] = sample_from(0x5000, 16);
  CHECK_COUNT(totals().lost, ==, before.lost + 100);
  for (unsigned i = 0; i < room + 100; i++) tslab_free(blocks[i]);
  CHECK_COUNT(totals().live, ==, before.live);
  CHECK(totals().bytes < 8 * MiB);
}

int main(void) {
  tslab_free(tslab_malloc(1));
  CHECK(sampled_start(INTERVAL, true));
  weights();
  for (unsigned class = 0; class < CLASSES; class += 5) class_draws(class);
  for (size_t most = 16; most < 20 * INTERVAL; most = most * 3) byte_draws(most);
  sites();
  by_others();
  large_blocks();
  in_epochs();
  closing();
  lifespans();
  steady();
  replaced();
  spreads();
  many_stacks();
  too_many();
  return 0;
}
