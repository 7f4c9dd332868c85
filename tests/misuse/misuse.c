/* misuse.c: runs the cases of one misuse test. */
#include "misuse.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

void *culprit(void *block) {
  void *volatile hidden = block;
  dprintf(1, "0x%lx\n", (unsigned long)hidden);
  return hidden;
}

static void *free_it(void *block) {
  tslab_free(block);
  return NULL;
}

static void *realloc_it(void *block) {
  CHECK(tslab_realloc(block, 5000) == NULL);
  return NULL;
}

static void elsewhere(void *(*call)(void *), void *block) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, call, block) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

void free_elsewhere(void *block) { elsewhere(free_it, block); }
void realloc_elsewhere(void *block) { elsewhere(realloc_it, block); }

/* ---- the process of one case --------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
  const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
  return (x > y) - (x < y);
}

/* What was freed twice must not be handed out twice; it is named at the latest when it would be. */
static void check_heap_is_sound(size_t size, size_t count) {
  static uintptr_t blocks[25000];
  for (size_t i = 0; i < count; i++) {
    void *block = tslab_malloc(size);
    CHECK(block != NULL);
    memset(block, 0x11, size);
    blocks[i] = (uintptr_t)block;
  }
  qsort(blocks, count, sizeof *blocks, by_address);
  for (size_t i = 1; i < count; i++) CHECK_COUNT(blocks[i - 1] + size, <=, blocks[i]);
  for (size_t i = 0; i < count; i++) tslab_free((void *)blocks[i]);
}

static int run_case(const char *name) {
  for (const struct misuse_case *c = misuse_cases; c->name; c++) {
    if (strcmp(c->name, name) != 0) continue;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    /* The first free of much memory may start a thread of the allocator, which takes memory itself: not in a case. */
    tslab_free(tslab_malloc((size_t)8 << 20));
    c->run();
    check_heap_is_sound(16, 3000);
    check_heap_is_sound(96, 25000); /* as many as any case freed: a block that is free twice comes up */
    check_heap_is_sound((size_t)3 << 20, 3);
    tslab_stats_global stats;
    CHECK(tslab_stats(&stats, sizeof stats) == 0);
    dprintf(1, "misuses %llu\n", (unsigned long long)stats.misuses);
    return 0;
  }
  return 2;
}

/* ---- the runner ---------------------------------------------------------------------------------------------- */

static void start(char *self, char *name, const char *environment, int out, int err) {
  extern char **environ;
  for (char **entry = environ; *entry;)
    if (strncmp(*entry, "TSLAB_", 6) == 0) {
      char variable[256] = {0};
      memcpy(variable, *entry, strcspn(*entry, "="));
      unsetenv(variable);
      entry = environ;
    } else {
      entry++;
    }
  static char setting[256];
  if (environment) putenv(strcpy(setting, environment));
  dup2(out, 1);
  dup2(err, 2);
  execv("/proc/self/exe", (char *[]){self, name, NULL});
  _exit(3);
}

/* Small outputs only: they stay in the pipe until the process has ended. */
static void read_all(int pipe_end, char *text, size_t capacity) {
  size_t length = 0;
  ssize_t got;
  while ((got = read(pipe_end, text + length, capacity - 1 - length)) > 0) length += (size_t)got;
  text[length] = 0;
  close(pipe_end);
}

/* Puts `address` where the expected text says 0xADDR. */
static void fill_in(const char *expected, const char *address, char *text) {
  for (const char *mark; (mark = strstr(expected, "0xADDR")); expected = mark + 6) {
    memcpy(text, expected, (size_t)(mark - expected));
    text = stpcpy(text + (mark - expected), address);
  }
  strcpy(text, expected);
}

static int check_case(char *self, const struct misuse_case *c, const char *environment, int signal, int misuses) {
  int out[2], err[2], status;
  CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) start(self, (char *)(uintptr_t)c->name, environment, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  CHECK(waitpid(child, &status, 0) == child);
  char said[4096], errors[4096], address[64] = "no address", expected[4096], counted[32];
  read_all(out[0], said, sizeof said);
  read_all(err[0], errors, sizeof errors);
  if (said[0] == '0') snprintf(address, sizeof address, "%.*s", (int)strcspn(said, "\n"), said);
  fill_in(c->expected, address, expected);
  snprintf(counted, sizeof counted, "misuses %d\n", misuses);

  const int ended = signal ? WIFSIGNALED(status) && WTERMSIG(status) == signal
                           : WIFEXITED(status) && WEXITSTATUS(status) == 0 && strstr(said, counted) != NULL;
  if (ended && fnmatch(expected, errors, 0) == 0) return 0;
  printf("%s (%s): expected %s and\n  %s", c->name, environment ? environment : "default",
         signal ? strsignal(signal) : counted, expected);
  printf("got %s %d and\n  %s%s\n", WIFSIGNALED(status) ? "signal" : "exit",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), errors, said);
  return 1;
}

int main(int argc, char **argv) {
  if (argc > 1) return run_case(argv[1]);
  int failed = 0;
  for (const struct misuse_case *c = misuse_cases; c->name; c++) {
    if (c->environment) {
      failed += check_case(argv[0], c, c->environment, c->signal, 0);
    } else {
      failed += check_case(argv[0], c, NULL, SIGABRT, 0);
      failed += check_case(argv[0], c, "TSLAB_ON_MISUSE=report", c->signal, 1);
    }
  }
  if (failed) printf("%d failed\n", failed);
  return failed != 0;
}
