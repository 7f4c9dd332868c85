/* stack: the return addresses above a call into the library.                                        floor: heap
 *
 * A frame is two words, as a function writes them that keeps a frame pointer: [ the caller's frame | return address ].
 * Frames lie at multiples of 16 bytes, each above the one before. The walk believes none of that without a look: code
 * that keeps no frame pointer leaves anything in its register. So the first return address is always right, and the
 * walk ends where the chain does.
 *
 * The walk takes no lock, allocates nothing and reads no byte that may not be there, so it may be made in a signal
 * handler, on any stack. */
#ifndef TSLAB_HEAP_STACK_H
#define TSLAB_HEAP_STACK_H

#include "base/attr.h"

#define STACK_MOST 24

/* Writes the return addresses from `frame` on, which is a frame of the running thread, at most `most` of them: numbers
 * of at most 48 bits, none of them 0. Returns how many. */
HIDDEN unsigned stack_walk(uintptr_t *out, unsigned most, const void *frame);

/* Writes where addresses lie, as `server+0x1234 libc.so.6+0x2724a`, or the addresses themselves where /proc does not
 * say. They count from where the file is mapped, as addr2line takes them. At most STACK_MOST. In a handler, too. */
HIDDEN void stack_text(char *out, size_t capacity, const uintptr_t *addresses, unsigned count);

#endif
