/* static_tls: the static TLS of a program and its libraries lies in every thread's stack, in the scavenger's, too, and
 * libc makes a thread even where that leaves two kilobytes of the stack to it. However much it leaves, the program goes
 * on. glibc has a setting for how much more static TLS there is, so the program executes itself with many sizes. */
#include "../check.h"

#include <sys/wait.h>

enum { FIRST = 200 << 10, LAST = 264 << 10, STEP = 512, AT_A_TIME = 16 };
enum { BLOCKS = 20, BYTES = 100000, TICKS_US = 700000 };

/* Enough for the scavenger to be started, and to publish. */
static int live(void) {
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = malloc(BYTES)) != NULL);
    memset(blocks[i], 1, BYTES);
  }
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  CHECK(usleep(TICKS_US) == 0);
  return 0;
}

static pid_t start(const char *program, int bytes) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child != 0) return child;
  char setting[64];
  snprintf(setting, sizeof setting, "glibc.rtld.optional_static_tls=%d", bytes);
  CHECK(setenv("GLIBC_TUNABLES", setting, 1) == 0);
  execl("/proc/self/exe", program, "live", (char *)NULL);
  _exit(127);
}

int main(int count, char **arguments) {
  if (count > 1) return live();
  for (int bytes = FIRST; bytes < LAST; bytes += AT_A_TIME * STEP) {
    pid_t children[AT_A_TIME];
    for (int i = 0; i < AT_A_TIME; i++) children[i] = start(arguments[0], bytes + i * STEP);
    for (int i = 0; i < AT_A_TIME; i++) {
      int status;
      CHECK(waitpid(children[i], &status, 0) == children[i]);
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  }
  return 0;
}
