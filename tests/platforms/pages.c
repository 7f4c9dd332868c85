/* pages: the os floor with the answers of a kernel with larger pages, of PAGE_BYTES. The tests link it before the
 * library, so the linker leaves the library's own floor out. A call that such a kernel would round or refuse ends the
 * test, because the contract is whole pages and the library might make up for a refusal. Resident memory still counts
 * in this machine's pages. */
#define os_start           kernel_start
#define os_reserve         kernel_reserve
#define os_reserve_at      kernel_reserve_at
#define os_unreserve       kernel_unreserve
#define os_commit          kernel_commit
#define os_purge           kernel_purge
#define os_move            kernel_move
#define os_move_away       kernel_move_away
#define os_heal            kernel_heal
#define os_populate        kernel_populate
#define os_populate_huge   kernel_populate_huge
#define os_forbid          kernel_forbid
#define os_resident_bytes  kernel_resident_bytes
#define os_obtain          kernel_obtain

#include "os/linux.c"

#undef os_start
#undef os_reserve
#undef os_reserve_at
#undef os_unreserve
#undef os_commit
#undef os_purge
#undef os_move
#undef os_move_away
#undef os_heal
#undef os_populate
#undef os_populate_huge
#undef os_forbid
#undef os_resident_bytes
#undef os_obtain

#include "base/bits.h"
#include "base/log.h"
#include <stdlib.h>

/* As os.h declares them. */
HIDDEN void os_start(void);
HIDDEN void *os_reserve(void *hint, size_t length);
HIDDEN bool os_reserve_at(void *at, size_t length);
HIDDEN bool os_unreserve(void *at, size_t length);
HIDDEN bool os_commit(void *at, size_t length);
HIDDEN bool os_purge(void *at, size_t length);
HIDDEN enum os_moved os_move(void *from, void *to, size_t length);
HIDDEN bool os_move_away(void *from, void *to, size_t length, size_t more);
HIDDEN bool os_heal(void *at, size_t length);
HIDDEN bool os_populate(void *at, size_t length);
HIDDEN bool os_populate_huge(void *at, size_t length);
HIDDEN bool os_forbid(void *at, size_t length);
HIDDEN size_t os_resident_bytes(void);
HIDDEN bool os_obtain(void *at, size_t length);

static size_t kernel_page;

static void whole(const char *call, const void *at, size_t length) {
  if (length % PAGE_BYTES == 0 && (uintptr_t)at % PAGE_BYTES == 0 && length != 0) return;
  log_line("faked kernel: %s of %zu bytes at %p: not whole pages of %zu bytes", call, length, at, (size_t)PAGE_BYTES);
  abort();
}

void os_start(void) {
  kernel_start();
  kernel_page = os_page_size;
  os_page_size = PAGE_BYTES;
}

/* Such a kernel's mappings begin at its pages. */
void *os_reserve(void *hint, size_t length) {
  whole("reserve", hint, length);
  char *at = kernel_reserve(hint, length);
  if (!at || (uintptr_t)at % PAGE_BYTES == 0) return at;
  kernel_unreserve(at, length);
  at = kernel_reserve(NULL, length + PAGE_BYTES);
  if (!at) return NULL;
  char *aligned = (char *)round_up((uintptr_t)at, PAGE_BYTES), *end = at + length + PAGE_BYTES;
  if (aligned != at) kernel_unreserve(at, (size_t)(aligned - at));
  if (aligned + length != end) kernel_unreserve(aligned + length, (size_t)(end - aligned) - length);
  return aligned;
}

bool os_reserve_at(void *at, size_t length) {
  whole("reserve_at", at, length);
  return kernel_reserve_at(at, length);
}

bool os_unreserve(void *at, size_t length) {
  whole("unreserve", (void *)round_down((uintptr_t)at, PAGE_BYTES), length); /* shared memory begins anywhere */
  return kernel_unreserve(at, length);
}

bool os_commit(void *at, size_t length) {
  whole("commit", at, length);
  return kernel_commit(at, length);
}

bool os_purge(void *at, size_t length) {
  whole("purge", at, length);
  return kernel_purge(at, length);
}

enum os_moved os_move(void *from, void *to, size_t length) {
  whole("move", from, length);
  whole("move", to, length);
  return kernel_move(from, to, length);
}

bool os_move_away(void *from, void *to, size_t length, size_t more) {
  whole("move", from, length);
  whole("move", to, length + more);
  return kernel_move_away(from, to, length, more);
}

bool os_heal(void *at, size_t length) {
  whole("heal", at, length);
  return kernel_heal(at, length);
}

bool os_populate(void *at, size_t length) {
  whole("populate", at, length);
  return kernel_populate(at, length);
}

bool os_populate_huge(void *at, size_t length) {
  whole("populate", at, length);
  return kernel_populate_huge(at, length);
}

bool os_forbid(void *at, size_t length) {
  whole("forbid", at, length);
  return kernel_forbid(at, length);
}

size_t os_resident_bytes(void) { return kernel_resident_bytes() / (PAGE_BYTES / kernel_page); }

/* One page of such a kernel at a time, and so all of this one's that lie in it. */
bool os_obtain(void *at, size_t length) {
  for (char *page = at; page < (char *)at + length; page += kernel_page)
    if (!kernel_obtain(page, kernel_page)) return false;
  return true;
}

/* ---- what tests ask themselves; for those that are linked with --wrap -------------------------------------------- */

__attribute__((weak)) long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name) { return name == _SC_PAGESIZE ? PAGE_BYTES : __real_sysconf(name); }

__attribute__((weak)) int __real_mincore(void *at, size_t length, unsigned char *resident);
int __wrap_mincore(void *at, size_t length, unsigned char *resident);
int __wrap_mincore(void *at, size_t length, unsigned char *resident) {
  const size_t page = (size_t)__real_sysconf(_SC_PAGESIZE);
  for (char *from = at, *end = from + length; from < end; from += PAGE_BYTES, resident++) {
    unsigned char heaps[PAGE_BYTES / 4096];
    if (__real_mincore(from, PAGE_BYTES, heaps) != 0) return -1;
    *resident = 0;
    for (size_t i = 0; i < PAGE_BYTES / page; i++) *resident |= heaps[i];
  }
  return 0;
}
