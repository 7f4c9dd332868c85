/* notified_queue: the kernel forgets that a process wants to be notified of a message (mq_notify) as soon as any thread
 * of it closes a descriptor of the queue. The library's thread, which leaves the program's descriptors when it begins,
 * does not close such a one. */
#include "scavenger.h"

#include <mqueue.h>
#include <signal.h>

enum { WAIT_S = 10 };

int main(void) {
  char name[32];
  sigset_t told;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  snprintf(name, sizeof name, "/tslab.%d", (int)getpid());
  const mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
  if (queue == (mqd_t)-1) {
    printf("skipped: there are no message queues here\n");
    return SKIPPED;
  }
  CHECK(mq_unlink(name) == 0);
  CHECK(sigemptyset(&told) == 0 && sigaddset(&told, SIGUSR1) == 0 && sigprocmask(SIG_BLOCK, &told, NULL) == 0);
  CHECK(mq_notify(queue, &event) == 0);
  make_scavenger();
  clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 300000000}, NULL); /* it has begun */
  CHECK(mq_send(queue, "", 1, 0) == 0);
  CHECK_COUNT(sigtimedwait(&told, NULL, &(struct timespec){.tv_sec = WAIT_S}), ==, SIGUSR1);
  return 0;
}
