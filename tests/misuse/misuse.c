/* misuse.c: runs every program that is linked with it, or prints what they declare; see misuse.h. */
#include "misuse.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef TEST_INVARIANTS
#define TEST_INVARIANTS 0
#endif

extern char **environ;
extern const struct misuse *__start_misuses[], *__stop_misuses[];

static const char *name_of(const struct misuse *m) {
  const char *slash = strrchr(m->name, '/');
  return slash ? slash + 1 : m->name;
}
static int length_of_name(const struct misuse *m) {
  const char *name = name_of(m), *suffix = name == m->name ? NULL : strrchr(name, '.');
  return (int)(suffix ? (size_t)(suffix - name) : strlen(name));
}

static bool slab_is_one_page(void) { return sysconf(_SC_PAGESIZE) >= GRANULE; }

static struct misuse_outcome outcome_here(const struct misuse *m) {
  const bool differs = slab_is_one_page() && m->in_one_page.end != AS_BY_DEFAULT;
  struct misuse_outcome outcome = differs ? m->in_one_page : m->by_default;
  if (TSLAB_HARDENED && m->hardened.end != AS_BY_DEFAULT) outcome.end = m->hardened.end;
  if (TSLAB_HARDENED && m->hardened.says) outcome.says = m->hardened.says;
  return outcome;
}

/* ---- what programs use ------------------------------------------------------------------------------------------- */

static const struct misuse *running;

void *culprit(void *block) {
  void *volatile hidden = block;
  char text[32];
  const int length = snprintf(text, sizeof text, "0x%lx\n", (unsigned long)hidden); /* dprintf may allocate */
  CHECK(write(1, text, (size_t)length) == length);
  return hidden;
}

void *culprit_of(size_t size) {
  char *const block = tslab_malloc(size);
  CHECK(block != NULL);
  memset(block, 0x22, size < LARGE ? size : LARGE);
  return culprit(block);
}

static bool is_untouched(uintptr_t block) { return ((const uintptr_t *)block)[1] == 0; } /* a free one holds its key */

char *never_handed_out(const char *block) {
  const uintptr_t start = (uintptr_t)block / GRANULE * GRANULE;
  uintptr_t never = (start + GRANULE) / SMALL * SMALL - 2 * SMALL;
  if (slab_is_one_page()) return (char *)never;
  while (!is_untouched(never - SMALL) || !is_untouched(never) || !is_untouched(never + SMALL)) never -= SMALL;
  CHECK(never > start);
  return (char *)never;
}

void harm(bool done) { CHECK(done || outcome_here(running).end != MISSED); }

static void *free_it(void *block) {
  tslab_free(block);
  return NULL;
}
void free_elsewhere(void *block) { elsewhere(free_it, block); }

static void *realloc_it(void *block) {
  CHECK(tslab_realloc(block, 5000) == NULL);
  return NULL;
}
void realloc_elsewhere(void *block) { elsewhere(realloc_it, block); }

char *guarded_in(tslab_epoch e, enum guard_side side) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (;;) {
    char *const block = tslab_epoch_malloc(e, ODD);
    CHECK(block != NULL);
    const bool is_guarded = tslab_malloc_usable_size(block) == ODD, is_at_start = (uintptr_t)block % page == 0;
    if (is_guarded && (side == AT_ANY || is_at_start == (side == AT_START))) return culprit(block);
    tslab_free(block);
  }
}

static int add_live_samples(const tslab_profile_site *site, void *sum) {
  *(uint64_t *)sum += site->live_samples;
  return 0;
}

static uint64_t live_samples(void) {
  uint64_t sum = 0;
  CHECK(tslab_profile_each(add_live_samples, &sum) == 0);
  return sum;
}

char *sampled_in(tslab_epoch e, size_t size) {
  for (;;) {
    const uint64_t before = live_samples();
    char *const block = e ? tslab_epoch_malloc(e, size) : tslab_malloc(size);
    CHECK(block != NULL);
    if (live_samples() > before) return block;
    tslab_free(block);
  }
}

void *promoted_block(tslab_epoch e) {
  enum { MANY = 4000 };
  static void *blocks[MANY];
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < MANY && turn == 1; i++) tslab_free(blocks[i]);
    for (int i = 0; i < MANY; i++) blocks[i] = block_in(e, SMALL);
  }
  return blocks[MANY / 2];
}

/* ---- the process of one program ---------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
  const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
  return (x > y) - (x < y);
}

/* Checks that a block that was freed twice is not handed out twice. The library names it then at the latest. */
static void check_heap_is_sound(size_t size, size_t count) {
  static uintptr_t blocks[4000];
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

static int run_one(const struct misuse *m) {
  running = m;
  alarm(300); /* a mistake may make a list endless */
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  /* The first free of much memory may start a thread of the allocator, which takes memory itself: not in a program. */
  tslab_free(tslab_malloc((size_t)8 << 20));
  m->run();
  if (m->leaves) return 0;
  if (outcome_here(m).end != MISSED) {
    check_heap_is_sound(16, 1000);
    check_heap_is_sound(SMALL, 4000); /* as many as any program freed: a block that is free twice comes up */
    check_heap_is_sound(4096, 20);
    check_heap_is_sound(MEDIUM, 50);
    check_heap_is_sound(LARGE, 2);
  }
  tslab_stats_global stats;
  CHECK(tslab_stats(&stats, sizeof stats) == 0);
  dprintf(1, "misuses %llu\n", (unsigned long long)stats.misuses);
  return 0;
}

/* ---- the runner -------------------------------------------------------------------------------------------------- */

struct ending {
  int status;
  char said[4096], errors[4096];
};

/* Small outputs only: they stay in the pipe until the process has ended. */
static void read_all(int pipe_end, char *text, size_t capacity) {
  size_t length = 0;
  ssize_t got;
  while ((got = read(pipe_end, text + length, capacity - 1 - length)) > 0) length += (size_t)got;
  text[length] = 0;
  close(pipe_end);
}

/* The first line that begins so. */
static void drop_line(char *text, const char *beginning) {
  for (char *line = text, *next; (next = strchr(line, '\n')) != NULL; line = next) {
    next++;
    if (strncmp(line, beginning, strlen(beginning)) != 0) continue;
    memmove(line, next, strlen(next) + 1);
    return;
  }
}

/* posix_spawn, because fork copies what a sanitizer keeps. A program for another machine is started by what runs it
 * here, which TEST_EMULATOR names, and which has a word of its own about the signal that ends it. */
static void start(const struct misuse *m, const char *settings[2], struct ending *ending) {
  char *environment[256], number[16];
  size_t count = 0;
  int out[2], err[2];
  pid_t child;
  posix_spawn_file_actions_t actions;
  for (char **entry = environ; *entry && count < 250; entry++)
    if (strncmp(*entry, "TSLAB_", 6) != 0) environment[count++] = *entry;
  for (int i = 0; i < 2; i++)
    if (settings[i]) environment[count++] = (char *)(uintptr_t)settings[i];
  environment[count] = NULL;
  const struct misuse **row = __start_misuses;
  while (*row != m) row++;
  snprintf(number, sizeof number, "%td", row - __start_misuses);
  CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
  CHECK(posix_spawn_file_actions_init(&actions) == 0);
  CHECK(posix_spawn_file_actions_adddup2(&actions, out[1], 1) == 0);
  CHECK(posix_spawn_file_actions_adddup2(&actions, err[1], 2) == 0);
  char program[PATH_MAX] = "test_misuse";
  const char *const emulator = getenv("TEST_EMULATOR");
  if (emulator) CHECK(readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  char *arguments[] = {(char *)(uintptr_t)emulator, program, number, NULL};
  CHECK(posix_spawn(&child, emulator ? emulator : "/proc/self/exe", &actions, NULL, arguments + !emulator,
                    environment) == 0);
  CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
  close(out[1]);
  close(err[1]);
  CHECK(waitpid(child, &ending->status, 0) == child);
  read_all(out[0], ending->said, sizeof ending->said);
  read_all(err[0], ending->errors, sizeof ending->errors);
  if (emulator) drop_line(ending->errors, "qemu: uncaught target signal ");
}

/* Each line of `says` as the library writes it, the culprit's address put in. */
static void expect(const char *says, const char *address, char *text) {
  *text = 0;
  for (const char *at = says; at && *at; at += *at == '\n') {
    text = stpcpy(text, "tslab: ");
    while (*at && *at != '\n') {
      const bool mark = strncmp(at, "0xADDR", 6) == 0;
      if (mark) text = stpcpy(text, address);
      else *text++ = *at;
      at += mark ? 6 : 1;
    }
    text = stpcpy(text, "\n");
  }
}

static int check(const struct misuse *m, struct misuse_outcome outcome, bool report) {
  static struct ending got;
  static char expected[8192];
  const bool aborts = outcome.end == FATAL || (outcome.end == NAMED && !report);
  const int signal = aborts ? SIGABRT : outcome.end == FAULTS || outcome.end == CRASHES ? SIGSEGV : 0;
  char address[64] = "no address", counted[32];
  start(m, (const char *[]){m->environment, report ? "TSLAB_ON_MISUSE=report" : NULL}, &got);
  if (got.said[0] == '0') snprintf(address, sizeof address, "%.*s", (int)strcspn(got.said, "\n"), got.said);
  expect(outcome.says, address, expected);
  snprintf(counted, sizeof counted, "misuses %d\n", outcome.end == NAMED);
  const bool ended = signal ? WIFSIGNALED(got.status) && WTERMSIG(got.status) == signal
                            : WIFEXITED(got.status) && WEXITSTATUS(got.status) == 0 &&
                                  (m->leaves || strstr(got.said, counted) != NULL);
  if (ended && fnmatch(expected, got.errors, 0) == 0) return 0;
  printf("%.*s (%s%s): expected %s and\n%s", length_of_name(m), name_of(m), m->environment ? m->environment : "",
         report ? " report" : "", signal ? strsignal(signal) : counted, expected);
  printf("got %s %d and\n%s%s\n", WIFSIGNALED(got.status) ? "signal" : "exit status",
         WIFSIGNALED(got.status) ? WTERMSIG(got.status) : WEXITSTATUS(got.status), got.errors, got.said);
  return 1;
}

static int run_all(void) {
  int failed = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (const struct misuse **row = __start_misuses; row < __stop_misuses; row++) {
    const struct misuse *m = *row;
    const struct misuse_outcome outcome = outcome_here(m);
    const bool may_report = !m->environment || strncmp(m->environment, "TSLAB_ON_MISUSE=", 16) != 0;
    /* Where invariants are checked, one of them may be what the harm meets first. */
    if (TEST_INVARIANTS && (outcome.end == MISSED || outcome.end == CRASHES)) continue;
    failed += check(m, outcome, false);
    if (may_report && (outcome.end == NAMED || outcome.end == FATAL)) failed += check(m, outcome, true);
  }
  if (failed) printf("%d failed\n", failed);
  return failed != 0;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  const struct misuse *const x = *(const struct misuse *const *)a, *const y = *(const struct misuse *const *)b;
  const int lengths = length_of_name(x) - length_of_name(y);
  const int order = strncmp(name_of(x), name_of(y), (size_t)(lengths < 0 ? length_of_name(x) : length_of_name(y)));
  return order ? order : lengths;
}

static void print_outcome(FILE *out, struct misuse_outcome outcome) {
  static const char *const words[] = {
      [AS_BY_DEFAULT] = "the same", [NAMED] = "named",           [FATAL] = "named, ends the process",
      [FAULTS] = "named at the fault", [TOLD] = "told, goes on", [RETURNED] = "returned",
      [MISSED] = "**missed**",      [CRASHES] = "**crash**",
  };
  fprintf(out, " %s", words[outcome.end]);
  for (const char *at = outcome.says ? outcome.says : ""; *at; at += *at == '\n') {
    const int length = (int)strcspn(at, "\n");
    fprintf(out, "%s`%.*s`", at == outcome.says ? ": " : " ", length, at);
    at += length;
  }
  fprintf(out, " |");
}

static void print_table(FILE *out) {
  const size_t count = (size_t)(__stop_misuses - __start_misuses);
  const struct misuse *sorted[count];
  memcpy(sorted, __start_misuses, sizeof sorted);
  qsort(sorted, count, sizeof *sorted, by_name);
  fprintf(out, "| program | what it does | by default | hardened |\n|---|---|---|---|\n");
  for (size_t i = 0; i < count; i++) {
    const struct misuse *m = sorted[i];
    fprintf(out, "| [%.*s](../tests/misuse/%s) | %s%s%s%s |", length_of_name(m), name_of(m), name_of(m), m->does,
            m->environment ? " (`" : "", m->environment ? m->environment : "", m->environment ? "`)" : "");
    print_outcome(out, m->by_default);
    print_outcome(out, m->hardened);
    fprintf(out, "\n");
  }
}

/* Checks that the page holds the table as this program prints it. */
static int check_page(const char *path) {
  char *table, *page;
  size_t length;
  struct stat status;
  FILE *const out = open_memstream(&table, &length);
  CHECK(out != NULL);
  print_table(out);
  CHECK(fclose(out) == 0);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0 && fstat(file, &status) == 0);
  CHECK((page = calloc(1, (size_t)status.st_size + 1)) != NULL);
  CHECK(read(file, page, (size_t)status.st_size) == status.st_size);
  close(file);
  const bool holds = strstr(page, table) != NULL;
  if (!holds) printf("%s does not hold what the programs declare; `test_misuse --table` prints it\n", path);
  free(page);
  free(table);
  return !holds;
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--table") == 0) print_table(stdout);
  else if (argc == 3 && strcmp(argv[1], "--page") == 0) return check_page(argv[2]);
  else if (argc == 2) return run_one(__start_misuses[atoi(argv[1])]);
  else return run_all();
  return 0;
}
