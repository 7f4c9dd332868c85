/* limit_realloc: under a limit of addresses or data, realloc moves a block that leaves no room for a second one of its
 * size, as libc's does. Its contents stay whole also where threads map memory and allocate beside it, and where realloc
 * fails. */
#include "each_limit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define MIB   ((size_t)1 << 20)
#define LIMIT (700 * MIB)

enum { STEP = 65536, TURNS = 10, BEHIND = 8 };

static void fill(unsigned char *block, size_t size, unsigned seed) {
  for (size_t at = 0; at < size; at += STEP) block[at] = (unsigned char)(seed + at / STEP);
}

static void check(const unsigned char *block, size_t size, unsigned seed) {
  for (size_t at = 0; at < size; at += STEP) CHECK_COUNT(block[at], ==, (unsigned char)(seed + at / STEP));
}

/* Puts blocks behind the one that grows, so that it must move. */
static void stand_behind(void *behind[BEHIND]) {
  for (int i = 0; i < BEHIND; i++) CHECK((behind[i] = malloc(MIB)) != NULL);
}

static void free_all(void *behind[BEHIND]) {
  for (int i = 0; i < BEHIND; i++) free(behind[i]);
}

static unsigned char *grow_by_moves(void) {
  unsigned char *block = malloc(300 * MIB);
  CHECK(block != NULL);
  fill(block, 300 * MIB, 0);
  for (size_t size = 300 * MIB; size < 540 * MIB; size += 60 * MIB) {
    void *behind[BEHIND];
    stand_behind(behind);
    CHECK((block = realloc(block, size + 60 * MIB)) != NULL);
    check(block, size, 0);
    fill(block, size + 60 * MIB, 0);
    free_all(behind);
  }
  return block;
}

/* The place that a block left serves again. */
static void use_again(unsigned char *block) {
  CHECK((block = realloc(block, 100 * MIB)) != NULL);
  check(block, 100 * MIB, 0);
  void *const other = malloc(400 * MIB);
  CHECK(other != NULL);
  fill(other, 400 * MIB, 1);
  check(block, 100 * MIB, 0);
  free(other);
  free(block);
}

static _Atomic bool is_over;

static void *map_beside(void *unused) {
  while (!atomic_load(&is_over)) {
    void *const mapped = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) continue;
    memset(mapped, 5, STEP);
    for (size_t i = 0; i < STEP; i++) CHECK_COUNT(((unsigned char *)mapped)[i], ==, 5);
    munmap(mapped, 3 * MIB);
  }
  return unused;
}

static void *allocate_beside(void *unused) {
  while (!atomic_load(&is_over)) {
    unsigned char *const block = malloc(2 * MIB);
    if (!block) continue;
    fill(block, 2 * MIB, 9);
    check(block, 2 * MIB, 9);
    free(block);
  }
  return unused;
}

static void move_beside_others(void) {
  pthread_t threads[2];
  CHECK(pthread_create(&threads[0], NULL, map_beside, NULL) == 0);
  CHECK(pthread_create(&threads[1], NULL, allocate_beside, NULL) == 0);
  unsigned done = 0;
  for (unsigned turn = 0; turn < TURNS; turn++) {
    unsigned char *block = malloc(300 * MIB);
    if (!block) continue;
    fill(block, 300 * MIB, turn);
    void *behind[BEHIND];
    for (int i = 0; i < BEHIND; i++) behind[i] = malloc(MIB);
    unsigned char *const moved = realloc(block, (340 + turn) * MIB);
    done += moved != NULL;
    check(moved ? moved : block, 300 * MIB, turn);
    free(moved ? moved : block);
    free_all(behind);
  }
  atomic_store(&is_over, true);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(done, >, TURNS / 2);
}

static int under(int resource) {
  CHECK(setrlimit(resource, &(struct rlimit){LIMIT, LIMIT}) == 0);
  use_again(grow_by_moves());
  move_beside_others();
  return 0;
}

int main(void) { return under_each_limit(under); }
