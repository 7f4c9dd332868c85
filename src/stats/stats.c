/* stats: gives the statistics to the process itself: structs, text, glibc's reports.                floor: stats
 *
 * stats/tables.c names the statistics; every text form is a walk over its tables. */
#include "stats/stats.h"

#include "base/log.h"
#include "os/lock.h"
#include "os/os.h"
#include "slab/classes.h"
#include "stats/collect.h"
#include "stats/tables.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(tslab_stats_global) % 128 == 0 && sizeof(tslab_class_stats) % 128 == 0, "fixed multiples");

/* ---- the C face -------------------------------------------------------------------------------------------------- */

static int hand_out(void *out, size_t struct_size, const void *from, size_t size) {
  memcpy(out, from, min_size(size, struct_size));
  if (struct_size > size) memset((char *)out + size, 0, struct_size - size);
  return 0;
}

static bool is_struct(const void *out, size_t struct_size) {
  return out && struct_size > 0 && struct_size % 128 == 0;
}

/* Adds the resident bytes of /proc. The scavenger publishes without them, because a filter may forbid these system
 * calls. */
static void look(tslab_stats_global *stats) {
  collect_global(stats);
  stats->resident_bytes = os_resident_bytes();
}

int tslab_stats(tslab_stats_global *out, size_t struct_size) {
  if (!is_struct(out, struct_size)) return EINVAL;
  tslab_stats_global stats;
  lock_look(); /* a fork child may have taken no lock yet */
  look(&stats);
  return hand_out(out, struct_size, &stats, sizeof stats);
}

int tslab_stats_class(unsigned index, tslab_class_stats *out, size_t struct_size) {
  if (!is_struct(out, struct_size)) return EINVAL;
  if (index >= CLASSES) return ERANGE;
  tslab_class_stats stats;
  lock_look();
  collect_class(index, &stats);
  return hand_out(out, struct_size, &stats, sizeof stats);
}

int tslab_stats_path(unsigned index, tslab_path_stats *out, size_t struct_size) {
  if (!is_struct(out, struct_size)) return EINVAL;
  tslab_path_stats stats;
  lock_look();
  return collect_path(index, &stats) ? hand_out(out, struct_size, &stats, sizeof stats) : ERANGE;
}

int tslab_stats_label(unsigned index, tslab_label_stats *out, size_t struct_size) {
  if (!is_struct(out, struct_size)) return EINVAL;
  tslab_label_stats stats;
  lock_look();
  return collect_label(index, &stats) ? hand_out(out, struct_size, &stats, sizeof stats) : ERANGE;
}

int tslab_stats_lock(unsigned index, tslab_lock_stats *out, size_t struct_size) {
  if (!is_struct(out, struct_size)) return EINVAL;
  tslab_lock_stats kinds[LOCK_KINDS];
  lock_look();
  bool has = index < collect_locks(kinds, LOCK_KINDS);
  return has ? hand_out(out, struct_size, &kinds[index], sizeof kinds[index]) : ERANGE;
}

int tslab_stats_thread(tslab_thread_stats *out, size_t struct_size) {
  tslab_thread_stats row;
  if (!is_struct(out, struct_size)) return EINVAL;
  lock_look();
  collect_this_thread(&row);
  return hand_out(out, struct_size, &row, sizeof row);
}

int tslab_stats_epoch(tslab_epoch epoch, tslab_epoch_status *out, size_t struct_size) {
  tslab_epoch_status row;
  if (!out || struct_size == 0 || struct_size % 64 != 0) return EINVAL;
  int error = collect_epoch(epoch, &row);
  return error ? error : hand_out(out, struct_size, &row, sizeof row);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The target of lines: a descriptor or a stdio stream. After an error of a descriptor print writes no more to it. */
struct sink {
  int descriptor;
  FILE *stream;
  int error;
};

static int write_piece(const char *piece, size_t length, void *sink) {
  return log_write(((const struct sink *)sink)->descriptor, piece, length);
}

static __attribute__((format(printf, 2, 3))) void print(struct sink *to, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  size_t length = log_format_list(line, sizeof line, format, arguments);
  va_end(arguments);
  if (to->stream) fwrite(line, 1, length, to->stream);
  else if (to->error == 0) to->error = write_piece(line, length, to);
}

/* Writes a line for each statistic of the process and one for each class that was used. */
static void print_lines(struct sink *to) {
  const struct statistics *process = &tables[TABLE_PROCESS], *class = &tables[TABLE_CLASS];
  tslab_stats_global global;
  look(&global);
  for (size_t i = 0; i < process->count; i++)
    print(to, "%s %zu\n", process->fields[i].name, statistic_value(&global, &process->fields[i], 0));
  for (unsigned index = 0; index < CLASSES; index++) {
    tslab_class_stats row;
    collect_class(index, &row);
    if (row.allocations == 0) continue;
    print(to, "class %zu", row.object_size);
    for (size_t i = 1; i < class->count; i++)
      print(to, " %s %zu", class->fields[i].name, statistic_value(&row, &class->fields[i], 0));
    print(to, "\n");
  }
}

static bool ends_in(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* "%p" in the path becomes the process id, for programs that fork. */
void stats_write_file(const char *path) {
  char name[4096];
  size_t length = 0;
  for (; *path && length < sizeof name - 32; path++) {
    if (path[0] == '%' && path[1] == 'p') {
      length += log_format(name + length, 24, "%d", (int)getpid());
      path++;
    } else {
      name[length++] = *path;
    }
  }
  name[length] = 0;
  struct sink file = {.descriptor = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  if (file.descriptor < 0) {
    log_line("TSLAB_STATS_AT_EXIT=%s: cannot write there: %s", name, strerror(errno));
    return;
  }
  if (ends_in(name, ".json")) file.error = tslab_stats_json(write_piece, &file);
  else print_lines(&file);
  if (close(file.descriptor) != 0 && file.error == 0) file.error = errno; /* some file systems fail only here */
  /* The error comes first, because the name may be longer than a line. */
  if (file.error != 0) log_line("TSLAB_STATS_AT_EXIT: figures cut short (%s): %s", strerror(file.error), name);
}

/* ---- glibc's reports --------------------------------------------------------------------------------------------- */

struct tslab_mallinfo tslab_mallinfo2(void) {
  tslab_stats_global s;
  collect_global(&s);
  return (struct tslab_mallinfo){
      .arena = s.in_use_bytes + s.free_dirty_bytes,
      .ordblks = s.cached_blocks,
      .hblks = s.large_live_blocks,
      .hblkhd = s.large_live_bytes,
      .uordblks = s.live_bytes,
      .fordblks = s.in_use_bytes + s.free_dirty_bytes - min_size(s.live_bytes, s.in_use_bytes),
      .keepcost = s.free_dirty_bytes,
  };
}

int tslab_malloc_info(int options, FILE *stream) {
  if (options != 0) return EINVAL;
  struct sink to = {.descriptor = -1, .stream = stream};
  const struct statistics *process = &tables[TABLE_PROCESS], *class = &tables[TABLE_CLASS];
  tslab_stats_global global;
  look(&global);
  print(&to, "<malloc version=\"%s\">\n", tslab_version());
  for (size_t i = 0; i < process->count; i++)
    print(&to, "<total type=\"%s\" value=\"%zu\"/>\n", process->fields[i].name,
          statistic_value(&global, &process->fields[i], 0));
  for (unsigned index = 0; index < CLASSES; index++) {
    tslab_class_stats row;
    collect_class(index, &row);
    if (row.allocations == 0) continue;
    print(&to, "<class");
    for (size_t i = 0; i < class->count; i++)
      print(&to, " %s=\"%zu\"", class->fields[i].name, statistic_value(&row, &class->fields[i], 0));
    print(&to, "/>\n");
  }
  print(&to, "</malloc>\n");
  return 0;
}

/* Writes glibc's last lines, for programs that search for them. No block of this library has a mapping of its own. */
static void print_total(struct sink *to) {
  struct tslab_mallinfo info = tslab_mallinfo2();
  print(to, "Total (incl. mmap):\n");
  print(to, "system bytes     = %zu\n", info.arena);
  print(to, "in use bytes     = %zu\n", info.uordblks);
  print(to, "max mmap regions = 0\n");
  print(to, "max mmap bytes   = 0\n");
}

/* This is no cancellation point, as in glibc. */
void tslab_malloc_stats(void) {
  int before;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  struct sink to = {.descriptor = STDERR_FILENO};
  print(&to, "%s\n", tslab_version());
  print_lines(&to);
  print_total(&to);
  pthread_setcancelstate(before, &before);
}
