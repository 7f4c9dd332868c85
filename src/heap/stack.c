/* stack: see stack.h.                                                                               floor: heap */
#include "heap/stack.h"

#include "base/bits.h"
#include "base/log.h"
#include "os/os.h"

#define FRAME_MOST    (256 * KiB) /* a longer step means a value that is no frame pointer */
#define ADDRESS_LEAST 4096
#define ADDRESS_MOST  (((uintptr_t)1 << 48) - 1) /* arm64 signs return addresses in the bits above */

#define STACK_USUAL (8 * MiB) /* frames further below a stack's end count as those of an unknown stack */
static bool is_below(uintptr_t frame, uintptr_t end) { return frame < end && end - frame < STACK_USUAL; }

/* A walk reads from its first frame up to `end`. Below `readable` it need not ask whether it can. */
struct reach {
  uintptr_t readable, end;
};

/* Returns true if the frame lies on the stack that libc made for this thread, which is not the main one. libc puts the
 * thread's own storage at the stack's upper end, and a guard page at the lower one. So another stack right below is
 * another mapping. */
static bool is_on_own_stack(uintptr_t frame, uintptr_t thread) {
  return thread != os_main_thread && is_below(frame, thread) &&
         os_is_mapped_as_one((const void *)frame, (const void *)thread);
}

/* The kernel maps nothing within 128 MiB below the end of the main thread's stack. On another stack than the thread's
 * own, such as a fiber's, no end is known. There a value that is no frame pointer may lead out of the stack, to memory
 * that another thread unmaps after the walk has asked. So the walk stays in the page of its first frame. */
static struct reach reach_of(uintptr_t frame) {
  uintptr_t thread = OS_THREAD, page_end = round_down(frame, os_page_size) + os_page_size;
  if (is_below(frame, os_main_stack_end)) return (struct reach){os_main_stack_end, os_main_stack_end};
  return (struct reach){page_end, is_on_own_stack(frame, thread) ? thread : page_end};
}

/* Not instrumented: a sanitizer would check the words, which belong to other functions. */
__attribute__((no_sanitize("address", "thread"))) unsigned stack_walk(uintptr_t *out, unsigned most,
                                                                      const void *frame) {
  uintptr_t at = (uintptr_t)frame;
  struct reach reach = reach_of(at);
  unsigned depth = 0;
  while (depth < most) {
    const uintptr_t *words = (const uintptr_t *)at;
    uintptr_t next = words[0], address = words[1] & ADDRESS_MOST;
    if (address < ADDRESS_LEAST) break;
    out[depth++] = address;
    if (next <= at || next - at > FRAME_MOST || next % 16 != 0 || next >= reach.end) break;
    if (next >= reach.readable) {
      uintptr_t page = round_down(next, os_page_size);
      if (!os_is_readable((const void *)page, os_page_size)) break;
      reach.readable = page + os_page_size;
    }
    at = next;
  }
  return depth;
}

/* ---- the files that addresses lie in ----------------------------------------------------------------------------- */

#define FILE_NAME 24 /* characters shown of it */

struct place {
  char file[FILE_NAME]; /* "": not known */
  uintptr_t base;
};

/* A line of /proc/self/maps, as far as it is read: "start-end rwxp offset dev inode   /path/to/file". */
enum { MAP_START, MAP_END, MAP_RIGHTS, MAP_OFFSET, MAP_DEVICE, MAP_INODE, MAP_PATH };
struct map_line {
  uintptr_t numbers[MAP_OFFSET + 1]; /* of the fields that are addresses */
  unsigned field, length;
  char file[FILE_NAME];
  uintptr_t base; /* where the file began to be mapped that the last lines were of */
};

static void put_digit(uintptr_t *number, char digit) {
  *number = *number << 4 | (uintptr_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* The last part of the path stays. */
static void put_path(struct map_line *line, char ch) {
  if (ch == '/') line->length = 0;
  else if (ch != ' ' && line->length < FILE_NAME - 1) line->file[line->length++] = ch;
}

static void end_line(struct map_line *line, const uintptr_t *addresses, unsigned count, struct place *places) {
  if (line->numbers[MAP_OFFSET] == 0) line->base = line->numbers[MAP_START];
  line->file[line->length] = 0;
  for (unsigned i = 0; i < count && line->length; i++) {
    if (addresses[i] < line->numbers[MAP_START] || addresses[i] >= line->numbers[MAP_END]) continue;
    __builtin_memcpy(places[i].file, line->file, FILE_NAME);
    places[i].base = line->base;
  }
  *line = (struct map_line){.base = line->base};
}

static void find_places(const uintptr_t *addresses, unsigned count, struct place *places) {
  char piece[512];
  struct map_line line = {.field = MAP_START};
  int file = os_open("/proc/self/maps");
  if (file < 0) return;
  uint64_t offset = 0;
  for (size_t got; (got = os_read_at(file, piece, sizeof piece, offset)) != 0; offset += got)
    for (const char *at = piece; at < piece + got; at++) {
      if (*at == '\n') end_line(&line, addresses, count, places);
      else if (line.field == MAP_PATH) put_path(&line, *at);
      else if (*at == (line.field == MAP_START ? '-' : ' ')) line.field++;
      else if (line.field <= MAP_OFFSET) put_digit(&line.numbers[line.field], *at);
    }
  os_close(file);
}

void stack_text(char *out, size_t capacity, const uintptr_t *addresses, unsigned count) {
  struct place places[STACK_MOST] = {{.base = 0}};
  find_places(addresses, count, places);
  *out = 0;
  for (unsigned i = 0; i < count && capacity > 1; i++) {
    const struct place *place = &places[i];
    const void *shown = (const void *)(addresses[i] - place->base);
    const char *space = i ? " " : "";
    size_t length = place->file[0] ? log_format(out, capacity, "%s%s+%p", space, place->file, shown)
                                   : log_format(out, capacity, "%s%p", space, shown);
    out += length;
    capacity -= length;
  }
}
