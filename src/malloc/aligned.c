/* aligned: memory on a multiple of a power of two.                                                  floor: malloc */
#include "malloc/malloc.h"
#include "os/os.h"
#include "process/process.h"
#include "tslab/tslab.h"
#include <errno.h>
#include <stdint.h>

static void *invalid(void) {
  errno = EINVAL;
  return NULL;
}

/* Rounds any alignment up to a power of two, as glibc does, until that overflows. */
void *tslab_memalign(size_t alignment, size_t size) {
  if (alignment > SIZE_MAX / 2 + 1) return invalid();
  if (!is_power_of_two(alignment)) alignment = alignment == 0 ? 16 : (size_t)1 << (log2_floor(alignment) + 1);
  return slow_aligned(max_size(alignment, 16), size);
}

/* C17 demands an error for an alignment that is not supported; glibc returns it from 2.38 on. */
void *tslab_aligned_alloc(size_t alignment, size_t size) {
  return is_power_of_two(alignment) ? slow_aligned(max_size(alignment, 16), size) : invalid();
}

int tslab_posix_memalign(void **out, size_t alignment, size_t size) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void *) != 0) return EINVAL;
  int kept = errno;
  void *block = slow_aligned(max_size(alignment, 16), size);
  if (!block) return ENOMEM; /* errno says so, too, as in glibc: programs read it */
  errno = kept;
  *out = block;
  return 0;
}

void *tslab_valloc(size_t size) { return process_start() ? slow_aligned(os_page_size, size) : no_memory(); }

void *tslab_pvalloc(size_t size) {
  if (!process_start() || size > PTRDIFF_MAX) return no_memory();
  return slow_aligned(os_page_size, round_up(max_size(size, 1), os_page_size));
}
