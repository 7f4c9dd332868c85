/* log: see log.h.                                                                                   floor: base */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct cursor {
  char *at, *end;
};

static void put(struct cursor *c, char ch) {
  if (c->at < c->end) *c->at++ = ch;
}

static void put_text(struct cursor *c, const char *text) {
  while (*text) put(c, *text++);
}

static void put_number(struct cursor *c, uint64_t n, unsigned radix) {
  char digits[20]; /* 2^64 has 20 decimal digits */
  int count = 0;
  do {
    digits[count++] = "0123456789abcdef"[n % radix];
    n /= radix;
  } while (n != 0);
  while (count > 0) put(c, digits[--count]);
}

static void put_signed(struct cursor *c, int64_t n) {
  if (n < 0) put(c, '-');
  put_number(c, n < 0 ? 0 - (uint64_t)n : (uint64_t)n, 10);
}

size_t log_format_list(char *out, size_t capacity, const char *format, va_list arguments) {
  struct cursor c = {out, out + capacity - 1};
  for (; *format; format++) {
    if (*format != '%') {
      put(&c, *format);
      continue;
    }
    format++;
    if (*format == 'l' || *format == 'z') {
      format++;
      put_number(&c, va_arg(arguments, size_t), 10);
    } else if (*format == 's') {
      put_text(&c, va_arg(arguments, const char *));
    } else if (*format == 'u') {
      put_number(&c, va_arg(arguments, unsigned), 10);
    } else if (*format == 'd') {
      put_signed(&c, va_arg(arguments, int));
    } else if (*format == 'p') {
      put_text(&c, "0x");
      put_number(&c, (uintptr_t)va_arg(arguments, void *), 16);
    } else {
      put(&c, *format);
    }
  }
  *c.at = 0;
  return (size_t)(c.at - out);
}

size_t log_format(char *out, size_t capacity, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t length = log_format_list(out, capacity, format, arguments);
  va_end(arguments);
  return length;
}

/* Takes the signal that the kernel raised for this thread, which blocks it. */
static void take_signal(int number) {
  const struct timespec now = {0, 0};
  sigset_t raised;
  sigemptyset(&raised);
  sigaddset(&raised, number);
  syscall(SYS_rt_sigtimedwait, &raised, NULL, &now, sizeof(uint64_t)); /* sigtimedwait() is a cancellation point */
}

static int write_all(int descriptor, const char *from, size_t length) {
  while (length > 0) {
    long wrote = syscall(SYS_write, descriptor, from, length); /* write() is a cancellation point */
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? errno : EIO;
    from += wrote;
    length -= (size_t)wrote;
  }
  return 0;
}

/* Returns true if the pipe has no reader. The library writes nothing then: the write would raise a SIGPIPE, and the
 * library could not tell it from one that was sent to the program and is blocked. */
static bool is_broken(int descriptor) {
  struct pollfd look = {descriptor, POLLOUT, 0};
  const struct timespec now = {0, 0};
  long found = syscall(SYS_ppoll, &look, 1, &now, NULL, sizeof(uint64_t)); /* poll() is a cancellation point */
  return found == 1 && (look.revents & (POLLERR | POLLHUP)) != 0;
}

/* A reader that leaves after the check raises SIGPIPE, and a limit of file sizes raises SIGXFSZ. */
int log_write(int descriptor, const char *from, size_t length) {
  if (is_broken(descriptor)) return EPIPE;
  sigset_t raised, before, waiting;
  sigemptyset(&raised);
  sigaddset(&raised, SIGPIPE);
  sigaddset(&raised, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &raised, &before);
  sigpending(&waiting);
  int error = write_all(descriptor, from, length), number = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
  if (number != 0 && !sigismember(&waiting, number)) take_signal(number);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

void log_line(const char *format, ...) {
  int kept = errno;
  char line[512];
  size_t length = log_format(line, sizeof line, "tslab: ");
  va_list arguments;
  va_start(arguments, format);
  length += log_format_list(line + length, sizeof line - length - 1, format, arguments);
  va_end(arguments);
  /* A setting or a label can hold anything. The message stays one line, and steers no terminal. */
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)line[i] < ' ' || line[i] == 127) line[i] = '?';
  line[length++] = '\n';
  log_write(STDERR_FILENO, line, length); /* there is nowhere to report a failure of this */
  errno = kept;
}

void check_failed(const char *condition, const char *file, int line) {
  log_line("internal error: %s does not hold (%s:%d); please report this", condition, file, line);
  abort();
}
