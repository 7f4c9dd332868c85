/* TSLAB_ON_DESTROY=trap: whoever uses a block after its epoch was destroyed dies there, and is told whose it was. */
#include "../epochs.h"
#include "misuse.h"

#include <signal.h>

static char *late(size_t size, size_t offset) {
  const tslab_epoch e = open_epoch("a request", TSLAB_EPOCH_DESTROYABLE), other = open_epoch("other", 0);
  char *kept = block_in(other, 100), *block = block_in(e, size);
  for (int i = 0; i < 3000; i++) block_in(e, 100);
  culprit(block + offset);
  CHECK_COUNT(tslab_epoch_destroy(e, NULL), ==, 0);
  check_stale(e);
  /* Nobody gets that memory, and all other blocks are as good as ever. */
  for (size_t i = 0; i < 3000; i++) CHECK((uintptr_t)block_in(other, i) - (uintptr_t)block >= size);
  CHECK(kept[99] == 0x5C);
  return block + offset;
}

static void read_at(const volatile char *p) { dprintf(1, "%d\n", *p); }
static void write_at(volatile char *p) { *p = 1; }

static void small_read(void) { read_at(late(100, 0)); }
static void small_written(void) { write_at(late(100, 50)); }
static void medium_read(void) { read_at(late(20000, 19999)); }
static void large_read(void) { read_at(late(3 << 20, 2 << 20)); }
static void freed(void) { tslab_free(late(100, 0)); }

static void *reads(void *p) {
  read_at(p);
  return p;
}
static void read_elsewhere(void) { elsewhere(reads, late(100, 0)); }

/* Faults that are none of ours. */
static void null_pointer(void) {
  char *volatile nowhere = NULL;
  late(100, 0);
  read_at(nowhere);
}

/* A close leaves blocks valid in this mode too. */
static void closed(void) {
  const tslab_epoch e = open_epoch("closed", TSLAB_EPOCH_DESTROYABLE);
  char *block = block_in(e, 100);
  CHECK_COUNT(tslab_epoch_close(e, NULL), ==, 0);
  CHECK(block[99] == 0x5C);
  tslab_free(block);
  check_stale(e);
}

#define LATE "tslab: use of 0xADDR after destroy of epoch * \"a request\"\n"
#define TRAP "TSLAB_ON_DESTROY=trap"

const struct misuse_case misuse_cases[] = {
    {"small_read", small_read, LATE, TRAP, SIGSEGV},
    {"small_written", small_written, LATE, TRAP, SIGSEGV},
    {"medium_read", medium_read, LATE, TRAP, SIGSEGV},
    {"large_read", large_read, LATE, TRAP, SIGSEGV},
    {"read_elsewhere", read_elsewhere, LATE, TRAP, SIGSEGV},
    {"freed", freed, "tslab: *free of *0xADDR*\n", TRAP, SIGABRT},
    {"null_pointer", null_pointer, "", TRAP, SIGSEGV},
    {"closed", closed, "", TRAP, 0},
    {0},
};
