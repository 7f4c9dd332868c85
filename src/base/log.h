/* log: one line on standard error, without stdio, locale or memory.                                 floor: base
 *
 * Standard error may be a full pipe, and its reader a thread of this process that waits for a lock. So a line that a
 * thread writes while it holds a lock waits in a table of a few texts, until the thread releases its last lock. */
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

/* Writes "tslab: ", the text and a newline in one write, so that lines of several threads do not mix. Keeps errno. A
 * thread that holds a lock keeps the line, and writes it when it has released its last one. */
HIDDEN __attribute__((format(printf, 1, 2))) COLD void log_line(const char *format, ...);

/* A hook: returns true if this thread holds a lock. It then sees to it that the thread calls log_tell at the last
 * release. */
extern HIDDEN bool (*log_must_wait)(void);

/* Writes the lines that this thread kept. Caller holds no lock. Keeps errno. */
HIDDEN COLD void log_tell(void);

/* Writes the lines that this thread kept, before the process ends: the thread may hold a lock, and will not release it.
 * A reader has a second to make room for each line. */
HIDDEN COLD void log_tell_last(void);

/* For a fork child, which does not have the threads that kept lines: those are the parent's to write. */
HIDDEN void log_forget(void);

/* Tells that this thread has a table of descriptors of its own, without the program's, or has it no more. Its messages
 * then go to the standard error of the process's first thread. One thread at a time has such a table. */
HIDDEN void log_borrow(bool borrows);

#endif
