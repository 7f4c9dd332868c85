/* fork_faults: handlers of fork, and the library's own thread, may fault and make system calls that a filter traps,
 * because the library never blocks the signals of these. */
#include "../check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MEMORY = 64 << 20, PATIENCE_S = 60 };

static volatile char *page;
static long page_size;
static volatile sig_atomic_t faults;

static void forbid_page(void) { CHECK(mprotect((void *)page, (size_t)page_size, PROT_NONE) == 0); }
static void touch_page(void) { *page = 1; }

/* As a runtime that keeps track of writes, or grows a stack. */
static void permit_page(int signal) {
  (void)signal;
  faults++;
  if (mprotect((void *)page, (size_t)page_size, PROT_READ | PROT_WRITE) != 0) _exit(2);
}

static void fork_with_faults(void) {
  const struct sigaction permit = {.sa_handler = permit_page};
  int status;
  page_size = sysconf(_SC_PAGESIZE);
  page = mmap(NULL, (size_t)page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED && sigaction(SIGSEGV, &permit, NULL) == 0);
  CHECK(pthread_atfork(touch_page, forbid_page, NULL) == 0 && pthread_atfork(NULL, touch_page, touch_page) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(0);
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_COUNT(faults, ==, 2); /* before the fork, and after it in the parent */
}

/* Returns the signals that the thread blocks, one bit each. */
static unsigned long long blocked_by(const char *thread) {
  char name[64], line[128];
  unsigned long long bits = 0;
  snprintf(name, sizeof name, "/proc/self/task/%s/status", thread);
  FILE *const file = fopen(name, "r");
  CHECK(file != NULL);
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "SigBlk: %llx", &bits) == 1) break;
  fclose(file);
  return bits;
}

/* Looks at each thread but the first. Returns how many those are. */
static unsigned look_at_threads(void) {
  static const int by_instructions[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  unsigned count = 0;
  DIR *const tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  for (struct dirent *task; (task = readdir(tasks));) {
    if (task->d_name[0] == '.' || atoi(task->d_name) == getpid()) continue;
    const unsigned long long bits = blocked_by(task->d_name);
    for (size_t i = 0; i < sizeof by_instructions / sizeof *by_instructions; i++)
      CHECK_COUNT(bits >> (by_instructions[i] - 1) & 1, ==, 0);
    CHECK_COUNT(bits >> (SIGTERM - 1) & 1, ==, 1);
    count++;
  }
  closedir(tasks);
  return count;
}

int main(void) {
  alarm(PATIENCE_S);
  fork_with_faults();
  char *const memory = (char *)tslab_malloc(MEMORY);
  CHECK(memory != NULL);
  memset(memory, 1, MEMORY);
  tslab_free(memory); /* starts the library's thread */
  CHECK_COUNT(look_at_threads(), ==, 1);
  return 0;
}
