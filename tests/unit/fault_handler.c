/* fault_handler: the program sets its handler of SIGSEGV just while the library installs its own, which does not lose
 * it, and calls it on the stack that it asks for. The program's sigaction stands in for another thread's call between
 * two of the library's.
 *  fault_handler */
#include "../check.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { BLOCKS = 100000, ALTERNATE = 64 << 10 };

static char alternate[ALTERNATE];
static bool was_on_it;

static sigjmp_buf back;
static bool is_due, is_set;

static void on_fault(int signal) {
  (void)signal;
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  was_on_it = here - (uintptr_t)alternate < ALTERNATE;
  siglongjmp(back, 1);
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *before) {
  int (*next)(int, const struct sigaction *, struct sigaction *) = NULL;
  *(void **)&next = dlsym(RTLD_NEXT, "sigaction");
  const int result = next(signal, action, before);
  if (signal == SIGSEGV && !action && is_due && !is_set) {
    const struct sigaction mine = {.sa_handler = on_fault};
    is_set = true;
    CHECK(next(signal, &mine, NULL) == 0);
  }
  return result;
}

int main(void) {
  const stack_t stack = {.ss_sp = alternate, .ss_size = ALTERNATE};
  CHECK(sigaltstack(&stack, NULL) == 0);
  is_due = true;
  for (unsigned i = 0; i < BLOCKS && !is_set; i++) {
    void *block = tslab_malloc(1000);
    CHECK(block != NULL);
    tslab_free(block);
  }
  CHECK(is_set);
  char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  if (sigsetjmp(back, 1) == 0) {
    *(volatile char *)page = 1;
    CHECK(false);
  }
  CHECK(!was_on_it);
  return 0;
}
