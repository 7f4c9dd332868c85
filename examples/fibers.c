/* Fibers share a thread, so the thread's current epoch is not theirs. Their scheduler keeps each one's epoch and calls
 * tslab_epoch_switch where it switches stacks; the fibers enter and leave nothing. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <tslab/tslab.h>

enum { FIBERS = 3, ROUNDS = 4, STACK = 64 << 10 };

struct fiber {
  ucontext_t context;
  tslab_epoch epoch; /* where it allocates; a fiber may change it by a switch of its own */
  void *blocks[ROUNDS];
};

static struct fiber fibers[FIBERS];
static ucontext_t scheduler;
static struct fiber *running;

static void yield(void) { swapcontext(&running->context, &scheduler); }

static void work(void) {
  for (int round = 0; round < ROUNDS; round++) {
    running->blocks[round] = malloc(100);
    yield();
  }
}

/* Runs the fiber until it yields or ends. */
static void resume(struct fiber *fiber) {
  running = fiber;
  const tslab_epoch ours = tslab_epoch_switch(fiber->epoch);
  swapcontext(&scheduler, &fiber->context);
  fiber->epoch = tslab_epoch_switch(ours);
}

static int make(struct fiber *fiber) {
  if (getcontext(&fiber->context) != 0) return 1;
  fiber->context.uc_stack.ss_sp = malloc(STACK); /* the scheduler's, in epoch 0 */
  fiber->context.uc_stack.ss_size = STACK;
  fiber->context.uc_link = &scheduler;
  fiber->epoch = tslab_epoch_open("fiber");
  makecontext(&fiber->context, work, 0);
  return fiber->context.uc_stack.ss_sp == NULL;
}

int main(void) {
  for (int i = 0; i < FIBERS; i++) {
    if (make(&fibers[i]) != 0) return 1;
  }
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < FIBERS; i++) resume(&fibers[i]);
  }

  int astray = 0;
  for (int i = 0; i < FIBERS; i++) {
    for (int round = 0; round < ROUNDS; round++) {
      if (tslab_epoch_of(fibers[i].blocks[round]) != fibers[i].epoch) astray++;
      free(fibers[i].blocks[round]);
    }
    free(fibers[i].context.uc_stack.ss_sp);
    tslab_epoch_report report;
    if (tslab_epoch_close(fibers[i].epoch, &report) != 0) return 1;
    printf("fiber %d: epoch %llu closed, %llu blocks live\n", i, (unsigned long long)report.epoch,
           (unsigned long long)report.live_blocks);
    astray += report.live_blocks != 0;
  }
  return astray == 0 ? 0 : 1;
}
