/* os: Linux. See os.h for the contracts.                                                            floor: os */
#include "os/os.h"

#include "base/bits.h"
#include "base/kernel.h"
#include "base/probe.h"
#include "os/vdso.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18; Debian 12's headers may be older */
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_COLD
#define MADV_COLD 20 /* Linux 5.4 */
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7 */
#endif

#ifndef SYS_close_range
#define SYS_close_range 436 /* Linux 5.9 */
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#define MADV_GUARD_REMOVE  103
#endif

/* ---- system calls ------------------------------------------------------------------------------------------------ */

static void *map(void *at, size_t length, int protection, int flags) {
  flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  long got = kernel_call(SYS_mmap, (long)at, (long)length, protection, flags, -1, 0);
  return got < 0 && got > -4096 ? NULL : (void *)got;
}

static bool advise(void *at, size_t length, int advice) {
  return kernel_call(SYS_madvise, (long)at, (long)length, advice, 0, 0, 0) == 0;
}

static bool protect(void *at, size_t length, int protection) {
  return kernel_call(SYS_mprotect, (long)at, (long)length, protection, 0, 0, 0) == 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

size_t os_page_size;

uintptr_t os_main_stack_end, os_main_thread;

void os_start(void) {
  os_page_size = getauxval(AT_PAGESZ);
  os_main_stack_end = getauxval(AT_RANDOM); /* the kernel writes these bytes above the first frame */
  os_main_thread = OS_THREAD;
}

static void advise_reserved(void *at, size_t length) {
  advise(at, length, MADV_NOHUGEPAGE); /* one 64-byte block must not cost 2 MiB under THP=always */
  advise(at, length, MADV_DONTDUMP);
}

void *os_reserve(void *hint, size_t length) {
  void *at = map(hint, length, PROT_NONE, 0);
  if (at) advise_reserved(at, length);
  return at;
}

/* Asks for exactly that place: a hint would respect the gap that the kernel keeps below a mapping that grows down. */
bool os_reserve_at(void *at, size_t length) {
  void *got = map(at, length, PROT_NONE, MAP_FIXED_NOREPLACE);
  if (got && got != at) os_unreserve(got, length); /* before Linux 4.17 */
  if (got != at) return false;
  advise_reserved(at, length);
  return true;
}

/* A build under ThreadSanitizer calls libc's wrapper, which the sanitizer watches: it must learn that the next mapping
 * there is new. All other builds call the kernel, because a program's own sanitizer replaces the wrapper and may not
 * have started. */
#if defined(__SANITIZE_THREAD__)
bool os_unreserve(void *at, size_t length) {
  int kept = errno;
  bool done = munmap(at, length) == 0;
  errno = kept;
  return done;
}
#else
bool os_unreserve(void *at, size_t length) { return kernel_call(SYS_munmap, (long)at, (long)length, 0, 0, 0, 0) == 0; }
#endif

/* The kernel looks at the place before it looks at limits. Before Linux 4.17 it maps another place instead. */
bool os_is_occupied(void *at, size_t length) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  long got = kernel_call(SYS_mmap, (long)at, (long)length, PROT_NONE, flags, -1, 0);
  if (got < 0 && got > -4096) return got == -EEXIST;
  os_unreserve((void *)got, length);
  return (void *)got != at;
}

/* The kernel's error is EAGAIN for a limit of locked memory. */
bool os_can_reserve(size_t length) {
  long at = kernel_call(SYS_mmap, 0, (long)length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at < 0 && at > -4096) return at != -ENOMEM && at != -EAGAIN;
  return os_unreserve((void *)at, length);
}

bool os_can_commit(size_t length) {
  long at = kernel_call(SYS_mmap, 0, (long)length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at < 0 && at > -4096) return at != -ENOMEM || !os_can_reserve(length); /* a limit of addresses, or of mappings */
  return os_unreserve((void *)at, length);
}

bool os_commit(void *at, size_t length) {
  bool done = protect(at, length, PROT_READ | PROT_WRITE);
  if (done) advise(at, length, MADV_DODUMP);
  return done;
}

static bool drop(void *at, size_t length) {
  return advise(at, length, MADV_DONTNEED) || advise(at, length, MADV_DONTNEED_LOCKED); /* the latter under mlockall */
}

/* Some emulators accept MADV_DONTNEED and do nothing. calloc relies on the zeros, so the first purge tests its first
 * word. If the word keeps its value, os_purge returns false from then on. */
static _Atomic enum { PURGES_UNTRIED, PURGES_WORK, PURGES_FAIL } purges;

static bool try_purge(volatile uint64_t *at, size_t length) {
  uint64_t kept = *at;
  *at = 1;
  bool accepted = drop((void *)at, length), emptied = *at == 0;
  if (accepted) purges = emptied ? PURGES_WORK : PURGES_FAIL;
  if (emptied) return drop((void *)at, length); /* the read made a page of zeros resident */
  *at = kept;
  return false;
}

/* ---- huge pages -------------------------------------------------------------------------------------------------- */

static _Atomic bool has_huge; /* some memory may be on huge pages */
static _Atomic uint64_t divisions;

uint64_t os_divisions(void) { return atomic_load_explicit(&divisions, memory_order_relaxed); }

/* Divides the huge page, if it is one, that `page` lies in. MADV_COLD does that for a part of a huge page, and to the
 * part itself nothing that matters before a purge. */
static void divide(char *page) {
  advise(page, os_page_size, MADV_COLD);
  atomic_fetch_add_explicit(&divisions, 1, memory_order_relaxed);
}

static void divide_ends(char *at, size_t length) {
  char *last = at + length - os_page_size;
  bool from_middle = (uintptr_t)at % HUGE_PAGE != 0, to_middle = (uintptr_t)(at + length) % HUGE_PAGE != 0;
  if (from_middle) divide(at);
  if (to_middle && !(from_middle && (uintptr_t)at / HUGE_PAGE == (uintptr_t)last / HUGE_PAGE)) divide(last);
}

/* A move to a huge page fills whatever is missing with zeros that are resident. So nothing may take pages out of the
 * range from the look at its pages to the end of the move. os_collapse names the range first, and then gives up if a
 * thread takes pages anywhere. Such a thread counts itself first, and then waits while its pages are in the range. It
 * waits for a bounded time, because in a fork child the mover may not exist. A tenth of that was too short on a machine
 * with many more threads than processors. */
#define MOVE_RESTS 1000 /* a millisecond each */
static _Atomic uintptr_t moving; /* the start of the range that moves; 0: none */
static _Atomic uint32_t takers;

/* mlockall must not lock pages between the look at them and their move (has_locked). Each thread that moves pages says
 * so here; one that finds no place copies. A signal handler may interrupt a move and lock, so a thread does not wait
 * for itself. */
#define MOVERS 16
static _Atomic uintptr_t movers[MOVERS]; /* OS_THREAD; 0: none */
static _Atomic uint32_t lockers;

/* Returns this thread's place, or MOVERS if there is none. */
static unsigned begin_move(void) {
  for (unsigned i = 0; i < MOVERS; i++) {
    uintptr_t none = 0;
    if (atomic_compare_exchange_strong(&movers[i], &none, OS_THREAD)) return i;
  }
  return MOVERS;
}

static bool others_move(void) {
  for (unsigned i = 0; i < MOVERS; i++) {
    uintptr_t mover = atomic_load(&movers[i]);
    if (mover != 0 && mover != OS_THREAD) return true;
  }
  return false;
}

/* In the child of a signal handler that forked meanwhile, the count is 0 already: os_forget_moves. */
static void end_one(_Atomic uint32_t *count) {
  uint32_t seen = atomic_load(count);
  while (seen != 0 && !atomic_compare_exchange_weak(count, &seen, seen - 1)) {
  }
}

void os_begin_locking(void) {
  atomic_fetch_add(&lockers, 1);
  for (unsigned rests = 0; others_move() && rests < MOVE_RESTS; rests++) os_rest();
}
void os_end_locking(void) { end_one(&lockers); }

static bool is_moving(const char *at, size_t length) {
  uintptr_t start = atomic_load(&moving), from = (uintptr_t)at;
  return start != 0 && start < from + length && from < start + HUGE_PAGE;
}

void os_begin_taking(const char *at, size_t length) {
  atomic_fetch_add(&takers, 1);
  for (unsigned rests = 0; UNLIKELY(is_moving(at, length)) && rests < MOVE_RESTS; rests++) {
    end_one(&takers);
    os_rest();
    atomic_fetch_add(&takers, 1);
  }
}
void os_end_taking(void) { end_one(&takers); }

bool os_purge(void *at, size_t length) {
  os_begin_taking(at, length);
  if (UNLIKELY(atomic_load_explicit(&has_huge, memory_order_relaxed))) divide_ends(at, length);
  bool done = LIKELY(purges == PURGES_WORK) ? drop(at, length)
                                            : purges == PURGES_UNTRIED && try_purge(at, length);
  os_end_taking();
  PROBE3("tslab", "purge", (uintptr_t)at, length, done);
  return done;
}

static bool remap(void *from, void *to, size_t length, int flags) {
  flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
  return kernel_call(SYS_mremap, (long)from, (long)length, (long)length, flags, (long)to, 0) == (long)to;
}

static bool move(void *from, void *to, size_t length) { return remap(from, to, length, MREMAP_DONTUNMAP); }

/* Some emulators of processors treat pages that moved away as unmapped. Their madvise then does nothing but reports
 * success, and their system calls refuse to read there. So the first move tests such a page once. If that fails, the
 * pages are mapped afresh, and no pages move any more. */
static _Atomic enum { MOVES_UNTRIED, MOVES_WORK, MOVES_FAIL } moves;

static void try_source(volatile char *at, size_t length) {
  *at = 1;
  if (os_purge((void *)at, os_page_size)) moves = *at == 0 ? MOVES_WORK : MOVES_FAIL;
  if (moves != MOVES_FAIL || !os_heal((void *)at, length)) *at = 0;
}

/* From Linux 6.17 on, mremap moves several mappings, one after the other. If it then fails at a later one, for which
 * the process may have no further mapping, it does not say which ones have moved. So this moves each mapping by a call
 * of its own. A block has several if it came to its place by a move, or if the program gave advice for a part of it. */
#define PIECES 16
#define PIECE_LEAST (64 * KiB) /* at least a page everywhere */

/* Asks if the pages are one mapping: no if -EFAULT. It asks for addresses up to `taken`, which lies after the pages and
 * is mapped. No kernel grants that, and the kernel first looks at the pages. */
static long ask_for_more(char *at, size_t length, char *taken) {
  size_t more = round_down((uintptr_t)taken, os_page_size) + os_page_size - (uintptr_t)at;
  return kernel_call(SYS_mremap, (long)at, (long)length, (long)more, 0, 0, 0);
}

/* Returns true if the pages are one mapping. */
static bool is_one_mapping(char *at, size_t length, char *to) {
  char *taken = to > at ? to : (char *)getauxval(AT_RANDOM); /* on the first thread's stack */
  return taken >= at + length && ask_for_more(at, length, taken) != -EFAULT;
}

bool os_is_mapped_as_one(const void *at, const void *to) {
  char *from = (char *)round_down((uintptr_t)at, os_page_size), *end = (char *)round_down((uintptr_t)to, os_page_size);
  return from == end || ask_for_more(from, (size_t)(end - from), end) == -ENOMEM; /* no other error, as of a filter */
}

/* Returns how many of the bytes lie in the first page's mapping. */
static size_t first_mapping(char *at, size_t length, char *to) {
  if (is_one_mapping(at, length, to)) return length;
  size_t least = 0, most = length / os_page_size;
  while (most - least > 1) {
    size_t middle = (least + most) / 2;
    if (is_one_mapping(at, middle * os_page_size, to)) least = middle;
    else most = middle;
  }
  return least * os_page_size;
}

/* Returns the number of mappings and sets where they end, or returns 0 if there are too many. */
static unsigned find_pieces(char *from, size_t length, char *to, size_t ends[PIECES]) {
  unsigned count = 0;
  for (size_t end = 0, piece; end < length; ends[count++] = end) {
    piece = count < PIECES ? first_mapping(from + end, length - end, to) : 0;
    if (piece == 0) return 0;
    end += piece;
  }
  return count;
}

static bool move_piece(char *from, char *to, size_t start, size_t end) {
  return move(from + start, to + start, end - start);
}

/* Returns true if a piece is locked. Some kernels, as Linux 6.18, count such a piece as locked for ever after a move
 * that leaves the source mapped. */
static bool has_locked(char *from, const size_t *ends, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    if (os_is_locked(from + (i ? ends[i - 1] : 0))) return true;
  return false;
}

/* Copies pages back to where they were. A move leaves that place mapped and empty. So this needs neither addresses nor
 * mappings, which the kernel would refuse if a limit fell meanwhile. A page of zeros is there already. */
static void return_pages(char *from, char *to, size_t length) {
  protect(from, length, PROT_READ | PROT_WRITE);
  protect(to, length, PROT_READ | PROT_WRITE);
  for (size_t at = 0, end; at < length; at = end) {
    end = min_size(at + PIECE_LEAST, length);
    for (size_t page = at; page < end; page += os_page_size)
      if (!is_zero(to + page, os_page_size)) memcpy(from + page, to + page, os_page_size);
    os_purge(to + at, end - at);
  }
}

/* Moves all pages or none. The old contents of the destination are lost, and parts of it may not be mapped. */
static bool move_pieces(char *from, char *to, const size_t *ends, unsigned count) {
  size_t start = 0, length = ends[count - 1];
  for (unsigned i = 0; i < count && move_piece(from, to, start, ends[i]); i++) start = ends[i];
  if (start != length) {
    return_pages(from, to, start);
    return false;
  }
  if (count > 1) protect(from, length, PROT_READ | PROT_WRITE); /* as both would be after a copy */
  if (count > 1) protect(to, length, PROT_READ | PROT_WRITE);
  return true;
}

/* Returns true if the process may map a page more. */
static bool may_map(void) {
  void *page = map(NULL, os_page_size, PROT_READ | PROT_WRITE, 0);
  return page && os_unreserve(page, os_page_size);
}

static enum os_moved move_or_heal(void *from, void *to, size_t length) {
  size_t ends[PIECES];
  unsigned count = moves == MOVES_FAIL ? 0 : find_pieces(from, length, to, ends);
  if (count == 0 || has_locked(from, ends, count)) return NOT_MOVED;
  os_purge(to, length); /* otherwise mremap takes long to unmap it, and a limit may fall meanwhile */
  if (!may_map()) return NOT_MOVED;
  if (move_pieces(from, to, ends, count)) {
    if (UNLIKELY(moves == MOVES_UNTRIED)) try_source(from, length);
    return MOVED;
  }
  /* mremap unmaps the destination before it checks the limits, of which one fell since may_map. */
  return os_heal(to, length) ? NOT_MOVED : LOST;
}

/* Copies pages back to where they were, piece by piece. The process may have as many mappings as it may, but not for
 * long, because the pages could move away from there. */
static void copy_back(char *from, char *to, size_t length) {
  for (size_t at = 0, piece; at < length; at += piece) {
    piece = min_size(PIECE_LEAST, length - at);
    for (unsigned rests = 0; !os_heal(from + at, piece) && rests < MOVE_RESTS; rests++) os_rest();
    memcpy(from + at, to + at, piece);
    os_unreserve(to + at, piece);
  }
}

/* Moves what lies before the first `done` bytes of `to` back to `from`, where nothing is mapped. */
static void move_back(char *from, char *to, const size_t *ends, size_t done) {
  for (size_t start = 0, end; start < done; start = end) {
    end = min_size(*ends++, done);
    if (!remap(to + start, from + start, end - start, 0)) copy_back(from + start, to + start, end - start);
  }
}

/* Each piece's place is reserved first, so that the piece replaces no mapping of the program's. Where the room that the
 * piece before gave back is gone, only a look can tell that. Returns how many bytes have moved. */
static size_t move_on(char *from, char *to, const size_t *ends, size_t length) {
  size_t done = 0, most = length;
  while (done < length) {
    size_t piece = min_size(most, *ends - done);
    bool is_reserved = os_reserve_at(to + done, piece);
    if (!is_reserved && piece > PIECE_LEAST) {
      most = max_size(round_down(piece / 2, os_page_size), PIECE_LEAST);
      continue;
    }
    if (!is_reserved && (done == 0 || os_is_occupied(to + done, piece))) break;
    if (!remap(from + done, to + done, piece, 0)) {
      if (is_reserved) os_unreserve(to + done, piece);
      break;
    }
    done += piece;
    ends += done == *ends;
  }
  return done;
}

static bool move_away(char *from, char *to, size_t length, size_t more) {
  size_t ends[PIECES];
  if (find_pieces(from, length, from, ends) == 0 || !os_reserve_at(to + length, more)) return false;
  size_t done = os_commit(to + length, more) ? move_on(from, to, ends, length) : 0;
  if (done == length) return true;
  os_unreserve(to + length, more);
  move_back(from, to, ends, done);
  return false;
}

bool os_move_away(void *from, void *to, size_t length, size_t more) {
  os_begin_taking(from, length);
  bool done = move_away(from, to, length, more);
  os_end_taking();
  return done;
}

enum os_moved os_move(void *from, void *to, size_t length) {
  os_begin_taking(from, length);
  os_begin_taking(to, length);
  unsigned place = begin_move();
  bool may_move = place < MOVERS && atomic_load(&lockers) == 0;
  enum os_moved done = may_move ? move_or_heal(from, to, length) : NOT_MOVED;
  if (place < MOVERS) atomic_store(&movers[place], 0);
  os_end_taking();
  os_end_taking();
  return done;
}

bool os_heal(void *at, size_t length) {
  os_begin_taking(at, length);
  void *got = map(at, length, PROT_READ | PROT_WRITE, MAP_FIXED);
  os_end_taking();
  if (got != at) return false;
  advise(at, length, MADV_NOHUGEPAGE);
  advise(at, length, MADV_DONTNEED_LOCKED); /* mlockall makes new mappings resident; most times this drops nothing */
  return true;
}

/* MADV_COLD is the advice with the least effect: it refuses locked pages, and marks others as less used. A kernel that
 * does not know or allow it refuses an empty range, too. */
bool os_is_locked(void *at) { return !advise(at, os_page_size, MADV_COLD) && advise(at, 0, MADV_COLD); }

bool os_populate(void *at, size_t length) { return advise(at, length, MADV_POPULATE_WRITE); }

/* Takes the advice back at once, so that the pages stay one mapping with their neighbours. Also, the next fault beside
 * some purged pages then does not make these resident again. */
bool os_populate_huge(void *at, size_t length) {
  atomic_store_explicit(&has_huge, true, memory_order_relaxed);
  advise(at, length, MADV_HUGEPAGE);
  bool done = os_populate(at, length);
  advise(at, length, MADV_NOHUGEPAGE);
  return done;
}

/* Reads "always [madvise] never". */
bool os_allows_huge(void) {
  char text[64] = "";
  int file = os_page_size == 4 * KiB ? os_open("/sys/kernel/mm/transparent_hugepage/enabled") : -1;
  if (file < 0) return false;
  os_read_at(file, text, sizeof text - 1, 0);
  os_close(file);
  return strstr(text, "[always]") || strstr(text, "[madvise]");
}

/* Bits of a word of /proc/self/pagemap. */
#define PAGE_IS_HERE ((uint64_t)1 << 63)
#define PAGE_IS_OURS ((uint64_t)1 << 56) /* no other process maps it */

static int page_table = -1;

/* The process's first thread may have ended, and with it what /proc/self names. */
bool os_open_page_table(void) {
  page_table = os_open("/proc/thread-self/pagemap");
  return page_table >= 0;
}

void os_close_page_table(void) { os_close(page_table); }

bool os_is_all_here(void *at) {
  const uint64_t wanted = PAGE_IS_HERE | PAGE_IS_OURS;
  uint64_t words[128], all = wanted; /* few, for the stack is small */
  size_t page = (uintptr_t)at / os_page_size, end = page + HUGE_PAGE / os_page_size;
  for (size_t count; page < end && all == wanted; page += count) {
    count = min_size(end - page, sizeof words / sizeof *words);
    size_t bytes = count * sizeof *words;
    if (os_read_at(page_table, words, bytes, page * sizeof *words) != bytes) return false;
    for (size_t i = 0; i < count; i++) all &= words[i];
  }
  return all == wanted;
}

static bool collapse(void *at) {
  advise(at, HUGE_PAGE, MADV_HUGEPAGE);
  bool done = advise(at, HUGE_PAGE, MADV_COLLAPSE);
  advise(at, HUGE_PAGE, MADV_NOHUGEPAGE);
  if (done) atomic_store_explicit(&has_huge, true, memory_order_relaxed);
  return done;
}

enum os_collapsed os_collapse(void *at) {
  enum os_collapsed done = OS_CHANGES;
  atomic_store(&moving, (uintptr_t)at);
  if (atomic_load(&takers) == 0 && os_is_all_here(at)) done = collapse(at) ? OS_COLLAPSED : OS_REFUSED;
  atomic_store(&moving, 0);
  return done;
}

void os_forget_moves(void) {
  atomic_store(&moving, 0);
  atomic_store(&takers, 0);
  atomic_store(&lockers, 0);
  for (unsigned i = 0; i < MOVERS; i++)
    if (atomic_load(&movers[i]) != OS_THREAD) atomic_store(&movers[i], 0);
}

_Atomic uint32_t *os_fork_witness(void) {
  size_t page = getauxval(AT_PAGESZ); /* os_start may not have run */
  _Atomic uint32_t *word = map(NULL, page, PROT_READ | PROT_WRITE, 0);
  if (word && advise(word, page, MADV_WIPEONFORK)) {
    *word = 1;
    return word;
  }
  if (word) os_unreserve(word, page);
  return NULL;
}

bool os_forbid(void *at, size_t length) {
  os_begin_taking(at, length);
  bool done = protect(at, length, PROT_NONE);
  if (done) advise(at, length, MADV_DONTNEED);
  os_end_taking();
  return done;
}

/* Guards all pages or none: the kernel stops at the first locked page, and leaves guards before it. */
bool os_guard(void *at, size_t length) {
  os_begin_taking(at, length);
  bool done = advise(at, length, MADV_GUARD_INSTALL);
  os_end_taking();
  if (!done) os_unguard(at, length);
  return done;
}

bool os_unguard(void *at, size_t length) { return advise(at, length, MADV_GUARD_REMOVE); }

/* ---- the machine and the process --------------------------------------------------------------------------------- */

static size_t limit_of(int resource) {
  struct rlimit limit; /* the kernel's struct rlimit64, on 64-bit machines */
  bool known = kernel_call(SYS_prlimit64, 0, resource, 0, (long)&limit, 0, 0) == 0;
  return known && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : SIZE_MAX;
}

size_t os_address_space_limit(void) { return limit_of(RLIMIT_AS); }
bool os_data_is_limited(void) { return limit_of(RLIMIT_DATA) != SIZE_MAX; }
size_t os_locking_limit(void) { return limit_of(RLIMIT_MEMLOCK); }

void __asan_init(void) WEAK;
void __tsan_init(void) WEAK;
void __msan_init(void) WEAK;
void __hwasan_init(void) WEAK;
bool os_has_sanitizer(void) { return __asan_init || __tsan_init || __msan_init || __hwasan_init; }

size_t os_physical_memory(void) {
  struct sysinfo info = {0};
  kernel_call(SYS_sysinfo, (long)&info, 0, 0, 0, 0, 0);
  return info.totalram * info.mem_unit;
}

uint64_t os_random(void) {
  uint64_t random = 0;
  const void *bytes = (const void *)getauxval(AT_RANDOM);
  if (bytes) memcpy(&random, bytes, sizeof random);
  return random;
}

bool os_draw(void *to, size_t length) {
  return kernel_call(SYS_getrandom, (long)to, (long)length, GRND_NONBLOCK, 0, 0, 0) == (long)length;
}

extern struct r_debug _r_debug WEAK; /* of glibc's loader */

/* The kernel tells no base of a loader that the user started as the program. */
bool os_is_in_loader(uintptr_t address) {
  uintptr_t start = &_r_debug ? _r_debug.r_ldbase : 0;
  const Elf64_Ehdr *head = (const void *)start;
  if (!head) return false;
  const Elf64_Phdr *segment = (const void *)(start + head->e_phoff);
  for (unsigned i = 0; i < head->e_phnum; i++)
    if (segment[i].p_type == PT_LOAD && address - start - segment[i].p_vaddr < segment[i].p_memsz) return true;
  return false;
}

/* Libraries do not overlap, so that of an address is the one with the highest start below it. */
static const struct link_map *library_of(uintptr_t address) {
  const struct link_map *found = NULL;
  for (const struct link_map *p = &_r_debug ? _r_debug.r_map : NULL; p; p = p->l_next)
    if (p->l_addr <= address && (!found || p->l_addr > found->l_addr)) found = p;
  return found;
}

bool os_is_in_one_library(const void *first, const void *second) {
  return library_of((uintptr_t)first) == library_of((uintptr_t)second);
}

bool os_secure_mode(void) { return getauxval(AT_SECURE) != 0; }

/* Reads a short file of /proc. Returns false if it cannot be read. */
static bool read_proc(const char *path, char *text, size_t most) {
  long file = kernel_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0, 0);
  long length = file < 0 ? 0 : kernel_call(SYS_read, file, (long)text, (long)most - 1, 0, 0, 0);
  if (file >= 0) kernel_call(SYS_close, file, 0, 0, 0, 0, 0);
  if (length <= 0) return false;
  text[length] = 0;
  return true;
}

bool os_promises_strictly(void) {
  char text[8];
  return read_proc("/proc/sys/vm/overcommit_memory", text, sizeof text) && text[0] == '2';
}

/* The second number of /proc/self/statm is resident pages. */
size_t os_resident_bytes(void) {
  char text[128];
  if (!read_proc("/proc/self/statm", text, sizeof text)) return 0;
  const char *at = strchr(text, ' ');
  size_t resident = 0;
  for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++) resident = resident * 10 + (size_t)(*at - '0');
  return resident * os_page_size;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int open_at(const char *path, int flags) {
  long file = kernel_call(SYS_openat, AT_FDCWD, (long)path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600, 0, 0);
  return file < 0 ? -1 : (int)file;
}

/* The kernel copies the descriptors below this to the new table, and closes them there. */
#define COPIED_FILES 64
#ifndef MQUEUE_MAGIC
#define MQUEUE_MAGIC 0x19800202
#endif
#ifndef TRACEFS_MAGIC
#define TRACEFS_MAGIC 0x74726163
#endif

/* When any thread of a process closes a descriptor of a message queue, the kernel forgets that the process wants to be
 * notified of a message (mq_notify). When one closes a descriptor of a file of the tracing file system, readers of that
 * file get no more. The kernel's struct statfs is libc's on 64-bit machines. */
static bool has_delicate_file(void) {
  struct statfs status;
  for (int file = 0; file < COPIED_FILES; file++)
    if (kernel_call(SYS_fstatfs, file, (long)&status, 0, 0, 0, 0) == 0 &&
        (status.f_type == MQUEUE_MAGIC || status.f_type == TRACEFS_MAGIC))
      return true;
  return false;
}

uint64_t os_file_system_bytes(int file) {
  struct statfs status;
  if (kernel_call(SYS_fstatfs, file, (long)&status, 0, 0, 0, 0) != 0) return 0;
  return (uint64_t)status.f_blocks * (uint64_t)status.f_bsize;
}

bool os_leave_files(void) {
  return !has_delicate_file() && kernel_call(SYS_close_range, 0, UINT32_MAX, CLOSE_RANGE_UNSHARE, 0, 0, 0) == 0;
}

int os_create(const char *path) { return open_at(path, O_RDWR | O_CREAT | O_EXCL); }
int os_open(const char *path) { return open_at(path, O_RDONLY); }
void os_close(int file) { kernel_call(SYS_close, file, 0, 0, 0, 0, 0); }

size_t os_read_at(int file, void *to, size_t length, uint64_t offset) {
  long got = kernel_call(SYS_pread64, file, (long)to, (long)length, (long)offset, 0, 0);
  return got < 0 ? 0 : (size_t)got;
}

bool os_set_length(const char *path, uint64_t length) {
  return kernel_call(SYS_truncate, (long)path, (long)length, 0, 0, 0, 0) == 0;
}

bool os_remove(const char *path) { return kernel_call(SYS_unlinkat, AT_FDCWD, (long)path, 0, 0, 0, 0) == 0; }

/* The kernel's struct stat is libc's on the 64-bit machines that this runs on. */
static int file_status(int directory, const char *path, int flags, struct os_file *out) {
  struct stat status;
  long error = kernel_call(SYS_newfstatat, directory, (long)path, (long)&status, flags, 0, 0);
  if (error != 0) return (int)-error;
  *out = (struct os_file){
      .device = status.st_dev,
      .inode = status.st_ino,
      .length = (uint64_t)status.st_size,
      .links = status.st_nlink,
      .changed_ns = (uint64_t)status.st_mtim.tv_sec * 1000000000 + (uint64_t)status.st_mtim.tv_nsec,
      .user = status.st_uid,
      .regular = S_ISREG(status.st_mode),
  };
  return 0;
}

int os_file_of(int file, struct os_file *out) { return file_status(file, "", AT_EMPTY_PATH, out); }
int os_file_at(const char *path, struct os_file *out) {
  return file_status(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, out);
}

void *os_share(int file, size_t length) {
  long at = kernel_call(SYS_mmap, 0, (long)length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at < 0 && at > -4096) return NULL;
  /* A child that could write there would spoil its parent's statistics. */
  if (!advise((void *)at, length, MADV_DONTFORK)) {
    os_unreserve((void *)at, length);
    return NULL;
  }
  advise((void *)at, length, MADV_DONTDUMP);
  return (void *)at;
}

/* If there is no memory for the page, a write by the kernel fails with an error, where our own write would raise
 * SIGBUS. This call adds 0 to the page's first word and wakes no thread. A program whose filter forbids it could not
 * wait for locks either. */
static bool obtain_page(uint32_t *page) {
  const long add_nothing = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0), nobody = 0;
  return kernel_call(SYS_futex, (long)page, FUTEX_WAKE_OP_PRIVATE, nobody, nobody, (long)page, add_nothing) >= 0;
}

bool os_obtain(void *at, size_t length) {
  for (char *page = at, *end = page + length; page < end; page += os_page_size)
    if (!obtain_page((uint32_t *)(void *)page)) return false;
  return true;
}

void os_set_aside(void *at, size_t length) { advise(at, length, MADV_DONTNEED); }

void os_each_name(const char *directory, bool (*visit)(const char *name, void *arg), void *arg) {
  struct entry { /* as getdents64 gives it */
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
  };
  _Alignas(struct entry) char entries[4096];
  int file = open_at(directory, O_RDONLY | O_DIRECTORY);
  if (file < 0) return;
  for (bool more = true; more;) {
    long length = kernel_call(SYS_getdents64, file, (long)entries, sizeof entries, 0, 0, 0);
    if (length <= 0) break;
    for (char *at = entries; more && at < entries + length; at += ((struct entry *)(void *)at)->bytes)
      more = visit(((struct entry *)(void *)at)->name, arg);
  }
  os_close(file);
}

/* ---- the process among others ------------------------------------------------------------------------------------ */

uint32_t os_process_id(void) { return (uint32_t)kernel_call(SYS_getpid, 0, 0, 0, 0, 0, 0); }
uint32_t os_user(void) { return (uint32_t)kernel_call(SYS_geteuid, 0, 0, 0, 0, 0, 0); }
bool os_process_exists(uint32_t process) { return kernel_call(SYS_kill, (long)process, 0, 0, 0, 0, 0) != -ESRCH; }

/* The link reads "pid:[4026531836]". */
uint64_t os_process_namespace(void) {
  char text[64];
  long length = kernel_call(SYS_readlinkat, AT_FDCWD, (long)"/proc/self/ns/pid", (long)text, sizeof text, 0, 0);
  uint64_t number = 0;
  for (long i = 0; i < length; i++)
    if (text[i] >= '0' && text[i] <= '9') number = number * 10 + (uint64_t)(text[i] - '0');
  return number;
}

/* ---- other threads ----------------------------------------------------------------------------------------------- */

bool os_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds) {
  struct timespec timeout = {.tv_sec = milliseconds / 1000, .tv_nsec = (long)(milliseconds % 1000) * 1000000};
  long until = milliseconds ? (long)&timeout : 0;
  return kernel_call(SYS_futex, (long)word, FUTEX_WAIT_PRIVATE, value, until, 0, 0) != -ETIMEDOUT;
}

void os_wake(_Atomic uint32_t *word, int waiters) {
  kernel_call(SYS_futex, (long)word, FUTEX_WAKE_PRIVATE, waiters, 0, 0, 0);
}

void os_rest(void) {
  _Atomic uint32_t nobody_wakes = 0;
  os_wait(&nobody_wakes, 0, 1);
}

#define PROCESSORS 8192
void os_run_also_where(uint32_t id) {
  uint64_t mine[PROCESSORS / 64] = {0}, its[PROCESSORS / 64] = {0}, more = 0;
  if (kernel_call(SYS_sched_getaffinity, 0, sizeof mine, (long)mine, 0, 0, 0) <= 0) return;
  if (kernel_call(SYS_sched_getaffinity, (long)id, sizeof its, (long)its, 0, 0, 0) <= 0) return;
  for (unsigned i = 0; i < PROCESSORS / 64; i++) more |= its[i] & ~mine[i], its[i] |= mine[i];
  if (more) kernel_call(SYS_sched_setaffinity, 0, sizeof its, (long)its, 0, 0, 0);
}

/* These signals stay unblocked, because a fault, or a system call that a seccomp filter traps, ends the process if its
 * signal is blocked. */
static signal_set raised_by_instructions(void) {
  return signal_set_of(SIGSEGV) | signal_set_of(SIGBUS) | signal_set_of(SIGILL) | signal_set_of(SIGFPE) |
         signal_set_of(SIGTRAP) | signal_set_of(SIGSYS);
}

/* libc cancels a thread, and changes the user of all threads, by signals that no program may block. glibc has two of
 * these, and its SIGRTMIN is the program's. musl has three. */
#if defined(__GLIBC__)
enum { LAST_OF_LIBC = 33 };
#else
enum { LAST_OF_LIBC = 34 };
#endif
static signal_set used_by_libc(void) {
  return signal_set_of(32) | signal_set_of(33) | signal_set_of(LAST_OF_LIBC);
}

signal_set os_block_signals(void) {
  return signals_change(SIG_BLOCK, ~(raised_by_instructions() | used_by_libc()));
}

void os_restore_signals(signal_set before) { signals_change(SIG_SETMASK, before); }

static bool membarrier(int command) { return kernel_call(SYS_membarrier, command, 0, 0, 0, 0, 0) == 0; }

bool os_barrier_everywhere(void) {
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
         (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

bool os_has_sequences(void) { return kernel_call(SYS_rseq, 0, 0, 0, 0, 0, 0) == -EINVAL; }

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Without a vDSO, as in some emulators, this is libc's function. */
static clock_function *find_clock(void) {
  clock_function *found = vdso_clock();
  return found ? found : clock_gettime;
}

/* Looked up at the first call, because a process that does little needs no page of the vDSO in memory. */
static clock_function *_Atomic kernels_clock;

static uint64_t now(clockid_t clock) {
  struct timespec time = {0};
  clock_function *call_clock = atomic_load_explicit(&kernels_clock, memory_order_relaxed);
  if (UNLIKELY(!call_clock)) atomic_store_explicit(&kernels_clock, call_clock = find_clock(), memory_order_relaxed);
  call_clock(clock, &time); /* no system call, most times; these clocks do not fail */
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t os_now_ns(void) { return now(CLOCK_MONOTONIC); }
uint64_t os_now_coarse_ns(void) { return now(CLOCK_MONOTONIC_COARSE); }
uint64_t os_now_raw_ns(void) { return now(CLOCK_MONOTONIC_RAW); }
uint64_t os_now_real_ns(void) { return now(CLOCK_REALTIME); }

static uint64_t now_by_call(clockid_t clock) {
  struct timespec time = {0};
  kernel_call(SYS_clock_gettime, clock, (long)&time, 0, 0, 0, 0);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

uint64_t os_start_ns(void) { return now_by_call(CLOCK_MONOTONIC_RAW); }
uint64_t os_thread_ns(void) { return now_by_call(CLOCK_THREAD_CPUTIME_ID); }
/* The kernel reads the set of signals before it finds that ~0 is no way to apply it. */
static long read_by_kernel(const void *at) {
  return kernel_call(SYS_rt_sigprocmask, ~0L, (long)at, 0, sizeof(uint64_t), 0, 0);
}

/* The same error says that the kernel does not know the advice, or that nobody may read the pages. */
bool os_is_readable(const void *at, size_t length) {
  static _Atomic bool is_known;
  long got = kernel_call(SYS_madvise, (long)at, (long)length, MADV_POPULATE_READ, 0, 0, 0);
  if (got == 0 && !atomic_load_explicit(&is_known, memory_order_relaxed))
    atomic_store_explicit(&is_known, true, memory_order_relaxed);
  if (got != -EINVAL || atomic_load_explicit(&is_known, memory_order_relaxed)) return got == 0;
  return length == os_page_size && read_by_kernel(at) == -EINVAL;
}

bool os_is_unreadable(const void *at) { return read_by_kernel(at) == -EFAULT; }

uint32_t os_thread_id(void) { return (uint32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }
