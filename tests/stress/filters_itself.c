/* filters_itself: a child of a daemon installs a filter that ends the process for a call that it does not know, and
 * goes on allocating for a second and more, with default settings. So the library makes no thread there. sshd installs
 * its filter by prctl, chronyd by libseccomp. */
#include "filter.h"
#include "memory.h"

#include <dlfcn.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

enum { SOME = 0x7fff0000, ENDS = 0 }; /* of libseccomp */

static int call_prctl(const struct sock_fprog *program) { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program); }
static bool by_prctl(void) { return install_filter_by(call_prctl, SECCOMP_RET_KILL, (const int[FILTER_MORE]){-1}); }

/* libseccomp's functions, without its headers. */
static bool by_library(void) {
  void *const library = dlopen("libseccomp.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (!library) return false;
  void *(*const init)(uint32_t) = (void *(*)(uint32_t))dlsym(library, "seccomp_init");
  int (*const add)(void *, uint32_t, int, unsigned, ...) =
      (int (*)(void *, uint32_t, int, unsigned, ...))dlsym(library, "seccomp_rule_add");
  int (*const load)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "seccomp_load"); /* as the program finds it */
  CHECK(init && add && load);
  void *const filter = init(ENDS);
  CHECK(filter != NULL);
  for (int i = 0; i < FILTER_ALWAYS; i++) CHECK(add(filter, SOME, filter_always[i], 0) == 0);
  return load(filter) == 0;
}

static void go_on(void) {
  for (int round = 0; round < 30; round++) {
    void *list = NULL;
    CHECK_COUNT(fill_list(&list, 100000, 8 * MIB), >=, 8 * MIB);
    free_list(&list);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 50000000}, NULL);
  }
}

static bool is_passed(bool (*install)(void)) {
  const pid_t child = fork();
  if (child == 0) {
    if (!install()) _exit(SKIPPED);
    go_on();
    _exit(0);
  }
  return child_passed(child);
}

int main(void) {
  free(malloc(100));
  const bool first = is_passed(by_prctl), second = is_passed(by_library);
  return first || second ? 0 : SKIPPED;
}
