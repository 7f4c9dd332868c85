/* torn: a fork may cut off another thread at any instruction. The parent steps a child through every instruction of
 * some hundred calls. After each step it takes the child's heap in place of its own, retires it as a fork child does,
 * and counts: all calls that had returned, none that had not begun, and the one under way or not.
 *
 * A signal handler that calls exit may cut off its own thread, too, and goes on with the lists. So after each step the
 * list has no more blocks than its count: otherwise it would hand out blocks that it does not hold.
 *
 * Blocks of lists, refilled and detached, with samples where TSLAB_SAMPLE says so; then blocks of an epoch's
 * chunks, which are begun, filled and, once empty, begun again. */
#include "../check.h"

#include "heap/fast.h"
#include "heap/fork.h"
#include "heap/tcache.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { LISTED = 6000, BUMPED = 5000, HELD = 40, CALLS = 240 };

static volatile struct {
  uint64_t mallocs_begun, mallocs, frees_begun, frees;
} calls;

static void *held[HELD];
static uint64_t random_state = 1;

static void call(size_t size) {
  void **const slot = &held[check_random(&random_state) % HELD];
  if (*slot) {
    calls.frees_begun++;
    tslab_free(*slot);
    calls.frees++;
    *slot = NULL;
  } else {
    calls.mallocs_begun++;
    *slot = tslab_malloc(size);
    calls.mallocs++;
    CHECK(*slot != NULL);
  }
}

static void make_calls(size_t size) {
  for (int i = 0; i < CALLS; i++) call(size);
  for (int i = 0; i < HELD; i++) {
    calls.frees_begun += held[i] != NULL;
    tslab_free(held[i]);
    calls.frees += held[i] != NULL;
    held[i] = NULL;
  }
  for (int i = 0; i < CALLS; i++) call(size);
  _exit(0);
}

/* Copies the child's memory at that address to `to`, or to the same address here. */
static void copy_to(pid_t child, volatile void *at, void *to, size_t bytes) {
  const struct iovec from = {(void *)(uintptr_t)at, bytes}, here = {to, bytes};
  CHECK(process_vm_readv(child, &here, 1, &from, 1, 0) == (ssize_t)bytes);
}
static void copy(pid_t child, volatile void *at, size_t bytes) { copy_to(child, at, (void *)(uintptr_t)at, bytes); }

static void check_heap(struct heap *heap, bool bumps) {
  heap->thread = NULL; /* of a thread that does not exist here */
  heap->live = false;  /* as if it had been retired and pooled: the checks need its lists */
  heap->pooled = true;
  heap_retire_others();
  const uint64_t handed_out = tcache_handed_out(heap);
  uint64_t allocations = 0, frees = 0;
  for (unsigned class = 0; class < CLASSES; class++) {
    const struct tcache_totals totals = tcache_totals(heap, class);
    allocations += totals.allocations;
    frees += totals.frees;
  }
  CHECK_COUNT(handed_out, >=, calls.mallocs);
  CHECK_COUNT(handed_out, <=, calls.mallocs_begun);
  if (bumps) return;
  CHECK_COUNT(allocations, ==, handed_out);
  CHECK_COUNT(frees, >=, calls.frees);
  CHECK_COUNT(frees, <=, calls.frees_begun);
}

static void check_list(pid_t child, const struct heap *heap, unsigned class) {
  unsigned blocks = 0;
  for (void *block = heap->list[class]; block != CHAIN_END; blocks++) {
    void *link;
    copy_to(child, block, &link, sizeof link);
    block = TSLAB_HARDENED ? link_decode(block, (uintptr_t)link) : link;
  }
  CHECK_COUNT(blocks, <=, tcache_length(heap, class));
}

/* The heap's counts so far are taken as those of the calls. */
static void every_instruction(struct heap *heap, size_t size, bool bumps) {
  int status;
  unsigned long steps = 0, changes = 0;
  const unsigned listed = class_of(size);
  void *head = NULL;
  uint32_t count = 0;
  calls.mallocs = calls.mallocs_begun = tcache_handed_out(heap);
  calls.frees = 0;
  for (unsigned class = 0; class < CLASSES; class++) calls.frees += tcache_totals(heap, class).frees;
  calls.frees_begun = calls.frees;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    raise(SIGSTOP);
    make_calls(size);
  }
  current_heap = &empty_heap;
  CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
  for (;; steps++) {
    CHECK(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) break;
    copy(child, &calls, sizeof calls);
    copy(child, heap, sizeof *heap);
    if (heap_has_store(heap)) copy(child, heap->store, sizeof *heap->store);
    changes += heap->sampling.sequence % 2;
    if (heap->list[listed] != head || heap->count[listed].now != count) check_list(child, heap, listed);
    head = heap->list[listed];
    count = heap->count[listed].now;
    check_heap(heap, bumps);
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  printf("%s: %lu instructions, %lu of them in a change\n", bumps ? "chunks" : "lists", steps, changes);
  CHECK(changes > 0);
}

static void lists(void) {
  tslab_free(tslab_malloc(LISTED));
  every_instruction(current_heap, LISTED, false);
}

static void chunks(void) {
  const tslab_epoch epoch = tslab_epoch_open("torn");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  tslab_free(tslab_malloc(BUMPED));
  every_instruction(current_heap, BUMPED, true);
}

/* Each in a process of its own, which what it retired is of no more use to. */
static void in_process(void (*test)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    test();
    fflush(stdout);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
  in_process(lists);
  in_process(chunks);
  return 0;
}
