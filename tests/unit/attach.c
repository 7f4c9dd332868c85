/* attach: a table leads from an epoch's slot to the thread's heap, in any order of puts; the slot's last heap counts; a
 * rebuilt table drops stale entries, and its old memory serves the next table. */
#include "unit.h"

#include "epoch/scope.h"
#include "heap/registry.h"
#include "runtime/thread.h"

enum { MANY = 20000 };
static struct attachments table;
static struct heap *heaps[MANY + 1];

/* Slots of epochs that never began, with heaps that the calling thread has. */
static void make(unsigned count) {
  for (unsigned i = 1; i <= count; i++) {
    struct arena *arena = arena_make();
    CHECK(arena != NULL && arena->index == i);
    CHECK((heaps[i] = heap_take_blank(arena)) != NULL);
  }
}

static void put(uint32_t slot, struct heap *heap) {
  CHECK(attach_make_room(&table, current_thread));
  attach_put(&table, slot, heap);
}

static void check_has(unsigned from, unsigned to) {
  for (unsigned i = from; i <= to; i++) CHECK(attach_find(&table, i) == heaps[i]);
}

static void grows(void) {
  attach_start(&table);
  CHECK(attach_find(&table, 1) == NULL);
  for (unsigned i = 1; i <= MANY; i++) put(i, heaps[i]);
  CHECK_COUNT(table.used, ==, MANY);
  CHECK_COUNT((uint64_t)1 << table.log, <=, 4 * MANY);
  check_has(1, MANY);
  CHECK(attach_find(&table, MANY + 1) == NULL);
}

static void replaces(void) {
  put(7, heaps[8]);
  CHECK(attach_find(&table, 7) == heaps[8]);
  put(7, heaps[7]);
  CHECK_COUNT(table.used, ==, MANY);
}

/* Heaps that belong to other threads by now do not stay in the table. */
static void rebuilds(void) {
  attach_end(&table);
  for (unsigned i = 1; i <= 100; i++) put(i, heaps[i]);
  const uint32_t before = table.log;
  for (unsigned i = 11; i <= 100; i++) heaps[i]->thread = NULL;
  for (unsigned i = 101; table.log >= before; i++) {
    CHECK(i < 1000);
    put(i, heaps[i]);
    heaps[i]->thread = NULL;
  }
  check_has(1, 10);
  CHECK(attach_find(&table, 11) == NULL);
  CHECK_COUNT(table.log, ==, ATTACH_FIRST_LOG);
}

/* Each rebuild uses the same memory again. */
static void serves_again(void) {
  attach_end(&table);
  const size_t committed = pages_totals().committed;
  for (unsigned round = 0; round < 100; round++) {
    for (unsigned i = 1; i <= 1000; i++) {
      heaps[i]->thread = current_thread;
      put(i, heaps[i]);
    }
    check_has(1, 1000);
    attach_end(&table);
  }
  CHECK_COUNT(pages_totals().committed, <=, committed + 2 * GRANULE);
  pages_check();
}

int main(void) {
  CHECK(thread_own_heap() != NULL && current_thread != NULL);
  make(MANY);
  grows();
  replaces();
  attach_end(&table);
  CHECK_COUNT(table.used, ==, 0);
  rebuilds();
  serves_again();
  return 0;
}
