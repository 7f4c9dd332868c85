/* shadow.c: see shadow.h.
 *
 *   address = table 15 | granule 16 | cell 6 | bit 6 | offset 4        a cell is 64 bits: 1 KiB of address space
 *   tenant  = tag 44 | live blocks 20                                  of a quarter of one, where the test tells epochs
 *                                                                      apart: the least that a chunk is
 *
 * Every access is relaxed on purpose: an ordering here would hide from ThreadSanitizer one that the allocator lacks. */
#include "shadow.h"

#include "../check.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum { CELLS = 64, GRANULE = 65536, QUARTERS = 4, QUARTER = GRANULE / QUARTERS };
typedef _Atomic uint64_t cells[CELLS], quarters[QUARTERS];
static _Atomic(void *) tables[1 << 15];  /* of 65,536 granules each; a table is 32 MiB of which little is touched */
static _Atomic(void *) tenants[1 << 15]; /* the same, a word for each quarter */

/* Returns the entry of `address`'s granule in `level`, whose tables have entries of `size` bytes. */
static void *entry_of(_Atomic(void *) *level, size_t size, uintptr_t address) {
  CHECK(address < (uintptr_t)1 << 47);
  _Atomic(void *) *const slot = &level[address >> 32];
  void *table = atomic_load_explicit(slot, memory_order_acquire); /* pairs with the release below */
  if (!table) {
    const size_t bytes = size << 16;
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(fresh != MAP_FAILED);
    if (atomic_compare_exchange_strong_explicit(slot, &table, fresh, memory_order_acq_rel, memory_order_acquire))
      table = fresh;
    else
      munmap(fresh, bytes);
  }
  return (char *)table + ((address >> 16) & 0xffff) * size;
}

/* Flips the bits of [block, block + usable). Returns true if all of them were `from`. */
static bool flip(const void *block, size_t usable, int from) {
  uintptr_t address = (uintptr_t)block;
  const uintptr_t end = address + usable;
  CHECK(address % 16 == 0);
  while (address < end) {
    const uintptr_t cell_end = (address | 1023) + 1, stop = cell_end < end ? cell_end : end;
    const unsigned first = address / 16 % 64, count = (unsigned)((stop - address + 15) / 16);
    const uint64_t mask = (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << first;
    _Atomic uint64_t *const cell = &(*(cells *)entry_of(tables, sizeof(cells), address))[address / 1024 % CELLS];
    const uint64_t before = from ? atomic_fetch_and_explicit(cell, ~mask, memory_order_relaxed)
                                 : atomic_fetch_or_explicit(cell, mask, memory_order_relaxed);
    if ((before & mask) != (from ? mask : 0)) return false;
    address = stop;
  }
  return true;
}

void shadow_claim(const void *block, size_t usable) { CHECK(flip(block, usable, 0)); }
void shadow_release(const void *block, size_t usable) { CHECK(flip(block, usable, 1)); }

/* Adds `blocks`, 1 or -1, to what each quarter of a granule that the block lies in holds; false when that holds blocks
 * of another tag. */
static bool move_in(const void *block, size_t usable, uint64_t tag, int blocks) {
  enum { COUNT_BITS = 20 };
  uintptr_t quarter = (uintptr_t)block / QUARTER * QUARTER;
  for (; quarter <= (uintptr_t)block + (usable ? usable - 1 : 0); quarter += QUARTER) {
    _Atomic uint64_t *const tenant =
        &(*(quarters *)entry_of(tenants, sizeof(quarters), quarter))[quarter / QUARTER % QUARTERS];
    uint64_t old = atomic_load_explicit(tenant, memory_order_relaxed), new;
    do {
      const uint64_t count = old & ((1 << COUNT_BITS) - 1);
      if (count ? old >> COUNT_BITS != tag : blocks < 0) return false;
      new = tag << COUNT_BITS | (count + (uint64_t)blocks);
    } while (!atomic_compare_exchange_weak_explicit(tenant, &old, new, memory_order_relaxed, memory_order_relaxed));
  }
  return true;
}

bool shadow_claim_in(const void *block, size_t usable, uint64_t tag) {
  return flip(block, usable, 0) && move_in(block, usable, tag, 1);
}

bool shadow_release_in(const void *block, size_t usable, uint64_t tag) {
  return flip(block, usable, 1) && move_in(block, usable, tag, -1);
}

static size_t resident_in(uintptr_t granule) {
  unsigned char pages[GRANULE / 4096];
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t bytes = 0;
  if (mincore((void *)granule, GRANULE, pages) != 0) return 0; /* unmapped */
  for (size_t i = 0; i < GRANULE / page; i++) bytes += pages[i] & 1 ? page : 0;
  return bytes;
}

/* Counts a granule if the page of its cells was touched. A neighbour on the same page adds a little and hides
 * nothing. */
size_t shadow_resident(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), granules_a_page = page / sizeof(cells);
  size_t bytes = 0;
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    char *const table = (char *)atomic_load_explicit(&tables[t], memory_order_acquire);
    if (!table) continue;
    for (size_t i = 0; i < 65536 / granules_a_page; i++) {
      unsigned char touched = 0;
      CHECK(mincore(table + i * page, page, &touched) == 0);
      for (size_t j = 0; (touched & 1) && j < granules_a_page; j++)
        bytes += resident_in(((uintptr_t)t << 32) + ((i * granules_a_page + j) << 16));
    }
  }
  return bytes;
}
