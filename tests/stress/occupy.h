/* occupy.h: a page of the program's directly behind each mapping of the process, so also where the heap and its tables
 * would grow next. */
#ifndef TSLAB_TESTS_OCCUPY_H
#define TSLAB_TESTS_OCCUPY_H

#include "../check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OCCUPIED_MOST = 1000, OCCUPIED_BYTES = 4096 };
static unsigned char *occupied[OCCUPIED_MOST];
static size_t occupied_count;

static inline void occupy(void) {
  static char text[1 << 17];
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  ssize_t length = 0, got;
  CHECK(file >= 0);
  while ((got = read(file, text + length, sizeof text - 1 - (size_t)length)) > 0) length += got;
  close(file);
  text[length] = 0;
  const int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  for (const char *line = text; *line && occupied_count < OCCUPIED_MOST; line = strchr(line, '\n') + 1) {
    unsigned char *const end = (unsigned char *)strtoul(strchr(line, '-') + 1, NULL, 16);
    if (mmap(end, OCCUPIED_BYTES, access, flags, -1, 0) != end) continue;
    occupied[occupied_count++] = memset(end, 7, OCCUPIED_BYTES);
  }
}

static inline void occupied_are_kept(void) {
  for (size_t i = 0; i < occupied_count; i++)
    for (size_t j = 0; j < OCCUPIED_BYTES; j++) CHECK_COUNT(occupied[i][j], ==, 7);
}

#endif
