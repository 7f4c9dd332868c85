/* libtslab-record.so: a library to preload that writes down the calls of malloc's family of a program (trace.h).
 *
 *   TRACE_RECORD=/tmp/%p.trace LD_PRELOAD=libtslab-record.so PROGRAM         %p: the number of the process
 *   TRACE_RECORD_LIMIT=BYTES     the recording stops there (default: 1 GiB)
 *
 * glibc's malloc serves the calls, under its own names (__libc_malloc and so on). Each thread has a buffer (writer) and
 * appends it to the file when it is full, at the thread's end and at the program's exit. A table maps each address to
 * the number of the object there. An object leaves the table before the address is freed and enters it after the
 * address was handed out, so an address never has two. The counter of births orders events of different threads.
 *
 * A process that only forked records nothing. One that was exec'ed has a file of its own, by %p; without %p the first
 * process takes the file. Not recorded are calls before this library's constructor and after its destructor, and calls
 * that a signal handler makes while its thread is recording one.
 *
 * Touched pages: blocks of BIG bytes or more are mappings of their own here (M_MMAP_THRESHOLD), without huge pages. So
 * the pages that are resident when one dies are those that the program has touched.
 *
 * Nothing here calls malloc: buffers and tables are mmap'ed. */
#include "trace.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

enum { CHUNK = 32 << 10, BIG = 128 << 10, STRIPES = 256, FIRST_ENTRIES = 256, WAITS = 10000 };
#define DEFAULT_LIMIT ((uint64_t)1 << 30)

static _Atomic bool recording;        /* false before the start, in a forked child, beyond the limit, at the end */
static _Atomic bool finished, failed, limited;
static _Atomic uint64_t births, calls, written;
static uint64_t limit = DEFAULT_LIMIT, started_ms;
static pid_t owner;
static char path[4096];
static pthread_key_t at_thread_end;
static size_t (*usable_size)(void *block);

/* ---- locks: held for a few instructions, never across a call of the program ---- */

static void take(_Atomic bool *lock) {
  while (atomic_exchange_explicit(lock, true, memory_order_acquire))
    sched_yield();
}

static void release(_Atomic bool *lock) { atomic_store_explicit(lock, false, memory_order_release); }

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void *map(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

/* ---- the table: an address to its object ---- */

typedef struct object {
  const void *address;                /* NULL: the entry is free */
  uint64_t number, size;
} object;

static struct stripe {
  _Alignas(64) _Atomic bool lock;
  object *entries;
  size_t capacity, count;             /* a power of two, kept at least half free */
} stripes[STRIPES];

static uint64_t hash(const void *address) { return ((uintptr_t)address >> 4) * 0x9E3779B97F4A7C15u; }
static struct stripe *stripe_of(const void *address) { return &stripes[hash(address) >> 56]; }
static size_t home(const struct stripe *s, const void *address) { return (hash(address) >> 20) & (s->capacity - 1); }

/* Returns the entry of that address, or the free one where it belongs. Caller holds the lock. */
static object *entry_of(const struct stripe *s, const void *address) {
  size_t at = home(s, address);
  while (s->entries[at].address && s->entries[at].address != address)
    at = (at + 1) & (s->capacity - 1);
  return &s->entries[at];
}

/* Makes room for one more entry, and returns false if there is no memory for it. Caller holds the lock. */
static bool table_room(struct stripe *s) {
  if (2 * (s->count + 1) <= s->capacity)
    return true;
  struct stripe larger = { .capacity = s->capacity ? 2 * s->capacity : FIRST_ENTRIES };
  larger.entries = map(larger.capacity * sizeof(object));
  if (!larger.entries)
    return false;
  for (size_t i = 0; i < s->capacity; i++)
    if (s->entries[i].address)
      *entry_of(&larger, s->entries[i].address) = s->entries[i];
  if (s->entries)
    munmap(s->entries, s->capacity * sizeof(object));
  s->entries = larger.entries;
  s->capacity = larger.capacity;
  return true;
}

/* An object that is there already at the address died unseen. */
static void table_put(object new) {
  struct stripe *s = stripe_of(new.address);
  take(&s->lock);
  if (table_room(s)) {
    object *e = entry_of(s, new.address);
    s->count += e->address ? 0 : 1;
    *e = new;
  }
  release(&s->lock);
}

/* Frees the entry, and moves up those behind it that would no longer be found. Caller holds the lock. */
static void table_close_gap(struct stripe *s, object *gap) {
  size_t hole = (size_t)(gap - s->entries), mask = s->capacity - 1;
  for (size_t at = (hole + 1) & mask; s->entries[at].address; at = (at + 1) & mask)
    if (((at - home(s, s->entries[at].address)) & mask) >= ((at - hole) & mask)) {
      s->entries[hole] = s->entries[at];
      hole = at;
    }
  s->entries[hole] = (object){ 0 };
  s->count--;
}

/* Takes the object at the address out of the table. Its number is 0 if there is none. */
static object table_take(const void *address) {
  struct stripe *s = stripe_of(address);
  object found = { 0 };
  take(&s->lock);
  if (s->count) {
    object *e = entry_of(s, address);
    found = *e;
    if (found.address)
      table_close_gap(s, e);
  }
  release(&s->lock);
  return found;
}

/* ---- writers: a thread's buffer, which is also its lane ---- */

typedef struct writer {
  struct writer *next;                /* all writers in the order of their lanes */
  bool taken;                         /* by a living thread */
  _Atomic bool busy;                  /* its thread is writing an event */
  uint32_t lane, used;
  uint64_t clock, ms;                 /* of its last event */
  trace_chunk head;
  unsigned char chunk[sizeof(trace_chunk) + CHUNK];   /* room for the head, and the events */
} writer;

static writer *writers;
static _Atomic bool writers_lock;
static _Thread_local writer *mine;
static _Thread_local bool inside;     /* this thread is recording, and its calls meanwhile are the recorder's own */

/* Appends to the file, which is opened anew, for programs close descriptors that they do not know. */
static bool append(const void *bytes, size_t length) {
  int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  ssize_t done = file < 0 ? -1 : write(file, bytes, length);
  if (file >= 0)
    close(file);
  return done == (ssize_t)length;
}

/* Caller is the writer's thread, or has seen that it is not busy. */
static void write_out(writer *w) {
  size_t length = sizeof w->head + w->used;
  if (w->used == 0 || failed || getpid() != owner)
    return;
  w->head.lane = w->lane;
  w->head.bytes = w->used;
  memcpy(w->chunk, &w->head, sizeof w->head);
  if (!append(w->chunk, length)) {
    failed = true;
    recording = false;
  }
  calls += w->head.calls;
  written += length;
  if (written > limit && recording) {
    limited = true;
    recording = false;
  }
  w->used = 0;
  w->head = (trace_chunk){ .clock = w->clock };
}

static void put(writer *w, const trace_event *e) {
  if (w->used + TRACE_EVENT_MOST > CHUNK)
    write_out(w);
  unsigned char *at = w->chunk + sizeof w->head + w->used;
  w->used += (uint32_t)(trace_write(at, w->clock, e) - at);
  w->clock = e->clock;
  w->head.events++;
  w->head.calls += trace_is_call(e->kind) ? 1 : 0;
}

static uint64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Returns a writer for a thread that has none: the first that no living thread has. */
static writer *take_writer(void) {
  take(&writers_lock);
  writer **at = &writers;
  uint32_t lane = 0;
  for (; *at && (*at)->taken; at = &(*at)->next)
    lane++;
  if (!*at && (*at = map(sizeof(writer))))
    (*at)->lane = lane;
  writer *w = *at;
  if (w)
    w->taken = true;
  release(&writers_lock);
  if (w)
    pthread_setspecific(at_thread_end, w);
  return w;
}

/* Returns this thread's writer if the call is one to record; end() must follow. */
static writer *begin(void) {
  if (!atomic_load_explicit(&recording, memory_order_relaxed) || inside)
    return NULL;
  inside = true;
  if (!mine)
    mine = take_writer();
  if (mine) {
    mine->busy = true;                /* before `recording` is read again: finish() reads them in the other order */
    if (recording)
      return mine;
    mine->busy = false;
  }
  inside = false;
  return NULL;
}

static void end(writer *w) {
  atomic_store_explicit(&w->busy, false, memory_order_release);
  inside = false;
}

/* Writes the time when it has changed. */
static void put_time(writer *w) {
  uint64_t ms = now_ms() - started_ms;
  if (ms != w->ms)
    put(w, &(trace_event){ .kind = TRACE_TIME, .clock = w->clock, .more = ms });
  w->ms = ms;
}

/* A thread's destructors may still call malloc after this; it then takes a writer anew. */
static void thread_ends(void *given) {
  writer *w = begin();
  if (w) {
    put(w, &(trace_event){ .kind = TRACE_THREAD_END, .clock = w->clock });
    write_out(w);
    end(w);
  }
  if (mine == given) {
    mine = NULL;
    take(&writers_lock);
    ((writer *)given)->taken = false;
    release(&writers_lock);
  }
}

/* ---- events ---- */

static uint64_t pages_touched(const object *o) {
  unsigned char resident[1024];
  const size_t page = page_size();
  uintptr_t at = (uintptr_t)o->address & ~(page - 1), past = (uintptr_t)o->address + o->size;
  uint64_t pages = 0;
  while (at < past) {
    size_t length = past - at < sizeof resident * page ? past - at : sizeof resident * page;
    if (mincore((void *)at, length, resident) != 0)
      return o->size / TRACE_PAGE;
    for (size_t i = 0; i < (length + page - 1) / page; i++)
      pages += resident[i] & 1;
    at += length;
  }
  return pages * (page / TRACE_PAGE);
}

static void put_touched(writer *w, const object *o, uint64_t clock) {
  trace_event e = { .kind = TRACE_TOUCHED, .clock = clock, .back = clock - o->number };
  if (o->size >= BIG) {
    e.more = pages_touched(o);
    put(w, &e);
  }
}

/* A block was handed out. If it took the place of `old`, that has left the table. */
static void born(unsigned kind, const void *block, size_t size, unsigned more, const object *old) {
  int error = errno;
  writer *w = begin();
  if (w) {
    uint64_t number = ++births;
    put_time(w);
    put(w, &(trace_event){ kind, number, size, kind == TRACE_REALLOC ? number - old->number : 0, more });
    table_put((object){ block, number, size });
    end(w);
  }
  errno = error;
}

/* The block is about to be freed, or to be reallocated: it leaves the table. */
static object dies(const void *block, bool freed) {
  int error = errno;
  object found = { 0 };
  writer *w = begin();
  if (w) {
    found = table_take(block);
    if (found.number && freed) {
      uint64_t clock = births;
      put_time(w);
      put_touched(w, &found, clock);
      put(w, &(trace_event){ .kind = TRACE_FREE, .clock = clock, .back = clock - found.number });
    }
    end(w);
  }
  errno = error;
  return found;
}

/* ---- malloc's family ---- */

EXPORT void *malloc(size_t size) {
  void *block = __libc_malloc(size);
  if (block)
    born(TRACE_MALLOC, block, size, 0, NULL);
  return block;
}

EXPORT void *calloc(size_t count, size_t size) {
  void *block = __libc_calloc(count, size);
  if (block)
    born(TRACE_CALLOC, block, count * size, 0, NULL);
  return block;
}

EXPORT void free(void *block) {
  if (block)
    dies(block, true);
  __libc_free(block);
}

EXPORT void *realloc(void *block, size_t size) {
  if (!block)
    return malloc(size);
  object old = dies(block, size == 0);
  void *moved = __libc_realloc(block, size);
  if (moved)
    born(old.number ? TRACE_REALLOC : TRACE_MALLOC, moved, size, 0, &old);
  else if (old.number && size)
    table_put(old);
  return moved;
}

EXPORT void *reallocarray(void *block, size_t count, size_t size) {
  size_t bytes;
  if (!__builtin_mul_overflow(count, size, &bytes))
    return realloc(block, bytes);
  errno = ENOMEM;
  return NULL;
}

static void *aligned(size_t alignment, size_t size) {
  void *block = __libc_memalign(alignment, size);
  if (block)
    born(TRACE_ALIGNED, block, size, (unsigned)__builtin_ctzll(alignment), NULL);
  return block;
}

static bool is_power(size_t n) { return n && (n & (n - 1)) == 0; }

EXPORT void *memalign(size_t alignment, size_t size) {
  while (!is_power(alignment))        /* as glibc does: the next power of two */
    alignment += alignment ? alignment & -alignment : sizeof(void *);
  return aligned(alignment, size);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

EXPORT int posix_memalign(void **block, size_t alignment, size_t size) {
  if (!is_power(alignment) || alignment % sizeof(void *) != 0)
    return EINVAL;
  int error = errno;
  void *found = aligned(alignment, size);
  errno = error;
  if (!found)
    return ENOMEM;
  *block = found;
  return 0;
}

EXPORT void *valloc(size_t size) { return aligned(page_size(), size); }

EXPORT void *pvalloc(size_t size) { return aligned(page_size(), (size + page_size() - 1) & ~(page_size() - 1)); }

/* A program that is linked with an allocator of its own would ask that one. */
EXPORT size_t malloc_usable_size(void *block) { return block && usable_size ? usable_size(block) : 0; }

/* ---- start and end ---- */

static void forked(void) { recording = false; }

/* Writes the path with %p in place, absolute. Returns false if there is none to write. */
static bool make_path(const char *pattern, bool *own) {
  char folder[2048] = "";
  const char *number = strstr(pattern, "%p");
  *own = number != NULL;
  if (*pattern == 0 || (*pattern != '/' && !getcwd(folder, sizeof folder)))
    return false;
  const char *slash = *folder ? "/" : "";
  int done;
  if (number)
    done = snprintf(path, sizeof path, "%s%s%.*s%d%s", folder, slash, (int)(number - pattern), pattern, (int)owner,
                    number + 2);
  else
    done = snprintf(path, sizeof path, "%s%s%s", folder, slash, pattern);
  return done > 0 && (size_t)done < sizeof path;
}

static bool write_head(bool own) {
  trace_head head = { .version = TRACE_VERSION, .pid = (uint32_t)owner };
  memcpy(head.magic, TRACE_MAGIC, sizeof head.magic);
  int said = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t length = said < 0 ? 0 : read(said, head.command, sizeof head.command - 1);
  if (said >= 0)
    close(said);
  for (ssize_t i = 0; i + 1 < length; i++)
    if (head.command[i] == 0)
      head.command[i] = ' ';
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (own ? O_TRUNC : O_EXCL), 0644);
  if (file < 0)
    return false;
  bool done = write(file, &head, sizeof head) == (ssize_t)sizeof head;
  close(file);
  return done;
}

static __attribute__((constructor(101))) void start(void) {
  const char *pattern = getenv("TRACE_RECORD"), *most = getenv("TRACE_RECORD_LIMIT");
  bool own;
  void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  void *symbol = libc ? dlsym(libc, "malloc_usable_size") : NULL;
  memcpy(&usable_size, &symbol, sizeof symbol);
  owner = getpid();
  if (!pattern || !make_path(pattern, &own))
    return;
  if (most && strtoull(most, NULL, 10))
    limit = strtoull(most, NULL, 10);
  if (!write_head(own)) {
    if (own || errno != EEXIST)
      fprintf(stderr, "libtslab-record: cannot write %s: %s; nothing is recorded\n", path, strerror(errno));
    return;
  }
  mallopt(M_MMAP_THRESHOLD, BIG);
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  started_ms = now_ms();
  written = sizeof(trace_head);
  if (pthread_key_create(&at_thread_end, thread_ends) == 0 && pthread_atfork(NULL, NULL, forked) == 0)
    recording = true;
}

/* Writes what was touched of the large blocks that are still there. */
static void put_survivors(writer *w) {
  for (unsigned i = 0; i < STRIPES; i++)
    for (size_t at = 0; at < stripes[i].capacity; at++)
      if (stripes[i].entries[at].address)
        put_touched(w, &stripes[i].entries[at], births);
}

/* Writes all buffers and the end. A thread that does not finish its event within a second is passed over. */
static __attribute__((destructor(101))) void finish(void) {
  if (getpid() != owner || !path[0] || !written || finished)
    return;
  finished = true;
  recording = false;
  trace_end last = { 0 };
  for (writer *w = writers; w; w = w->next) {
    for (unsigned i = 0; w->busy && i < WAITS && !(w == mine && inside); i++)
      nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    if (!w->busy || w == mine) {
      if (w == writers)
        put_survivors(w);
      write_out(w);
    }
    last.lanes++;
  }
  last.births = births;
  last.calls = calls;
  last.limited = limited;
  struct { trace_chunk head; trace_end end; } chunk = { { .lane = TRACE_END, .bytes = sizeof last }, last };
  if (!failed)
    append(&chunk, sizeof chunk);
}

/* Programs that end so run no destructors. A child of vfork ends here, too; finish() sees that it is not the owner. */
EXPORT _Noreturn void _exit(int status) {
  finish();
  for (;;)
    syscall(SYS_exit_group, status);
}

EXPORT _Noreturn void _Exit(int status) { _exit(status); }
