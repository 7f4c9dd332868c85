/* os: the kernel as this allocator needs it; the contract. linux.c is the code.                     floor: os
 *
 * Every call leaves errno as it found it. Lengths and addresses are multiples of os_page_size unless said otherwise. */
#ifndef TSLAB_OS_OS_H
#define TSLAB_OS_OS_H

#include "base/attr.h"
#include <signal.h>

HIDDEN extern size_t os_page_size; /* set by os_start; a power of two */

HIDDEN void os_start(void);

/* Address space without memory, at `hint` when that is free, else where the kernel likes; kept out of core dumps and
 * of transparent huge pages until committed. NULL when refused. */
HIDDEN void *os_reserve(void *hint, size_t length);

/* The same exactly at `at`; false when something is mapped there. */
HIDDEN bool os_reserve_at(void *at, size_t length);

/* Gives address space back, with the memory in it. False when the kernel refuses: then nothing changed. */
HIDDEN bool os_unreserve(void *at, size_t length);

/* Returns true if the kernel would let the process map `length` bytes more. It asks by doing so: where a sandbox kills
 * for a question about limits, a heap may still map. */
HIDDEN bool os_can_reserve(size_t length);

/* Makes reserved pages readable and writable; they read as zero. False when the kernel refuses (memory limits). */
HIDDEN bool os_commit(void *at, size_t length);

/* Gives committed pages back to the kernel; they stay writable and read as zero. False when the kernel refuses, or
 * says that it did and did not: then contents and residence are unchanged. */
HIDDEN bool os_purge(void *at, size_t length);

/* Moves pages to other committed pages, whose old contents are lost; the source then reads as zero, and the destination
 * keeps a mapping of its own until os_heal. Where the kernel cannot, the source is unchanged and the destination zero,
 * or, when the kernel unmapped it first and gives it no more, LOST: not to be touched again. Not for locked memory: the
 * source would be locked no more. */
enum os_moved { MOVED, NOT_MOVED, LOST };
HIDDEN enum os_moved os_move(void *from, void *to, size_t length);

/* Returns true if mlockall locked the page at `at`, and also where the kernel cannot say. */
HIDDEN bool os_is_locked(void *at);

/* Fresh zero pages that can merge with the neighbouring mappings again after os_move. False: nothing changed. */
HIDDEN bool os_heal(void *at, size_t length);

/* Most address space that one reservation should take; SIZE_MAX without a limit. */
HIDDEN size_t os_address_space_limit(void);
HIDDEN bool os_data_is_limited(void);    /* RLIMIT_DATA: pages that can be written */
HIDDEN bool os_locking_is_limited(void); /* RLIMIT_MEMLOCK */

/* Returns true if a sanitizer's runtime is in the process: it maps its shadow at fixed addresses, perhaps later. */
HIDDEN bool os_has_sanitizer(void);

HIDDEN size_t os_physical_memory(void);

/* Randomness that the kernel gave the process at its start; no system call. */
HIDDEN uint64_t os_random(void);

/* Randomness that nobody else knows; false when the kernel refuses. */
HIDDEN bool os_draw(void *to, size_t length);

/* Waits while *word == value, at most `milliseconds` (0: for ever); may return early. Returns false when the time is
 * over. */
HIDDEN bool os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
HIDDEN void os_rest(void); /* sleeps for a millisecond, so that threads of a lower priority run, too */
HIDDEN void os_wake(_Atomic uint32_t *word, int waiters);

/* Blocks every signal of this thread but those that its own instructions raise. Returns what was blocked before. */
HIDDEN sigset_t os_block_signals(void);
HIDDEN void os_restore_signals(const sigset_t *before);

/* Returns true if this thread may register for restartable sequences now. A system call that changes nothing. */
HIDDEN bool os_has_sequences(void);

/* A full barrier on every thread of the process, so that the others need none; false where the kernel has no such call:
 * then each must do its own. The first call may take milliseconds. */
HIDDEN bool os_barrier_everywhere(void);

/* A word that reads 0 in a child, whichever call made it, unless parent and child share memory; 1 here. NULL where the
 * kernel has no such pages. */
HIDDEN _Atomic uint32_t *os_fork_witness(void);

/* Makes committed pages resident. False where the kernel cannot, or has no memory: some may be resident then. */
HIDDEN bool os_populate(void *at, size_t length);

/* The same on huge pages, where the length holds any and the system allows them. What is purged later comes back on
 * small ones. */
HIDDEN bool os_populate_huge(void *at, size_t length);

/* Whatever touches these pages faults from now on; their memory goes back. False when the kernel refuses. */
HIDDEN bool os_forbid(void *at, size_t length);

/* The same without a mapping of their own, until os_unguard; false where the kernel has no such thing, or for locked
 * pages. */
HIDDEN bool os_guard(void *at, size_t length);
HIDDEN bool os_unguard(void *at, size_t length);

HIDDEN uint64_t os_now_ns(void);        /* CLOCK_MONOTONIC */
HIDDEN uint64_t os_now_coarse_ns(void); /* the same at the resolution of a tick, for a tenth of the cost */
HIDDEN uint64_t os_now_raw_ns(void);    /* CLOCK_MONOTONIC_RAW: nobody adjusts its rate */
HIDDEN uint64_t os_now_real_ns(void);   /* CLOCK_REALTIME */

/* Two clocks by a system call, for which a filter may end the process. The first is CLOCK_MONOTONIC_RAW and touches no
 * page of libc: for the process's start, which comes before every filter. The second says how long this thread ran:
 * only where a setting asks for that. */
HIDDEN uint64_t os_start_ns(void);
HIDDEN uint64_t os_thread_ns(void);

HIDDEN uint32_t os_thread_id(void);

/* Returns true if the eight bytes at `at`, which lie in one page, can be read now. A system call that changes nothing,
 * and may be made in a signal handler. */
HIDDEN bool os_is_readable(const void *at);
HIDDEN bool os_is_unreadable(const void *at); /* both are false where a filter does not let the kernel say */
HIDDEN size_t os_resident_bytes(void);  /* 0 where /proc does not say */

/* ---- files ------------------------------------------------------------------------------------------------------
 * A descriptor or -1; nothing is followed, waited for or inherited by programs that are executed. */
HIDDEN int os_create(const char *path); /* new and empty, for this user alone */
HIDDEN int os_open(const char *path);   /* to read */
HIDDEN void os_close(int file);
HIDDEN size_t os_read_at(int file, void *to, size_t length, uint64_t offset); /* bytes read */
HIDDEN bool os_set_length(const char *path, uint64_t length);
HIDDEN bool os_remove(const char *path);

struct os_file {
  uint64_t device, inode, length, links, changed_ns; /* its contents last, on CLOCK_REALTIME */
  uint32_t user;
  bool regular;
};
HIDDEN int os_file_of(int file, struct os_file *out); /* 0 or an errno value */
HIDDEN int os_file_at(const char *path, struct os_file *out);

/* Shares the file's pages, with no child and no core dump. A page that the file does not have yet is to be asked for by
 * os_obtain before it is touched, for where there is no room the kernel ends the process: false then. What is asked for
 * holds nothing to rely on. */
HIDDEN void *os_share(int file, size_t length);
HIDDEN bool os_obtain(void *at, size_t length);
HIDDEN void os_set_aside(void *at, size_t length); /* shared pages count as this process's again when touched */

/* Names in a directory, until `visit` returns false. */
HIDDEN void os_each_name(const char *directory, bool (*visit)(const char *name, void *arg), void *arg);

HIDDEN uint32_t os_process_id(void);
HIDDEN bool os_process_exists(uint32_t process);
HIDDEN uint64_t os_process_namespace(void); /* in which its id holds; 0 where /proc does not say */
HIDDEN uint32_t os_user(void);

HIDDEN bool os_secure_mode(void); /* set-user-id and the like: the environment is not to be trusted */

#endif
