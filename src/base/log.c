/* log: see log.h.                                                                                   floor: base */
#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
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
  for (size_t done = 0; done < length;) {
    long wrote = syscall(SYS_write, STDERR_FILENO, line + done, length - done); /* write() is a cancellation point */
    if (wrote <= 0 && errno != EINTR) break; /* nobody can be told that nobody can be told */
    if (wrote > 0) done += (size_t)wrote;
  }
  errno = kept;
}

void check_failed(const char *condition, const char *file, int line) {
  log_line("internal error: %s does not hold (%s:%d); please report this", condition, file, line);
  abort();
}
