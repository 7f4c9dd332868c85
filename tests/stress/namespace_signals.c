/* namespace_signals: a signal handler makes a call for a process of one thread while the thread is in malloc, or in
 * libc's calls that make threads and wait for their ends. The process goes on. */
#include "../check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

enum { BLOCKS = 20, TURNS = 150 };

/* glibc keeps no stack of this size, and unmaps it under the lock that every end of a thread takes. */
#define STACK ((size_t)64 << 20)
#define USED  ((size_t)16 << 20)

static volatile sig_atomic_t calls_done;

/* Changes nothing where it succeeds. */
static void be_alone(int unused) {
  (void)unused;
  const int kept = errno;
  if (unshare(CLONE_THREAD) == 0) calls_done++;
  errno = kept;
}

static void allocate(void) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(300000 + i * 70000)) != NULL);
  for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void raise_after(suseconds_t delay) {
  CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, delay}}, NULL) == 0);
}

static void *use_stack(void *delay) {
  char *const here = (char *)__builtin_frame_address(0) - USED;
  for (size_t i = 0; i < USED - 16384; i += 4096) ((volatile char *)here)[i] = 1;
  raise_after(*(suseconds_t *)delay);
  return NULL;
}

static void make_thread(suseconds_t delay) {
  pthread_t thread;
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
  CHECK(pthread_create(&thread, &attributes, use_stack, &delay) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(pthread_attr_destroy(&attributes) == 0);
}

int main(void) {
  CHECK(signal(SIGALRM, be_alone) != SIG_ERR);
  for (int turn = 0; turn < TURNS; turn++) {
    raise_after(50 + turn * 101 % 1000);
    allocate();
    raise_after(0);
    allocate(); /* makes another scavenger */
    make_thread(50 + turn * 37 % 2000);
  }
  CHECK(calls_done > 0);
  return 0;
}
