/* parent: a parent has reported a setting only if it has the same setting and the same file mapped. */
#include "unit.h"

#include "base/parent.h"

#define LONG_NAME "TSLAB_LONG="

static char *self;
static char long_setting[3000] = LONG_NAME;

/* Returns the status of this program, run with a word and an environment by a child of this process. */
static int run_with(char *word, char *setting, char *const environment[]) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    execve(self, (char *[]){self, word, setting, NULL}, environment);
    _exit(99);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* A process with these settings reports none itself; its child, with none of them, would report those that its parent
   has. */
static char *settings[] = {"TSLAB_FIRST=1", "TSLAB_ONE=12", "PATH=/bin", "TSLAB_EMPTY=", long_setting,
                           "TSLAB_LAST=x", NULL};

static bool served_parent_has(char *setting) {
  const int status = run_with("parent", setting, settings);
  CHECK(status == 0 || status == 1);
  return status == 1;
}

static bool other_parent_has(char *setting) {
  char command[PATH_MAX + 64];
  snprintf(command, sizeof command, "'%s' child '%s'; exit $?", self, setting);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    execve("/bin/sh", (char *[]){"sh", "-c", command, NULL}, settings);
    _exit(99);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) <= 1);
  return WEXITSTATUS(status) == 1;
}

static void check_all(void) {
  for (size_t i = 0; settings[i]; i++) {
    CHECK(served_parent_has(settings[i]));
    CHECK(!other_parent_has(settings[i]));
  }
  static char *const others[] = {"TSLAB_FIRST=", "TSLAB_FIRST=11", "TSLAB_FIRST=2", "FIRST=1",
                                 "TSLAB_ONE=1", "TSLAB_EMPTY", "TSLAB_LAST=", "ONE=12",
                                 "TSLAB_NONE=1", LONG_NAME "y", ""};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) CHECK(!served_parent_has(others[i]));
}

int main(int count, char **arguments) {
  char path[PATH_MAX] = "";
  CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
  self = path;
  memset(long_setting + strlen(LONG_NAME), 'y', sizeof long_setting - 1 - strlen(LONG_NAME));
  if (count == 3 && strcmp(arguments[1], "parent") == 0) return run_with("child", arguments[2], (char *[]){NULL});
  if (count == 3) {
    errno = 77;
    const bool has = parent_has(arguments[2]);
    CHECK(errno == 77);
    return has;
  }
  check_all();
  return 0;
}
