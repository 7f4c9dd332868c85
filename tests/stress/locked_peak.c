/* locked_peak: a program has freed its largest block when it locks all its memory. Free memory does not become resident
 * by that, serves again, and is locked once it does. Blocks in use keep their bytes. */
#include "../check.h"
#include "memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static size_t locked_bytes(void) {
  char line[256];
  size_t kib = 0;
  FILE *const file = fopen("/proc/self/status", "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof line, file)) sscanf(line, "VmLck: %zu kB", &kib);
  CHECK(fclose(file) == 0);
  return kib * 1024;
}

static bool is_all(const unsigned char *block, size_t bytes, unsigned char value) {
  for (size_t i = 0; i < bytes; i++)
    if (block[i] != value) return false;
  return true;
}

int main(void) {
  unsigned char *const kept = memset(malloc(8 * MIB), 7, 8 * MIB);
  unsigned char *volatile peak = malloc(512 * MIB);
  CHECK(peak != NULL);
  memset(peak, 1, 64 * MIB);
  free(peak);
  void *list = NULL; /* dirty free memory beside it, and holes */
  CHECK_COUNT(fill_list(&list, 30000, 16 * MIB), >=, 16 * MIB);
  free_list(&list);
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &limit); /* perhaps this user may not */
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    printf("skipped: mlockall is not allowed here\n");
    return SKIPPED;
  }
  CHECK_COUNT(resident_bytes(), <, 64 * MIB);
  CHECK(is_all(kept, 8 * MIB, 7));
  for (int turn = 0; turn < 3; turn++) {
    unsigned char *volatile block = calloc(1, 128 * MIB);
    CHECK(block != NULL && is_all(block, 128 * MIB, 0));
    memset(block, 9, 128 * MIB);
    CHECK_COUNT(resident_bytes(), >=, 128 * MIB);
    CHECK_COUNT(locked_bytes(), >=, 128 * MIB);
    free(block);
    CHECK(malloc_trim(0) == 1);
    CHECK_COUNT(resident_bytes(), <, 64 * MIB);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0); /* once more */
    CHECK_COUNT(resident_bytes(), <, 64 * MIB);
  }
  CHECK(munlockall() == 0 && is_all(kept, 8 * MIB, 7));
  CHECK_COUNT(fill_list(&list, 1000, 64 * MIB), >=, 64 * MIB);
  free_list(&list);
  free(kept);
  return 0;
}
