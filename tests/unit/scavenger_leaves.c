/* scavenger_leaves: a process forks while its scavenger leaves by itself, because the heap that it released was the
   process's last. The child's scavenger is stopped as any other: the thread that stops it ends publication. */
#include "unit.h"

#include "runtime/scavenger.h"
#include "stats/publish.h"
#include <pthread.h>
#include <sys/wait.h>

void __real_limits_tick(uint64_t tick);
void __wrap_limits_tick(uint64_t tick);
void __real_publish_end(void);
void __wrap_publish_end(void);

static pthread_t first;
static _Atomic bool leaves = true; /* the parent's scavenger */
static _Atomic int ends;           /* of publication, by a scavenger */
static _Atomic bool is_leaving, has_forked;

static void rest(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

void __wrap_limits_tick(uint64_t tick) {
  __real_limits_tick(tick);
  if (!leaves) return;
  scavenger_stop();
  is_leaving = true;
  while (!has_forked) rest();
}

void __wrap_publish_end(void) {
  if (!pthread_equal(pthread_self(), first)) ends++;
  __real_publish_end();
}

static void start_scavenger(void) {
  while (!scavenger_is_there()) {
    void *const block = tslab_malloc(4 * MiB);
    CHECK(block != NULL);
    tslab_free(memset(block, 1, 4 * MiB));
    tslab_free(tslab_malloc(100));
    rest();
  }
}

static void stop_the_childs(void) {
  leaves = false;
  start_scavenger();
  scavenger_stop();
  CHECK(!scavenger_is_there());
  CHECK_COUNT(ends, ==, 0);
}

int main(void) {
  int status;
  first = pthread_self();
  start_scavenger();
  while (!is_leaving) rest();
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    stop_the_childs();
    _exit(0);
  }
  has_forked = true;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
  while (scavenger_is_there()) rest();
  CHECK_COUNT(ends, ==, 1);
  return 0;
}
