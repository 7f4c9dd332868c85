/* read: see read.h. The chunks are read once to learn how many events there are, then for the fate of each object, and
 * at last to write the words. Tables that only the reading needs are unmapped at the end. */
#include "trace/read.h"

#include "lab.h"
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NO_LANE = UINT16_MAX, WORDS_MOST = 16, MEET_EVERY = 64 };
#define ALL_TOUCHED UINT32_MAX

/* The fate of an object over the whole trace. */
typedef struct object {
  uint64_t size;
  uint32_t pages, became, slot;       /* touched; the object that a realloc made of it, or 0 */
  uint16_t born_in, died_in;          /* lanes */
} object;

/* A lane while the words are written. */
typedef struct pen {
  lane *lane;
  uint32_t *free_slots, free_count;   /* of slots that were dropped */
  uint64_t events, clock, met;        /* clock: of its last event */
  bool thread;                        /* it has an event since the last end of a thread */
} pen;

typedef struct reader {
  const char *path;
  const unsigned char *bytes;
  uint64_t length, good;              /* of the file; of its whole chunks */
  uint64_t clock, here;               /* births; the place of the event that is being read */
  bool finished;
  trace_end end;
  object *objects;                    /* by number */
  uint64_t *freed;                    /* bytes, by clock */
  pen *pens;
  uint64_t fullest;                   /* the birth at which most is live */
  script *script;
} reader;

/* Memory that becomes resident as it is written. */
static void *map_lazily(uint64_t bytes) {
  void *memory = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    lab_fail("%llu bytes to read the trace into: %s", (unsigned long long)bytes, strerror(errno));
  return memory;
}

static void open_file(reader *r) {
  struct stat facts;
  int file = open(r->path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &facts) != 0)
    lab_fail("cannot read the trace %s: %s", r->path, strerror(errno));
  r->length = (uint64_t)facts.st_size;
  if (!S_ISREG(facts.st_mode) || r->length < sizeof(trace_head))
    lab_fail("%s is not a trace: tslab record makes one", r->path);
  r->bytes = mmap(NULL, r->length, PROT_READ, MAP_PRIVATE, file, 0);
  if (r->bytes == MAP_FAILED)
    lab_fail("cannot read the trace %s: %s", r->path, strerror(errno));
  close(file);
  trace_head head;
  memcpy(&head, r->bytes, sizeof head);
  if (memcmp(head.magic, TRACE_MAGIC, sizeof head.magic) != 0)
    lab_fail("%s is not a trace%s", r->path, r->bytes[0] == 0x1F && r->bytes[1] == 0x8B
             ? ", but compressed: tslab replay reads it" : ": tslab record makes one");
  if (head.version != TRACE_VERSION)
    lab_fail("%s is a trace of version %u, and this program reads version %d: record it again", r->path, head.version,
             TRACE_VERSION);
  memcpy(r->script->command, head.command, sizeof head.command);
  r->script->command[sizeof head.command - 1] = 0;
}

/* Reads the head of the chunk at `at`, and returns true if the file has all of the chunk. */
static bool chunk_at(const reader *r, uint64_t at, trace_chunk *chunk) {
  if (r->length - at < sizeof *chunk)
    return false;
  memcpy(chunk, r->bytes + at, sizeof *chunk);
  return r->length - at - sizeof *chunk >= chunk->bytes && (chunk->lane < NO_LANE || chunk->lane == TRACE_END);
}

/* Ends the program: the event that is being read cannot be. */
_Noreturn static void nonsense(const reader *r) {
  lab_fail("%s: nonsense at byte %llu of %llu: the file was damaged; record it again", r->path,
           (unsigned long long)r->here, (unsigned long long)r->length);
}

/* Calls `visit` for each event of the good part. */
static void each_event(reader *r, void (*visit)(reader *r, unsigned index, const trace_event *e)) {
  trace_chunk chunk;
  for (uint64_t at = sizeof(trace_head); at < r->good; at += sizeof chunk + chunk.bytes) {
    chunk_at(r, at, &chunk);
    if (chunk.lane == TRACE_END)
      return;
    const unsigned char *next = r->bytes + at + sizeof chunk, *end = next + chunk.bytes;
    for (trace_event e = { .clock = chunk.clock }; next < end;) {
      r->here = (uint64_t)(next - r->bytes);
      next = trace_event_at(next, end, e.clock, &e);
      if (!next)
        nonsense(r);
      visit(r, chunk.lane, &e);
    }
  }
}

/* Finds out how far the file is good, and counts lanes. */
static void look_through(reader *r) {
  trace_chunk chunk;
  uint64_t at = sizeof(trace_head);
  for (; at < r->length && !r->finished && chunk_at(r, at, &chunk); at += sizeof chunk + chunk.bytes) {
    if (chunk.lane == TRACE_END) {
      r->finished = chunk.bytes == sizeof r->end;
      memcpy(&r->end, r->bytes + at + sizeof chunk, r->finished ? sizeof r->end : 0);
    } else if (chunk.lane >= r->script->lane_count) {
      r->script->lane_count = chunk.lane + 1;
    }
    r->script->calls += chunk.lane == TRACE_END ? 0 : chunk.calls;
  }
  r->good = at;
}

static void check_whole(const reader *r, bool partial) {
  if (r->script->calls == 0)
    lab_fail("%s has no calls of malloc's family: record a program that is neither static nor set-user-id", r->path);
  if (r->finished || partial)
    return;
  if (r->good < r->length)
    lab_fail("%s was cut: its first %llu bytes of %llu are good, with %llu calls; --partial=yes plays these", r->path,
             (unsigned long long)r->good, (unsigned long long)r->length, (unsigned long long)r->script->calls);
  lab_fail("%s is unfinished, for its program was killed or the file was cut: it has %llu calls, and the last ones of "
           "each thread are missing; --partial=yes plays these", r->path, (unsigned long long)r->script->calls);
}

/* ---- objects ---- */

static void count_clock(reader *r, unsigned index, const trace_event *e) {
  if (e->clock < r->pens[index].clock)
    nonsense(r);
  r->pens[index].clock = e->clock;
  r->clock = e->clock > r->clock ? e->clock : r->clock;
  r->pens[index].events++;
}

static void follow(reader *r, unsigned index, const trace_event *e) {
  object *old = &r->objects[e->clock - e->back];
  if (e->kind == TRACE_TOUCHED && e->more < ALL_TOUCHED)
    old->pages = (uint32_t)e->more;
  if (e->kind == TRACE_FREE || e->kind == TRACE_REALLOC) {
    if (old->died_in != NO_LANE)
      nonsense(r);
    old->died_in = (uint16_t)index;
  }
  if (e->kind == TRACE_REALLOC)
    old->became = (uint32_t)e->clock;
}

static void bear(reader *r, unsigned index, const trace_event *e) {
  if (trace_is_birth(e->kind)) {
    object *o = &r->objects[e->clock];
    if (o->born_in != NO_LANE)
      nonsense(r);
    *o = (object){ .size = e->size, .pages = ALL_TOUCHED, .born_in = (uint16_t)index, .died_in = NO_LANE };
  }
}

static uint64_t touched_of(const object *o) {
  uint64_t bytes = o->pages == ALL_TOUCHED ? o->size : (uint64_t)o->pages * TRACE_PAGE;
  return bytes < o->size ? bytes : o->size;
}

/* The pages of a block that grows by realloc are known at the end: its forerunners had no more. */
static void give_pages_back(reader *r) {
  for (uint64_t n = r->clock; n > 0; n--) {
    object *o = &r->objects[n];
    if (o->became && r->objects[o->became].pages < o->pages)
      o->pages = r->objects[o->became].pages;
  }
}

static void add_freed(reader *r, unsigned index, const trace_event *e) {
  (void)index;
  if (e->kind == TRACE_FREE || e->kind == TRACE_REALLOC)
    r->freed[e->clock] += touched_of(&r->objects[e->clock - e->back]);
}

/* Adds up what is live after each birth. A block that the trace does not have has no bytes. */
static void sum_up(reader *r) {
  uint64_t live = 0;
  for (uint64_t n = 1; n <= r->clock; n++) {
    live += touched_of(&r->objects[n]);
    if (live > r->script->live_peak) {
      r->script->live_peak = live;
      r->fullest = n;
    }
    live -= r->freed[n];
  }
  r->script->live_end = live;
}

/* ---- words ---- */

static void put_number(lane *l, uint64_t number) {
  for (; number >= 1u << 31; number >>= 31)
    l->words[l->count++] = (uint32_t)number | 1u << 31;
  l->words[l->count++] = (uint32_t)number;
}

static bool is_shared(const object *o) {
  return o->died_in != NO_LANE && o->born_in != NO_LANE && o->died_in != o->born_in;
}

static uint32_t slot_word(const object *o) { return o->slot << SLOT_SHIFT | (is_shared(o) ? IN_SHARED : 0); }

static uint32_t new_slot(const reader *r, uint32_t *count) {
  if (*count == SLOTS_MOST)
    lab_fail("%s has more than %u blocks at a time, or that other threads free", r->path, SLOTS_MOST);
  return (*count)++;
}

/* A lane may come upon the death of a block before the words of its birth are written. */
static void give_shared_slots(reader *r) {
  for (uint64_t n = 1; n <= r->clock; n++)
    if (is_shared(&r->objects[n]))
      r->objects[n].slot = new_slot(r, &r->script->shared_slots);
}

static void give_slot(const reader *r, pen *p, object *o) {
  if (!is_shared(o))
    o->slot = p->free_count ? p->free_slots[--p->free_count] : new_slot(r, &p->lane->slots);
}

static void drop_slot(pen *p, const object *o) {
  if (o->died_in == o->born_in)
    p->free_slots[p->free_count++] = o->slot;
}

static void put_birth(reader *r, pen *p, const trace_event *e, const object *old) {
  static const unsigned kinds[] = { TAKE, TAKE_ZEROED, TAKE_ALIGNED, RESIZE };
  object *o = &r->objects[e->clock];
  uint64_t touched = touched_of(o);
  uint32_t old_word = old ? slot_word(old) : 0;
  if (old)
    drop_slot(p, old);
  give_slot(r, p, o);
  unsigned kind = e->kind == TRACE_REALLOC && !old ? TAKE : kinds[e->kind];
  p->lane->words[p->lane->count++] = slot_word(o) | kind | (touched < o->size ? PARTLY : 0);
  if (old)
    p->lane->words[p->lane->count++] = old_word;
  put_number(p->lane, o->size);
  if (touched < o->size)
    put_number(p->lane, touched);
  if (old)
    put_number(p->lane, touched_of(old));
  if (kind == TAKE_ALIGNED)
    put_number(p->lane, e->more);
  if (e->clock == r->fullest)
    p->lane->words[p->lane->count++] = FULLEST;
}

static void write_words(reader *r, unsigned index, const trace_event *e) {
  pen *p = &r->pens[index];
  if (e->kind == TRACE_THREAD_END) {
    if (p->thread)
      p->lane->words[p->lane->count++] = NEXT_THREAD;
    p->lane->threads += p->thread ? 1 : 0;
    p->thread = false;
  }
  if (!trace_is_call(e->kind))
    return;
  if (r->script->lane_count > 1 && e->clock >= p->met + MEET_EVERY) {
    p->met = e->clock;
    p->lane->words[p->lane->count++] = MEET;
    put_number(p->lane, e->clock);
  }
  const object *old = e->kind >= TRACE_REALLOC ? &r->objects[e->clock - e->back] : NULL;
  if (old && old->born_in == NO_LANE) {
    old = NULL;
    r->script->unknown += e->kind == TRACE_FREE ? 1 : 0;
    if (e->kind == TRACE_FREE)
      return;
  }
  p->thread = true;
  if (trace_is_birth(e->kind)) {
    put_birth(r, p, e, old);
  } else {
    p->lane->words[p->lane->count++] = slot_word(old) | DROP;
    drop_slot(p, old);
  }
}

static void make_pens(reader *r) {
  r->script->lanes = lab_map(r->script->lane_count * sizeof(lane));
  r->pens = map_lazily(r->script->lane_count * sizeof *r->pens);
  for (unsigned i = 0; i < r->script->lane_count; i++)
    r->pens[i].lane = &r->script->lanes[i];
}

/* Caller has counted the events. */
static void make_tables(reader *r) {
  if (r->clock >= UINT32_MAX)
    lab_fail("%s has %llu allocations, and at most %u can be replayed", r->path, (unsigned long long)r->clock,
             UINT32_MAX);
  r->objects = map_lazily((r->clock + 1) * sizeof *r->objects);
  r->freed = map_lazily((r->clock + 1) * sizeof *r->freed);
  for (uint64_t n = 0; n <= r->clock; n++)
    r->objects[n] = (object){ .pages = ALL_TOUCHED, .born_in = NO_LANE, .died_in = NO_LANE };
  for (unsigned i = 0; i < r->script->lane_count; i++) {
    pen *p = &r->pens[i];
    p->lane->words = map_lazily((p->events * WORDS_MOST + 1) * sizeof(uint32_t));
    p->free_slots = map_lazily((p->events + 1) * sizeof(uint32_t));
  }
}

static void finish_lanes(reader *r) {
  for (unsigned i = 0; i < r->script->lane_count; i++) {
    pen *p = &r->pens[i];
    p->lane->words[p->lane->count++] = STOP;
    p->lane->threads += p->thread ? 1 : 0;
    p->lane->at = p->lane->words;
    p->lane->blocks = lab_map(p->lane->slots * sizeof(void *));
    munmap(p->free_slots, (p->events + 1) * sizeof(uint32_t) + 1);
  }
}

void trace_read(const char *path, bool partial, script *into) {
  reader r = { .path = path, .script = into };
  open_file(&r);
  look_through(&r);
  check_whole(&r, partial);
  make_pens(&r);
  each_event(&r, count_clock);
  make_tables(&r);
  each_event(&r, bear);
  each_event(&r, follow);
  give_pages_back(&r);
  each_event(&r, add_freed);
  sum_up(&r);
  give_shared_slots(&r);
  each_event(&r, write_words);
  finish_lanes(&r);
  into->births = r.clock;
  munmap(r.objects, (r.clock + 1) * sizeof *r.objects + 1);
  munmap(r.freed, (r.clock + 1) * sizeof *r.freed + 1);
  munmap(r.pens, into->lane_count * sizeof *r.pens + 1);
  munmap((void *)(uintptr_t)r.bytes, r.length);
}
