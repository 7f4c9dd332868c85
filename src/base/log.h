/* log: one line on standard error, without stdio, locale or memory.                                 floor: base */
#ifndef TSLAB_BASE_LOG_H
#define TSLAB_BASE_LOG_H

#include "base/attr.h"
#include <stdarg.h>

/* Formats into `out` (always terminated) and returns the length. Knows %s %u (unsigned) %d (int) %zu %lu %p %%. */
HIDDEN size_t log_format_list(char *out, size_t capacity, const char *format, va_list arguments);
HIDDEN __attribute__((format(printf, 3, 4))) size_t log_format(char *out, size_t capacity, const char *format, ...);

/* Writes all of it, or as much as the descriptor takes. Returns 0 or an errno value. It is no cancellation point and
 * raises no signal, because the library's message must not end a program. */
HIDDEN COLD int log_write(int descriptor, const char *from, size_t length);

/* Writes "tslab: ", the text and a newline in one write, so that lines of several threads do not mix. Keeps errno. */
HIDDEN __attribute__((format(printf, 1, 2))) COLD void log_line(const char *format, ...);

#endif
