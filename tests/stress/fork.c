/* fork: threads allocate while main and others fork, again and again. Each child allocates, frees its own blocks and
 * its parent's, also those of threads that are gone, makes a thread of its own, and forks once itself.  
 *  fork [long] */
#include "../check.h"

#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 3, SHARED = 512, OWN = 200 };

/* Blocks put by any thread, freed by any thread or child. The lock is held across fork: a child sees what other threads
 * wrote only as far as it happened before, and a block half handed over is nobody's to free. */
static void *shared[SHARED];
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int stop;

static void *exchange(size_t index, void *block) {
  pthread_mutex_lock(&shared_lock);
  void *const before = shared[index];
  shared[index] = block;
  pthread_mutex_unlock(&shared_lock);
  return before;
}

static pid_t fork_locked(void) {
  pthread_mutex_lock(&shared_lock);
  const pid_t child = fork();
  pthread_mutex_unlock(&shared_lock);
  return child;
}

static size_t a_size(uint64_t *random) {
  const uint64_t r = check_random(random);
  return r % 64 == 0 ? r % 600000 : r % 900;
}

static void use_heap(uint64_t seed, int rounds) {
  unsigned char *own[OWN] = {0};
  uint64_t random = seed;
  for (int i = 0; i < rounds; i++) {
    unsigned char **slot = &own[check_random(&random) % OWN];
    const size_t size = a_size(&random);
    *slot = tslab_realloc(*slot, size + 1);
    CHECK(*slot != NULL);
    memset(*slot, 0x44, size + 1);
    if (i % 3 == 0) tslab_free(exchange(check_random(&random) % SHARED, tslab_malloc(size)));
  }
  for (int i = 0; i < OWN; i++) tslab_free(own[i]);
}

static void *keep_allocating(void *argument) {
  for (uint64_t seed = (uintptr_t)argument; !stop; seed += THREADS) use_heap(seed + 1, 500);
  return NULL;
}

static void *use_heap_as_thread(void *argument) {
  use_heap((uintptr_t)argument, 300);
  return NULL;
}

static void wait_for(pid_t child) {
  int status;
  CHECK(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void live_as_child(uintptr_t number) {
  for (int i = 0; i < SHARED; i += 2) tslab_free(exchange((size_t)i, NULL));
  use_heap(number + 1, 500);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_heap_as_thread, (void *)(number + 1)) == 0);
  use_heap(number + 2, 300);
  CHECK(pthread_join(thread, NULL) == 0);
  const pid_t grandchild = fork_locked();
  if (grandchild == 0) {
    for (int i = 0; i < SHARED; i++) tslab_free(exchange((size_t)i, NULL));
    use_heap(number + 3, 300);
    _exit(0);
  }
  wait_for(grandchild);
  tslab_malloc_trim(0);
  _exit(0);
}

static void *fork_once(void *number) {
  const pid_t child = fork_locked();
  if (child == 0) live_as_child((uintptr_t)number);
  wait_for(child);
  return NULL;
}

int main(int argc, char **argv) {
  const uintptr_t forks = (argc > 1 && strcmp(argv[1], "long") == 0 ? 10000 : 50) / TEST_SCALE;
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, keep_allocating, (void *)i) == 0);
  for (uintptr_t i = 0; i < forks; i++) {
    fork_once((void *)i);
    use_heap(i + 1, 50);
    /* The same from a thread: in its child, main is among those who are gone. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fork_once, (void *)i) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  stop = 1;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < SHARED; i++) tslab_free(shared[i]);
  return 0;
}
