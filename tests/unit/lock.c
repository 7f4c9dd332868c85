/* lock: one holder at a time; a release, also after a take-over, wakes a sleeper; lock_try does not wait; a reset lock
 * is free; threads whose stacks lie far apart are told apart. A line that a thread writes under a lock waits until the
 * thread releases its last lock. */
#include "unit.h"

#include "base/log.h"
#include "os/lock.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

enum { THREADS = 4, ROUNDS = 20000 / TEST_SCALE };

static struct lock lock;
static unsigned long inside, entered; /* plain: the lock protects the numbers */

static void enter(int round) {
  CHECK_COUNT(inside++, ==, 0);
  CHECK(!lock_try(&lock));
  if (round % 64 == 0) sched_yield(); /* other threads stop spinning and sleep */
  entered++;
  inside--;
}

static void *contend(void *unused) {
  for (int i = 0; i < ROUNDS; i++) {
    if (i % 3 != 0 || !lock_try(&lock)) lock_take(&lock);
    enter(i);
    lock_release(&lock);
  }
  return unused;
}

static void *pass_once(void *unused) {
  lock_take(&lock);
  entered++;
  lock_release(&lock);
  return unused;
}

static void run_while_held(void *(*body)(void *), bool held) {
  pthread_t threads[THREADS];
  entered = 0;
  if (held) lock_take(&lock);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
  if (held) {
    while (atomic_load(&lock.word) % 2 == 0) sched_yield(); /* odd: a thread sleeps, or is about to */
    CHECK_COUNT(entered, ==, 0);
    lock_release(&lock);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(lock.word, ==, 0);
}

/* A handler that interrupts the holder does this. Only the last release makes the lock free. */
static void a_holder_takes_it_again(void) {
  lock_take(&lock), lock_take(&lock), lock_take(&lock);
  CHECK_COUNT(locks_held, ==, 3);
  lock_release(&lock), lock_release(&lock);
  CHECK(lock.word != 0 && !lock_try(&lock));
  lock_release(&lock);
  CHECK(lock.word == 0 && locks_held == 0);
}

static _Atomic bool stands_still;
static void *take_and_stand_still(void *unused) {
  lock_take(&lock);
  stands_still = true;
  while (stands_still) sched_yield();
  return unused;
}

/* Another thread has slept for the lock since before the take-over. */
static void a_lock_is_taken_over(void) {
  pthread_t holder, sleeper;
  entered = 0;
  CHECK(pthread_create(&holder, NULL, take_and_stand_still, NULL) == 0);
  while (!stands_still) sched_yield();
  CHECK(pthread_create(&sleeper, NULL, pass_once, NULL) == 0);
  while (atomic_load(&lock.word) % 2 == 0) sched_yield();
  lock_take_over(&lock);
  CHECK_COUNT(lock.word & ~1u, ==, lock_mark());
  CHECK(locks_held == 1 && entered == 0);
  lock_release(&lock);
  stands_still = false;
  CHECK(pthread_join(holder, NULL) == 0 && pthread_join(sleeper, NULL) == 0);
  CHECK(entered == 1 && lock.word == 0 && locks_held == 0);
}

/* ---- lines under a lock ------------------------------------------------------------------------------------------ */

/* Stacks of a program's own may lie anywhere. */
static void *mark_here(void *mark) {
  *(uint32_t *)mark = lock_mark();
  return mark;
}

static void far_threads_have_marks_of_their_own(void) {
  enum { FAR = 4, FAR_STACK = 1 << 20 };
  uint32_t marks[FAR];
  if (SANITIZED) return; /* its runtime accepts no mapping there */
  for (int i = 0; i < FAR; i++) {
    pthread_attr_t attributes;
    pthread_t thread;
    const uintptr_t at = (uintptr_t)(16 + 4 * i) << 40;
    void *const stack = mmap((void *)at, FAR_STACK, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (stack != (void *)at) return; /* the machine has fewer addresses */
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, FAR_STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, mark_here, &marks[i]) == 0 && pthread_join(thread, NULL) == 0);
    for (int before = 0; before < i; before++) CHECK(marks[before] != marks[i]);
  }
}

static struct lock other;
static void nothing(void) {}

static void say_and_release_one(void) {
  lock_take(&lock), lock_take(&other);
  log_line("first");
  log_line("second");
  lock_release(&lock);
}

static void release_the_other(void) {
  errno = 4711;
  lock_release(&other);
}

static void a_line_waits(void) {
  char heard[4096];
  CHECK_COUNT(hear(say_and_release_one, heard, sizeof heard), ==, 0);
  CHECK_COUNT(hear(release_the_other, heard, sizeof heard), ==, 2);
  CHECK(strcmp(heard, "tslab: first\ntslab: second\n") == 0 && errno == 4711);
  CHECK_COUNT(locks_held, ==, 0);
}

static void say_much(void) {
  char line[400];
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = 0;
  lock_take(&lock);
  for (int i = 0; i < 50; i++) log_line("%s", line);
  lock_release(&lock);
}

static void lines_without_room_are_counted(void) {
  char heard[50 * 500];
  const int writes = hear(say_much, heard, sizeof heard);
  CHECK_COUNT(writes, <, 50);
  const char *last = strstr(heard, "tslab: ") + (size_t)(writes - 1) * 407;
  char wanted[100];
  snprintf(wanted, sizeof wanted, "tslab: %d messages are left out, because too many came at once\n", 51 - writes);
  CHECK(strcmp(last, wanted) == 0);
}

static void abort_under_a_lock(void) {
  lock_take(&lock);
  log_line("fatal");
  lock_abort();
  lock_release(&lock);
}

static void abort_with_a_line(void) {
  const int status = in_child(abort_under_a_lock);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Nobody reads the pipe, and the thread that dies does not wait for ever. */
static void die_before_a_full_pipe(void) {
  int pipe_ends[2];
  CHECK(pipe2(pipe_ends, O_NONBLOCK) == 0);
  while (write(pipe_ends[1], "....", 4) == 4) {}
  fcntl(pipe_ends[1], F_SETFL, 0);
  const int kept = dup(2);
  dup2(pipe_ends[1], 2);
  lock_take(&lock);
  log_line("nobody hears this");
  log_tell_last();
  lock_release(&lock);
  dup2(kept, 2);
  close(kept), close(pipe_ends[0]), close(pipe_ends[1]);
}

static void forget_in_a_child(void) {
  lock_take(&lock);
  log_line("the parent's");
  log_forget();
  lock_release(&lock);
}

static void a_thread_that_ends_tells_its_lines(void) {
  char heard[4096];
  CHECK_COUNT(hear(abort_with_a_line, heard, sizeof heard), ==, 1);
  CHECK(strcmp(heard, "tslab: fatal\n") == 0);
  die_before_a_full_pipe();
  CHECK_COUNT(hear(forget_in_a_child, heard, sizeof heard), ==, 0);
  CHECK_COUNT(hear(nothing, heard, sizeof heard), ==, 0);
}

int main(void) {
  log_must_wait = lock_tells_later;
  run_while_held(contend, false);
  CHECK_COUNT(entered, ==, THREADS * ROUNDS);
  run_while_held(pass_once, true);
  CHECK_COUNT(entered, ==, THREADS);
  a_holder_takes_it_again();
  a_lock_is_taken_over();
  far_threads_have_marks_of_their_own();
  lock_take(&lock);
  lock_reset(&lock);
  CHECK(lock_try(&lock) && !lock_try(&lock));
  lock_release(&lock);
  locks_held = 0; /* the lock that was reset counts no longer */
  a_line_waits();
  lines_without_room_are_counted();
  a_thread_that_ends_tells_its_lines();
  return 0;
}
