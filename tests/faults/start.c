/* start: the n-th system call of the process's start fails, and of its first allocations, as the library is linked into
 * the program: a constructor that comes before the library's forks a child for each plan, which then starts.
 *
 * The next call tries a start again that the kernel refused; in the end the heap is whole.     start [long] */
#include "fault.h"

#include "../check.h"
#include "../stress/memory.h"

#include <sys/wait.h>

#define FOR_EVER UINT64_MAX
#define ALL      ((1u << FAULT_KINDS) - 1)

static uint64_t plans, refusals;

/* Begins as a process that has nothing of the library yet, and goes on to main. */
static bool child_of(unsigned kinds, uint64_t from, uint64_t to) {
  int status;
  fault_set(kinds, from, to);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) return true;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) dprintf(2, "start, kinds %#x, from %llu to %lld: status %#x\n", kinds, (unsigned long long)from,
                           (long long)to, (unsigned)status);
  CHECK_COUNT(status, ==, 0);
  plans++;
  refusals += fault_failed();
  return false;
}

/* True in a child. */
static bool sweep(void) {
  static const unsigned kinds[] = {1 << FAULT_MMAP, 1 << FAULT_MUNMAP, 1 << FAULT_ADVISE, 1 << FAULT_MPROTECT, ALL};
  if (child_of(ALL, 0, 0)) return true;
  uint64_t calls = atomic_load(&fault->calls);
  CHECK_COUNT(calls, >=, 8); /* it did start in the child */
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
    for (uint64_t n = 0; n < calls; n++) {
      if (child_of(kinds[i], n, n + 1) || child_of(kinds[i], n, n + 2) || child_of(kinds[i], n, n + 12)) return true;
      const uint64_t failed = refusals;
      if (child_of(kinds[i], n, FOR_EVER)) return true;
      if (refusals == failed) break; /* there are no more of this kind */
    }
  CHECK_COUNT(refusals, >, plans / 2);
  return false;
}

__attribute__((constructor(101))) static void before_the_library_starts(void) {
  if (!fault_start()) {
    dprintf(1, "skipped: no seccomp filter with a listener is allowed here\n");
    _exit(SKIPPED);
  }
  if (sweep()) return;
  dprintf(1, "%llu plans, %llu calls failed\n", (unsigned long long)plans, (unsigned long long)refusals);
  _exit(0);
}

static void use(bool may_fail) {
  static const size_t sizes[] = {1, 100, 5000, 40000, 1 << 20};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    errno = 0;
    char *const block = tslab_calloc(1, sizes[i]);
    if (!block) {
      CHECK(may_fail && fault_failed() > 0);
      CHECK_COUNT(errno, ==, ENOMEM);
      continue;
    }
    CHECK(block[0] == 0 && memcmp(block, block + 1, sizes[i] - 1) == 0);
    memset(block, 0x77, sizes[i]);
    CHECK_COUNT(tslab_malloc_usable_size(block), >=, sizes[i]);
    tslab_free(block);
  }
  errno = 0;
  const tslab_epoch e = tslab_epoch_open("started");
  if (!e) {
    CHECK(may_fail && errno == ENOMEM);
    return;
  }
  void *block;
  const tslab_handle handle = tslab_handle_alloc(e, 100, &block);
  CHECK(handle ? tslab_handle_free(handle) : may_fail);
  CHECK(tslab_epoch_close(e, NULL) == 0);
}

int main(void) {
  tslab_stats_global stats;
  use(true);
  CHECK(tslab_stats(&stats, sizeof stats) == 0); /* also when it has not started */
  CHECK(!tslab_owns(&stats) && tslab_epoch_of(&stats) == 0);
  tslab_purge();
  fault_stop();
  use(false);
  tslab_purge();
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.committed_bytes, ==, stats.in_use_bytes + stats.free_dirty_bytes + stats.free_clean_bytes);
  CHECK_COUNT(stats.live_blocks, ==, 0);
  _exit(0);
}
