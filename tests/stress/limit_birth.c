/* limit_birth: at a limit where every granule holds a live block, a thread's first malloc, and its first malloc of
 * another size, get blocks that are free between those of other threads. */
#include "memory.h"

#include <pthread.h>

#define MIB ((size_t)1 << 20)

enum { THREADS = 8, SIZE = 96, EACH = 1000 };

static pthread_barrier_t filled;

/* Half of the threads have a heap before. */
static void *allocate(void *has_heap) {
  static const size_t sizes[] = {SIZE, SIZE / 2, 1};
  if (has_heap) tslab_free(tslab_malloc(1000));
  pthread_barrier_wait(&filled);
  pthread_barrier_wait(&filled);
  void *blocks[EACH];
  for (int i = 0; i < EACH; i++) {
    const size_t size = sizes[i % 3];
    CHECK((blocks[i] = tslab_malloc(size)) != NULL);
    memset(blocks[i], i, size);
  }
  for (int i = 0; i < EACH; i++) {
    CHECK(*(unsigned char *)blocks[i] == i % 256);
    tslab_free(blocks[i]);
  }
  void *aligned = tslab_aligned_alloc(32, SIZE);
  CHECK(aligned != NULL && (uintptr_t)aligned % 32 == 0);
  tslab_free(aligned);
  return NULL;
}

static void free_every_other(void **block) {
  while (block && *block) {
    void **const other = *block;
    *block = *other;
    tslab_free(other);
    block = *block;
  }
}

int main(int argc, char **argv) {
  (void)argc;
  be_born_under(64 * MIB, argv);
  pthread_attr_t attributes;
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&filled, NULL, THREADS + 1) == 0);
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 128 << 10) == 0);
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], &attributes, allocate, i % 2 ? argv : NULL) == 0);
  pthread_barrier_wait(&filled);
  void *list = NULL;
  CHECK_COUNT(fill_list(&list, SIZE, 100 * MIB), <, 64 * MIB);
  while (fill_list(&list, 16, MIB) == MIB) {}
  free_every_other(list);
  pthread_barrier_wait(&filled);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  free_list(&list);
  return 0;
}
