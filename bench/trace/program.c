/* program: bench/test_traces.py records it. Its calls are few, each kind is there, and the test knows their number.
 *
 * usage: program exit|_exit|kill|exec|work
 *
 * Three threads follow each other, and the main thread frees what each has left. A forked child makes 100,000 calls, of
 * which the trace must have none. Then the program ends as its argument says. With `work` eight threads hand blocks of
 * all sizes to each other, 200,000 in all. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANDED = 100, FORKED = 100000, WORKERS = 8, TURNS = 25000, SLOTS = 512 };

static void *handed[HANDED];
static _Atomic(void *) slots[SLOTS];

static void *leave(void *unused) {
  (void)unused;
  for (size_t i = 0; i < HANDED; i++)
    handed[i] = malloc(100 + i);
  return NULL;
}

static void follow_each_other(void) {
  for (unsigned turn = 0; turn < 3; turn++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave, NULL) != 0)
      abort();
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < HANDED; i++)
      free(handed[i]);
  }
}

/* Each turn swaps a new block for one that any thread has put there, which it resizes now and then, and frees. */
static void *work(void *seed) {
  uint32_t draw = (uint32_t)(uintptr_t)seed;
  for (unsigned i = 0; i < TURNS; i++) {
    draw = draw * 1664525 + 1013904223;
    size_t size = (size_t)(draw >> 8) % (draw % 64 == 0 ? 300000 : 2000) + 1;
    char *block = draw % 7 == 0 ? calloc(1, size) : malloc(size);
    *block = 1;
    void *old = atomic_exchange(&slots[(draw >> 16) % SLOTS], block);
    free(draw % 5 == 0 && old ? realloc(old, size / 2 + 1) : old);
  }
  return NULL;
}

static void all_work(void) {
  pthread_t threads[WORKERS];
  for (uintptr_t i = 0; i < WORKERS; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)) != 0)
      abort();
  for (unsigned i = 0; i < WORKERS; i++)
    pthread_join(threads[i], NULL);
}

/* 20 calls beside those of the threads: 7 malloc or the like, 4 realloc, 2 calloc, 2 aligned, 5 free. */
static void call_each(void) {
  char *grown = malloc(10);
  grown = realloc(grown, 1000);
  grown = realloc(grown, 400000);
  memset(grown, 1, 10000);            /* three pages with the head of the block */
  void *aligned = NULL;
  if (posix_memalign(&aligned, 4096, 100) != 0 || malloc_usable_size(aligned) < 100)
    abort();
  aligned = realloc(aligned, 5000);
  free(aligned_alloc(64, 128));
  free(calloc(7, 9));
  free(reallocarray(NULL, 3, 5));
  if (realloc(malloc(6), 0))
    abort();
  free(NULL);
  free(grown);
  free(aligned);
}

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  if (strcmp(argv[1], "work") == 0) {
    all_work();
    return 0;
  }
  follow_each_other();
  call_each();
  pid_t child = fork();
  for (unsigned i = 0; i < FORKED && child == 0; i++)
    free(malloc(50));
  if (child == 0)
    exit(0);
  waitpid(child, NULL, 0);
  if (strcmp(argv[1], "kill") == 0)
    raise(9);
  if (strcmp(argv[1], "_exit") == 0)
    _exit(0);
  if (strcmp(argv[1], "exec") == 0)
    execl("/proc/self/exe", argv[0], "exit", NULL);
  return 0;
}
