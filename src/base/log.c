/* log: see log.h.                                                                                   floor: base */
#include "base/log.h"

#include "base/kernel.h"
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
  signal_set raised = signal_set_of(number);
  kernel_call(SYS_rt_sigtimedwait, (long)&raised, 0, (long)&now, sizeof raised, 0, 0);
}

static int write_all(int descriptor, const char *from, size_t length) {
  while (length > 0) {
    long wrote = kernel_call(SYS_write, descriptor, (long)from, (long)length, 0, 0, 0);
    if (wrote == -EINTR) continue;
    if (wrote <= 0) return wrote < 0 ? (int)-wrote : EIO;
    from += wrote;
    length -= (size_t)wrote;
  }
  return 0;
}

/* Waits for room. Returns the events of the descriptor, 0 after `seconds`, and -1 if the kernel does not say. */
static int look_for_room(int descriptor, time_t seconds) {
  struct pollfd look = {descriptor, POLLOUT, 0};
  const struct timespec most = {seconds, 0};
  long found = kernel_call(SYS_ppoll, (long)&look, 1, (long)&most, 0, sizeof(signal_set), 0);
  return found < 0 ? -1 : found == 0 ? 0 : look.revents;
}

/* Returns true if the pipe has no reader. The library writes nothing then: the write would raise a SIGPIPE, and the
 * library could not tell it from one that was sent to the program and is blocked. */
static bool is_broken(int descriptor) {
  int events = look_for_room(descriptor, 0);
  return events > 0 && (events & (POLLERR | POLLHUP)) != 0;
}

/* A reader that leaves after the check raises SIGPIPE, and a limit of file sizes raises SIGXFSZ. */
int log_write(int descriptor, const char *from, size_t length) {
  if (is_broken(descriptor)) return EPIPE;
  signal_set before = signals_change(SIG_BLOCK, signal_set_of(SIGPIPE) | signal_set_of(SIGXFSZ));
  signal_set waiting = signals_pending();
  int error = write_all(descriptor, from, length), number = error == EPIPE ? SIGPIPE : error == EFBIG ? SIGXFSZ : 0;
  if (number != 0 && !(waiting & signal_set_of(number))) take_signal(number);
  signals_change(SIG_SETMASK, before);
  return error;
}

/* ---- standard error ---------------------------------------------------------------------------------------------- */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438 /* Linux 5.6 */
#endif

static _Atomic uint32_t borrower; /* the id of the thread without the program's descriptors; 0: none */

static uint32_t thread_id(void) { return (uint32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void log_borrow(bool borrows) {
  atomic_store_explicit(&borrower, borrows ? thread_id() : 0, memory_order_relaxed);
}

static bool must_borrow(void) {
  uint32_t who = atomic_load_explicit(&borrower, memory_order_relaxed);
  return who != 0 && who == thread_id();
}

/* Returns a descriptor of the program's standard error, or -1. */
static int begin_errors(void) {
  if (!must_borrow()) return STDERR_FILENO;
  long first = kernel_call(SYS_pidfd_open, kernel_call(SYS_getpid, 0, 0, 0, 0, 0, 0), 0, 0, 0, 0, 0);
  long file = kernel_call(SYS_pidfd_getfd, first, STDERR_FILENO, 0, 0, 0, 0);
  if (first >= 0) kernel_call(SYS_close, first, 0, 0, 0, 0, 0);
  return file < 0 ? -1 : (int)file;
}

/* Closes what was borrowed: the reader of a pipe would wait for its end. */
static void end_errors(int file) {
  if (file >= 0 && must_borrow()) kernel_call(SYS_close, file, 0, 0, 0, 0, 0);
}

/* ---- lines that wait --------------------------------------------------------------------------------------------- */

#define TEXTS      8          /* as many threads at a time may keep lines */
#define TEXT_BYTES (16 << 10) /* the list of a class, with a line for each of its blocks */
#define LINE_BYTES 512

enum { NOBODY, WRITING /* or the address of a thread's errno, which names the thread */ };

static struct text {
  _Atomic uintptr_t owner;
  size_t length;
  char lines[TEXT_BYTES];
} texts[TEXTS];
static _Atomic unsigned left_out; /* lines for which there was no room */

static bool never(void) { return false; }
bool (*log_must_wait)(void) = never;

static struct text *text_of(uintptr_t owner) {
  for (unsigned i = 0; i < TEXTS; i++)
    if (atomic_load_explicit(&texts[i].owner, memory_order_relaxed) == owner) return &texts[i];
  return NULL;
}

/* Acquire: pairs with the release by the text's owner before. */
static struct text *claim_text(void) {
  struct text *own = text_of((uintptr_t)&errno);
  for (unsigned i = 0; !own && i < TEXTS; i++) {
    uintptr_t nobody = NOBODY;
    if (atomic_compare_exchange_strong_explicit(&texts[i].owner, &nobody, (uintptr_t)&errno, memory_order_acquire,
                                                memory_order_relaxed))
      own = &texts[i];
  }
  return own;
}

static void keep_line(const char *line, size_t length) {
  struct text *text = claim_text();
  if (!text || text->length + length > TEXT_BYTES) {
    atomic_fetch_add_explicit(&left_out, 1, memory_order_relaxed);
    return;
  }
  memcpy(text->lines + text->length, line, length);
  text->length += length;
}

/* Writes each line by itself, as it would have been written at once. */
static void write_lines(const char *at, size_t length, time_t patience) {
  int to = begin_errors();
  for (const char *end = at + length; at < end;) {
    size_t line = (size_t)((const char *)memchr(at, '\n', (size_t)(end - at)) - at) + 1;
    if (patience == 0 || look_for_room(to, patience) != 0) log_write(to, at, line);
    at += line;
  }
  end_errors(to);
}

/* While the thread writes, a signal handler of the program may keep lines in another text. */
static void tell(time_t patience) {
  int kept = errno;
  struct text *text = text_of((uintptr_t)&errno);
  if (text) {
    atomic_store_explicit(&text->owner, WRITING, memory_order_relaxed);
    write_lines(text->lines, text->length, patience);
    text->length = 0;
    atomic_store_explicit(&text->owner, NOBODY, memory_order_release); /* pairs with claim_text */
  }
  errno = kept;
}

void log_tell(void) {
  tell(0);
  unsigned count = atomic_exchange_explicit(&left_out, 0, memory_order_relaxed);
  if (count != 0) log_line("%u messages are left out, because too many came at once", count);
}

#define PATIENCE_S 1

void log_tell_last(void) { tell(PATIENCE_S); }

void log_forget(void) {
  for (unsigned i = 0; i < TEXTS; i++) {
    texts[i].length = 0;
    atomic_store_explicit(&texts[i].owner, NOBODY, memory_order_relaxed);
  }
  atomic_store_explicit(&left_out, 0, memory_order_relaxed);
  atomic_store_explicit(&borrower, 0, memory_order_relaxed);
}

void log_line(const char *format, ...) {
  int kept = errno;
  char line[LINE_BYTES];
  size_t length = log_format(line, sizeof line, "tslab: ");
  va_list arguments;
  va_start(arguments, format);
  length += log_format_list(line + length, sizeof line - length - 1, format, arguments);
  va_end(arguments);
  /* A setting or a label can hold anything. The message stays one line, and steers no terminal. */
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)line[i] < ' ' || line[i] == 127) line[i] = '?';
  line[length++] = '\n';
  if (log_must_wait()) keep_line(line, length);
  else write_lines(line, length, 0); /* there is nowhere to report a failure of this */
  errno = kept;
}

void check_failed(const char *condition, const char *file, int line) {
  log_line("internal error: %s does not hold (%s:%d); please report this", condition, file, line);
  log_tell_last();
  abort();
}
