/* parent: see parent.h.                                                                             floor: base */
#include "base/parent.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* A file of /proc, character by character. */
struct reader {
  int file;
  size_t at, end;
  char buffer[1024];
};

static bool reader_open(struct reader *r, pid_t process, const char *name) {
  char path[64];
  log_format(path, sizeof path, "/proc/%d/%s", (int)process, name);
  r->file = open(path, O_RDONLY | O_CLOEXEC);
  r->at = r->end = 0;
  return r->file >= 0;
}

/* Returns the next character, or -1 at the end. */
static int reader_next(struct reader *r) {
  if (r->at == r->end) {
    ssize_t got = read(r->file, r->buffer, sizeof r->buffer);
    if (got <= 0) return -1;
    r->at = 0;
    r->end = (size_t)got;
  }
  return (unsigned char)r->buffer[r->at++];
}

static bool environment_has(pid_t process, const char *setting) {
  struct reader r;
  if (!reader_open(&r, process, "environ")) return false;
  size_t equal = 0; /* characters of this entry that equal those of `setting` */
  bool fits = true, found = false;
  for (int c; !found && (c = reader_next(&r)) >= 0;) {
    if (c != 0) {
      fits = fits && c == (unsigned char)setting[equal];
      equal += fits;
    } else {
      found = fits && setting[equal] == 0;
      fits = true;
      equal = 0;
    }
  }
  close(r.file);
  return found;
}

enum { FILE_TEXT = 48 }; /* device and inode: "fe:00 1234567" */
struct mapping {
  uintptr_t start, end;
  char file[FILE_TEXT];
};
static const char no_file[] = "00:00 0";

/* Reads a line of /proc/PID/maps: "start-end rights offset device inode path". Returns false at the end. */
static bool mapping_next(struct reader *r, struct mapping *m) {
  uintptr_t *edge = &m->start;
  unsigned word = 0;
  size_t length = 0;
  int c;
  m->start = m->end = 0;
  while ((c = reader_next(r)) >= 0 && c != '\n') {
    word += c == ' ';
    if (word == 0 && c == '-') edge = &m->end;
    else if (word == 0) *edge = *edge * 16 + (uintptr_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    else if ((word == 4 || (word == 3 && c != ' ')) && length < FILE_TEXT - 1) m->file[length++] = (char)c;
  }
  m->file[length] = 0;
  return c == '\n';
}

static bool own_file(char file[FILE_TEXT]) {
  struct reader r;
  struct mapping m = {0};
  uintptr_t here = (uintptr_t)own_file;
  bool found = false;
  if (!reader_open(&r, getpid(), "maps")) return false;
  while (!found && mapping_next(&r, &m)) found = m.start <= here && here < m.end && strcmp(m.file, no_file) != 0;
  close(r.file);
  memcpy(file, m.file, FILE_TEXT);
  return found;
}

static bool has_mapped(pid_t process, const char *file) {
  struct reader r;
  struct mapping m;
  bool found = false;
  if (!reader_open(&r, process, "maps")) return false;
  while (!found && mapping_next(&r, &m)) found = strcmp(m.file, file) == 0;
  close(r.file);
  return found;
}

bool parent_has(const char *setting) {
  int kept = errno;
  char file[FILE_TEXT];
  pid_t parent = getppid(); /* 0: in another namespace */
  bool has = parent > 0 && environment_has(parent, setting) && own_file(file) && has_mapped(parent, file);
  errno = kept;
  return has;
}
