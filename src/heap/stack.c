/* stack: see stack.h.                                                                               floor: heap */
#include "heap/stack.h"

#include "base/bits.h"
#include "os/lock.h"
#include "os/os.h"

#define FRAME_MOST    (256 * KiB) /* a longer step means a value that is no frame pointer */
#define ADDRESS_LEAST 4096
#define ADDRESS_MOST  (((uintptr_t)1 << 48) - 1) /* arm64 signs return addresses in the bits above */

/* Returns an address above all frames of this stack. libc puts a thread's static storage at the upper end of its stack.
 * On another stack, such as the main thread's or a fiber's, no bound is known. */
#define STACK_LONGEST (1 * GiB)
static uintptr_t end_of_stack(uintptr_t frame) {
  uintptr_t end = (uintptr_t)&locks_held;
  return frame < end && end - frame < STACK_LONGEST ? end : UINTPTR_MAX;
}

/* Not instrumented: a sanitizer would check the words, which belong to other functions. */
__attribute__((no_sanitize("address", "thread"))) unsigned stack_walk(uintptr_t *out, unsigned most,
                                                                      const void *frame) {
  uintptr_t at = (uintptr_t)frame, page = at / os_page_size, end = end_of_stack(at);
  unsigned depth = 0;
  while (depth < most) {
    const uintptr_t *words = (const uintptr_t *)at;
    uintptr_t next = words[0], address = words[1] & ADDRESS_MOST;
    if (address < ADDRESS_LEAST) break;
    out[depth++] = address;
    if (next <= at || next - at > FRAME_MOST || next % 16 != 0 || next >= end) break;
    if (next / os_page_size != page && !os_is_readable((const void *)next)) break;
    page = next / os_page_size;
    at = next;
  }
  return depth;
}
