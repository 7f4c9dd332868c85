/* os: the kernel as this allocator needs it; the contract. linux.c is the code.                      floor: os
 *
 * Every call leaves errno as it found it. Lengths and addresses are multiples of os_page_size unless said otherwise. */
#ifndef TSLAB_OS_OS_H
#define TSLAB_OS_OS_H

#include "base/attr.h"

HIDDEN extern size_t os_page_size; /* set by os_start; a power of two */

HIDDEN void os_start(void);

/* Address space without memory, at `hint` when that is free, else where the kernel likes; kept out of core dumps and
 * of transparent huge pages until committed. NULL when refused. */
HIDDEN void *os_reserve(void *hint, size_t length);

/* The same exactly at `at`; false when something is mapped there. */
HIDDEN bool os_reserve_at(void *at, size_t length);
HIDDEN void os_unreserve(void *at, size_t length);

/* Makes reserved pages readable and writable; they read as zero. False when the kernel refuses (memory limits). */
HIDDEN bool os_commit(void *at, size_t length);

/* Gives committed pages back to the kernel; they stay writable and read as zero. False when the kernel refuses: then
 * contents and residence are unchanged. */
HIDDEN bool os_purge(void *at, size_t length);

/* Moves pages to other committed pages, whose old contents are lost; the source then reads as zero, and the destination
 * keeps a mapping of its own until os_heal. Where the kernel cannot, the source is unchanged and the destination zero,
 * or, when the kernel unmapped it first and gives it no more, LOST: not to be touched again. */
enum os_moved { MOVED, NOT_MOVED, LOST };
HIDDEN enum os_moved os_move(void *from, void *to, size_t length);

/* Fresh zero pages that can merge with the neighbouring mappings again after os_move. False: nothing changed. */
HIDDEN bool os_heal(void *at, size_t length);

/* Most address space that one reservation should take; SIZE_MAX without a limit. */
HIDDEN size_t os_address_space_limit(void);

HIDDEN size_t os_physical_memory(void);

/* Randomness that the kernel gave the process at its start; no system call. */
HIDDEN uint64_t os_random(void);

/* Waits while *word == value, at most `milliseconds` (0: for ever); may return early. */
HIDDEN void os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
HIDDEN void os_yield(void); /* lets others run for a moment */
HIDDEN void os_wake(_Atomic uint32_t *word, int waiters);

/* A full barrier on every thread of the process, so that the others need none; false where the kernel has no such call:
 * then each must do its own. The first call may take milliseconds. */
HIDDEN bool os_barrier_everywhere(void);

/* Makes committed pages resident. A hint. */
HIDDEN void os_populate(void *at, size_t length);

/* Whatever touches these pages faults from now on; their memory goes back. False when the kernel refuses. */
HIDDEN bool os_forbid(void *at, size_t length);

HIDDEN uint64_t os_now_ns(void);        /* CLOCK_MONOTONIC */
HIDDEN uint64_t os_now_coarse_ns(void); /* the same at the resolution of a tick, for a tenth of the cost */
HIDDEN size_t os_resident_bytes(void);  /* 0 where /proc does not say */

HIDDEN bool os_secure_mode(void); /* set-user-id and the like: the environment is not to be trusted */

#endif
