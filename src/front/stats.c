/* stats: the figures, gathered when they are read.                                                    floor: front
 *
 * One table names the fields of tslab_stats_global and one those of tslab_class_stats; every text form is a walk over
 * them. */
#include "front/front.h"

#include "base/log.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(tslab_stats_global) % 128 == 0 && sizeof(tslab_class_stats) % 128 == 0, "fixed multiples");

struct field {
  const char *name;
  size_t offset;
};

#define GLOBAL(name) {#name, offsetof(tslab_stats_global, name)}
static const struct field global_fields[] = {
    GLOBAL(allocations),    GLOBAL(frees),           GLOBAL(live_blocks),       GLOBAL(live_bytes),
    GLOBAL(large_live_blocks), GLOBAL(large_live_bytes), GLOBAL(cached_blocks), GLOBAL(cached_bytes),
    GLOBAL(reserved_bytes), GLOBAL(committed_bytes), GLOBAL(in_use_bytes),      GLOBAL(free_dirty_bytes),
    GLOBAL(returned_bytes), GLOBAL(purge_calls),     GLOBAL(purge_failures),    GLOBAL(slabs_born),
    GLOBAL(slabs_retired),  GLOBAL(threads),         GLOBAL(parts),             GLOBAL(misuses),
    GLOBAL(leaked_at_fork),
};
#define OF_CLASS(name) {#name, offsetof(tslab_class_stats, name)}
static const struct field class_fields[] = {
    OF_CLASS(object_size), OF_CLASS(allocations), OF_CLASS(frees),         OF_CLASS(live_blocks),
    OF_CLASS(live_bytes),  OF_CLASS(cached_blocks), OF_CLASS(slabs),       OF_CLASS(slabs_born),
    OF_CLASS(slabs_retired), OF_CLASS(refills),   OF_CLASS(overflows),     OF_CLASS(remote_frees),
};
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static uint64_t value_of(const void *from, const struct field *field) {
  uint64_t value;
  memcpy(&value, (const char *)from + field->offset, sizeof value);
  return value;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static void gather_class(unsigned class, tslab_class_stats *out) {
  struct class_totals totals = {0};
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part)
    heap_totals(p, class, &totals);
  totals.frees += heap_homeless_frees(class);
  uint64_t size = class_size(class);
  *out = (tslab_class_stats){
      .object_size = size,
      .allocations = totals.allocations,
      .frees = totals.frees,
      .live_blocks = totals.allocations - totals.frees,
      .live_bytes = (totals.allocations - totals.frees) * size,
      .cached_blocks = totals.cached,
      .slabs = totals.slabs,
      .slabs_born = totals.born,
      .slabs_retired = totals.retired,
      .refills = totals.refills,
      .overflows = totals.overflows,
      .remote_frees = totals.remote_frees + heap_homeless_frees(class),
  };
}

static void add_class(tslab_stats_global *to, const tslab_class_stats *from) {
  to->allocations += from->allocations;
  to->frees += from->frees;
  to->live_bytes += from->live_bytes;
  to->cached_blocks += from->cached_blocks;
  to->cached_bytes += from->cached_blocks * from->object_size;
  to->slabs_born += from->slabs_born;
  to->slabs_retired += from->slabs_retired;
}

/* Blocks in the chunks of epochs, which are of no class. */
struct bumped {
  uint64_t allocations, frees, live_bytes;
};

static void add_chunk(const struct run *chunk, struct bumped *to) {
  struct chunk_live live = chunk_live(chunk);
  unsigned blocks = bump_blocks(chunk);
  to->allocations += blocks;
  to->frees += blocks - live.blocks;
  to->live_bytes += live.bytes;
}

static void gather_bumped(struct bumped *out) {
  for (uint32_t i = 1; i <= lifetimes_made(); i++) {
    const struct lifetime *lifetime = lifetime_at(i);
    if (atomic_load_explicit(&lifetime->own, memory_order_relaxed) == 0) continue;
    lifetime_lock(lifetime);
    for (struct run *run = lifetime_first(lifetime); run; run = lifetime_next(run))
      if (run->kind == RUN_CHUNK) add_chunk(run, out);
    lifetime_unlock(lifetime);
  }
  struct bump_totals gone = bump_totals();
  out->allocations += gone.allocations;
  out->frees += gone.frees;
}

static void gather(tslab_stats_global *out) {
  memset(out, 0, sizeof *out);
  if (!front_has_started()) return;
  for (unsigned class = 0; class < CLASSES; class++) {
    tslab_class_stats one;
    gather_class(class, &one);
    add_class(out, &one);
  }
  struct bumped bumped = {0};
  gather_bumped(&bumped);
  out->allocations += bumped.allocations;
  out->frees += bumped.frees;
  out->live_bytes += bumped.live_bytes;
  struct large_totals large = large_totals();
  out->large_live_blocks = large.allocations - large.frees;
  out->large_live_bytes = large.live_bytes;
  out->allocations += large.allocations;
  out->frees += large.frees;
  out->live_bytes += large.live_bytes;
  out->live_blocks = out->allocations - out->frees;
  struct pages_totals totals = pages_totals();
  out->reserved_bytes = totals.reserved;
  out->committed_bytes = totals.committed;
  out->free_dirty_bytes = totals.free_dirty;
  out->in_use_bytes = totals.committed - totals.free_dirty - totals.free_clean;
  out->returned_bytes = totals.returned;
  out->purge_calls = totals.purge_calls;
  out->purge_failures = totals.purge_failures;
  for (struct part *p = atomic_load_explicit(&all_parts, memory_order_acquire); p; p = p->next_part) {
    lock_take(&p->lock);
    out->parts++;
    out->threads += p->live && !p->lifetime;
    lock_release(&p->lock);
  }
  out->misuses = misuse_count();
  out->leaked_at_fork = parts_given_up;
}

static int hand_out(void *out, size_t struct_size, const void *from, size_t size) {
  memcpy(out, from, min_size(size, struct_size));
  if (struct_size > size) memset((char *)out + size, 0, struct_size - size);
  return 0;
}

int tslab_stats(tslab_stats_global *out, size_t struct_size) {
  if (!out || struct_size == 0 || struct_size % 128 != 0) return EINVAL;
  tslab_stats_global stats;
  gather(&stats);
  return hand_out(out, struct_size, &stats, sizeof stats);
}

int tslab_stats_class(unsigned index, tslab_class_stats *out, size_t struct_size) {
  if (!out || struct_size == 0 || struct_size % 128 != 0) return EINVAL;
  if (index >= CLASSES) return ERANGE;
  tslab_class_stats stats;
  gather_class(index, &stats);
  return hand_out(out, struct_size, &stats, sizeof stats);
}

/* What the other epochs hold is not its. */
static int subtract(const tslab_epoch_status *other, void *from) {
  tslab_epoch_status *status = from;
  status->live_blocks -= other->live_blocks;
  status->live_bytes -= other->live_bytes;
  status->slabs -= other->slabs;
  status->committed_bytes -= other->committed_bytes;
  return 0;
}

void stats_of_default_epoch(tslab_epoch_status *out) {
  tslab_stats_global s;
  gather(&s);
  *out = (tslab_epoch_status){
      .state = TSLAB_EPOCH_OPEN,
      .threads_inside = s.threads,
      .live_blocks = s.live_blocks,
      .live_bytes = s.live_bytes,
      .slabs = s.slabs_born - s.slabs_retired + s.large_live_blocks,
      .committed_bytes = s.in_use_bytes,
      .label = "default",
  };
  tslab_epoch_each(subtract, out);
  out->charged_bytes = out->committed_bytes;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Where lines go: a descriptor or a stdio stream. */
struct sink {
  int descriptor;
  FILE *stream;
};

static __attribute__((format(printf, 2, 3))) void print(const struct sink *to, const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  size_t length = log_format_list(line, sizeof line, format, arguments);
  va_end(arguments);
  if (to->stream) fwrite(line, 1, length, to->stream);
  else if (write(to->descriptor, line, length) < 0) return; /* a full disk loses this line and no more */
}

static void print_lines(const struct sink *to) {
  tslab_stats_global global;
  gather(&global);
  for (size_t i = 0; i < COUNT_OF(global_fields); i++)
    print(to, "%s %zu\n", global_fields[i].name, value_of(&global, &global_fields[i]));
  for (unsigned class = 0; class < CLASSES; class++) {
    tslab_class_stats stats;
    gather_class(class, &stats);
    if (stats.allocations == 0) continue;
    print(to, "class %zu", stats.object_size);
    for (size_t i = 1; i < COUNT_OF(class_fields); i++)
      print(to, " %s %zu", class_fields[i].name, value_of(&stats, &class_fields[i]));
    print(to, "\n");
  }
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
  struct sink file = {open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), NULL};
  if (file.descriptor < 0) {
    log_line("TSLAB_STATS_AT_EXIT=%s: cannot write there: %s", name, strerror(errno));
    return;
  }
  print_lines(&file);
  close(file.descriptor);
}

/* ---- glibc's reports --------------------------------------------------------------------------------------------- */

struct tslab_mallinfo tslab_mallinfo2(void) {
  tslab_stats_global s;
  gather(&s);
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
  const struct sink to = {-1, stream};
  tslab_stats_global global;
  gather(&global);
  print(&to, "<malloc version=\"%s\">\n", tslab_version());
  for (size_t i = 0; i < COUNT_OF(global_fields); i++)
    print(&to, "<total type=\"%s\" value=\"%zu\"/>\n", global_fields[i].name, value_of(&global, &global_fields[i]));
  for (unsigned class = 0; class < CLASSES; class++) {
    tslab_class_stats stats;
    gather_class(class, &stats);
    if (stats.allocations == 0) continue;
    print(&to, "<class");
    for (size_t i = 0; i < COUNT_OF(class_fields); i++)
      print(&to, " %s=\"%zu\"", class_fields[i].name, value_of(&stats, &class_fields[i]));
    print(&to, "/>\n");
  }
  print(&to, "</malloc>\n");
  return 0;
}

void tslab_malloc_stats(void) {
  const struct sink to = {STDERR_FILENO, NULL};
  print(&to, "%s\n", tslab_version());
  print_lines(&to);
}
