/* map_limit: a process has as many mappings as the kernel allows (vm.max_map_count), or a few less, as one that makes
 * threads until it cannot. Its heap still grows, because that takes no further mapping. */
#include "../check.h"
#include "memory.h"
#include "tslab/tslab.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define MOST 200000 /* pages of which every other one becomes a mapping: with a higher limit, this would take long */
#define LEFT 6      /* mappings that the process may still make, at most */

/* Changes every other page until the kernel refuses, and then unmaps so many of these. */
static void use_up_mappings(size_t left) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *const at = mmap(NULL, MOST * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  size_t made = 0;
  CHECK(at != MAP_FAILED);
  while (made < MOST / 2 && mprotect(at + 2 * made * page, page, PROT_READ) == 0) made++;
  if (made == MOST / 2) _exit(SKIPPED);
  for (size_t i = made - left; i < made; i++) CHECK(munmap(at + 2 * i * page, page) == 0);
}

static void fill(size_t size, size_t bytes) {
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, size, bytes), >=, bytes);
  free_list(&list);
}

static void grow(size_t left) {
  use_up_mappings(left);
  const tslab_epoch epoch = tslab_epoch_open("map_limit");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  fill(1000, 8 * MIB);
  CHECK(tslab_epoch_leave(epoch) == 0 && tslab_epoch_close(epoch, NULL) == 0);
  fill(1000, 32 * MIB);
  fill(MIB, 64 * MIB);
}

int main(void) {
  free(malloc(100));
  for (size_t left = 0; left <= LEFT; left++) {
    int status;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      grow(left);
      _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) {
      printf("skipped: more than %d mappings are allowed here\n", MOST / 2);
      return SKIPPED;
    }
    CHECK_COUNT(WEXITSTATUS(status), ==, 0);
  }
  return 0;
}
