/* os: the promises of the kernel calls: zeros after commit, purge and heal, contents after move, failures without harm,
 * errno kept, and no touch of shared pages for which there is no memory. */
#include "unit.h"

#include "../stress/filter.h"
#include "../stress/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { PAGES = 16 };
static size_t length;

static bool all_are(const char *at, char value) {
  for (size_t i = 0; i < length; i++)
    if (at[i] != value) return false;
  return true;
}

static size_t resident_pages(void *at) {
  unsigned char in_core[PAGES];
  size_t count = 0;
  CHECK(mincore(at, length, in_core) == 0);
  for (int i = 0; i < PAGES; i++) count += in_core[i] & 1;
  return count;
}

static void locked_memory_is_known(void) {
  char *const at = os_reserve(NULL, length);
  CHECK(at != NULL && os_commit(at, length));
  const bool usually = os_is_locked(at); /* where the kernel cannot say, always */
  if (syscall(SYS_mlock, at, length) == 0) CHECK(os_is_locked(at) || emulated()); /* a sanitizer's mlock does nothing */
  CHECK(syscall(SYS_munlock, at, length) == 0 && os_is_locked(at) == usually);
  os_unreserve(at, length);
}

#ifndef SYS_mseal
#define SYS_mseal 462 /* Linux 6.10 */
#endif

/* The source is two mappings, as a block that came to its place by a move, or for a part of which the program gave
 * advice. From Linux 6.17 on, mremap moves one after the other. If it fails at the second, the first has moved. */
static void a_move_is_whole_or_nothing(void) {
  char *const at = os_reserve(NULL, 2 * length), *const last = at + length - os_page_size;
  CHECK(at != NULL && os_commit(at, 2 * length));
  memset(at, 'a', length);
  CHECK(madvise(last, os_page_size, MADV_DONTFORK) == 0);
  enum os_moved done = os_move(at, at + length, length);
  CHECK(all_are(at, done == MOVED ? 0 : 'a') && all_are(at + length, done == MOVED ? 'a' : 0));
  CHECK(os_heal(at, 2 * length));
  memset(at, 'b', length);
  if (syscall(SYS_mseal, last, os_page_size, 0) != 0) return; /* the kernel never moves such a page */
  CHECK_COUNT(os_move(at, at + length, length), ==, NOT_MOVED);
  CHECK(all_are(at, 'b') && all_are(at + length, 0));
}

static void *lock_here(void *unused) {
  os_begin_locking();
  os_end_locking();
  return unused;
}

/* As in the child of a signal handler that forked in a call and returns, the calls end after the counts were reset. */
static void end_after_a_reset(char *at) {
  os_begin_taking(at, length);
  os_begin_locking();
  os_forget_moves();
  os_end_locking();
  os_end_taking();
  os_begin_locking();
  CHECK_COUNT(os_move(at, at + length, length), ==, NOT_MOVED);
  os_end_locking();
}

/* While memory is being locked nothing moves; after that, also in a child, it does. */
static void no_move_beside_a_lock(void) {
  char *const at = os_reserve(NULL, 2 * length);
  pthread_t thread;
  CHECK(at != NULL && os_commit(at, 2 * length));
  os_begin_locking();
  CHECK(pthread_create(&thread, NULL, lock_here, NULL) == 0 && pthread_join(thread, NULL) == 0);
  memset(at, 'c', length);
  CHECK_COUNT(os_move(at, at + length, length), ==, NOT_MOVED);
  CHECK(all_are(at, 'c'));
  os_end_locking();
  end_after_a_reset(at);
  enum os_moved done = os_move(at, at + length, length);
  CHECK(done == MOVED || emulated());
  os_unreserve(at, 2 * length);
}

/* The source is two mappings again. Where something is mapped at the destination, everything stays where it was. */
static void a_move_away_is_whole_or_nothing(void) {
  const size_t page = os_page_size;
  char *const at = os_reserve(NULL, 4 * length), *const to = at + 2 * length, *const last = at + length - page;
  CHECK(at != NULL && os_commit(at, length));
  memset(at, 'a', length);
  CHECK(madvise(last, page, MADV_DONTFORK) == 0);
  CHECK(os_unreserve(to, length - page) && os_unreserve(to + length, length));
  CHECK(!os_move_away(at, to, length, page) && all_are(at, 'a'));
  CHECK(!os_is_occupied(to, length - page) && !os_is_occupied(to + length, length));
  CHECK(os_unreserve(to + length - page, page));
  CHECK(os_move_away(at, to, length, page) && all_are(to, 'a') && to[length] == 0);
  CHECK(os_reserve_at(at, length)); /* nothing is mapped there any more */
  os_unreserve(at, 4 * length);
}

static size_t locked_bytes(void) {
  char text[4096] = "";
  const int file = open("/proc/self/status", O_RDONLY);
  CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
  const char *const line = strstr(text, "\nVmLck:");
  CHECK(line != NULL);
  return strtoul(line + 7, NULL, 10) * 1024;
}

/* Linux 6.18 never takes the lock of pages that it moves off its count, unless the source goes with them. */
static void locked_pages_stay_or_go_whole(void) {
  const size_t before = locked_bytes();
  char *const at = os_reserve(NULL, 4 * length), *const last = at + length - os_page_size;
  CHECK(at != NULL && os_commit(at, 2 * length));
  if (syscall(SYS_mlock, last, os_page_size) != 0 || locked_bytes() == before) return; /* an emulator's does nothing */
  memset(at, 'a', length);
  CHECK_COUNT(os_move(at, at + length, length), ==, NOT_MOVED);
  CHECK(all_are(at, 'a') && all_are(at + length, 0));
  CHECK(os_unreserve(at + 2 * length, 2 * length) && os_move_away(at, at + 2 * length, length, os_page_size));
  CHECK_COUNT(locked_bytes(), ==, before + os_page_size);
  CHECK(syscall(SYS_munlock, at + 2 * length, length) == 0);
  CHECK_COUNT(locked_bytes(), ==, before);
  os_unreserve(at + length, 3 * length);
}

static void memory_comes_and_goes(void) {
  char *const at = os_reserve(NULL, 3 * length);
  CHECK(at != NULL);
  CHECK(os_is_occupied(at, length) && os_is_occupied(at + 2 * length, 2 * length));
  CHECK(!os_reserve_at(at, length)); /* the call is accepted and has no effect */
  CHECK(os_commit(at, length) && os_commit(at + length, length));
  CHECK(all_are(at, 0));
  memset(at, 'a', length);
  CHECK_COUNT(resident_pages(at), ==, PAGES);
  CHECK(os_purge(at, length));
  CHECK_COUNT(resident_pages(at), ==, 0);
  CHECK(all_are(at, 0));

  memset(at, 'b', length);
  memset(at + length, 'c', length);
  if (os_move(at, at + length, length) == MOVED) {
    CHECK(all_are(at, 0) && all_are(at + length, 'b'));
    memset(at, 'd', length); /* the source stays usable */
    CHECK(os_purge(at, length) && all_are(at, 0));
  } else {
    CHECK(all_are(at, 'b') && (all_are(at + length, 'c') || all_are(at + length, 0)));
  }
  char *const nowhere = (char *)(uintptr_t)(16 * os_page_size);
  const char kept = at[length];
  CHECK_COUNT(os_move(nowhere, at + length, length), ==, NOT_MOVED);
  CHECK(all_are(at + length, kept));
  memset(at + length, 'f', length);
  CHECK(os_heal(at + length, length));
  CHECK(all_are(at + length, 0));
  memset(at + length, 'e', length);

  os_unreserve(at + 2 * length, length);
  CHECK(!os_is_occupied(at + 2 * length, length) && os_is_occupied(at + length, 2 * length));
  CHECK(os_reserve_at(at + 2 * length, length));
  os_unreserve(at, 3 * length);
  CHECK(mincore(at, length, (unsigned char[PAGES]){0}) != 0);
}

/* Some emulators do so. Every later purge is refused at once, because calloc would hand out the old contents. */
static void a_purge_that_does_nothing_is_refused(void) {
  uint64_t *const at = os_reserve(NULL, length);
  CHECK(at != NULL && os_commit(at, length));
  memset(at, 'a', length);
  if (!answer_with(SYS_madvise, 0)) _exit(SKIPPED);
  for (int i = 0; i < 2; i++) {
    CHECK(!os_purge(at, length));
    CHECK(all_are((char *)at, 'a'));
  }
}

/* The file is as long as two pages of three: no page exists for the third, and nothing touches it. */
static void shared_pages_are_asked_for(void) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/tslab-test-os.%d", getpid());
  const int file = os_create(path);
  CHECK(file >= 0 && os_set_length(path, 2 * os_page_size) && os_remove(path));
  char *const at = os_share(file, 3 * os_page_size);
  CHECK(at != NULL || emulated());
  if (at) {
    errno = 4711;
    CHECK(os_obtain(at, 2 * os_page_size));
    CHECK(!os_obtain(at + 2 * os_page_size, os_page_size) && !os_obtain(at, 3 * os_page_size));
    CHECK(errno == 4711);
    memset(at, 1, 2 * os_page_size);
    CHECK(os_obtain(at, 2 * os_page_size)); /* again: nothing happens */
    os_unreserve(at, 3 * os_page_size);
  }
  os_close(file);
}

static void refusals_keep_errno(void) {
  char *const nowhere = (char *)(uintptr_t)(16 * os_page_size);
  errno = 4711;
  CHECK(os_reserve(NULL, (size_t)1 << 60) == NULL);
  CHECK(!os_commit(nowhere, length));
  CHECK(!os_purge(nowhere, length) || emulated());
  CHECK(!os_unreserve((char *)nowhere + 1, length)); /* not whole pages */
  CHECK(os_address_space_limit() > 0 && os_physical_memory() > 16 * MiB);
  CHECK(errno == 4711);
}

static void the_limit_is_what_setrlimit_says(void) {
  CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){1 * GiB, 1 * GiB}) == 0);
  CHECK(os_address_space_limit() == 1 * GiB || emulated());
  if (SANITIZED || emulated()) return;
  CHECK(os_can_reserve(os_page_size) && !os_can_reserve(1 * GiB));
  CHECK(os_can_commit(os_page_size) && os_can_commit(1 * GiB)); /* a limit of addresses says nothing of memory */
  CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){os_page_size, os_page_size}) == 0); /* less than the present limit */
  CHECK(!os_can_reserve(os_page_size));
}

static _Atomic uint32_t word;

static void *wake(void *unused) {
  atomic_store(&word, 1);
  os_wake(&word, 1);
  return unused;
}

/* The test is that these calls return at all. */
static void waiting_ends(void) {
  errno = 4711;
  os_wait(&word, 1, 0); /* another value than expected */
  os_wait(&word, 0, 5); /* no thread wakes */
  CHECK(errno == 4711);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, wake, NULL) == 0);
  while (atomic_load(&word) == 0) os_wait(&word, 0, 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

int main(void) {
  os_start();
  CHECK_COUNT(os_page_size, ==, sysconf(_SC_PAGESIZE));
  length = PAGES * os_page_size;
  const int pretended = in_child(a_purge_that_does_nothing_is_refused); /* before the first effective one */
  CHECK(pretended == 0 || WEXITSTATUS(pretended) == SKIPPED || emulated());
  memory_comes_and_goes();
  a_move_is_whole_or_nothing();
  a_move_away_is_whole_or_nothing();
  no_move_beside_a_lock();
  locked_pages_stay_or_go_whole();
  locked_memory_is_known();
  shared_pages_are_asked_for();
  refusals_keep_errno();
  CHECK(in_child(the_limit_is_what_setrlimit_says) == 0);
  CHECK(os_random() != 0 && os_random() == os_random());
  waiting_ends();
  CHECK(!os_secure_mode());
  return 0;
}
