/* fault_handler: the program sets its handler of SIGSEGV just while the library installs its own, which does not lose
 * it. The program's sigaction stands in for another thread's call between two of the library's.
 *  fault_handler */
#include "../check.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum { BLOCKS = 100000 };

static sigjmp_buf back;
static bool is_due, is_set;

static void on_fault(int signal) {
  (void)signal;
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
  return 0;
}
