/* limit_repeats: a program sets a limit of its addresses or its data again and again, and in between it allocates and
 * frees most of what the limit allows. Each block can be had. If the program maps something at such an address
 * meanwhile, its contents stay. */
#include "each_limit.h"

#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

enum { ROUNDS = 600 };

static void limit_to(int resource, size_t bytes) {
  const struct rlimit limit = {bytes, RLIM_INFINITY};
  CHECK(setrlimit(resource, &limit) == 0);
}

static void repeat(int resource, size_t peak, size_t limit) {
  for (int i = 0; i < ROUNDS; i++) {
    unsigned char *volatile block = calloc(1, peak);
    CHECK(block != NULL && block[0] == 0 && block[peak / 2] == 0 && block[peak - 1] == 0);
    block[0] = block[peak / 2] = block[peak - 1] = 1;
    free(block);
    limit_to(resource, limit);
    void *volatile small = malloc(100000 + 1000 * (size_t)(i % 100));
    CHECK(small != NULL);
    free(small);
  }
}

static void map_among_blocks(int resource, size_t peak, size_t limit) {
  unsigned char *volatile block = malloc(peak);
  CHECK(block != NULL);
  unsigned char *const middle = (unsigned char *)(((uintptr_t)block + peak / 2) / 65536 * 65536);
  free(block);
  limit_to(resource, limit);
  unsigned char *const mapped = mmap(middle, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped == middle); /* free memory is unmapped */
  memset(mapped, 7, 65536);
  for (int i = 0; i < 10; i++) {
    block = malloc(peak);
    CHECK(block != NULL);
    for (size_t at = 0; at < peak; at += 65536) block[at] = 1;
    free(block);
    limit_to(resource, limit);
  }
  for (size_t i = 0; i < 65536; i++) CHECK(mapped[i] == 7);
}

/* Half of what the block needs is unmapped, the other half is free and mapped. */
static void join_halves(int resource, size_t peak, size_t limit) {
  char *volatile halves[2];
  for (int i = 0; i < 2; i++) {
    CHECK((halves[i] = malloc(peak / 2)) != NULL);
    memset(halves[i], 1, peak / 2);
  }
  free(halves[0]);
  limit_to(resource, limit);
  free(halves[1]);
  char *volatile block = malloc(peak);
  CHECK(block != NULL);
  free(block);
}

static int under(int resource) {
  unsigned char *const kept = memset(malloc(2 * MIB), 9, 2 * MIB);
  repeat(resource, 64 * MIB, 100 * MIB);
  map_among_blocks(resource, 64 * MIB, 100 * MIB);
  repeat(resource, 40 * MIB, 100 * MIB);
  for (int i = 0; i < 10; i++) join_halves(resource, 64 * MIB, 100 * MIB);
  for (size_t i = 0; i < 2 * MIB; i++) CHECK(kept[i] == 9);
  free(kept);
  return 0;
}

int main(void) { return under_each_limit(under); }
