/* fork_walk: a thread without a heap forks while another without one reads statistics, which walks over the blocks of a
 * large epoch. A child must forget that walk, which lies on the stack of a thread that it does not have. */
#include "../check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tslab/tslab.h>
#include <unistd.h>

enum { BLOCKS = 8000, BYTES = 40000, FORKS = 12, STACK = 60000 };

static void *some;
static atomic_bool stop;

static void *read_statistics(void *unused) {
  static tslab_stats_global out;
  while (!atomic_load(&stop)) CHECK(tslab_stats(&out, sizeof out) == 0);
  return unused;
}

static void *write_over_stack(void *unused) {
  char bytes[STACK];
  memset(bytes, 0x5a, sizeof bytes);
  __asm__ volatile("" : : "r"(bytes) : "memory");
  return unused;
}

static void be_child(void) {
  pthread_t threads[2];
  alarm(20);
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, write_over_stack, NULL) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  free(some); /* leaves the list of the epoch's blocks */
  _exit(0);
}

static void *fork_often(void *unused) {
  for (int i = 0; i < FORKS; i++) {
    int status;
    const pid_t child = fork();
    if (child == 0) be_child();
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_COUNT(status, ==, 0);
  }
  return unused;
}

int main(void) {
  pthread_t reader, forker;
  const tslab_epoch epoch = tslab_epoch_open("large");
  CHECK(tslab_epoch_enter(epoch) == 0);
  for (int i = 0; i < BLOCKS; i++) CHECK((some = malloc(BYTES)) != NULL);
  CHECK(tslab_epoch_leave(epoch) == 0);
  CHECK(pthread_create(&reader, NULL, read_statistics, NULL) == 0);
  CHECK(pthread_create(&forker, NULL, fork_often, NULL) == 0);
  CHECK(pthread_join(forker, NULL) == 0);
  atomic_store(&stop, true);
  CHECK(pthread_join(reader, NULL) == 0);
  return 0;
}
