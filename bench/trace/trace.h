/* trace: the file format of recorded calls of malloc's family. record.c writes it; read.c and tools/tslab/trace.py
 * read it.
 *
 * All numbers are little-endian. The file begins with a trace_head. Chunks follow, each a trace_chunk and its bytes. A
 * chunk holds events of one lane, and the chunks of a lane are in order. A lane is the place of a thread: a thread that
 * starts takes the first lane that no living thread has. The last chunk is the end: its lane is TRACE_END and its bytes
 * are a trace_end. A trace without it is unfinished: the program was killed, and the last events of each lane are
 * missing.
 *
 * Objects are numbered from 1 in the order of their births over all threads. The clock of an event is how many objects
 * had been born when it happened; a birth's clock is the number of its object. So the order of all births is known, an
 * object's death comes after its birth, and a death is known to lie between two births.
 *
 * An event is a byte, of which the low four bits are the kind, and then varints (seven bits a byte, low ones first, the
 * high bit set in all but the last):
 *
 *   MALLOC, CALLOC  clock, size            CALLOC's size is the product
 *   ALIGNED         clock, size, the binary logarithm of the alignment
 *   REALLOC         clock, back, size      the object `clock - back` becomes the object `clock`
 *   FREE            clock, back            the object `clock - back` dies
 *   TOUCHED         clock, back, pages     so many pages of 4 KiB of the object were resident as it died, or at the end
 *   TIME            milliseconds since the start
 *   THREAD_END                             the lane's next event is of another thread
 *
 * The clock is written as its difference from the clock of the event before it, or from the chunk's clock. With
 * TRACE_NEXT it is left out: it is one more for a birth, and the same for the others. */
#ifndef TRACE_H
#define TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TRACE_MAGIC "tslabtrc"
enum { TRACE_VERSION = 1, TRACE_PAGE = 4096 };
#define TRACE_END UINT32_MAX

enum { TRACE_MALLOC, TRACE_CALLOC, TRACE_ALIGNED, TRACE_REALLOC, TRACE_FREE, TRACE_TOUCHED, TRACE_TIME,
       TRACE_THREAD_END, TRACE_KINDS, TRACE_KIND_MASK = 15, TRACE_NEXT = 16 };

typedef struct trace_head {
  char magic[8];
  uint32_t version, pid;
  char command[112];          /* the program's words, with spaces between them; cut, and ended with a zero */
} trace_head;

typedef struct trace_chunk {
  uint32_t lane, bytes, calls, events;  /* calls: events other than TOUCHED, TIME and THREAD_END */
  uint64_t clock;
} trace_chunk;

typedef struct trace_end {
  uint64_t calls, births, lanes;
  uint64_t limited;           /* 1: the limit on the file's size was reached, and later calls are missing */
} trace_end;

static inline bool trace_is_birth(unsigned kind) { return kind <= TRACE_REALLOC; }
static inline bool trace_is_call(unsigned kind) { return kind <= TRACE_FREE; }

enum { TRACE_VARINT_MOST = 10, TRACE_EVENT_MOST = 1 + 3 * TRACE_VARINT_MOST };

/* Writes a varint and returns the byte after it. */
static inline unsigned char *trace_put(unsigned char *at, uint64_t value) {
  for (; value >= 128; value >>= 7)
    *at++ = (unsigned char)(value | 128);
  *at++ = (unsigned char)value;
  return at;
}

/* Reads a varint and returns the byte after it, or NULL if it does not end before `end` or within 64 bits. */
static inline const unsigned char *trace_get(const unsigned char *at, const unsigned char *end, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
    *value |= (uint64_t)(*at & 127) << shift;
    if ((*at++ & 128) == 0)
      return at;
  }
  return NULL;
}

typedef struct trace_event {
  unsigned kind;
  uint64_t clock, size, back, more;   /* more: ALIGNED's logarithm, TOUCHED's pages, TIME's milliseconds */
} trace_event;

/* Reads the event at `at`, whose clock counts from `clock`. Returns the byte after it, or NULL if it is none. */
static inline const unsigned char *trace_event_at(const unsigned char *at, const unsigned char *end, uint64_t clock,
                                                  trace_event *e) {
  unsigned char first = *at++;
  *e = (trace_event){ .kind = first & TRACE_KIND_MASK, .clock = clock };
  if (e->kind >= TRACE_KINDS)
    return NULL;
  if (e->kind == TRACE_THREAD_END)
    return at;
  if (e->kind == TRACE_TIME)
    return trace_get(at, end, &e->more);
  uint64_t more = trace_is_birth(e->kind) ? 1 : 0;
  if (!(first & TRACE_NEXT) && !(at = trace_get(at, end, &more)))
    return NULL;
  e->clock += more;
  if (e->kind >= TRACE_REALLOC && !(at = trace_get(at, end, &e->back)))
    return NULL;
  if (trace_is_birth(e->kind) && !(at = trace_get(at, end, &e->size)))
    return NULL;
  if (e->kind == TRACE_ALIGNED || e->kind == TRACE_TOUCHED)
    at = trace_get(at, end, &e->more);
  return e->back < e->clock || e->kind < TRACE_REALLOC ? at : NULL;
}

/* Writes an event whose clock counts from `clock`, and returns the byte after it. */
static inline unsigned char *trace_write(unsigned char *at, uint64_t clock, const trace_event *e) {
  uint64_t more = e->clock - clock, next = trace_is_birth(e->kind) ? 1 : 0;
  bool clocked = e->kind != TRACE_THREAD_END && e->kind != TRACE_TIME;
  *at++ = (unsigned char)(e->kind | (clocked && more == next ? TRACE_NEXT : 0));
  if (clocked && more != next)
    at = trace_put(at, more);
  if (clocked && e->kind >= TRACE_REALLOC)
    at = trace_put(at, e->back);
  if (trace_is_birth(e->kind))
    at = trace_put(at, e->size);
  if (e->kind == TRACE_ALIGNED || e->kind == TRACE_TOUCHED || e->kind == TRACE_TIME)
    at = trace_put(at, e->more);
  return at;
}

#endif
