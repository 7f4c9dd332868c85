/* stack_lock: a thread that allocates nothing joins threads whose stacks are the program's, after the last thread that
 * allocated has ended and left much free memory. libc frees the data of those threads under the lock that the creation
 * of a thread takes. There are enough of them that one of these frees gives the joining thread its heap. */
#include "../check.h"

#include <pthread.h>
#include <semaphore.h>

enum { BLOCKS = 64, BLOCK_BYTES = 64000, STACK_BYTES = 1 << 17, JOINED = 40 };

static char stacks[JOINED][STACK_BYTES] __attribute__((aligned(4096)));
static pthread_t main_thread, joined[JOINED];
static sem_t made;

static void *end(void *unused) { return unused; }

static void *join(void *unused) {
  while (sem_wait(&made) != 0) CHECK(errno == EINTR);
  CHECK(pthread_join(main_thread, NULL) == 0);
  for (int i = 0; i < JOINED; i++) CHECK(pthread_join(joined[i], NULL) == 0);
  _exit(0);
  return unused;
}

int main(void) {
  void *blocks[BLOCKS];
  pthread_t joiner;
  pthread_attr_t own_stack;
  main_thread = pthread_self();
  CHECK(sem_init(&made, 0, 0) == 0 && pthread_create(&joiner, NULL, join, NULL) == 0);
  CHECK(pthread_attr_init(&own_stack) == 0);
  for (int i = 0; i < BLOCKS; i++) memset(blocks[i] = tslab_malloc(BLOCK_BYTES), 1, BLOCK_BYTES);
  for (int i = 0; i < JOINED; i++) {
    CHECK(pthread_attr_setstack(&own_stack, stacks[i], STACK_BYTES) == 0);
    CHECK(pthread_create(&joined[i], &own_stack, end, NULL) == 0);
  }
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
  sem_post(&made);
  pthread_exit(NULL);
}
