/* drift: threads come and go under a mixed load whose live size does not change; nor may what the process holds.
 *  drift [long]: 20 seconds, or 10 minutes; longer on a slow machine, for what ages a heap is not time.
 *
 *   | warm-up, a half | first half of the readings | second half |           the halves' means differ by 1 % at most
 *
 * The halves are compared by the memory in use and by the resident memory. Committed memory is a maximum: it grows by a
 * step, a sixteenth of it, when blocks that grow find no window of free address space, and never shrinks. The later
 * such a step, the rarer; two of them may come by chance in the second half. Blocks lie in slots that any thread
 * empties and fills, so that most are freed by another thread than took them. The threads of a generation keep step.
 * Otherwise the kernel's schedule decides how many slabs each of them needs. The test reads between two generations of
 * threads, when all unused memory has gone back, so it compares the memory that cannot go back. */
#include "memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
  WORKERS = 4,
  BUSIEST = 8,       /* workers in the first quarter: the busiest time makes all memory writable */
  SLOTS = 40000,     /* of up to 4 KiB: enough that their sum varies by less than a percent */
  LARGE_SLOTS = 12,  /* of up to 512 KiB: a tenth of all bytes */
  LIFE = 8000,       /* operations of one thread */
  REQUEST = 500,     /* one of this many is followed by a request in an epoch of its own */
  READ_EVERY = 2,    /* generations */
  BIRTHS = 150,      /* at least, a second */
  MAPPINGS = 64,     /* fewer than so many in the whole process */
  PERCENT = 1,
  STEPS = 2,         /* of the committed memory */
};

typedef struct { double in_use, committed, resident; } reading; /* bytes, bytes, bytes a live byte */
typedef struct { reading sum; size_t readings; } half;

static _Atomic(void *) small_blocks[SLOTS], large_blocks[LARGE_SLOTS];
static _Atomic uint64_t requests;
static pthread_barrier_t step;

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* As many in each octave. */
static size_t small_size(uint64_t r) { return (size_t)(16 + r % 16) << (r >> 8) % 8; }
static size_t large_size(uint64_t r) { return (64 << 10) + r % (448 << 10); }

static void *filled(size_t size) {
  void *const block = tslab_malloc(size);
  CHECK(block != NULL);
  memset(block, 0x5a, size);
  return block;
}

static void replace(_Atomic(void *) *slot, size_t size, bool grown) {
  void *block = filled(grown ? size / 2 : size);
  if (grown) CHECK((block = tslab_realloc(block, size)) != NULL);
  tslab_free(atomic_exchange(slot, block));
}

static void serve_request(uint64_t *random) {
  void *blocks[20];
  const tslab_epoch request = tslab_epoch_open("request");
  CHECK(request != 0);
  CHECK(tslab_epoch_enter(request) == 0);
  for (int i = 0; i < 20; i++) blocks[i] = filled(small_size(check_random(random)));
  for (int i = 0; i < 20; i++) tslab_free(blocks[i]);
  CHECK(tslab_epoch_leave(request) == 0);
  CHECK(tslab_epoch_close(request, NULL) == 0);
  atomic_fetch_add(&requests, 1);
}

static void *live(void *seed) {
  uint64_t random = (uintptr_t)seed;
  for (int i = 0; i < LIFE; i++) {
    const uint64_t r = check_random(&random);
    if (i % REQUEST == 0) {
      pthread_barrier_wait(&step);
      serve_request(&random);
    }
    if (i % 400 == 0) replace(&large_blocks[r % LARGE_SLOTS], large_size(check_random(&random)), i % 800 == 0);
    replace(&small_blocks[r % SLOTS], small_size(check_random(&random)), i % 8 == 0);
  }
  return NULL;
}

static void live_together(uintptr_t births, uintptr_t number) {
  pthread_t workers[BUSIEST];
  CHECK(pthread_barrier_init(&step, NULL, (unsigned)number) == 0);
  for (uintptr_t i = 0; i < number; i++)
    CHECK(pthread_create(&workers[i], NULL, live, (void *)(births + i + 1)) == 0);
  for (uintptr_t i = 0; i < number; i++) CHECK(pthread_join(workers[i], NULL) == 0);
  pthread_barrier_destroy(&step);
}

static size_t mappings(void) {
  char text[4096];
  size_t lines = 0;
  ssize_t length;
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  while ((length = read(file, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
  close(file);
  return lines;
}

static reading read_now(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  return (reading){.in_use = (double)stats.in_use_bytes,
                   .committed = (double)stats.committed_bytes,
                   .resident = (double)resident_bytes() / (double)stats.live_bytes};
}

static void add(half *to, reading now) {
  to->sum.in_use += now.in_use;
  to->sum.committed += now.committed;
  to->sum.resident += now.resident;
  to->readings++;
}

static bool is_flat(const char *what, double first, double second) {
  const double change = 100 * (second / first - 1);
  printf("%s: %.8g, then %.8g: %+.2f %%\n", what, first, second, change);
  return change <= PERCENT && change >= -PERCENT;
}

static double progress(double of_time, double of_births) { return of_time < of_births ? of_time : of_births; }

int main(int argc, char **argv) {
  const double length = argc > 1 && strcmp(argv[1], "long") == 0 ? 600 : 20;
  half first = {0}, second = {0};
  size_t most_mappings = 0;
  uintptr_t births = 0;
  const double start = seconds();
  for (double at = 0; (at = progress((seconds() - start) / length, (double)births / (BIRTHS * length))) < 1;) {
    const uintptr_t number = at < 0.25 ? BUSIEST : WORKERS;
    for (int i = 0; i < READ_EVERY; i++, births += number) live_together(births, number);
    const size_t lines = mappings();
    if (lines > most_mappings) most_mappings = lines;
    for (int i = 0; i < 2; i++) tslab_purge(); /* the second gives back what the first found at rest */
    if (at >= 0.5) add(at < 0.75 ? &first : &second, read_now());
  }

  printf("%llu threads, %llu requests, %zu + %zu readings, at most %zu mappings\n", (unsigned long long)births,
         (unsigned long long)requests, first.readings, second.readings, most_mappings);
  CHECK(first.readings > 0 && second.readings > 0);
  const double n1 = (double)first.readings, n2 = (double)second.readings;
  const double committed = second.sum.committed / n2 - first.sum.committed / n1;
  const double one_step = second.sum.committed / n2 / 16;
  const bool in_use = is_flat("bytes in use", first.sum.in_use / n1, second.sum.in_use / n2);
  const bool resident = is_flat("resident bytes a live byte", first.sum.resident / n1, second.sum.resident / n2);
  printf("committed bytes: %.8g more, %.2f steps\n", committed, committed / one_step);
  fflush(stdout);
  CHECK(in_use && resident);
  CHECK(committed < STEPS * one_step);
  CHECK_COUNT(most_mappings, <, MAPPINGS);
  for (int i = 0; i < SLOTS; i++) tslab_free(small_blocks[i]);
  for (int i = 0; i < LARGE_SLOTS; i++) tslab_free(large_blocks[i]);
  return 0;
}
