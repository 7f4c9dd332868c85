/* limit_clean: in a process that limits its addresses, free memory that is already clean leaves room for a mapping at
 * once: the rest around an aligned block, the place that a block moved away from, what an epoch gave back. So does free
 * memory behind a filter that refuses munmap, and beside a mapping that grows down. */
#include "../epochs.h"
#include "filter.h"
#include "memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define MIB   ((size_t)1 << 20)
#define LIMIT (1024 * MIB)

enum { TURNS = 3 };

static void limit_addresses(size_t bytes) { CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}) == 0); }

static void map(size_t bytes) {
  void *const mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED && munmap(mapped, bytes) == 0);
}

static void aligned(void) {
  void *block;
  CHECK(posix_memalign(&block, 256 * MIB, MIB) == 0);
  free(memset(block, 1, MIB));
  map(750 * MIB);
}

static void moved(void) {
  enum { BEHIND = 10 };
  void *block = malloc(200 * MIB), *behind[BEHIND];
  CHECK(block != NULL);
  memset(block, 1, MIB);
  for (int i = 0; i < BEHIND; i++) CHECK((behind[i] = malloc(MIB)) != NULL);
  CHECK((block = realloc(block, 300 * MIB)) != NULL);
  free(block);
  for (int i = 0; i < BEHIND; i++) free(behind[i]);
  map(750 * MIB);
}

static void fill_epoch(tslab_epoch epoch) {
  void *list = NULL;
  CHECK(tslab_epoch_enter(epoch) == 0);
  CHECK_COUNT(fill_list(&list, 1000, 400 * MIB), >=, 400 * MIB);
  CHECK(tslab_epoch_leave(epoch) == 0);
}

static void destroyed(void) {
  const tslab_epoch epoch = open_epoch("limit_clean", TSLAB_EPOCH_DESTROYABLE);
  fill_epoch(epoch);
  CHECK(tslab_epoch_reset(epoch, NULL) == 0);
  map(750 * MIB);
  fill_epoch(epoch);
  CHECK(tslab_epoch_destroy(epoch, NULL) == 0);
  map(750 * MIB);
}

/* The kernel keeps a gap below such a mapping, in which it puts nothing by itself. */
static void beside_growing(void) {
  void *list = NULL;
  unsigned char *const last = malloc(100000);
  CHECK(last != NULL);
  for (size_t at = MIB / 2; at <= 4 * MIB; at += MIB / 2)
    (void)mmap((void *)(((uintptr_t)last + at) & -(uintptr_t)65536), 4096, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN, -1, 0);
  CHECK_COUNT(fill_list(&list, 100000, 64 * MIB), >=, 64 * MIB);
  CHECK_COUNT(fill_list(&list, 1000, 10 * MIB), >=, 10 * MIB);
}

static void without_munmap(void) {
  void *list = NULL;
  if (!answer_with(SYS_munmap, EPERM)) _exit(SKIPPED);
  for (int i = 0; i < 20; i++) {
    CHECK_COUNT(fill_list(&list, 100000, 16 * MIB), >=, 16 * MIB);
    CHECK_COUNT(fill_list(&list, 100, MIB), >=, MIB);
  }
}

static void run(void (*part)(void)) {
  const pid_t child = fork();
  if (child == 0) {
    limit_addresses(LIMIT);
    for (int i = 0; i < TURNS && (i == 0 || part != without_munmap); i++) part();
    _exit(0);
  }
  if (!child_passed(child)) printf("skipped: seccomp is not allowed here\n");
}

int main(void) {
  free(malloc(100));
  run(aligned);
  run(moved);
  run(destroyed);
  run(beside_growing);
  run(without_munmap);
  return 0;
}
