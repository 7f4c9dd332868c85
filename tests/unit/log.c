/* log: formats agree with printf's at every capacity; a line is one write, keeps errno, and ends where its buffer
 * does. */
#include "unit.h"

#include "../stress/filter.h"
#include "base/log.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define SHIFTED(bits) (unsigned long)(r >> (bits))
#define ALL_FORMATS \
  "%s|%u|%d|%zu|%lu|%p|%%|%s", text, (unsigned)r, (int)SHIFTED(32), (size_t)r, SHIFTED(7), (void *)(r | 1), ""

static void formats_as_printf(void) {
  uint64_t random = 1;
  for (int i = 0; i < 20000; i++) {
    const uint64_t r = check_random(&random) >> check_random(&random) % 64;
    const char *const text = i % 2 ? "some text" : "";
    char ours[160], theirs[160];
    const size_t capacity = 1 + (size_t)i % sizeof ours;
    memset(ours, '#', sizeof ours);
    const size_t length = log_format(ours, capacity, ALL_FORMATS);
    snprintf(theirs, capacity, ALL_FORMATS);
    CHECK(strcmp(ours, theirs) == 0);
    CHECK_COUNT(length, ==, strlen(theirs));
    CHECK(capacity == sizeof ours || ours[capacity] == '#');
  }
  char edges[80];
  log_format(edges, sizeof edges, "%d %zu %p", INT_MIN, SIZE_MAX, NULL);
  CHECK(strcmp(edges, "-2147483648 18446744073709551615 0x0") == 0);
}

static char endless[2000];

static void say_two_lines(void) {
  errno = 4711;
  log_line("%s %d", "first", 1);
  log_line("%s", endless);
}

static void say_controls(void) { log_line("%s", "a\nb\x1b[2J\x7f\tc \xc3\xa9"); }

static void say_nowhere(void) {
  close(2);
  log_line("nobody hears this");
}

/* A thread that left the program's descriptors finds standard error in the first thread's table. */
static void *say_without_files(void *unused) {
  const long own = syscall(SYS_close_range, 0, ~0u, 2 /* CLOSE_RANGE_UNSHARE */);
  if (own == 0) CHECK(fcntl(2, F_GETFD) == -1);
  log_borrow(own == 0);
  log_line("from afar");
  log_borrow(false);
  return unused;
}

static void say_from_thread(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, say_without_files, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void lines(void) {
  char heard[4096];
  memset(endless, 'x', sizeof endless - 1);
  CHECK_COUNT(hear(say_two_lines, heard, sizeof heard), ==, 2);
  CHECK(errno == 4711);
  static const char start[] = "tslab: first 1\ntslab: xxx";
  CHECK(strncmp(heard, start, sizeof start - 1) == 0);
  const size_t length = strlen(heard);
  CHECK_COUNT(length, >, 500);
  CHECK_COUNT(length, <, 600);
  CHECK(heard[length - 1] == '\n' && heard[length - 2] == 'x');
  CHECK_COUNT(hear(say_controls, heard, sizeof heard), ==, 1);
  CHECK(strcmp(heard, "tslab: a?b?[2J??c \xc3\xa9\n") == 0);
  CHECK_COUNT(hear(say_from_thread, heard, sizeof heard), ==, 1);
  CHECK(strcmp(heard, "tslab: from afar\n") == 0);
  CHECK_COUNT(hear(say_nowhere, heard, sizeof heard), ==, 0);
  CHECK(errno == 4711);
}

/* ---- signals that a write raises --------------------------------------------------------------------------------- */

static bool is_waiting(int number) {
  sigset_t waiting;
  CHECK(sigpending(&waiting) == 0);
  return sigismember(&waiting, number) == 1;
}

static void block(int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
}

/* A signal that the program has not had yet is still for it. */
static void write_and_find(int number, int error) {
  log_line("nobody hears this");
  CHECK_COUNT(log_write(2, "x", 1), ==, error);
  block(number);
  CHECK_COUNT(log_write(2, "x", 1), ==, error);
  CHECK(!is_waiting(number));
  raise(number);
  CHECK_COUNT(log_write(2, "x", 1), ==, error);
  CHECK(is_waiting(number));
}

static void write_to_nobody(void) {
  int pipe_ends[2];
  CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR && pipe(pipe_ends) == 0);
  CHECK(dup2(pipe_ends[1], 2) == 2 && close(pipe_ends[0]) == 0);
  write_and_find(SIGPIPE, EPIPE);
}

static volatile sig_atomic_t delivered;
static void count_delivered(int number) {
  (void)number;
  delivered++;
}

/* A signal that was sent to the process, not to the thread, is delivered once. */
static void write_beside_a_sent_signal(void) {
  int pipe_ends[2];
  sigset_t none;
  sigemptyset(&none);
  CHECK(signal(SIGPIPE, count_delivered) != SIG_ERR && pipe(pipe_ends) == 0 && close(pipe_ends[0]) == 0);
  block(SIGPIPE);
  CHECK(kill(getpid(), SIGPIPE) == 0);
  CHECK_COUNT(log_write(pipe_ends[1], "x", 1), ==, EPIPE);
  CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
  CHECK_COUNT(delivered, ==, 1);
}

/* A filter of system calls may not let a thread take a signal back. */
static void write_under_a_filter(void) {
  if (answer_with(SYS_rt_sigtimedwait, EPERM)) write_to_nobody();
}

static void write_to_a_closed_socket(void) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && close(ends[0]) == 0);
  if (answer_with(SYS_rt_sigtimedwait, EPERM)) CHECK_COUNT(log_write(ends[1], "x", 1), ==, EPIPE);
}

static void write_past_a_limit(void) {
  const struct rlimit none = {0, 0};
  FILE *const file = tmpfile();
  CHECK(file != NULL && signal(SIGXFSZ, SIG_DFL) != SIG_ERR && setrlimit(RLIMIT_FSIZE, &none) == 0);
  CHECK(dup2(fileno(file), 2) == 2);
  write_and_find(SIGXFSZ, EFBIG);
}

static void writes_raise_no_signal(void) {
  CHECK_COUNT(in_child(write_to_nobody), ==, 0);
  CHECK_COUNT(in_child(write_beside_a_sent_signal), ==, 0);
  CHECK_COUNT(in_child(write_under_a_filter), ==, 0);
  CHECK_COUNT(in_child(write_to_a_closed_socket), ==, 0);
  CHECK_COUNT(in_child(write_past_a_limit), ==, 0);
}

static int status;
static void break_an_invariant(void) { check_failed("1 == 2", "file.c", 7); }
static void watch_it_break(void) { status = in_child(break_an_invariant); }

static void broken_invariants_abort(void) {
  char heard[4096];
  CHECK_COUNT(hear(watch_it_break, heard, sizeof heard), ==, 1);
  CHECK(strcmp(heard, "tslab: internal error: 1 == 2 does not hold (file.c:7); please report this\n") == 0);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void) {
  formats_as_printf();
  lines();
  writes_raise_no_signal();
  broken_invariants_abort();
  return 0;
}
