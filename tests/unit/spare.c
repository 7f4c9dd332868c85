/* spare: a thread's next epoch is made of the one that it ended empty, with part and chunk; anything but a plain
 * epoch is not kept, and what is not used goes after a second. */
#include "unit.h"

#include "base/options.h"
#include "epoch/ending.h"
#include "epoch/spare.h"
#include "front/front.h"

static struct epoch *kept(void) { return atomic_load(&current_thread->spare); }

static uint64_t open_with(tslab_epoch_options wanted) {
  int error;
  const uint64_t id = epoch_open(&wanted, &error);
  CHECK(id != 0);
  return id;
}

/* One block is allocated in it, and freed. */
static void use(uint64_t id) {
  CHECK(scope_enter(current_thread, id) == 0);
  void *const block = bump_refill(current_part, 100);
  CHECK(block != NULL && bump_free_current(current_part, block));
  CHECK(scope_leave(current_thread, id) == 0);
}

static uint64_t end_one(void) {
  const uint64_t id = open_with((tslab_epoch_options){.label = "one"});
  use(id);
  CHECK(ending_close(id, NULL) == 0 && kept() == epoch_slot(id));
  return id;
}

static void reused(void) {
  const size_t before = reserve_bytes();
  const uint64_t first = end_one();
  struct epoch *const e = kept();
  struct part *const part = e->parts;
  struct run *const chunk = part->bump.chunk;
  CHECK(chunk != NULL && epoch_state(e) == EPOCH_SPARE && epoch_error(e, first) == ESTALE);
  CHECK(part->attached->id == ATTACHED_SPARE && scope_enter(current_thread, first) == ESTALE);
  CHECK_COUNT(reserve_bytes() - before, ==, GRANULE);
  const uint64_t next = spare_open(current_thread, "two", TSLAB_EPOCH_DESTROYABLE);
  CHECK(epoch_slot(next) == e && next != first && kept() == NULL && epoch_error(e, next) == 0);
  CHECK(strcmp(e->label, "two") == 0 && e->flags == TSLAB_EPOCH_DESTROYABLE && e->parts == part);
  CHECK(spare_open(current_thread, "three", 0) == 0);
  CHECK(scope_enter(current_thread, next) == 0 && current_part == part && part->bump.chunk == chunk);
  CHECK(bump_take(part, 100) == run_start(chunk)); /* as if new */
  CHECK(scope_leave(current_thread, next) == 0);

  /* Destroyed, the block given up. A second epoch that ends now is not kept. */
  const uint64_t other = open_with((tslab_epoch_options){.label = "other"});
  use(other);
  CHECK(ending_destroy(next, NULL) == 0 && kept() == e);
  CHECK(ending_close(other, NULL) == 0 && kept() == e);
  spare_give_up(current_thread);
  CHECK(kept() == NULL && epoch_state(e) == EPOCH_ENDED && e->parts == NULL && e->lifetime.own == 0);
  reserve_empty();
  CHECK_COUNT(reserve_bytes(), ==, 0);
}

/* What the next incarnation would inherit. */
static void not_kept(void) {
  const uint64_t parent = open_with((tslab_epoch_options){.label = "parent"});
  const tslab_epoch_options others[] = {{.parent = parent}, {.budget_bytes = GRANULE}, {.prefault_bytes = 2 * GRANULE}};
  for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
    const uint64_t id = open_with(others[i]);
    use(id);
    CHECK(ending_close(id, NULL) == 0 && kept() == NULL);
  }
  const uint64_t child = open_with(others[0]);
  use(parent);
  CHECK(!spare_may_keep(current_thread, epoch_slot(parent)));
  CHECK(ending_close(child, NULL) == 0 && spare_may_keep(current_thread, epoch_slot(parent)));
  options.reserve_bytes = 0;
  CHECK(ending_close(parent, NULL) == 0 && kept() == NULL);
  options.reserve_bytes = MiB;
}

static void ageing(void) {
  end_one();
  for (int tick = 0; tick < 4; tick++) {
    spares_age(false);
    CHECK(kept() != NULL);
  }
  spares_age(false);
  CHECK(kept() == NULL);
  end_one();
  spares_age(true);
  CHECK(kept() == NULL);
}

int main(void) {
  CHECK(front_part() != NULL);
  options.scavenger = 0; /* it would age them too */
  options.reserve_bytes = MiB;
  reused();
  not_kept();
  ageing();
  return 0;
}
