/* Memory that programs and their libraries cache, and calls that leave nothing behind. */
#include "hazards.h"

#include <dlfcn.h>
#include <threads.h>

int cxx_count(const char *name); /* cxx.cc */

static void cxx_static_first(void) { CHECK_COUNT(cxx_count("first"), ==, 1); }
static void cxx_static_later(void) {
  CHECK_COUNT(cxx_count("first"), ==, 2);
  CHECK_COUNT(cxx_count("a name that is longer than a small string holds"), ==, 2);
  CHECK_COUNT(cxx_count("later"), ==, 1);
}

/* A logger that takes its buffer when it is first used, and doubles it. */
static char *log_buffer;
static size_t log_length, log_capacity;
static void log_text(const char *text) {
  while (log_length + strlen(text) + 1 > log_capacity) {
    log_capacity = log_capacity ? log_capacity * 2 : 64;
    CHECK((log_buffer = tslab_realloc(log_buffer, log_capacity)) != NULL);
  }
  log_length = (size_t)(stpcpy(log_buffer + log_length, text) - log_buffer);
}
static void logger_first(void) { log_text("first;"); }
static void logger_later(void) {
  for (int i = 0; i < 1000; i++) log_text("later;");
  CHECK(strncmp(log_buffer, "first;later;", 12) == 0);
}

/* The way to initialise what lives long from inside a scope. */
static void outside_on_purpose_first(void) {
  CHECK_COUNT(tslab_epoch_enter(0), ==, 0);
  log_text("first;");
  CHECK_COUNT(tslab_epoch_leave(0), ==, 0);
}
static void outside_on_purpose_later(void) { logger_later(); }

/* State that a library keeps for each thread, freed by the key's destructor. */
static pthread_key_t state_key;
static void thread_state_first(void) {
  CHECK(pthread_key_create(&state_key, tslab_free) == 0);
  CHECK(pthread_setspecific(state_key, block_here(100)) == 0);
}
static void thread_state_later(void) {
  char *state = pthread_getspecific(state_key);
  CHECK(state[99] == 0x3A);
  memset(state, 1, 100);
}

/* A pool whose worker takes jobs from a queue; the job was submitted inside, and runs afterwards. */
static struct job {
  struct job *next;
  int number;
} *queue;
static int done;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static bool pool_open;
static pthread_t worker;

static void *work(void *unused) {
  pthread_mutex_lock(&queue_lock);
  while (!pool_open) pthread_cond_wait(&queue_filled, &queue_lock);
  for (struct job *job; (job = queue) != NULL;) {
    queue = job->next;
    done += job->number;
    tslab_free(job);
  }
  pthread_mutex_unlock(&queue_lock);
  return unused;
}
static void pool_queue_first(void) {
  CHECK(pthread_create(&worker, NULL, work, NULL) == 0);
  for (int i = 1; i <= 100; i++) {
    struct job *job = block_here(sizeof *job);
    *job = (struct job){queue, i};
    queue = job;
  }
}
static void pool_queue_later(void) {
  pthread_mutex_lock(&queue_lock);
  pool_open = true;
  pthread_cond_signal(&queue_filled);
  pthread_mutex_unlock(&queue_lock);
  CHECK(pthread_join(worker, NULL) == 0);
  CHECK_COUNT(done, ==, 5050);
}

/* ---- calls for which the library itself goes to epoch 0 ---------------------------------------------------------- */

static _Thread_local char thread_local_data[5000] = "fresh";
static pthread_t thread;
static pthread_barrier_t barrier;

static void *lives_on(void *unused) {
  CHECK_COUNT(tslab_epoch_current(), ==, 0);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  CHECK(strcmp(thread_local_data, "fresh") == 0);
  tslab_free(block_here(1000));
  return unused;
}
static void thread_create_first(void) {
  pthread_attr_t attributes;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
  CHECK(pthread_create(&thread, &attributes, lives_on, NULL) == 0);
  CHECK(pthread_attr_destroy(&attributes) == 0);
  pthread_barrier_wait(&barrier);
}
static void thread_create_later(void) {
  pthread_barrier_wait(&barrier);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_create(&thread, NULL, work, NULL) == 0); /* on the stack that glibc has kept */
  pool_open = true;
  pthread_cond_signal(&queue_filled);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* C11's function, which libc does not call pthread_create for. */
static int lives_on_simply(void *unused) {
  lives_on(unused);
  return 0;
}
static void simple_thread_create_first(void) {
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(thrd_create(&thread, lives_on_simply, NULL) == thrd_success);
  pthread_barrier_wait(&barrier);
}
static void simple_thread_create_later(void) { thread_create_later(); }

static void *library;
static void library_load_first(void) { CHECK((library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL)) != NULL); }
static void library_load_later(void) {
  CHECK(dlsym(library, "ns_parserr") != NULL || dlsym(library, "__res_nsearch") != NULL);
  CHECK(dlclose(library) == 0);
}

static void library_load_into_first(void) {
  CHECK((library = dlmopen(LM_ID_BASE, "libresolv.so.2", RTLD_NOW | RTLD_LOCAL)) != NULL);
}
static void library_load_into_later(void) { library_load_later(); }

/* More than fit into what libc has ready. The first to be registered is the last to run, after main. */
enum { HANDLERS = 100 };
static int handled;
static void at_exit(void) { handled++; }
static void last_of_all(void) { CHECK_COUNT(handled, ==, HANDLERS); }
static void exit_handlers_first(void) {
  CHECK(atexit(last_of_all) == 0);
  for (int i = 0; i < HANDLERS; i++) CHECK(atexit(at_exit) == 0);
}
static void exit_handlers_later(void) { CHECK_COUNT(handled, ==, 0); }

CACHES(cxx_static);
CACHES(logger);
CACHES(thread_state);
CACHES(pool_queue);
LEAVES_NOTHING(outside_on_purpose);
LEAVES_NOTHING(thread_create);
LEAVES_NOTHING(simple_thread_create);
LEAVES_NOTHING(library_load);
LEAVES_NOTHING(library_load_into);
LEAVES_NOTHING(exit_handlers);
