/* prefault_close: a close of the parent ends a child epoch that is still getting its prefaulted memory. The slot's next
 * epoch has no charges. */
#include "unit.h"

#include "epoch/epoch.h"
#include "os/lock.h"
#include <pthread.h>
#include <sched.h>

enum { PREFAULT = 65536 };

static tslab_epoch parent, child;

static void *open_child(void *unused) {
  const tslab_epoch_options wanted = {
      .struct_size = sizeof wanted, .label = "child", .parent = parent, .prefault_bytes = PREFAULT};
  child = tslab_epoch_open_with(&wanted);
  return unused;
}

/* A budget keeps its slot from being a cached epoch. */
static tslab_epoch open_plain(void) {
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "parent", .budget_bytes = 1 << 30};
  const tslab_epoch opened = tslab_epoch_open_with(&wanted);
  CHECK(opened != 0);
  return opened;
}

static bool waits_for_gate(void) {
  for (int i = 0; i < EPOCH_GATES; i++)
    if (atomic_load(&epoch_gates[i].lock.word) % 2 == 1) return true;
  return false;
}

int main(void) {
  pthread_t thread;
  tslab_epoch_status status;
  parent = open_plain();
  const tslab_epoch first = open_plain();
  const uint32_t slot = epoch_index(first);
  CHECK(tslab_epoch_close(first, NULL) == 0);
  for (int i = 0; i < EPOCH_GATES; i++) lock_take(&epoch_gates[i].lock); /* between its opening and its first memory */
  CHECK(pthread_create(&thread, NULL, open_child, NULL) == 0);
  while (!waits_for_gate()) sched_yield();
  CHECK(tslab_epoch_close(parent, NULL) == 0);
  for (int i = 0; i < EPOCH_GATES; i++) lock_release(&epoch_gates[i].lock);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_COUNT(epoch_index(child), ==, slot);
  const tslab_epoch others = open_plain(), next = open_plain(); /* the slots of the parent and the child */
  CHECK_COUNT(epoch_index(next), ==, slot);
  CHECK(tslab_epoch_info(next, &status) == 0);
  CHECK_COUNT(status.charged_bytes, ==, 0);
  CHECK_COUNT(status.committed_bytes, ==, 0);
  CHECK(tslab_epoch_close(next, NULL) == 0 && tslab_epoch_close(others, NULL) == 0);
  return 0;
}
