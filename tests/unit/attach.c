/* attach: a table leads from an epoch's slot to the thread's part, whatever was put first; the slot's last part counts;
 * what is stale goes when the table is built anew, whose memory serves the next one. */
#include "unit.h"

#include "epoch/scope.h"
#include "front/front.h"

enum { MANY = 20000 };
static struct attachments table;
static struct part *parts[MANY + 1];

/* Slots of epochs that never began, with parts that the calling thread has. */
static void make(unsigned count) {
  for (unsigned i = 1; i <= count; i++) {
    struct lifetime *lifetime = lifetime_make();
    CHECK(lifetime != NULL && lifetime->index == i);
    CHECK((parts[i] = part_take_blank(lifetime)) != NULL);
  }
}

static void put(uint32_t slot, struct part *part) {
  CHECK(attach_make_room(&table, current_thread));
  attach_put(&table, slot, part);
}

static void check_has(unsigned from, unsigned to) {
  for (unsigned i = from; i <= to; i++) CHECK(attach_find(&table, i) == parts[i]);
}

static void grows(void) {
  attach_start(&table);
  CHECK(attach_find(&table, 1) == NULL);
  for (unsigned i = 1; i <= MANY; i++) put(i, parts[i]);
  CHECK_COUNT(table.used, ==, MANY);
  CHECK_COUNT((uint64_t)1 << table.log, <=, 4 * MANY);
  check_has(1, MANY);
  CHECK(attach_find(&table, MANY + 1) == NULL);
}

static void replaces(void) {
  put(7, parts[8]);
  CHECK(attach_find(&table, 7) == parts[8]);
  put(7, parts[7]);
  CHECK_COUNT(table.used, ==, MANY);
}

/* Parts that others have by now do not stay in it. */
static void rebuilds(void) {
  attach_end(&table);
  for (unsigned i = 1; i <= 100; i++) put(i, parts[i]);
  const uint32_t before = table.log;
  for (unsigned i = 11; i <= 100; i++) parts[i]->thread = NULL;
  for (unsigned i = 101; table.log >= before; i++) {
    CHECK(i < 1000);
    put(i, parts[i]);
    parts[i]->thread = NULL;
  }
  check_has(1, 10);
  CHECK(attach_find(&table, 11) == NULL);
  CHECK_COUNT(table.log, ==, ATTACH_FIRST_LOG);
}

/* The same memory again and again. */
static void serves_again(void) {
  attach_end(&table);
  const size_t committed = pages_totals().committed;
  for (unsigned round = 0; round < 100; round++) {
    for (unsigned i = 1; i <= 1000; i++) {
      parts[i]->thread = current_thread;
      put(i, parts[i]);
    }
    check_has(1, 1000);
    attach_end(&table);
  }
  CHECK_COUNT(pages_totals().committed, <=, committed + 2 * GRANULE);
  pages_check();
}

int main(void) {
  CHECK(front_part() != NULL && current_thread != NULL);
  make(MANY);
  grows();
  replaces();
  attach_end(&table);
  CHECK_COUNT(table.used, ==, 0);
  rebuilds();
  serves_again();
  return 0;
}
