/* first_thread: the library knows if the process's first thread has ended. A thread that forks is the first thread of
 * its child, and the child may join it. Then its descriptor is gone, and the library must not read it. */
#include "unit.h"

#include "process/process.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STACK_BYTES (64 * MiB) /* more than glibc keeps of the stacks of ended threads */

static pthread_t forking;

/* Leaves no gap where that stack was. */
static void forbid_gaps(void) {
  for (size_t i = 0; i < 2 * STACK_BYTES / MiB; i++) {
    void *at = mmap(NULL, MiB, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
  }
}

static void *outlive_it(void *unused) {
  CHECK(pthread_join(forking, NULL) == 0);
  forbid_gaps();
  CHECK(!process_first_has_ended()); /* no thread knows */
  _exit(0);
  return unused;
}

static void *fork_here(void *unused) {
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    tslab_free(tslab_malloc(100)); /* repairs the child's heap, at the latest */
    forking = pthread_self();
    CHECK(pthread_create(&thread, NULL, outlive_it, NULL) == 0);
    return unused;
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return unused;
}

static void child_of_another_thread(void) {
  pthread_t thread;
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
  CHECK(pthread_create(&thread, &attributes, fork_here, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_attr_destroy(&attributes) == 0);
}

static void *wait_for_its_end(void *unused) {
  while (!process_first_has_ended()) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  _exit(0);
  return unused;
}

/* The first thread ends in the child of its own fork. */
static void child_of_the_first_thread(void) {
  pid_t child = fork();
  if (child == 0) {
    pthread_t thread;
    alarm(20);
    CHECK(!process_first_has_ended());
    CHECK(pthread_create(&thread, NULL, wait_for_its_end, NULL) == 0);
    pthread_exit(NULL);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  tslab_free(tslab_malloc(100));
  CHECK(!process_first_has_ended());
  child_of_another_thread();
#if defined(__GLIBC__) /* only glibc knows the thread */
  child_of_the_first_thread();
#endif
  return 0;
}
