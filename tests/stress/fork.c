/* fork: threads allocate while main and others fork, again and again. Each child allocates, frees its own blocks and
 * its parent's, also those of threads that it does not have, ends epochs in which these were busy, makes a thread of
 * its own, and forks once itself. Fork handlers that the program registered allocate, and a child of vfork does.
 *  fork [long] */
#include "../check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS = 3, SHARED = 512, OWN = 200, LEFT = 400, PATIENCE_S = 60 };

/* Blocks put aside by any thread, freed by any thread or child. The lock is held across fork: a child sees what
 * other threads wrote only as far as it happened before, and a block half handed over is nobody's to free. */
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

/* Threads of the parent are anywhere in the middle of this when a child is born. */
static tslab_epoch filled, parent;

static void rest_at_times(unsigned round) {
  if (round % 128 == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void *fill_epoch(void *unused) {
  for (unsigned round = 1; !stop; round++) {
    rest_at_times(round);
    void *const large = tslab_epoch_malloc(filled, 70000), *const in_chunk = tslab_epoch_malloc(filled, 9000);
    CHECK(large != NULL && in_chunk != NULL);
    tslab_free(large);
    tslab_free(in_chunk);
  }
  return unused;
}

static void *open_children(void *unused) {
  const tslab_epoch_options below = {.struct_size = sizeof below, .parent = parent};
  for (unsigned round = 1; !stop; round++) {
    rest_at_times(round);
    const tslab_epoch child = tslab_epoch_open_with(&below);
    CHECK(child != 0 && tslab_epoch_close(child, NULL) == 0);
  }
  return unused;
}

static void end_epochs(void) {
  tslab_epoch_status status;
  CHECK(tslab_epoch_destroy(filled, NULL) == 0 && tslab_epoch_info(filled, &status) == ESTALE);
  CHECK(tslab_epoch_close(parent, NULL) == 0 && tslab_epoch_info(parent, &status) == ESTALE);
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
  end_epochs();
  tslab_malloc_trim(0);
  _exit(0);
}

static void *fork_once(void *number) {
  const pid_t child = fork_locked();
  if (child == 0) live_as_child((uintptr_t)number);
  wait_for(child);
  return NULL;
}

/* Registered by a constructor, so before main, and without regard to when the library's own are. */
static void allocate_at_fork(void) {
  void *blocks[LEFT];
  for (int i = 0; i < LEFT; i++) CHECK((blocks[i] = tslab_malloc(20000)) != NULL);
  for (int i = 0; i < LEFT; i++) tslab_free(blocks[i]);
}

__attribute__((constructor)) static void register_handlers(void) {
  CHECK(pthread_atfork(allocate_at_fork, allocate_at_fork, allocate_at_fork) == 0);
}

/* A child that frees much in its parent's memory makes no scavenger: it would take it along. The parent makes it. */
static void vfork_and_free(void) {
  void *blocks[LEFT];
  tslab_stats_global now;
  for (int i = 0; i < LEFT; i++) CHECK((blocks[i] = tslab_malloc(20000)) != NULL);
  const pid_t child = vfork();
  if (child == 0) {
    for (int i = 0; i < LEFT; i++) tslab_free(blocks[i]);
    _exit(0);
  }
  wait_for(child);
  for (int i = 0; i < PATIENCE_S * 100; i++) {
    tslab_free(tslab_malloc(100000)); /* a slow path */
    CHECK(tslab_stats(&now, sizeof now) == 0);
    if (now.free_dirty_bytes + now.cached_bytes < 1 << 20) return;
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  CHECK(!"the scavenger is at work");
}

int main(int argc, char **argv) {
  const uintptr_t forks = (argc > 1 && strcmp(argv[1], "long") == 0 ? 10000 : 50) / TEST_SCALE;
  pthread_t threads[THREADS + 2];
  vfork_and_free();
  filled = tslab_epoch_open_with(
      &(tslab_epoch_options){.struct_size = sizeof(tslab_epoch_options), .flags = TSLAB_EPOCH_DESTROYABLE});
  parent = tslab_epoch_open("parent");
  CHECK(filled != 0 && parent != 0);
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, keep_allocating, (void *)i) == 0);
  CHECK(pthread_create(&threads[THREADS], NULL, fill_epoch, NULL) == 0);
  CHECK(pthread_create(&threads[THREADS + 1], NULL, open_children, NULL) == 0);
  for (uintptr_t i = 0; i < forks; i++) {
    fork_once((void *)i);
    use_heap(i + 1, 50);
    /* The same from a thread: in its child, main is among those who are gone. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fork_once, (void *)i) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  stop = 1;
  for (int i = 0; i < THREADS + 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  end_epochs();
  for (int i = 0; i < SHARED; i++) tslab_free(shared[i]);
  return 0;
}
