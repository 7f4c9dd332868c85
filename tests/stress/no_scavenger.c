/* no_scavenger: the library's own thread cannot be made, for the program's pthread_create refuses it. Live threads then
 * use the memory that dead threads left free. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>

enum { THREADS = 24, BLOCKS = 1000, BYTES = 3000, ONE_STAYS = 20, LEFT = THREADS * BLOCKS / 4 * 3 };

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static int refusals;

/* Only the library's thread has attributes. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
  create_function *next;
  *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
  if (!attributes) return next(thread, attributes, routine, argument);
  refusals++;
  return EAGAIN;
}

static pthread_barrier_t all_have_blocks;

static void *leave_holes(void *unused) {
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(BYTES)) != NULL);
  pthread_barrier_wait(&all_have_blocks);
  for (int i = 0; i < BLOCKS; i++)
    if (i % ONE_STAYS != 0) tslab_free(blocks[i]);
  return unused;
}

static uint64_t in_use(void) {
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  return stats.in_use_bytes;
}

int main(void) {
  pthread_t threads[THREADS];
  void *const large = tslab_malloc(4 << 20);
  CHECK(large != NULL);
  tslab_free(large); /* starts the scavenger, if it can */
  CHECK(pthread_barrier_init(&all_have_blocks, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, leave_holes, NULL) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  const uint64_t before = in_use();
  for (int i = 0; i < LEFT; i++) CHECK(tslab_malloc(BYTES) != NULL);
  CHECK_COUNT(refusals, >=, 1);
  CHECK_COUNT(in_use() - before, <, (uint64_t)LEFT * BYTES / 2);
  return 0;
}
