/* no_key: the program took the last pthread key before its first malloc, so the library does not learn of a thread's
 * end. Threads that end leave no heap behind, and the process ends, by exit, with its last thread. */
#include "../check.h"

#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 300, BLOCKS = 8, BYTES = 2 << 20, STATUS = 5, HANG_S = 20 };

int pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
  (void)key, (void)destructor;
  return EAGAIN;
}

static void free_much(void) {
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(BYTES)) != NULL);
  for (int i = 0; i < BLOCKS; i++) memset(blocks[i], 1, BYTES);
  for (int i = 0; i < BLOCKS; i++) tslab_free(blocks[i]);
}

static void *use_heap(void *kept) {
  const tslab_epoch epoch = tslab_epoch_open("thread's");
  CHECK(tslab_epoch_enter(epoch) == 0);
  void *const block = tslab_malloc(100);
  CHECK(tslab_epoch_of(block) == epoch);
  CHECK(tslab_epoch_leave(epoch) == 0);
  tslab_free(block);
  CHECK(tslab_epoch_close(epoch, NULL) == 0);
  CHECK((*(void **)kept = tslab_malloc(1000)) != NULL);
  free_much();
  return NULL;
}

static void *end_last(void *main_thread) {
  void *kept;
  CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
  use_heap(&kept);
  return NULL;
}

static void leave(void) { _exit(STATUS); }

static void end_with_last_thread(void) {
  static pthread_t self;
  pthread_t last;
  alarm(HANG_S);
  self = pthread_self();
  CHECK(atexit(leave) == 0);
  CHECK(pthread_create(&last, NULL, end_last, &self) == 0);
  pthread_exit(NULL);
}

int main(int argc, char **argv) {
  if (argc > 1) end_with_last_thread();
  static void *kept[THREADS];
  int status;
  tslab_stats_global stats;
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_heap, &kept[i]) == 0 && pthread_join(thread, NULL) == 0);
  }
  for (int i = 0; i < THREADS; i++) tslab_free(kept[i]);
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  CHECK_COUNT(stats.threads, <=, 1);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) execl(argv[0], argv[0], "last", NULL); /* musl 1.2.3: only so a thread can outlive the first */
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK_COUNT(WEXITSTATUS(status), ==, STATUS);
  return 0;
}
