/* pace: an automatic profile begins in a heap of 64 MiB and no smaller one, and under no limit. Its interval doubles
 * while the process takes many samples a second, halves again, and stays within its bounds. An interval that someone
 * set stays. The test says what time it is. */
#include "../check.h"
#include "stats/pace.h"

#include "heap/heap.h"
#include "heap/profile.h"
#include "os/os.h"
#include "tslab/tslab.h"
#include <errno.h>

#define SECOND_NS UINT64_C(1000000000)

static uint64_t now;

static void look_after(uint64_t ns) {
  now += ns;
  pace_look(now);
}

static uint64_t samples_so_far(void) {
  lock_take(&profile_lock);
  const uint64_t samples = profile_totals().samples;
  lock_release(&profile_lock);
  return samples;
}

/* No page of so large a block becomes resident. It may be as large as the machine's memory, and no larger. */
static void take_samples(unsigned count) {
  const size_t size = min_size(64 * pace_interval_bytes(), os_physical_memory() / 2);
  for (const uint64_t wanted = samples_so_far() + count; samples_so_far() < wanted;) {
    void *volatile block = tslab_malloc(size);
    CHECK(block != NULL);
    tslab_free(block);
  }
}

static void expect_after(unsigned samples, uint64_t ns, size_t interval) {
  take_samples(samples);
  look_after(ns);
  CHECK_COUNT(pace_interval_bytes(), ==, interval);
}

static void begins_in_a_large_heap(void) {
  CHECK(pace_is_automatic());
  look_after(SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, 0);
  void *volatile block = tslab_malloc(PACE_HELD);
  CHECK(tslab_memory_limit(2 * PACE_HELD, 0) == 0); /* the profile's tables would count in it */
  look_after(SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, 0);
  CHECK(tslab_memory_limit(0, 0) == 0);
  look_after(SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, PACE_LEAST);
  tslab_free(block);
}

static void follows_the_rate(void) {
  expect_after(PACE_SAMPLES, SECOND_NS, PACE_LEAST);
  expect_after(PACE_SAMPLES + 1, SECOND_NS, 2 * PACE_LEAST);
  expect_after(PACE_SAMPLES + 1, SECOND_NS, 4 * PACE_LEAST);
  expect_after(PACE_SAMPLES / 4, SECOND_NS, 4 * PACE_LEAST);
  expect_after(PACE_SAMPLES / 4, SECOND_NS + SECOND_NS / 10, 2 * PACE_LEAST);
  expect_after(PACE_SAMPLES + 1, SECOND_NS / 20, 2 * PACE_LEAST); /* too early to judge; the samples count later */
  expect_after(0, SECOND_NS / 2, 4 * PACE_LEAST);
  for (int i = 0; i < 3; i++) look_after(SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, PACE_LEAST);
  const size_t most = os_has_sanitizer() ? 4 * PACE_LEAST : PROFILE_MOST_BYTES; /* a shadow leaves little room */
  for (size_t next = 2 * PACE_LEAST; next <= most; next *= 2) expect_after(PACE_SAMPLES / 8, SECOND_NS / 9, next);
  if (most == PROFILE_MOST_BYTES) expect_after(PACE_SAMPLES / 8, SECOND_NS / 9, most);
  CHECK_COUNT(pace_interval_bytes(), ==, most);
}

static void leaves_what_someone_set(void) {
  size_t before;
  CHECK(tslab_profile_interval(512 * KiB, &before) == 0 && before >= 4 * PACE_LEAST && !pace_is_automatic());
  expect_after(4 * PACE_SAMPLES, SECOND_NS, 512 * KiB);
  look_after(100 * SECOND_NS);
  CHECK(tslab_profile_interval(0, &before) == 0 && before == 512 * KiB);
  void *volatile block = tslab_malloc(PACE_HELD);
  look_after(SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, 0);
  CHECK(tslab_profile_interval(TSLAB_PROFILE_AUTO - 1, NULL) == ERANGE && !pace_is_automatic());
  CHECK(tslab_profile_interval(TSLAB_PROFILE_AUTO, &before) == 0 && before == 0 && pace_is_automatic());
  look_after(SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, PACE_LEAST);
  tslab_free(block);
  CHECK(tslab_profile_interval(512 * KiB, NULL) == 0 && tslab_profile_interval(TSLAB_PROFILE_AUTO, NULL) == 0);
  CHECK_COUNT(pace_interval_bytes(), ==, 512 * KiB); /* until a look finds few samples */
  now = os_now_coarse_ns(); /* that call's time */
  look_after(2 * SECOND_NS);
  CHECK_COUNT(pace_interval_bytes(), ==, PACE_LEAST);
}

/* A free of a chunk's last block would take the slow path for a profile that nobody asked for. */
static void leaves_chunks_alone(void) {
  const tslab_epoch epoch = tslab_epoch_open("request");
  CHECK(tslab_epoch_enter(epoch) == 0);
  tslab_free(tslab_malloc(100));
  CHECK_COUNT(current_heap->bump.turns, >, 1);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
}

int main(void) {
  if (tslab_profile_interval(0, NULL) == ENOTSUP) return 0; /* built without telemetry */
  CHECK(tslab_profile_interval(TSLAB_PROFILE_AUTO, NULL) == 0);
  now = os_now_coarse_ns();
  begins_in_a_large_heap();
  leaves_chunks_alone();
  follows_the_rate();
  leaves_what_someone_set();
  return 0;
}
