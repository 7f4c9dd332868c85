/* sweep: the n-th system call of the library fails, for every n that a mixed workload reaches.
 *
 * Each kind of call apart and all together; one failure, three in a row, and every call from the n-th on. Each plan
 * runs in a child of its own, without a trace of other plans: first the workload while calls fail, then once more
 * without failures, which must succeed as if no call had failed.
 *
 *   sweep [long]              some n of every kind; all n
 *   sweep rest [long]         processes that live long enough for the scavenger to work and to publish
 *   sweep KINDS FROM TO       one plan, as the report of a failure names it: KINDS a mask, TO -1 for "for ever" */
#include "fault.h"
#include "workload.h"

#include "../check.h"
#include "../stress/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)
#define FOR_EVER UINT64_MAX
#define ALL ((1u << FAULT_KINDS) - 1)

enum { IN_A_ROW = 3, SHORT_STEPS = 5, SECONDS_MOST = 120 };

static bool calls_fail(void) { return fault_failed() > 0; }

/* The result that a child leaves at its end. */
static struct result {
  uint64_t in_use, refused, purge_failures;
} *result;

static void check_afterwards(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.free_dirty_bytes, <=, 4 * MIB);
  CHECK_COUNT(stats.purge_failures, <=, atomic_load(&fault->failed_of[FAULT_PURGE]));
  result->in_use = stats.in_use_bytes;
  result->purge_failures = stats.purge_failures;
}

/* Slow paths are visited from the second second on, in which a process is published for the first time. */
static void rest(void) {
  for (int i = 0; i < 14; i++) {
    void *list = NULL;
    usleep(100000);
    fill_list(&list, 3000, MIB);
    free_list(&list);
  }
}

/* The scavenger gives back the memory that the kernel refused, as soon as the kernel takes it; no call is needed. If
 * there was no memory for the scavenger, the library tries to start it again after a minute; another test waits for
 * that. */
static void check_scavenger(void) {
  tslab_stats_global stats;
  struct stat tasks;
  CHECK(stat("/proc/self/task", &tasks) == 0);
  if (tasks.st_nlink - 2 == 1) return;
  for (int i = 0; i < 600; i++) {
    CHECK(tslab_stats(&stats, sizeof stats) == 0);
    if (stats.free_dirty_bytes <= MIB / 2) return;
    usleep(50000);
  }
  CHECK_COUNT(stats.free_dirty_bytes, <=, MIB / 2);
}

static bool rests;

static void run_in_child(void) {
  alarm(SECONDS_MOST);
  work_may_fail = calls_fail;
  result->refused = work_run(1, WORK_ALL);
  if (rests) rest();
  fault_stop();
  work_may_fail = NULL;
  if (rests) check_scavenger();
  work_run(2, WORK_ALL);
  check_afterwards();
  _exit(0);
}

/* Runs the workload under one plan. Prints the plan if the workload fails. */
static void run(unsigned kinds, uint64_t from, uint64_t to) {
  int status;
  fault_set(kinds, from, to);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) run_in_child();
  CHECK(waitpid(child, &status, 0) == child);
  fault_stop();
  if (status == 0) return;
  dprintf(2, "sweep %#x %llu %lld: ", kinds, (unsigned long long)from, (long long)to);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) dprintf(2, "it hangs\n");
  else if (WIFSIGNALED(status)) dprintf(2, "signal %d\n", WTERMSIG(status));
  else dprintf(2, "status %d\n", WEXITSTATUS(status));
  _exit(1);
}

static struct figures {
  uint64_t plans, failed, refused, retained;
} figures;

static void step(unsigned kinds, uint64_t from, uint64_t to, uint64_t in_use_usually) {
  run(kinds, from, to);
  figures.plans++;
  figures.failed += fault_failed();
  figures.refused += result->refused;
  figures.retained += result->purge_failures;
  /* A mapping that is lost between mremap and what heals it takes its block's place along; nothing else costs. */
  const unsigned losing = 1 << FAULT_MREMAP | 1 << FAULT_MMAP;
  CHECK_COUNT(result->in_use, <=, in_use_usually + ((kinds & losing) == losing ? 64 * MIB : MIB));
}

/* Plans for calls of these kinds, `calls` in number when none fails, and a few more because threads differ. */
static void sweep(const char *name, unsigned kinds, uint64_t calls, uint64_t in_use, bool is_long) {
  const uint64_t stride = is_long ? 1 : calls / SHORT_STEPS + 1;
  const struct figures before = figures;
  for (uint64_t n = 0; n < calls + 4 * stride / SHORT_STEPS; n += stride) {
    step(kinds, n, n + 1, in_use);
    step(kinds, n, n + IN_A_ROW, in_use);
    step(kinds, n, FOR_EVER, in_use);
  }
  printf("%-10s %4llu calls, %5llu plans: %6llu calls failed, %6llu requests refused, %6llu purges without effect\n",
         name, (unsigned long long)calls, (unsigned long long)(figures.plans - before.plans),
         (unsigned long long)(figures.failed - before.failed), (unsigned long long)(figures.refused - before.refused),
         (unsigned long long)(figures.retained - before.retained));
}

/* Waiting for a futex is left out: threads that cannot rest would only be busy. */
static void sweep_resting(bool is_long) {
  const unsigned all = ALL & ~(1u << FAULT_FUTEX);
  const unsigned kinds[] = {all, 1 << FAULT_PURGE, 1 << FAULT_ADVISE, 1 << FAULT_MMAP};
  rests = true;
  run(0, 0, 0);
  const uint64_t in_use = result->in_use;
  step(all, 0, FOR_EVER, in_use);
  step(1 << FAULT_PURGE, 0, FOR_EVER, in_use);
  CHECK_COUNT(result->purge_failures, >, 0);
  if (!is_long) return;
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
    for (uint64_t n = 0; n < 100; n += 4) {
      step(kinds[i], n, n + IN_A_ROW, in_use);
      step(kinds[i], n * 10, FOR_EVER, in_use);
    }
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(result != MAP_FAILED);
  if (!fault_start()) {
    printf("skipped: no seccomp filter with a listener is allowed here\n");
    return SKIPPED;
  }
  if (argc == 4) {
    run((unsigned)strtoul(argv[1], NULL, 0), strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0));
    printf("%llu calls failed, %llu requests refused\n", (unsigned long long)fault_failed(),
           (unsigned long long)result->refused);
    return 0;
  }
  const bool is_long = argc > 1 && strcmp(argv[argc - 1], "long") == 0;
  if (argc > 1 && strcmp(argv[1], "rest") == 0) {
    sweep_resting(is_long);
    return 0;
  }
  run(0, 0, 0); /* none fails: how many calls there are */
  const uint64_t in_use = result->in_use;
  uint64_t calls[FAULT_KINDS], all = 0;
  for (unsigned kind = 0; kind < FAULT_KINDS; kind++) all += calls[kind] = atomic_load(&fault->calls_of[kind]);
  CHECK_COUNT(result->refused, ==, 0);
  CHECK_COUNT(calls[FAULT_MREMAP], >, 0);
  CHECK_COUNT(calls[FAULT_MPROTECT], >, 0);
  CHECK_COUNT(calls[FAULT_PURGE], >, 0);
  for (unsigned kind = 0; kind < FAULT_KINDS; kind++)
    sweep(fault_names[kind], 1u << kind, calls[kind], in_use, is_long);
  sweep("all", ALL, all, in_use, is_long);
  CHECK_COUNT(figures.refused, >, 0);
  CHECK_COUNT(figures.retained, >, 0);
  return 0;
}
