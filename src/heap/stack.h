/* stack: finds the return addresses above a call into the library.                                  floor: heap
 *
 * A function that keeps a frame pointer writes a frame of two words: [ the caller's frame | return address ]. Frames
 * lie at multiples of 16 bytes, each above the one before. The walk checks all of this, because code without frame
 * pointers may leave any value in their register. So the first return address is always right, and the walk ends where
 * the chain breaks.
 *
 * The walk takes no lock, allocates nothing and reads no byte that may be unmapped. So a signal handler may call it, on
 * any stack. On a stack that libc did not make, such as a fiber's, it goes no further than the page it begins in. */
#ifndef TSLAB_HEAP_STACK_H
#define TSLAB_HEAP_STACK_H

#include "base/attr.h"

#define STACK_MOST 24

/* Writes at most `most` return addresses, from `frame` on, which is a frame of the running thread. They have at most 48
 * bits and are not 0. Returns how many. */
HIDDEN unsigned stack_walk(uintptr_t *out, unsigned most, const void *frame);

/* Writes where addresses lie, as `server+0x1234 libc.so.6+0x2724a`, or the addresses themselves where /proc does not
 * say. They count from where the file is mapped, as addr2line takes them. At most STACK_MOST. In a handler, too. */
HIDDEN void stack_text(char *out, size_t capacity, const uintptr_t *addresses, unsigned count);

#endif
