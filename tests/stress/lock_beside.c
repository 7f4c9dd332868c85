/* lock_beside: a thread allocates and frees most of what a limit of addresses or of data allows, and another thread
 * locks all memory again and again. No allocation fails meanwhile. */
#include "each_limit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define BLOCK (64 * MIB)

static atomic_bool is_over;
static atomic_uint blocks;

static void *work(void *unused) {
  while (!is_over) {
    unsigned char *volatile block = malloc(BLOCK);
    CHECK(block != NULL);
    memset(block, 1, 4096);
    free(block);
    blocks++;
  }
  return unused;
}

static void wait_for_blocks(void) {
  for (const unsigned before = blocks; blocks - before < 3;) usleep(100);
}

static size_t bytes_now(int resource) {
  unsigned long pages[6];
  FILE *const file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL);
  for (int i = 0; i < 6; i++) CHECK(fscanf(file, "%lu", &pages[i]) == 1);
  CHECK(fclose(file) == 0);
  return pages[resource == RLIMIT_AS ? 0 : 5] * (size_t)sysconf(_SC_PAGESIZE);
}

/* The limit lets the thread have one block and not two. */
static int under(int resource) {
  pthread_t thread;
  struct rlimit limit = {(size_t)1 << 42, RLIM_INFINITY};
  CHECK(setrlimit(resource, &limit) == 0);
  limit.rlim_cur = bytes_now(resource) + BLOCK + BLOCK / 2;
  CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
  wait_for_blocks();
  CHECK(setrlimit(resource, &limit) == 0);
  int failed = 0;
  for (int i = 0; i < 5 && !failed; i++) {
    failed = mlockall(MCL_CURRENT);
    CHECK(munlockall() == 0);
    if (!failed) wait_for_blocks();
  }
  is_over = true;
  CHECK(pthread_join(thread, NULL) == 0);
  if (failed) printf("skipped: mlockall is not allowed here\n"), fflush(stdout);
  return failed ? SKIPPED : 0;
}

int main(void) { return under_each_limit(under); }
