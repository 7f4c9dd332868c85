/* timing: times fall into the right buckets; the ring keeps the newest samples; sums agree with each other. The test
   compiles the module in once more, because it tests the module's static functions too. */
#include "sampling.h"

#include "heap/timing.c"

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

/* The first bucket whose bound is not below, found by a plain search. */
static unsigned bucket_by_bounds(uint64_t ns) {
  unsigned bucket = 0;
  while (ns > tslab_bucket_ns(bucket)) bucket++;
  return bucket;
}

static void buckets(void) {
  CHECK_COUNT(tslab_bucket_ns(0), ==, 8);
  CHECK_COUNT(tslab_bucket_ns(TSLAB_BUCKETS - 1), ==, UINT64_MAX);
  CHECK_COUNT(tslab_bucket_ns(UINT_MAX), ==, UINT64_MAX);
  for (unsigned i = 1; i < TSLAB_BUCKETS; i++) CHECK_COUNT(tslab_bucket_ns(i), >, tslab_bucket_ns(i - 1));
  for (uint64_t ns = 0; ns < 100000; ns++) CHECK_COUNT(bucket_of(ns), ==, bucket_by_bounds(ns));
  for (unsigned power = 0; power < 64; power++)
    for (int beside = -2; beside <= 2; beside++) {
      const uint64_t ns = ((uint64_t)1 << power) + (uint64_t)beside;
      CHECK_COUNT(bucket_of(ns), ==, bucket_by_bounds(ns));
    }
  for (unsigned i = 0; i + 1 < TSLAB_BUCKETS; i++)
    for (int beside = -2; beside <= 2; beside++) {
      const uint64_t ns = tslab_bucket_ns(i) + (uint64_t)beside;
      CHECK_COUNT(bucket_of(ns), ==, bucket_by_bounds(ns));
    }
  CHECK_COUNT(bucket_of(UINT64_MAX), ==, BUCKETS - 1);
}

/* ---- what a sample says ------------------------------------------------------------------------------------------ */

static uint64_t check_ring(uint64_t seen) {
  static struct sample copy[SAMPLES_KEPT + 1];
  const size_t count = samples_copy(copy, SAMPLES_KEPT + 1);
  const uint64_t taken = ring.taken;
  CHECK_COUNT(count, ==, taken < SAMPLES_KEPT ? taken : SAMPLES_KEPT);
  for (size_t i = 0; i < count; i++) {
    const struct sample *const s = &copy[i];
    CHECK_COUNT(s->number, ==, taken - count + 1 + i); /* the newest samples, oldest first, each once */
    CHECK(s->path < PATHS_OF_MALLOC && s->usable >= s->requested && s->thread_id == os_thread_id());
    CHECK(s->label == SAMPLE_NO_LABEL || s->label < labels_made());
    if (s->cpu_ns != SAMPLE_NO_CPU) CHECK_COUNT(s->cpu_ns, <=, s->wall_ns);
    CHECK_COUNT(s->lock_wait_ns, <=, s->wall_ns);
    if (s->number > seen && i > 0 && s->path == PATH_FAST && s[-1].path == PATH_FAST)
      CHECK_COUNT(s->at_ns, >=, s[-1].at_ns);
  }
  CHECK_COUNT(samples_copy(copy, 3), ==, count < 3 ? count : 3);
  if (count >= 3) CHECK_COUNT(copy[2].number, ==, taken);
  CHECK_COUNT(samples_copy(copy, 0), ==, 0);
  return taken;
}

/* With the whole time of the thread, as a sum over every sample that may have it. */
static void kept(void) {
  static void *blocks[3000];
  begin(16, 1);
  uint64_t seen = 0;
  CHECK_COUNT(samples_of_paths(), ==, ring.taken);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < 3000; i++) CHECK((blocks[i] = tslab_malloc((unsigned)(i * 7) % 40000)) != NULL);
    for (int i = 0; i < 3000; i++) tslab_free(blocks[i]);
    CHECK_COUNT(samples_of_paths(), ==, ring.taken);
    seen = check_ring(seen);
  }
  CHECK_COUNT(seen, >, SAMPLES_KEPT);
  uint64_t with_cpu = 0;
  for (enum path path = 0; path < PATHS; path++) {
    tslab_path_stats p;
    CHECK(tslab_stats_path(path, &p, sizeof p) == 0);
    CHECK_COUNT(p.cpu_ns_sum, <=, p.cpu_wall_ns_sum);
    CHECK_COUNT(p.cpu_ns_sum + p.wait_ns_sum, ==, p.cpu_wall_ns_sum);
    CHECK_COUNT(p.cpu_wall_ns_sum, <=, p.sampled_wall_ns_sum);
    CHECK_COUNT(p.cpu_samples, <=, p.samples);
    CHECK_COUNT(p.sampled_wall_ns_sum, <=, p.wall_ns_sum);
    CHECK_COUNT(p.wall_ns_max, <=, p.wall_ns_sum);
    with_cpu += p.cpu_samples;
  }
  tslab_thread_stats thread;
  CHECK(tslab_stats_thread(&thread, sizeof thread) == 0);
  CHECK_COUNT(thread.alloc_samples, ==, seen);
  CHECK_COUNT(thread.alloc_cpu_samples, ==, with_cpu);
  CHECK_COUNT(thread.alloc_cpu_ns_sum, <=, thread.alloc_wall_ns_sum);
}

int main(void) {
  os_start();
  ticks_start();
  buckets();
  CHECK(in_child(kept) == 0);
  return 0;
}
