/* misuse: one line describes the pointer; then the process ends, or, if the setting lets it, counts and goes on. */
#include "unit.h"

#include "base/options.h"
#include "heap/misuse.h"
#include "slab/large.h"
#include <pthread.h>
#include <stdatomic.h>

enum { CLASS = 5 };

#if TSLAB_HARDENED /* the hardened library finds it at the call */
#define LATE ""
#define NAMES_IT ""
#else
#define LATE "; found late: libtslab-hardened.so.0 names a double free at the call"
#define NAMES_IT "; libtslab-hardened.so.0 names the block"
#endif
#define CORRUPTED \
  ", which is not a block: a free block was written to, or overrun by the block before it" NAMES_IT

static struct run *slab;
static char *block, *large;
static struct large_counts counts;
static const char *call;
static void *culprit;
static int status;

static void tell(void) { misuse(call, culprit); }
static void tell_freed(void) { misuse_freed(culprit); }
static void tell_interior(void) { misuse_interior(call, culprit); }
static void tell_size(void) { misuse_size(call, culprit, 5000, pages_run_of(culprit)); }
static void tell_overdrawn(void) { misuse_overdrawn(CLASS); }
static void tell_large_size(void) { misuse_size(call, culprit, 5000, pages_run_of(culprit)); }

static void (*teller)(void);
static void in_process(void) { status = in_child(teller); }

static void expect_text(void (*run)(void), const char *expected) {
  char heard[512];
  CHECK_COUNT(hear(run, heard, sizeof heard), ==, 1);
  if (strcmp(heard, expected) != 0) dprintf(2, "expected %sgot %s", expected, heard);
  CHECK(strcmp(heard, expected) == 0);
}

static void expect_line(void (*run)(void), const char *before, const char *after) {
  char expected[512];
  snprintf(expected, sizeof expected, "tslab: %s%p%s\n", before, culprit, after);
  expect_text(run, expected);
}

static void says(void (*run)(void), void *p, const char *before, const char *after, bool may_go_on) {
  culprit = p;
  teller = run;
  for (options.on_misuse = MISUSE_ABORT; options.on_misuse <= MISUSE_REPORT; options.on_misuse++) {
    expect_line(in_process, before, after);
    if (options.on_misuse == MISUSE_REPORT && may_go_on) CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    else CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  }
}

static void *data[8];

static void pointers(void) {
  char local[16];
  bool zero;
  struct run *const meta = pages_alloc(1, GRANULE, RUN_META, &zero, NULL);
  call = "free";
  says(tell, data, "free of foreign pointer ", " (not from this allocator)", true);
  says(tell, run_start(meta), "free of foreign pointer ", " (not from this allocator)", true);
  if (!SANITIZED) says(tell, local, "free of stack pointer ", "", true); /* a sanitizer's stack may be elsewhere */
  says(tell, block, "double free of ", " (96-byte class)", true);
  says(tell, block + 95, "free of interior pointer ", " (95 bytes into a block of the 96-byte class)", true);
  says(tell, large + 70000, "free of interior pointer ", " (70000 bytes into a large block)", true);
  says(tell, large + pages_run_of(large)->size, "free of foreign pointer ", " (not from this allocator)", true);
  call = "realloc";
  says(tell, block, "realloc of freed block ", " (96-byte class)", true);
  says(tell_interior, block + 1, "realloc of interior pointer ", " (1 bytes into a block of the 96-byte class)", false);
  says(tell_freed, block, "double free of ", " (96-byte class)" LATE, true);
  says(tell_freed, data, "free list corrupted: it links to ", CORRUPTED, true);
  call = "free_sized";
  says(tell_size, block, "free_sized of ", " with size 5000 (96-byte class)", true);
  says(tell_large_size, large, "free_sized of ", " with size 5000 (large block)", true);
}

/* The hardened library reports a second free earlier, and chance decides which blocks are in use. A page as large as
   the slab has all its blocks linked by the first. */
static void what_may_be_two_things(void) {
  call = "free";
  char *const last = block + 600 * 96;
  if (slab->unlinked) says(tell, last, "free of ", " (96-byte class; freed long ago, or never allocated)", true);
  else says(tell, last, "double free of ", " (96-byte class)", true);
  block_mark(block, 0x33);
  says(tell_freed, block, "free block ", " (96-byte class) has changed at byte 8: it was freed twice, or written to "
       "after its free" LATE, true);
  block_mark(block, 0); /* as malloc leaves it, whose caller has written nothing */
  says(tell_freed, block, "double free of ", " (96-byte class)" LATE, true);
  block_mark_free(block);
}

/* Both words: an overrun of the block below may have written them. */
static void what_may_be_three_things(void) {
  char after[256], *const next = block + 96;
  const char *const what = " (96-byte class) has changed: it was freed twice, written to after its free, or overrun "
                           "by ";
  memset(next, 0x33, 16);
  snprintf(after, sizeof after, "%sthe block before it (%p, free)" LATE, what, (void *)block);
  says(tell_freed, next, "free block ", after, true);
  block_mark(block, 0x33);
  snprintf(after, sizeof after, "%sthe block before it (%p, in use)" LATE, what, (void *)block);
  says(tell_freed, next, "free block ", after, true);
  void *const link = *(void **)block;
  *(uintptr_t *)block = 0x33;
  snprintf(after, sizeof after, "%swhat lies before its slab" LATE, what);
  says(tell_freed, block, "free block ", after, true);
  *(void **)block = link;
  block_mark_free(block);
}

/* Memory that is free now is named by its last block, also while a thread purges it, and memory that the library took
   for itself since. */
static void late_frees(void) {
  bool zero;
  struct run *const never = pages_alloc(1, GRANULE, RUN_META, &zero, NULL);
  call = "free";
  pages_free(slab, slab_retire(slab));
  large_retire(pages_run_of(large), &counts);
  const enum run_kind kinds[] = {RUN_BUSY, RUN_META};
  for (int i = 0; i < 2; i++) {
    pages_reuse(pages_run_of(large), kinds[i]);
    says(tell, large, "double free of ", " (large block)", true);
  }
  pages_free(pages_run_of(large), false);
  pages_free(never, true);
  const char *const none = " (no block: it was freed, alone or with its epoch, or never allocated)";
  says(tell, block + 8, "free of ", none, true);
  says(tell, large + 16, "free of ", none, true);
  says(tell, block, "double free of ", " (96-byte class)", true);
  says(tell, large, "double free of ", " (large block)", true);
  says(tell, run_start(never), "free of foreign pointer ", " (not from this allocator)", true);
}

enum { CHANGES = 50000 / TEST_SCALE };
static _Atomic int changes;

static void *change_runs(void *unused) {
  bool zero;
  for (; changes < CHANGES; changes++) pages_free(pages_alloc(63, GRANULE, RUN_LARGE, &zero, NULL), true);
  return unused;
}

/* Each of the other thread's calls moves the start of the free run that the address lies in. */
static void free_memory_beside_changes(void) {
  bool zero;
  struct pages_found found = {.has_no_block = true, .was = LARGE_WAS};
  pthread_t thread;
  struct run *const run = pages_alloc(64, GRANULE, RUN_LARGE, &zero, NULL);
  const char *const inside = run_start(run) + 63 * GRANULE;
  pages.runs[granule_of(inside)].was = LARGE_WAS;
  pages_free(run, true);
  CHECK(pthread_create(&thread, NULL, change_runs, NULL) == 0);
  while (changes < CHANGES && found.has_no_block && found.was == LARGE_WAS) found = pages_find_to_report(inside);
  CHECK(found.has_no_block && found.was == LARGE_WAS);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  start_floors();
  slab = slab_new(CLASS, 0, NULL);
  block = slab_link(slab, 1).head;
  large = large_alloc(100000, GRANULE, NULL, &counts);
  CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
  pointers();
  if (!TSLAB_HARDENED) what_may_be_two_things();
  if (!TSLAB_HARDENED) what_may_be_three_things();
  late_frees();
  free_memory_beside_changes();
  CHECK_COUNT(misuse_count(), ==, 0); /* those belong to the children */
  culprit = block;
  options.on_misuse = MISUSE_REPORT;
  expect_text(tell_overdrawn, "tslab: double free of a block (96-byte class): its list handed out more blocks than it "
              "held" LATE "\n");
  expect_line(tell, "double free of ", " (96-byte class)");
  CHECK_COUNT(misuse_count(), ==, 2);
  return 0;
}
