/* dismissed: threads dismiss the library's thread at the same time, while others make it start again, and the kernel is
 * slow to answer if it is still there. A dismissal then must not take the next one for the one that it dismissed: that
 * one would run on for ever, and nothing would end it. */
#include "filter.h"
#include "scavenger.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>

#if defined(SECCOMP_RET_USER_NOTIF) && defined(SECCOMP_USER_NOTIF_FLAG_CONTINUE)

enum { MOVERS = 6, ALLOCATORS = 2, CALLS = 60, DELAY_US = 2500 };

static _Atomic int moving = MOVERS;

static void *move(void *unused) {
  for (int i = 0; i < CALLS; i++) {
    CHECK(unshare(0) == 0);
    for (int k = 0; k < 3; k++) {
      void *list = NULL;
      CHECK_COUNT(fill_list(&list, 900000, 900000), >=, 900000);
      free_list(&list);
    }
  }
  moving--;
  return unused;
}

static void *allocate(void *unused) {
  while (moving != 0) {
    void *list = NULL;
    CHECK_COUNT(fill_list(&list, 400000, 4 * MIB), >=, 4 * MIB);
    free_list(&list);
  }
  return unused;
}

/* From now on the kernel asks here before each kill. Returns false if this machine does not allow that. */
static bool watch_kill(void) {
  const pid_t watched = getpid();
  const int calls = filter_call(SYS_kill, SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
  if (calls < 0) return false;
  const pid_t watcher = fork();
  CHECK(watcher >= 0);
  if (watcher != 0) return close(calls) == 0;
  CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0);
  while (getppid() == watched) {
    struct seccomp_notif call = {.id = 0};
    if (ioctl(calls, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
    usleep(DELAY_US);
    struct seccomp_notif_resp answer = {.id = call.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(calls, SECCOMP_IOCTL_NOTIF_SEND, &answer); /* the caller may be gone */
  }
  _exit(0);
}

int main(void) {
  pthread_t threads[MOVERS + ALLOCATORS];
  alarm(120);
  if (!watch_kill()) return SKIPPED;
  for (int i = 0; i < MOVERS + ALLOCATORS; i++)
    CHECK(pthread_create(&threads[i], NULL, i < MOVERS ? move : allocate, NULL) == 0);
  for (int i = 0; i < MOVERS + ALLOCATORS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  make_scavenger();
  CHECK(unshare(0) == 0);
  /* The kernel drops a thread that ends a moment later. */
  for (int i = 0; i < 1000 && other_thread() != 0; i++) usleep(1000);
  CHECK(other_thread() == 0);
  return 0;
}

#else
int main(void) { return SKIPPED; }
#endif
