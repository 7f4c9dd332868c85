/* lifecycle: calls from a constructor, from destructors of thread-local objects and of pthread keys (every round), from
 * atexit and from a destructor of the program; and blocks that outlive their threads. */
#include "../check.h"

#include <pthread.h>

enum { THREADS = 50, BLOCKS = 100 };

static unsigned char *early[BLOCKS];
static unsigned char *outlived[THREADS][BLOCKS];
/* ThreadSanitizer forgets a thread in the last round, and the allocator follows our last round by one of its own. */
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS - 2 };
#else
enum { ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS };
#endif

static _Atomic int key_calls, object_calls;
static _Thread_local int round_of_key;
static pthread_key_t key;

static void allocate(unsigned char **blocks, size_t seed) {
  for (size_t i = 0; i < BLOCKS; i++) {
    const size_t size = (seed * 31 + i * i) % 3000 + 1;
    blocks[i] = tslab_malloc(size);
    CHECK(blocks[i] != NULL);
    memset(blocks[i], (int)(i + 1), size);
  }
}

static void free_all(unsigned char **blocks) {
  for (size_t i = 0; i < BLOCKS; i++) {
    CHECK_COUNT(blocks[i][0], ==, i + 1);
    tslab_free(blocks[i]);
  }
}

static void use_heap(void) {
  unsigned char *blocks[BLOCKS];
  allocate(blocks, 7);
  free_all(blocks);
}

/* 101 is the earliest that a program may ask for: before most of the C++ runtime. */
__attribute__((constructor(101))) static void at_start(void) { allocate(early, 1); }

__attribute__((destructor(101))) static void at_end(void) {
  use_heap();
  static const char done[] = "destructor ran\n";
  CHECK(write(1, done, sizeof done - 1) == sizeof done - 1);
}

static void at_exit(void) {
  free_all(early);
  use_heap();
}

/* Sets its key again, and so is called in every round, also after the destructor of the allocator's own key. */
static void destroy_key(void *block) {
  key_calls++;
  tslab_free(block);
  use_heap();
  if (++round_of_key < ROUNDS) CHECK(pthread_setspecific(key, tslab_malloc(100)) == 0);
}

/* C++ calls this for a thread_local object with a destructor. */
extern int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *dso);
extern void *__dso_handle;

static void destroy_object(void *blocks) {
  object_calls++;
  allocate(blocks, 5); /* these outlive the thread too */
  use_heap();
}

static void *live(void *blocks) {
  CHECK(__cxa_thread_atexit_impl(destroy_object, blocks, &__dso_handle) == 0);
  CHECK(pthread_setspecific(key, tslab_malloc(10)) == 0);
  use_heap();
  return NULL;
}

static void threads_that_use_all_of_it(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, live, outlived[i]) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_COUNT(key_calls, ==, THREADS * ROUNDS);
  CHECK_COUNT(object_calls, ==, THREADS);
  for (int i = 0; i < THREADS; i++) free_all(outlived[i]);
}

/* ---- blocks freed after their thread is gone --------------------------------------------------------------------- */

enum { MANY = 20000 };
static unsigned char *many[MANY];

static void *allocate_many(void *unused) {
  for (size_t i = 0; i < MANY; i++) {
    many[i] = tslab_malloc(i % 500);
    CHECK(many[i] != NULL);
    memset(many[i], 9, i % 500);
  }
  return unused;
}

static void *free_odd(void *unused) {
  for (size_t i = 1; i < MANY; i += 2) tslab_free(many[i]);
  use_heap();
  return unused;
}

static void join_one(void *(*body)(void *)) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* Checks that new threads reuse the memory of dead ones: the twentieth generation needs no more than the first. A
 * thread that is born while the library's thread hands on its predecessor's slabs takes new ones. So the memory of one
 * generation, 4.8 MB, may be there twice. */
static void generations(void) {
  const size_t less_than_two = 8 << 20;
  size_t first = 0;
  for (int generation = 0; generation < 20; generation++) {
    join_one(allocate_many);
    const struct tslab_mallinfo info = tslab_mallinfo2();
    if (generation == 0) first = info.arena + info.hblkhd;
    CHECK_COUNT(info.arena + info.hblkhd, <=, first + less_than_two);
    for (size_t i = 0; i < MANY; i += 2) tslab_free(many[i]);
    join_one(free_odd);
  }
}

int main(void) {
  CHECK(atexit(at_exit) == 0);
  CHECK(pthread_key_create(&key, destroy_key) == 0);
  threads_that_use_all_of_it();
  generations();
  return 0;
}
