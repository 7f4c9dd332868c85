/* api_sparse: a program may touch a page here and there of a tebibyte of blocks. The resident memory follows the number
 * of blocks, not that of addresses; small blocks and epochs far up in the address space work; and all of it goes
 * back. */
#include "../epochs.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 1024, SKIPPED = 77, SMALL = 2000, BLOCK_KIB = 24, REST_KIB = 4096 };
#define BLOCK ((size_t)1 << 30)

static size_t resident_kib(void) {
  size_t pages = 0, resident = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  CHECK(statm && fscanf(statm, "%zu %zu", &pages, &resident) == 2);
  fclose(statm);
  return resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

/* The first, a middle and the last byte; the pages between stay untouched. */
static const size_t touched[] = {0, BLOCK / 3, BLOCK - 1};

static void touch(char *block, int number) {
  for (size_t i = 0; i < 3; i++) {
    CHECK_COUNT(block[touched[i]], ==, 0); /* fresh memory */
    block[touched[i]] = (char)(number + 1);
  }
}

static void check_touched(const char *block, int number) {
  for (size_t i = 0; i < 3; i++) CHECK_COUNT(block[touched[i]], ==, (char)(number + 1));
}

/* The tables of slabs, chunks and quarters reach as far up as these blocks lie. */
static void small_blocks_beyond(void) {
  static void *blocks[SMALL];
  const tslab_epoch e = open_epoch("far up", TSLAB_EPOCH_DESTROYABLE);
  for (int i = 0; i < SMALL; i++) blocks[i] = i % 2 ? block_in(e, (size_t)i) : block_here((size_t)i);
  for (int i = 0; i < SMALL; i++) {
    CHECK_COUNT(tslab_epoch_of(blocks[i]), ==, (i % 2 ? e : TSLAB_EPOCH_DEFAULT));
    if (i % 2 == 0) tslab_free(blocks[i]);
  }
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
}

/* A machine may have fewer addresses, and vm.overcommit_memory or ulimit -v may forbid so many. */
static bool kernel_gives_as_much(void) {
  const size_t length = (BLOCKS + 64) * BLOCK;
  void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  munmap(at, length);
  return true;
}

int main(void) {
  static char *blocks[BLOCKS];
  if (SANITIZED || !kernel_gives_as_much()) {
    puts("skipped: a sanitizer's shadow lies where the heap would grow, or the kernel gives no tebibyte of addresses");
    return SKIPPED;
  }
  const size_t before = resident_kib();
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = tslab_malloc(BLOCK)) != NULL);
    touch(blocks[i], i);
  }
  small_blocks_beyond();
  CHECK_COUNT(resident_kib() - before, <=, (size_t)BLOCKS * BLOCK_KIB + REST_KIB);
  for (int i = 0; i < BLOCKS; i++) check_touched(blocks[i], i);
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  tslab_purge();
  printf("resident: %zu KiB before, %zu afterwards\n", before, resident_kib());
  CHECK_COUNT(resident_kib() - before, <=, (size_t)BLOCKS * 8 + REST_KIB);
  small_blocks_beyond();
  return 0;
}
