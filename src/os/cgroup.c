/* cgroup: see cgroup.h.                                                                             floor: os */
#include "os/cgroup.h"

#include "base/bits.h"
#include "base/log.h"
#include "os/os.h"
#include <string.h>

#define TEXT_MOST 4096
#define PATH_MOST 1024

/* Reads as much as fits and ends it with a 0. Returns false if there is no such file. */
static bool read_text(const char *path, char text[TEXT_MOST]) {
  int file = os_open(path);
  if (file < 0) return false;
  text[os_read_at(file, text, TEXT_MOST - 1, 0)] = 0;
  os_close(file);
  return true;
}

/* Returns UINT64_MAX for "max" and for all other text that is no number. */
static uint64_t number(const char *text) {
  uint64_t n = 0;
  if (*text < '0' || *text > '9') return UINT64_MAX;
  for (; *text >= '0' && *text <= '9'; text++) n = n * 10 + (uint64_t)(*text - '0');
  return n;
}

static bool read_file(const char *group, const char *name, char text[TEXT_MOST]) {
  char path[PATH_MOST + 32];
  log_format(path, sizeof path, "%s/%s", group, name);
  return read_text(path, text);
}

/* Returns the number behind `name` at the start of a line; 0 if there is none. */
static uint64_t value_of(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *line = text; line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (strncmp(line, name, length) == 0 && line[length] == ' ') return number(line + length + 1);
  }
  return 0;
}

static uint64_t in_use(const char *group) {
  char text[TEXT_MOST];
  if (!read_file(group, "memory.stat", text)) return 0;
  return value_of(text, "anon") + value_of(text, "kernel") + value_of(text, "shmem");
}

static void look_at(const char *group, const char *name, struct cgroup_limit *tightest) {
  char text[TEXT_MOST];
  uint64_t bytes = read_file(group, name, text) ? number(text) : UINT64_MAX;
  if (bytes >= tightest->bytes) return;
  *tightest = (struct cgroup_limit){bytes, in_use(group)};
}

/* Reads "some avg10=1.23 avg60=..." of the process's own group. */
static unsigned stalled(const char *group) {
  char text[TEXT_MOST];
  if (!read_file(group, "memory.pressure", text)) return 0;
  const char *at = strstr(text, "avg10=");
  if (!at) return 0;
  uint64_t whole = number(at += strlen("avg10="));
  const char *point = strchr(at, '.');
  uint64_t rest = point && point[1] && point[2] ? number(point + 1) : 0; /* two digits, then a space */
  return whole > 100 ? 0 : (unsigned)(100 * whole + min_size(rest, 99));
}

/* Writes the folder of the process's group to `group`. The path of a group outside of the mount begins with "/.."; the
 * mount's root stands for it. */
static bool find_group(const char *self, const char *root, char group[PATH_MOST]) {
  char text[2 * TEXT_MOST];
  int file = os_open(self);
  if (file < 0) return false;
  text[os_read_at(file, text, sizeof text - 1, 0)] = 0;
  os_close(file);
  const char *line = strncmp(text, "0::/", 4) == 0 ? text : strstr(text, "\n0::/");
  if (!line) return false;
  line = strchr(line, '/');
  size_t length = strcspn(line, "\n");
  if (strncmp(line, "/..", 3) == 0 || length == 1) length = 0;
  if (strlen(root) + length >= PATH_MOST) return false;
  strcpy(group, root);
  strncat(group, line, length);
  return true;
}

bool cgroup_read(const char *self, const char *root, struct cgroup_memory *out) {
  char group[PATH_MOST];
  *out = (struct cgroup_memory){.max.bytes = UINT64_MAX, .high.bytes = UINT64_MAX};
  if (!find_group(self, root, group)) return false;
  out->stalled = stalled(group);
  for (size_t least = strlen(root);; *strrchr(group, '/') = 0) {
    look_at(group, "memory.max", &out->max);
    look_at(group, "memory.high", &out->high);
    if (strlen(group) <= least) return true;
  }
}
