/* last_thread: a process whose main thread left by pthread_exit ends, with status 0, with the last thread of the
 * program: the scavenger, which was started before, must not keep it alive. The same in a child that another thread
 * forked, with threads whose last destructor allocates after the library's own, and when the last two threads end at
 * the same time, one of them in such a destructor; when the last thread only frees; in a child that a program of one
 * thread forked; and in one where the scavenger was started by a fork handler.
 * last_thread [fork | keys | together | free | child | handler] */
#include "../check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)

/* Enough for the scavenger to be started, and to have something to do. */
static void free_much(void) {
  void *blocks[8];
  for (int i = 0; i < 8; i++) {
    blocks[i] = tslab_malloc(2 * MIB);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], 1, 2 * MIB);
  }
  for (int i = 0; i < 8; i++) tslab_free(blocks[i]);
}

/* The child returns from here as its only thread; so does the parent's other thread, while main is still there. */
static void *fork_and_end(void *unused) {
  int status;
  free_much();
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    free_much();
    return unused;
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return unused;
}

static _Atomic int main_leaves;
static void leave(void *unused) { (void)unused, main_leaves = 1; }

static void *outlive_main(void *unused) {
  while (!main_leaves) sched_yield();
  free_much();
  return unused;
}

/* libc calls a destructor that sets its key again, until it has done so for PTHREAD_DESTRUCTOR_ITERATIONS rounds. */
static pthread_key_t again;
static void come_again(void *round) {
  free_much();
  if ((uintptr_t)round < PTHREAD_DESTRUCTOR_ITERATIONS)
    CHECK(pthread_setspecific(again, (void *)((uintptr_t)round + 1)) == 0);
}

static void *allocate_to_the_last(void *unused) {
  CHECK(pthread_setspecific(again, (void *)1) == 0);
  return unused;
}

/* Two threads end, many times: each child is one process. */
enum { PROCESSES = 60, ALLOCATIONS = 20000 };
static _Atomic int is_late;
static void allocate_late(void *unused) {
  is_late = 1;
  for (int i = 0; i < ALLOCATIONS; i++) tslab_free(tslab_malloc(100));
  (void)unused;
}

static void *end_beside(void *unused) {
  tslab_free(tslab_malloc(100));
  while (!is_late) sched_yield();
  usleep(1000);
  return unused;
}

static void *end_late(void *unused) {
  tslab_free(tslab_malloc(100)); /* the heap that ends before the destructor */
  CHECK(pthread_setspecific(again, &is_late) == 0);
  return unused;
}

static void end_together(void) {
  pthread_t other;
  CHECK(pthread_key_create(&again, allocate_late) == 0);
  free_much();
  CHECK(pthread_create(&other, NULL, end_beside, NULL) == 0 && pthread_detach(other) == 0);
  CHECK(pthread_create(&other, NULL, end_late, NULL) == 0 && pthread_detach(other) == 0);
  pthread_exit(NULL);
}

static int end_together_often(void) {
  for (int i = 0; i < PROCESSES; i++) {
    const pid_t child = fork();
    int status;
    CHECK(child >= 0);
    if (child == 0) {
      alarm(20);
      end_together();
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  return 0;
}

/* The last heap ended with main, so the end of a heap does not stop what these frees start. */
enum { KEPT = 8, LAST_STATUS = 5 };
static void *kept[KEPT];
static pthread_t main_thread;
static void *only_free(void *unused) {
  CHECK(pthread_join(main_thread, NULL) == 0);
  for (int i = 0; i < KEPT; i++) tslab_free(kept[i]);
  return unused;
}

static void say_exit(void) { _exit(LAST_STATUS); }

static void end_freeing(void) {
  pthread_t other;
  alarm(20);
  main_thread = pthread_self();
  CHECK(atexit(say_exit) == 0);
  for (int i = 0; i < KEPT; i++) CHECK((kept[i] = tslab_malloc(2 * MIB)) != NULL);
  for (int i = 0; i < KEPT; i++) memset(kept[i], 1, 2 * MIB);
  CHECK(pthread_create(&other, NULL, only_free, NULL) == 0);
  pthread_exit(NULL);
}

/* A new program: in a child of musl 1.2.3's fork no thread outlives the first. */
static int free_at_last(const char *program) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) execl(program, program, "free", "alone", NULL);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK_COUNT(WEXITSTATUS(status), ==, LAST_STATUS);
  return 0;
}

/* The scavenger is a second thread of the parent that the child does not have. The thread ends with or without a
 * heap. */
static void *outlive_first(void *frees) {
  CHECK(pthread_join(main_thread, NULL) == 0);
  if (frees) free_much();
  return frees;
}

static void end_in_child(bool frees) {
  pthread_t other;
  alarm(20);
  main_thread = pthread_self();
  CHECK(atexit(say_exit) == 0);
  CHECK(pthread_create(&other, NULL, outlive_first, frees ? kept : NULL) == 0 && pthread_detach(other) == 0);
  pthread_exit(NULL);
}

static int end_in_children(void) {
#if defined(__GLIBC__) /* in a child of musl 1.2.3's fork no thread outlives the first */
  free_much();
  for (int mode = 0; mode < 4; mode++) {
    int status;
    const pid_t child = mode & 1 ? _Fork() : fork();
    CHECK(child >= 0);
    if (child == 0) end_in_child(mode & 2);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK_COUNT(WEXITSTATUS(status), ==, LAST_STATUS);
  }
#endif
  return 0;
}

/* glibc decides before the handlers run whether a fork counts threads anew. */
#if defined(__GLIBC__)
static int told;
static void tell_exit(void) { CHECK(write(told, "e", 1) == 1); }

static void leave_child(bool by_daemon) {
  CHECK(pthread_atfork(free_much, NULL, NULL) == 0);
  const pid_t child = by_daemon ? daemon(1, 1) : fork();
  CHECK(child >= 0);
  if (child > 0) _exit(0);
  alarm(20);
  CHECK(atexit(tell_exit) == 0);
  pthread_exit(NULL);
}

static int leave_children(void) {
  for (int by_daemon = 0; by_daemon < 2; by_daemon++) {
    char byte;
    int ends[2], status;
    CHECK(pipe(ends) == 0);
    told = ends[1];
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) leave_child(by_daemon);
    CHECK(close(ends[1]) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(ends[0], &byte, 1) == 1);
    CHECK(close(ends[0]) == 0);
  }
  return 0;
}
#else
static int leave_children(void) { return 77; }
#endif

int main(int argc, char **argv) {
  if (argc > 2) end_freeing();
  if (argc > 1 && strcmp(argv[1], "free") == 0) return free_at_last(argv[0]);
  if (argc > 1 && strcmp(argv[1], "together") == 0) return end_together_often();
  if (argc > 1 && strcmp(argv[1], "child") == 0) return end_in_children();
  if (argc > 1 && strcmp(argv[1], "handler") == 0) return leave_children();
  pthread_t other;
  pthread_key_t key;
  const int forks = argc > 1 && strcmp(argv[1], "fork") == 0;
  if (argc > 1 && strcmp(argv[1], "keys") == 0) {
    CHECK(pthread_key_create(&again, come_again) == 0);
    CHECK(pthread_create(&other, NULL, allocate_to_the_last, NULL) == 0 && pthread_join(other, NULL) == 0);
  }
  CHECK(pthread_key_create(&key, leave) == 0 && pthread_setspecific(key, &main_leaves) == 0);
  free_much();
  CHECK(pthread_create(&other, NULL, forks ? fork_and_end : outlive_main, NULL) == 0);
  if (forks) CHECK(pthread_join(other, NULL) == 0);
  pthread_exit(NULL);
}
