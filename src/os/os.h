/* os: the calls of the kernel that this allocator needs; linux.c makes them.                        floor: os
 *
 * Every call leaves errno as it found it. Lengths and addresses are multiples of os_page_size unless said otherwise. */
#ifndef TSLAB_OS_OS_H
#define TSLAB_OS_OS_H

#include "base/kernel.h"

HIDDEN extern size_t os_page_size; /* set by os_start; a power of two */

HIDDEN void os_start(void);

/* An address above all frames of the main thread's stack (0: not known), and OS_THREAD of the thread that called
 * os_start: the main thread, or the one that loaded the library. */
#define OS_THREAD ((uintptr_t)__builtin_thread_pointer()) /* an address in the running thread's own storage */
HIDDEN extern uintptr_t os_main_stack_end, os_main_thread;

/* Reserves address space without memory: at `hint` if that is free, otherwise at a place of the kernel's choice. It is
 * in no core dump until committed, and never on transparent huge pages. Returns NULL if the kernel refuses. */
HIDDEN void *os_reserve(void *hint, size_t length);

/* Reserves exactly at `at`. Returns false if something is mapped there. */
HIDDEN bool os_reserve_at(void *at, size_t length);

/* Returns true if something is mapped there; false if not, or if the kernel does not tell. */
HIDDEN bool os_is_occupied(void *at, size_t length);

/* Gives address space back, with the memory in it. Returns false if the kernel refuses; then nothing changed. */
HIDDEN bool os_unreserve(void *at, size_t length);

/* Returns false if a limit keeps the process from mapping `length` bytes more. It tries to map them, because a sandbox
 * may kill a process that asks for limits, but must let a heap map. If the sandbox refuses that, it returns true. */
HIDDEN bool os_can_reserve(size_t length);

/* Returns false if the kernel would not promise `length` bytes of memory at once. It asks by a mapping, too. */
HIDDEN bool os_can_commit(size_t length);

/* Makes reserved pages readable and writable; they read as zero. Returns false if the kernel refuses (memory
 * limits). */
HIDDEN bool os_commit(void *at, size_t length);

/* Gives committed pages back to the kernel; they stay writable and read as zero. It divides a huge page of which only a
 * part goes back, because the kernel would keep all its memory until that runs short. Returns false if the kernel
 * refuses, or does nothing in spite of its answer; then contents and residence are unchanged. */
HIDDEN bool os_purge(void *at, size_t length);

/* Moves pages to other committed pages, whose old contents are lost. The source then reads as zero, and the destination
 * keeps a mapping of its own until os_heal, or a few if the source was several. NOT_MOVED: the source is unchanged, and
 * the destination is unchanged or zero. LOST: the source is unchanged, but the kernel unmapped the destination and does
 * not map it again, so no thread may touch it. Locked pages never move, because the source would lose its lock. */
enum os_moved { MOVED, NOT_MOVED, LOST };
HIDDEN enum os_moved os_move(void *from, void *to, size_t length);

/* Moves pages to a place where nothing is mapped, maps `more` bytes of zeros behind them, and leaves nothing mapped at
 * the source. A limit of addresses needs to have room for these and a piece of 64 KiB. Returns false if nothing
 * changed. No thread may touch the pages meanwhile. */
HIDDEN bool os_move_away(void *from, void *to, size_t length, size_t more);

/* Between the two calls no page of the range moves to a huge page (os_collapse). While such a move is under way, the
 * range is several mappings. */
HIDDEN void os_begin_taking(const char *at, size_t length);
HIDDEN void os_end_taking(void);

/* Between the two calls os_move moves nothing. Around mlockall, because a page locked while it moves stays locked. */
HIDDEN void os_begin_locking(void);
HIDDEN void os_end_locking(void);

/* Returns true if mlockall locked the page at `at`, or if the kernel does not say. */
HIDDEN bool os_is_locked(void *at);

/* Maps fresh zero pages, which can merge with the neighbouring mappings again after os_move. Returns false if nothing
 * changed. */
HIDDEN bool os_heal(void *at, size_t length);

/* Returns the soft limit of address space (RLIMIT_AS); SIZE_MAX without a limit. */
HIDDEN size_t os_address_space_limit(void);
HIDDEN bool os_data_is_limited(void);    /* RLIMIT_DATA: pages that can be written */
HIDDEN bool os_promises_strictly(void);  /* vm.overcommit_memory is 2: mapped memory counts for all processes */
HIDDEN size_t os_locking_limit(void);    /* RLIMIT_MEMLOCK, in bytes; SIZE_MAX without one */

/* Returns true if a sanitizer's runtime is in the process: it maps its shadow at fixed addresses, perhaps later. */
HIDDEN bool os_has_sanitizer(void);

HIDDEN size_t os_physical_memory(void);

/* Returns random bits that the kernel gave the process at its start. Makes no system call. */
HIDDEN uint64_t os_random(void);

/* Draws random bytes that no other process knows. Returns false if the kernel refuses. */
HIDDEN bool os_draw(void *to, size_t length);

/* Waits while *word == value, at most `milliseconds` (0: for ever); may return early. Returns false if the time is
 * over. */
HIDDEN bool os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
HIDDEN void os_rest(void); /* sleeps for a millisecond, so that threads of a lower priority run, too */
HIDDEN void os_wake(_Atomic uint32_t *word, int waiters);

/* Blocks every signal of this thread but those that its own instructions raise and those of libc's own. Returns the
 * signals that were blocked before. */
HIDDEN signal_set os_block_signals(void);
HIDDEN void os_restore_signals(signal_set before);

/* Returns true if this thread may register for restartable sequences now. Makes a system call that changes nothing. */
HIDDEN bool os_has_sequences(void);

/* Makes a full barrier on every thread of the process, so that the other threads need none. Returns false if the kernel
 * has no such call; then each thread must make its own. The first call may take milliseconds. */
HIDDEN bool os_barrier_everywhere(void);

/* Returns a word that reads 1 here and 0 in a child, whichever call made the child, unless parent and child share
 * memory. Returns NULL if the kernel has no such pages. */
HIDDEN _Atomic uint32_t *os_fork_witness(void);

/* Makes committed pages resident. Returns false if the kernel cannot or has no memory; some pages may be resident
 * then. */
HIDDEN bool os_populate(void *at, size_t length);

/* Makes committed pages resident on huge pages, as far as the range holds any and the system allows them. After a purge
 * the memory comes back on small pages. */
HIDDEN bool os_populate_huge(void *at, size_t length);

/* Returns true if the system has huge pages for programs that ask for them. */
HIDDEN bool os_allows_huge(void);

/* os_is_all_here returns true if all pages of the HUGE_PAGE bytes at `at` are resident, belong to this process alone,
 * and the kernel says so. os_open_page_table comes first, in the same thread, and leaves a descriptor open until
 * os_close_page_table. It returns false if the kernel cannot say. */
#define HUGE_PAGE (2 * MiB)
HIDDEN bool os_open_page_table(void);
HIDDEN void os_close_page_table(void);
HIDDEN bool os_is_all_here(void *at);

/* Moves the pages of the 2 MiB at `at`, a multiple of that, to a huge page. Threads that fault meanwhile wait, some
 * hundred microseconds. OS_CHANGES: not all pages are here, or a thread takes pages away just now. OS_REFUSED: the
 * kernel cannot, or has no huge page. os_forget_moves is for a fork child. */
enum os_collapsed { OS_COLLAPSED, OS_CHANGES, OS_REFUSED };
HIDDEN enum os_collapsed os_collapse(void *at);
HIDDEN void os_forget_moves(void);

/* Returns how often os_purge has divided what may have been a huge page. */
HIDDEN uint64_t os_divisions(void);

/* Gives the memory of these pages back and makes each touch of them fault. Returns false if the kernel refuses. */
HIDDEN bool os_forbid(void *at, size_t length);

/* Does the same as os_forbid, until os_unguard, without a mapping of their own. Returns false if the kernel cannot, or
 * for locked pages. */
HIDDEN bool os_guard(void *at, size_t length);
HIDDEN bool os_unguard(void *at, size_t length);

HIDDEN uint64_t os_now_ns(void);        /* CLOCK_MONOTONIC */
HIDDEN uint64_t os_now_coarse_ns(void); /* the same clock at the kernel's tick, for a tenth of the cost */
HIDDEN uint64_t os_now_raw_ns(void);    /* CLOCK_MONOTONIC_RAW: no clock daemon adjusts its rate */
HIDDEN uint64_t os_now_real_ns(void);   /* CLOCK_REALTIME */

/* Lets this thread run on the processors of the thread `id`, too. */
HIDDEN void os_run_also_where(uint32_t id);

/* Read two clocks by a system call, for which a seccomp filter may end the process. os_start_ns reads
 * CLOCK_MONOTONIC_RAW and touches no page of libc; it serves the process's start, which comes before every filter.
 * os_thread_ns says how long this thread ran; the library calls it only if a setting asks for that. */
HIDDEN uint64_t os_start_ns(void);
HIDDEN uint64_t os_thread_ns(void);

HIDDEN uint32_t os_thread_id(void);

/* Returns true if these whole pages can be read now; those that are not resident become so. It makes the call madvise,
 * which a sandbox allows that is written for this library. Where the kernel does not know this advice (before Linux
 * 5.14), it makes rt_sigprocmask with no effect, and is false for more than a page. os_is_unreadable makes that call
 * always. A signal handler may call both. Both return false if a filter blocks their system call. */
HIDDEN bool os_is_readable(const void *at, size_t length);

/* Returns true if the pages from that of `at` up to that of `to`, which is mapped, are one mapping. False if it is not
 * known. */
HIDDEN bool os_is_mapped_as_one(const void *at, const void *to);
HIDDEN bool os_is_unreadable(const void *at);
HIDDEN size_t os_resident_bytes(void);  /* 0 if /proc does not say */

/* ---- files ------------------------------------------------------------------------------------------------------
 * Return a descriptor or -1. They follow no link, wait for nothing, and programs that the process executes inherit
 * none. */
/* Gives this thread an empty table of descriptors of its own, so that a descriptor that it opens takes no number from
 * the program, and its end closes none. For a moment the thread has copies of the program's. Returns false, and changes
 * nothing, if the kernel cannot, or if the program has a message queue or a file of the tracing file system open. */
HIDDEN bool os_leave_files(void);

/* Returns the size of the file system that the file lies in; 0 if it has none, or the kernel does not say. */
HIDDEN uint64_t os_file_system_bytes(int file);

HIDDEN int os_create(const char *path); /* new and empty, for this user alone */
HIDDEN int os_open(const char *path);   /* to read */
HIDDEN void os_close(int file);
HIDDEN size_t os_read_at(int file, void *to, size_t length, uint64_t offset); /* bytes read */
HIDDEN bool os_set_length(const char *path, uint64_t length);
HIDDEN bool os_remove(const char *path);

struct os_file {
  uint64_t device, inode, length, links, changed_ns; /* when its contents changed last, on CLOCK_REALTIME */
  uint32_t user;
  bool regular;
};
HIDDEN int os_file_of(int file, struct os_file *out); /* 0 or an errno value */
HIDDEN int os_file_at(const char *path, struct os_file *out);

/* os_share maps the file's pages for this process, but for no child and no core dump. If the file system has no room
 * for a page, the kernel ends a process that touches it. So the caller asks for new pages by os_obtain, which returns
 * false then. Their contents are arbitrary. */
HIDDEN void *os_share(int file, size_t length);
HIDDEN bool os_obtain(void *at, size_t length);
HIDDEN void os_set_aside(void *at, size_t length); /* unmaps shared pages until the next touch */

/* Calls `visit` with each name in a directory, until it returns false. */
HIDDEN void os_each_name(const char *directory, bool (*visit)(const char *name, void *arg), void *arg);

HIDDEN uint32_t os_process_id(void);
HIDDEN bool os_process_exists(uint32_t process);
HIDDEN uint64_t os_process_namespace(void); /* in which the process id is valid; 0 if /proc does not say */
HIDDEN uint32_t os_user(void);

/* Returns true if the address lies in the dynamic loader; false in a static program. */
HIDDEN bool os_is_in_loader(uintptr_t address);

/* Returns true if both addresses lie in the same loaded library, or nobody says where libraries lie. No other thread
 * may load one meanwhile. */
HIDDEN bool os_is_in_one_library(const void *first, const void *second);

HIDDEN bool os_secure_mode(void); /* set-user-id and the like: no code may trust the environment */

#endif
