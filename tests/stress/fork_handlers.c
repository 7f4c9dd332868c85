/* fork_handlers: handlers of fork that the program registered before the library's run inside it, while the library's
 * locks are held, and allocate. The fork must not wait for itself. The child is repaired once, even if its handler
 * allocated before the library's ran: a thread that the handler starts keeps its heap. */
#include "../check.h"

#include <pthread.h>
#include <sys/wait.h>

enum { FORKS = 3, SIZES = 40, STEP = 20000, HANG_S = 8 };
enum handler { PREPARE = 1, PARENT = 2, CHILD = 4, THREAD = 8 };

static unsigned wanted, ran;
static pthread_t started;
static pthread_barrier_t barrier;

/* Most of these take a slow path. */
static void allocate(void) {
  for (size_t i = 1; i < SIZES; i++) {
    void *const block = tslab_malloc(i * STEP);
    CHECK(block != NULL);
    memset(block, 1, 100);
    tslab_free(block);
  }
}

static void *use_heap_twice(void *unused) {
  void *const block = tslab_malloc(100);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier); /* the library's handler ran */
  allocate();
  tslab_free(block);
  return unused;
}

static void handle(enum handler which) {
  ran |= which;
  if (wanted & which) allocate();
}

static void prepare(void) { handle(PREPARE); }
static void be_parent(void) { handle(PARENT); }
static void be_child(void) {
  alarm(HANG_S);
  handle(CHILD);
  if (!(wanted & THREAD)) return;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(pthread_create(&started, NULL, use_heap_twice, NULL) == 0);
  pthread_barrier_wait(&barrier);
}

static void register_handlers(void) { CHECK(pthread_atfork(prepare, be_parent, be_child) == 0); }
__attribute__((section(".init_array.00050"), used)) static void (*early)(void) = register_handlers;

/* A handler that breaks the hold lets others work beside the copy. Of a child's thread that allocates before the
 * forking thread does, the library does not know whose copy it lives in. */
static int is_whole(void) { return !(wanted & PREPARE) && (!(wanted & THREAD) || (wanted & CHILD)); }

static void check_child(void) {
  tslab_stats_global stats;
  if (wanted & THREAD) {
    tslab_free(tslab_malloc(200)); /* has a heap of its own, not the thread's */
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(started, NULL) == 0);
  }
  allocate();
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  if (is_whole()) CHECK_COUNT(stats.frozen_bytes, ==, 0);
  _exit(0);
}

static void fork_and_check(void) {
  int status;
  ran = 0;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) check_child();
  CHECK_COUNT(ran, ==, PREPARE | PARENT);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_COUNT(status, ==, 0);
}

int main(void) {
  void *const kept = tslab_malloc(100);
  alarm(HANG_S); /* a fork that waited for itself would go on only after ten seconds */
  for (wanted = 0; wanted < 2 * THREAD; wanted++)
    for (int i = 0; i < FORKS; i++) fork_and_check();
  tslab_free(kept);
  return 0;
}
