/* torn_profile: forks a child at each instruction of a free that takes a sample out of the heap profile. The child
 * reads the profile. The tables may be half written, but the read must end. */
#include "../check.h"

#include "stats/profile.h"
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#if defined(__x86_64__)

enum { BLOCKS = 200, BYTES = 3000, FIRST = 3, GOING = 8, PATIENCE_S = 20 };
#define TRAP_FLAG 0x100

static volatile bool steps;
static unsigned births;

static struct site_row rows[TABLE_SITES_MOST];

static void be_child(void) {
  CHECK(signal(SIGALRM, SIG_DFL) != SIG_ERR);
  alarm(PATIENCE_S);
  CHECK_COUNT(profile_collect_sites(rows, TABLE_SITES_MOST), >=, 1);
  tslab_free(tslab_malloc(100));
  _exit(0);
}

static void give_birth(int number, siginfo_t *info, void *context) {
  greg_t *const flags = &((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL];
  (void)number, (void)info;
  *flags = steps ? *flags | TRAP_FLAG : *flags & ~(greg_t)TRAP_FLAG;
  if (!steps) return;
  const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  int status;
  if (child == 0) be_child();
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  births++;
}

static void free_in_steps(void *block) {
  steps = true;
  __asm__ volatile("lea -256(%%rsp), %%rsp\n\tpushfq\n\torq %0, (%%rsp)\n\tpopfq\n\tlea 256(%%rsp), %%rsp"
                   : : "i"(TRAP_FLAG) : "memory", "cc");
  tslab_free(block);
  steps = false;
}

int main(void) {
  void *blocks[BLOCKS];
  const struct sigaction action = {.sa_sigaction = give_birth, .sa_flags = SA_SIGINFO};
  CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
  const tslab_epoch epoch = tslab_epoch_open("filled");
  CHECK(epoch != 0 && tslab_epoch_enter(epoch) == 0);
  for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = tslab_malloc(BYTES)) != NULL);
  CHECK(tslab_epoch_leave(epoch) == 0);
  const uint64_t before = profile_totals().frees;
  /* Half of this size are samples, so that one run in 350 meets none among the first eight. */
  for (int i = FIRST; i < FIRST + GOING || (i < BLOCKS && profile_totals().frees == before); i++)
    free_in_steps(blocks[i]);
  CHECK_COUNT(profile_totals().frees, >, before);
  CHECK_COUNT(births, >, 100);
  return 0;
}

#else

int main(void) { return 77; }

#endif
