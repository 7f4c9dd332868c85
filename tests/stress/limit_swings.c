/* limit_swings: a limit of addresses or data falls below what is in use, and rises, while threads let buffers grow. A
 * realloc may fail meanwhile. The contents stay whole. */
#include "each_limit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define MIB ((size_t)1 << 20)
#define LOW (10 * MIB)

enum { THREADS = 3, STEP = 4096, SWINGS = 400, BUFFERS = 12 };

static _Atomic bool is_over;

static void fill(unsigned char *block, size_t from, size_t size, unsigned seed) {
  for (size_t at = from; at < size; at += STEP) block[at] = (unsigned char)(seed + at / STEP);
}

static void check(const unsigned char *block, size_t size, unsigned seed) {
  for (size_t at = 0; at < size; at += STEP) CHECK_COUNT(block[at], ==, (unsigned char)(seed + at / STEP));
}

static void grow_one(unsigned seed) {
  size_t size = MIB;
  unsigned char *block = malloc(size);
  if (!block) return;
  fill(block, 0, size, seed);
  for (int i = 0; i < BUFFERS; i++) {
    const size_t more = size / 2 / STEP * STEP + seed % 25 * STEP;
    unsigned char *const grown = size < 12 * MIB ? realloc(block, size + more) : NULL;
    check(grown ? grown : block, size, seed);
    if (!grown) continue;
    block = grown;
    fill(block, size, size + more, seed);
    size += more;
  }
  free(block);
}

static void *grow(void *first_seed) {
  for (unsigned seed = (unsigned)(uintptr_t)first_seed; !atomic_load(&is_over); seed++) grow_one(seed);
  return NULL;
}

/* As the program itself, and as somebody outside. */
static void set_limit(int resource, size_t bytes, bool from_outside) {
  const struct rlimit limit = {bytes, RLIM_INFINITY};
  if (from_outside) CHECK(syscall(SYS_prlimit64, getpid(), resource, &limit, NULL) == 0);
  else CHECK(setrlimit(resource, &limit) == 0);
}

static int under(int resource) {
  pthread_t threads[THREADS];
  struct rlimit before;
  CHECK(getrlimit(resource, &before) == 0);
  if (before.rlim_max != RLIM_INFINITY) return SKIPPED;
  for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, grow, (void *)(i * 100)) == 0);
  for (unsigned i = 0; i < SWINGS; i++) {
    set_limit(resource, LOW, i % 2);
    usleep(i % 7 * 40);
    set_limit(resource, RLIM_INFINITY, i % 2);
    usleep(i % 11 * 150);
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  grow_one(1);
  return 0;
}

int main(void) { return under_each_limit(under); }
