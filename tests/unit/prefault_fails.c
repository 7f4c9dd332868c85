/* prefault_fails: the budget refuses the prefaulted memory of a new epoch. Another thread has found the epoch meanwhile
 * and has a block there. The block stays in this epoch, which is closing until the block is freed. */
#include "unit.h"

#include "epoch/epoch.h"
#include "os/lock.h"
#include <pthread.h>
#include <sched.h>

enum { BUDGET = 4 * 65536, PREFAULT = BUDGET + 65536 };

static tslab_epoch parent, child, found;

static tslab_epoch open_with(const char *label, uint64_t budget, uint64_t prefault, tslab_epoch above) {
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted,
                                      .label = label,
                                      .budget_bytes = budget,
                                      .prefault_bytes = prefault,
                                      .parent = above};
  return tslab_epoch_open_with(&wanted);
}

static void *open_child(void *unused) {
  child = open_with("child", 0, PREFAULT, parent);
  CHECK(child != 0 || errno == ENOMEM);
  return unused;
}

static bool waits_for_gate(void) {
  for (int i = 0; i < EPOCH_GATES; i++)
    if (atomic_load(&epoch_gates[i].lock.word) % 2 == 1) return true;
  return false;
}

static int find_child(const tslab_epoch_status *status, void *block) {
  if (status->parent != parent) return 0;
  found = status->epoch;
  *(void **)block = tslab_epoch_malloc(found, 100);
  return 1;
}

int main(void) {
  pthread_t thread;
  tslab_epoch_status status;
  void *block = NULL;
  parent = open_with("parent", BUDGET, 0, 0);
  CHECK(parent != 0);
  for (int i = 0; i < EPOCH_GATES; i++) lock_take(&epoch_gates[i].lock); /* between its opening and its first memory */
  CHECK(pthread_create(&thread, NULL, open_child, NULL) == 0);
  while (!waits_for_gate()) sched_yield();
  CHECK(tslab_epoch_each(find_child, &block) == 1 && block != NULL);
  for (int i = 0; i < EPOCH_GATES; i++) lock_release(&epoch_gates[i].lock);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(child == 0);
  CHECK(tslab_epoch_info(found, &status) == 0);
  CHECK_COUNT(status.state, ==, TSLAB_EPOCH_CLOSING);
  CHECK_COUNT(status.live_blocks, ==, 1);
  const tslab_epoch next = open_with("next", BUDGET, 0, 0); /* a budget: it is not the cached epoch */
  CHECK(next != 0 && epoch_index(next) != epoch_index(found));
  CHECK(tslab_epoch_of(block) == found);
  tslab_free(block);
  CHECK(tslab_epoch_info(found, &status) == ESTALE);
  CHECK(tslab_epoch_info(parent, &status) == 0);
  CHECK_COUNT(status.charged_bytes, ==, 0);
  CHECK(tslab_epoch_close(next, NULL) == 0 && tslab_epoch_close(parent, NULL) == 0);
  return 0;
}
