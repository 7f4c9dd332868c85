/* fault: every explainer sees each fault. The program goes on after a fault that an explainer mends. A fault that an
   explainer reports, or none knows, reaches the handler that was there before, or ends the process. So does a signal
   that another process sent. */
#include "unit.h"

#include "os/fault.h"

static char *pages_at;

static enum fault_answer answer_first(const struct fault *fault) {
  if (fault->address != pages_at + 5) return FAULT_OF_OTHERS;
  CHECK(mprotect(pages_at, os_page_size, PROT_READ | PROT_WRITE) == 0);
  return FAULT_MENDED;
}

static enum fault_answer answer_second(const struct fault *fault) {
  return fault->address == pages_at + os_page_size ? FAULT_TOLD : FAULT_OF_OTHERS;
}

static void watch(void) {
  fault_watch(answer_first);
  fault_watch(answer_second);
  fault_watch(answer_first);
}

static void mended(void) {
  watch();
  errno = 4711;
  *(volatile char *)(pages_at + 5) = 3;
  _exit(pages_at[5] == 3 && errno == 4711 ? 9 : 1);
}

static void touch_told(void) { *(volatile char *)(pages_at + os_page_size) = 1; }
static void touch_unknown(void) { *(volatile char *)(pages_at + os_page_size + 1) = 1; }
static void (*touch)(void);

static void by_default(void) {
  signal(SIGSEGV, SIG_DFL);
  watch();
  touch();
}

static void ignored(void) {
  signal(SIGSEGV, SIG_IGN);
  watch();
  touch(); /* the kernel ends the process all the same */
}

static void had_info(int number, siginfo_t *info, void *context) {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  const bool right = number == SIGSEGV && context && sigismember(&blocked, SIGUSR1);
  _exit(right && (char *)info->si_addr - pages_at >= (ptrdiff_t)os_page_size ? 7 : 1);
}

static void with_info(void) {
  struct sigaction action = {.sa_sigaction = had_info, .sa_flags = SA_SIGINFO};
  sigaddset(&action.sa_mask, SIGUSR1);
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
  watch();
  touch();
}

static int calls;
static void count_and_mend(int number) {
  CHECK(number == SIGSEGV);
  calls++;
  CHECK(mprotect(pages_at + os_page_size, os_page_size, PROT_READ | PROT_WRITE) == 0);
}

/* The handler that was there before may mend the fault, and is called every time. */
static void goes_on(void) {
  signal(SIGSEGV, count_and_mend);
  watch();
  for (int i = 0; i < 3; i++) {
    CHECK(mprotect(pages_at + os_page_size, os_page_size, PROT_NONE) == 0);
    touch();
  }
  _exit(calls == 3 ? 7 : 1);
}

static void once(void) {
  struct sigaction action = {.sa_handler = count_and_mend, .sa_flags = (int)SA_RESETHAND};
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
  watch();
  touch();
  CHECK(calls == 1);
  CHECK(mprotect(pages_at + os_page_size, os_page_size, PROT_NONE) == 0);
  touch();
}

static void sent(void) {
  signal(SIGSEGV, SIG_DFL);
  watch();
  raise(SIGSEGV);
  _exit(1);
}

static void sent_and_ignored(void) {
  signal(SIGSEGV, SIG_IGN);
  watch();
  raise(SIGSEGV);
  _exit(7);
}

int main(void) {
  os_start();
  CHECK(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
  pages_at = mmap(NULL, 2 * os_page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages_at != MAP_FAILED);
  CHECK_COUNT(in_child(mended), ==, 9 << 8);
  for (int i = 0; i < 2; i++) {
    touch = i ? touch_unknown : touch_told;
    CHECK_COUNT(in_child(by_default), ==, SIGSEGV);
    CHECK_COUNT(in_child(ignored), ==, SIGSEGV);
    CHECK_COUNT(in_child(with_info), ==, 7 << 8);
    CHECK_COUNT(in_child(goes_on), ==, 7 << 8);
    CHECK_COUNT(in_child(once), ==, SIGSEGV);
  }
  CHECK_COUNT(in_child(sent), ==, SIGSEGV);
  CHECK_COUNT(in_child(sent_and_ignored), ==, 7 << 8);
  return 0;
}
