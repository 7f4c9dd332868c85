/* process: starts the process, and asks the kernel about it and its threads.                        floor: process */
#include "process/process.h"

#include "base/log.h"
#include "os/os.h"
#include "os/ticks.h"
#include "pages/pages.h"
#include "slab/classes.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

struct lock start_lock;
static _Atomic bool started, ready;

bool process_has_started(void) { return atomic_load_explicit(&started, memory_order_acquire); }

bool process_is_ready(void) { return atomic_load_explicit(&ready, memory_order_relaxed); }
void process_set_ready(void) { atomic_store_explicit(&ready, true, memory_order_relaxed); }

/* The first malloc of the process calls this, perhaps from the dynamic loader. So it calls no function of libc that may
 * allocate. */
bool process_start(void) {
  if (LIKELY(process_has_started())) return true;
  lock_take(&start_lock);
  if (!process_has_started()) {
    log_must_wait = lock_tells_later;
    os_start();
    ticks_start();
    if (pages_start()) {
      classes_start();
      atomic_store_explicit(&started, true, memory_order_release);
    }
  }
  lock_release(&start_lock);
  return process_has_started();
}

/* ---- the kernel's word ------------------------------------------------------------------------------------------- */

static uint32_t process; /* the process that owns this memory */

static pthread_t first_thread;
static bool knows_first_thread;

/* The descriptor of the first thread of a program stays for ever. That of another thread, which forks, goes away when
 * the thread is joined, so in its child nobody knows the first thread. */
void process_is_this(void) {
  bool is_child = process != 0;
  process = os_process_id();
  bool is_first = process == os_thread_id();
  if (is_child) knows_first_thread = knows_first_thread && is_first && pthread_equal(first_thread, pthread_self());
  else knows_first_thread = is_first;
  first_thread = pthread_self();
}

/* The kernel clears a thread's id at its end, and glibc then gives no clock of the thread. */
bool process_first_has_ended(void) {
  clockid_t unused;
  return knows_first_thread && pthread_getcpuclockid(first_thread, &unused) == ESRCH;
}

bool process_is_visitor(void) {
  uint32_t here = os_process_id();
  return here != process && (int32_t)here > 0; /* a filter may refuse the call */
}

/* The letter follows the thread's name in parentheses; the status of a thread that has ended is the last number. */
char thread_state(uint32_t thread, int *ended_with) {
  char name[40], text[1024];
  log_format(name, sizeof name, "/proc/self/task/%u/stat", thread);
  int file = os_open(name);
  if (file < 0) return 0;
  size_t length = os_read_at(file, text, sizeof text - 1, 0);
  os_close(file);
  text[length] = 0;
  const char *end = strrchr(text, ')');
  const char *last = strrchr(text, ' ');
  if (!end || end[1] != ' ') return 0;
  *ended_with = 0;
  for (last++; *last >= '0' && *last <= '9'; last++) *ended_with = *ended_with * 10 + (*last - '0');
  return end[2];
}

/* The directory of threads has a link for each, and two more. */
unsigned process_threads(void) {
  struct os_file threads;
  return os_file_at("/proc/self/task", &threads) == 0 ? (unsigned)threads.links - 2 : 0;
}
