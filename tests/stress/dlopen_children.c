/* dlopen_children: the library comes by dlopen, into a program that has another malloc and fork handlers of its own.
 * Its copy of memory is right in children of _Fork, which other threads' calls interrupt; and in a child whose program
 * starts, in a fork handler that is older than the library's, a thread that forks itself. */
#include "../check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>

enum { THREADS = 3, BARE_CHILDREN = 150, CHILDREN = 40, HELD = 40 };

static void *(*allocate)(size_t);
static void (*release)(void *);

static void use(unsigned calls, unsigned most, uint64_t seed) {
  unsigned char *held[HELD] = {NULL};
  size_t sizes[HELD];
  for (unsigned i = 0; i < calls; i++) {
    const unsigned at = (unsigned)(check_random(&seed) % HELD);
    if (held[at]) {
      CHECK(held[at][0] == at && held[at][sizes[at] - 1] == at);
      release(held[at]);
      held[at] = NULL;
    } else {
      sizes[at] = check_random(&seed) % most + 1;
      CHECK((held[at] = allocate(sizes[at])) != NULL);
      memset(held[at], (int)at, sizes[at]);
    }
  }
  for (unsigned at = 0; at < HELD; at++) release(held[at]);
}

static bool ends_well(pid_t child) {
  int status;
  CHECK(child > 0);
  while (waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  return status == 0;
}

/* ---- _Fork ------------------------------------------------------------------------------------------------------- */

static _Atomic bool is_over;

static void *be_busy(void *seed) {
  for (uint64_t i = (uintptr_t)seed; !is_over; i += THREADS) use(100, 200000, i);
  return NULL;
}

static void fork_barely(void) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, be_busy, (void *)(i + 1)) == 0);
  for (int i = 0; i < BARE_CHILDREN; i++) {
    const pid_t child = _Fork();
    if (child == 0) {
      alarm(10);
      use(100, 100000, 7);
      _exit(0);
    }
    CHECK(ends_well(child));
  }
  is_over = true;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- a thread in the child, before the library's handler --------------------------------------------------------- */

static bool starts_worker;
static _Atomic int jobs;
static pthread_t worker;

static void *fork_jobs(void *unused) {
  while (!is_over) {
    use(300, 3000, (uint64_t)jobs);
    const pid_t job = fork();
    if (job == 0) {
      use(20, 3000, 1);
      _exit(0);
    }
    CHECK(ends_well(job));
    jobs++;
  }
  return unused;
}

static void start_worker(void) {
  if (!starts_worker) return;
  starts_worker = false;
  alarm(20);
  CHECK(pthread_create(&worker, NULL, fork_jobs, NULL) == 0);
  while (jobs == 0) usleep(200);
}

static void fork_with_workers(void) {
  is_over = false;
  for (int i = 0; i < CHILDREN; i++) {
    starts_worker = true;
    const pid_t child = fork();
    if (child == 0) {
      for (int k = 0; k < 100; k++) use(200, 3000, (uint64_t)k);
      is_over = true;
      CHECK(pthread_join(worker, NULL) == 0);
      use(100, 3000, 9);
      _exit(0);
    }
    CHECK(ends_well(child));
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2 && pthread_atfork(NULL, NULL, start_worker) == 0);
  void *const library = dlopen(argv[1], RTLD_NOW);
  CHECK(library != NULL);
  allocate = (void *(*)(size_t))dlsym(library, "tslab_malloc");
  release = (void (*)(void *))dlsym(library, "tslab_free");
  CHECK(allocate && release);
  use(1000, 3000, 3);
  fork_barely();
  fork_with_workers();
  return 0;
}
