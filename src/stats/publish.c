/* publish: see publish.h; stats/segment.h has the layout.                                           floor: stats
 *
 * Threads: the scavenger writes everything here but `ended`; the thread that ends the process reads `published_by`. */
#include "stats/publish.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/options.h"
#include "heap/profile.h"
#include "os/lock.h"
#include "os/os.h"
#include "stats/profile.h"
#include "stats/segment.h"
#include "stats/tables.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define SECOND_NS      UINT64_C(1000000000)
#define STALE_NS       (60 * SECOND_NS) /* how long tools can still read a killed process */
#define PAGES_MOST     256
#define WHOLE_ROWS     64   /* a table of fewer rows gets the pages for all of them at once */
#define FIRST_BYTES    2048 /* the first pages of a longer table */
#define NAMES_A_LOOK   4096 /* of the directory */
#define FILES_A_LOOK   64   /* of ended processes */
#define FILE_BYTES     (128 * KiB) /* of a file, about; one grows with what it says */
#define FILES_SHARE    4    /* of the directory, the files of all processes take this part at most */
#define PATH_BYTES     (sizeof SEGMENT_NAME + 10)
#define DIRECTORY      "/dev/shm/." /* not "/dev/shm", which may be a link */
#define PREFIX         (&SEGMENT_NAME[sizeof "/dev/shm/" - 1])

_Static_assert(TABLES <= SEGMENT_TABLES, "a snapshot counts rows of SEGMENT_TABLES tables");

/* The layout. The writer never reads it from the segment, because other processes may have written there. It reads
 * one word from there, which is a request (profile_request). */
struct layout {
  size_t tables, fields, bounds, strings, strings_bytes;
  size_t table[TABLES]; /* from the start of a snapshot */
  size_t snapshot[2], snapshot_bytes, total;
  uint32_t field_count;
};

static struct {
  char *base;     /* NULL: none */
  uint64_t inode; /* of the file */
  uint64_t number;
  uint64_t try_again_ns;
  uint64_t profile_request; /* the one that was followed last */
  uint32_t rows[TABLES]; /* rows for which the last publication had pages */
  uint64_t had[PAGES_MOST / 64];
  struct layout layout;
} segment;

static char path[PATH_BYTES];
static _Atomic uint32_t published_by; /* the process whose file `path` is; 0: none */
static _Atomic bool ended;
/* Held while a descriptor is open, which no child may inherit, and by publish_at_exit. */
static struct lock descriptors;

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Gets the pages of a range, so that the scavenger may touch them. Returns false without memory. */
static bool have(size_t from, size_t bytes) {
  for (size_t page = from / os_page_size; page * os_page_size < from + bytes; page++) {
    uint64_t bit = UINT64_C(1) << page % 64;
    if (segment.had[page / 64] & bit) continue;
    if (!os_obtain(segment.base + page * os_page_size, os_page_size)) return false;
    segment.had[page / 64] |= bit;
  }
  return true;
}

/* ---- the segment says what it holds ------------------------------------------------------------------------------ */

static void plan(struct layout *out) {
  size_t strings = 0;
  uint32_t fields = 0;
  *out = (struct layout){.tables = sizeof(struct segment_header)};
  size_t at = round_up(sizeof(struct segment_snapshot), CACHE_LINE);
  for (const struct statistics *t = tables; t < tables + TABLES; t++) {
    strings += strlen(t->name) + strlen(t->help) + 2;
    for (const struct statistic *f = t->fields; f < t->fields + t->count; f++)
      strings += strlen(f->name) + strlen(f->help) + 2;
    fields += t->count;
    out->table[t - tables] = at;
    at = round_up(at + (size_t)t->row_bytes * t->most, CACHE_LINE);
  }
  out->field_count = fields;
  out->snapshot_bytes = round_up(at, os_page_size);
  out->fields = out->tables + TABLES * sizeof(struct segment_table);
  out->bounds = out->fields + fields * sizeof(struct segment_field);
  out->strings = out->bounds + TSLAB_BUCKETS * sizeof(uint64_t);
  out->strings_bytes = strings;
  out->snapshot[0] = round_up(out->strings + strings, os_page_size);
  out->snapshot[1] = out->snapshot[0] + out->snapshot_bytes;
  out->total = out->snapshot[1] + out->snapshot_bytes;
}

static uint32_t put_string(size_t *at, const char *text) {
  size_t offset = *at, bytes = strlen(text) + 1;
  memcpy(segment.base + segment.layout.strings + offset, text, bytes);
  *at += bytes;
  return (uint32_t)offset;
}

static void describe_tables(void) {
  const struct layout *layout = &segment.layout;
  struct segment_table *table = (void *)(segment.base + layout->tables);
  struct segment_field *first = (void *)(segment.base + layout->fields), *field = first;
  size_t at = 0;
  for (const struct statistics *t = tables; t < tables + TABLES; t++, table++) {
    *table = (struct segment_table){
        .name = put_string(&at, t->name),
        .help = put_string(&at, t->help),
        .first_field = (uint32_t)(field - first),
        .fields = t->count,
        .row_bytes = t->row_bytes,
        .rows_most = t->most,
        .offset = layout->table[t - tables],
    };
    for (const struct statistic *f = t->fields; f < t->fields + t->count; f++, field++)
      *field = (struct segment_field){
          .name = put_string(&at, f->name),
          .help = put_string(&at, f->help),
          .offset = f->offset,
          .count = f->count,
          .kind = f->kind,
          .unit = f->unit,
      };
  }
  uint64_t *bounds = (void *)(segment.base + layout->bounds);
  for (unsigned i = 0; i < TSLAB_BUCKETS; i++) bounds[i] = tslab_bucket_ns(i);
}

static void describe(uint32_t process, uint64_t namespace) {
  const struct layout *layout = &segment.layout;
  struct segment_header *header = (void *)segment.base;
  memset(header, 0, sizeof *header);
  describe_tables();
  header->version = SEGMENT_VERSION;
  header->header_bytes = sizeof *header;
  header->total_bytes = layout->total;
  header->pid = process;
  header->pid_namespace = namespace;
  header->started_realtime_ns = os_now_real_ns();
  header->tables = TABLES;
  header->fields = layout->field_count;
  header->bounds = TSLAB_BUCKETS;
  header->table_bytes = sizeof(struct segment_table);
  header->field_bytes = sizeof(struct segment_field);
  header->snapshot_head_bytes = sizeof(struct segment_snapshot);
  header->tables_offset = layout->tables;
  header->fields_offset = layout->fields;
  header->bounds_offset = layout->bounds;
  header->strings_offset = layout->strings;
  header->strings_bytes = layout->strings_bytes;
  header->snapshot_offset[0] = layout->snapshot[0];
  header->snapshot_offset[1] = layout->snapshot[1];
  header->snapshot_bytes = layout->snapshot_bytes;
  const char *library = tslab_version();
  memcpy(header->library, library, min_size(strlen(library), sizeof header->library - 1));
  /* The magic comes last: a reader that finds it finds the rest. */
  FENCE_STORES();
  memcpy(header->magic, SEGMENT_MAGIC, sizeof header->magic);
}

/* ---- files of ended processes ------------------------------------------------------------------------------------ */

static bool read_header(int file, struct segment_header *out) {
  return os_read_at(file, out, sizeof *out, 0) == sizeof *out &&
         memcmp(out->magic, SEGMENT_MAGIC, sizeof out->magic) == 0 && out->version == SEGMENT_VERSION;
}

/* Returns the time of the last publication. The file's own time does not tell it, because writes to shared pages do not
 * change that. */
static uint64_t last_change(int file, const struct segment_header *header) {
  struct segment_snapshot head;
  uint64_t latest = atomic_load_explicit(&header->latest, memory_order_relaxed);
  if (latest == 0 || os_read_at(file, &head, sizeof head, header->snapshot_offset[latest % 2]) != sizeof head)
    return header->started_realtime_ns;
  return head.realtime_ns;
}

/* Returns true if the file is this user's and no process needs it: its process has this id in this namespace, and has
 * ended or is this process before an exec. A file whose header was never finished counts after STALE_NS. */
static bool is_left_over(int file, uint32_t process) {
  struct os_file status;
  struct segment_header header;
  uint64_t now = os_now_real_ns(), namespace = os_process_namespace();
  if (os_file_of(file, &status) != 0 || !status.regular || status.links != 1 || status.user != os_user()) return false;
  bool own = process == os_process_id();
  if (!own && os_process_exists(process)) return false;
  if (!read_header(file, &header)) return now - status.changed_ns > STALE_NS;
  if (header.pid != process || header.pid_namespace != namespace || namespace == 0) return false;
  return own || now - last_change(file, &header) > STALE_NS;
}

static bool remove_left_over(const char *name, uint32_t process) {
  int file = os_open(name);
  if (file < 0) return false;
  bool done = is_left_over(file, process) && os_remove(name);
  os_close(file);
  return done;
}

/* Returns the process id in "tslab.4711"; 0 for other names. */
static uint32_t process_of(const char *name) {
  const char *at = name;
  uint64_t process = 0;
  for (const char *prefix = PREFIX; *prefix; prefix++, at++)
    if (*at != *prefix) return 0;
  if (*at == '0') return 0;
  for (; *at; at++) {
    if (*at < '0' || *at > '9' || process > INT32_MAX) return 0;
    process = process * 10 + (uint64_t)(*at - '0');
  }
  return process <= INT32_MAX ? (uint32_t)process : 0;
}

struct look {
  unsigned names, files, living; /* living: files of processes that exist */
};

static bool look_at(const char *name, void *arg) {
  struct look *look = arg;
  uint32_t process = process_of(name);
  bool is_of_another = process != 0 && process != os_process_id();
  if (is_of_another && !os_process_exists(process)) {
    char left[PATH_BYTES];
    log_format(left, sizeof left, SEGMENT_NAME "%u", process);
    remove_left_over(left, process);
    look->files++;
  } else if (is_of_another) {
    look->living++;
  }
  return ++look->names < NAMES_A_LOOK && look->files < FILES_A_LOOK;
}

/* Returns how many files of processes that exist it has seen. */
static unsigned clean_up(void) {
  struct look look = {0, 0, 0};
  os_each_name(DIRECTORY, look_at, &look);
  return look.living;
}

/* ---- making it --------------------------------------------------------------------------------------------------- */

/* Another thread may close every descriptor that it finds, even this one, and open another file that then has its
 * number. So this checks what it mapped, and sets the length by the file's name. */
static bool share(int file) {
  struct os_file shared, named;
  segment.base = os_share(file, segment.layout.total);
  if (!segment.base) return false;
  if (os_file_of(file, &shared) != 0 || os_file_at(path, &named) != 0 || shared.inode != named.inode ||
      shared.device != named.device || shared.length != 0 || !os_set_length(path, segment.layout.total)) {
    os_unreserve(segment.base, segment.layout.total);
    return false;
  }
  segment.inode = named.inode;
  return true;
}

/* Where the directory is small, as in most containers, the program's own shared memory needs it: a write to that would
 * end the program if there were no room. */
static bool has_share(int file, unsigned others) {
  uint64_t size = os_file_system_bytes(file);
  return size == 0 || (others + 1) * (uint64_t)FILE_BYTES <= size / FILES_SHARE;
}

static bool make_file(uint32_t process, unsigned others) {
  log_format(path, sizeof path, SEGMENT_NAME "%u", process);
  int file = os_create(path);
  if (file < 0 && remove_left_over(path, process)) file = os_create(path);
  if (file < 0) return false;
  struct os_file made, now;
  bool known = os_file_of(file, &made) == 0;
  atomic_store_explicit(&published_by, process, memory_order_relaxed);
  bool done = has_share(file, others) && share(file);
  /* A program that closes all descriptors may have closed this one, and opened another file under its number. */
  if (known && os_file_of(file, &now) == 0 && now.inode == made.inode && now.device == made.device) os_close(file);
  return done;
}

static void forget(void) {
  segment.base = NULL;
  segment.number = 0;
  segment.profile_request = 0;
  memset(segment.rows, 0, sizeof segment.rows);
  memset(segment.had, 0, sizeof segment.had);
}

static bool has_room(void) {
  const struct layout *layout = &segment.layout;
  return have(0, layout->snapshot[0]) && have(layout->snapshot[0], sizeof(struct segment_snapshot)) &&
         have(layout->snapshot[1], sizeof(struct segment_snapshot));
}

static bool make(void) {
  uint32_t process = os_process_id();
  uint64_t namespace = os_process_namespace();
  forget();
  plan(&segment.layout);
  if (segment.layout.total / os_page_size > PAGES_MOST) return false;
  lock_take(&descriptors);
  unsigned others = clean_up();
  bool done = !atomic_load_explicit(&ended, memory_order_relaxed) && make_file(process, others);
  if (done && !has_room()) {
    os_unreserve(segment.base, segment.layout.total);
    done = false;
  }
  if (!done) {
    segment.base = NULL;
    publish_end();
  }
  lock_release(&descriptors);
  if (done) describe(process, namespace);
  return done;
}

/* Returns false if another process removed the file or cut it short. A write to it would be lost, or end the
 * process. */
static bool is_intact(void) {
  struct os_file named;
  int error = os_file_at(path, &named);
  if (error != 0) return error != ENOENT; /* a filter may forbid the call */
  return named.inode == segment.inode && named.length >= segment.layout.total;
}

static bool ready(void) {
  if (segment.base && !is_intact()) {
    os_unreserve(segment.base, segment.layout.total);
    segment.base = NULL;
    atomic_store_explicit(&published_by, 0, memory_order_relaxed);
  }
  if (segment.base) return true;
  uint64_t now = os_now_coarse_ns();
  if (now < segment.try_again_ns) return false;
  bool made = make();
  segment.try_again_ns = made ? 0 : now + 60 * SECOND_NS;
  return made;
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */

static uint32_t first_rows(const struct statistics *table) {
  return table->most < WHOLE_ROWS ? table->most : (uint32_t)max_size(FIRST_BYTES / table->row_bytes, 1);
}

/* Collects rows straight into the segment. If they fill the room, it collects again with more room. Returns false
 * without pages. */
static bool publish_table(unsigned index, char *snapshot) {
  const struct statistics *table = &tables[index];
  if (index >= TABLE_PROFILE && !profile_is_on()) return true; /* it has no rows, and needs no pages */
  uint32_t room = segment.rows[index] ? segment.rows[index] : first_rows(table);
  char *rows = snapshot + segment.layout.table[index];
  size_t offset = (size_t)(rows - segment.base), count;
  if (!have(offset, (size_t)room * table->row_bytes)) return false;
  while ((count = table->collect(rows, room)) == room && room < table->most) {
    uint32_t more = (uint32_t)min_size((size_t)room * 2, table->most);
    if (!have(offset, (size_t)more * table->row_bytes)) break;
    room = more;
  }
  segment.rows[index] = room;
  ((struct segment_snapshot *)(void *)snapshot)->rows[index] = count;
  return true;
}

static bool publish_snapshot(void) {
  uint64_t number = segment.number + 1, began = os_now_ns();
  char *at = segment.base + segment.layout.snapshot[number % 2];
  struct segment_snapshot *head = (void *)at;
  atomic_store_explicit(&head->number, 0, memory_order_relaxed);
  FENCE_STORES(); /* pairs with the reader's acquire between its two loads of the number */
  for (unsigned i = 0; i < TABLES; i++)
    if (!publish_table(i, at)) return false;
  head->monotonic_ns = os_now_ns();
  head->realtime_ns = os_now_real_ns();
  head->collect_ns = head->monotonic_ns - began;
  atomic_store_explicit(&head->number, number, memory_order_release);
  struct segment_header *header = (void *)segment.base;
  atomic_store_explicit(&header->latest, number, memory_order_release);
  segment.number = number;
  return true;
}

bool publish_is_wanted(void) { return options.publish && !os_secure_mode(); }

/* The request may be anything. tslab_profile_interval refuses what is no interval. */
static void follow_request(void) {
  const struct segment_header *header = (void *)segment.base;
  uint64_t request = atomic_load_explicit(&header->profile_request, memory_order_relaxed);
  if (request == segment.profile_request) return;
  segment.profile_request = request;
  uint32_t bytes = (uint32_t)request;
  tslab_profile_interval(bytes == SEGMENT_AUTO ? TSLAB_PROFILE_AUTO : bytes, NULL);
}

bool publish_now(void) {
  if (!publish_is_wanted() || atomic_load_explicit(&ended, memory_order_relaxed) || !ready()) return false;
  follow_request();
  publish_snapshot(); /* without room the last snapshot stays */
  return true;
}

void publish_rest(void) {
  if (segment.base) os_set_aside(segment.base, segment.layout.total);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* A child of which no fork handler knows has its parent's id here. */
void publish_end(void) {
  uint32_t process = atomic_exchange_explicit(&published_by, 0, memory_order_relaxed);
  if (process != 0 && process == os_process_id()) os_remove(path);
}

/* The scavenger may be making the file, and would not remove it any more, so this waits for the scavenger. It does not
 * wait for ever, because a fork holds the lock, too, and may itself wait for the thread that calls exit. */
void publish_at_exit(void) {
  atomic_store_explicit(&ended, true, memory_order_relaxed);
  bool taken = lock_take_within(&descriptors, LOCK_PATIENCE_MS);
  publish_end();
  if (taken) lock_release(&descriptors);
}

bool publish_before_fork(void) { return lock_take_within(&descriptors, LOCK_PATIENCE_MS); }

void publish_after_fork_parent(void) { lock_release(&descriptors); }

/* The child does not have the segment's pages: the kernel did not copy their mapping. */
void publish_after_fork_child(void) {
  lock_reset(&descriptors);
  forget();
  segment.try_again_ns = 0;
  atomic_store_explicit(&published_by, 0, memory_order_relaxed);
}
