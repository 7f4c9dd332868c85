/* copied_keys: a program copies bytes that it never wrote. They are whatever a new block begins with, so they may show
 * what lay there before, and realloc or an assignment may take them to a new block. This must not look freed.
 *
 *   blocks of a class, freed -> large blocks, not written -> cut and grown by realloc -> freed by another thread
 *   blocks of a class, freed -> an array of nodes with an unset member -> copied node by node
 */
#include "../check.h"
#include "tslab/tslab.h"

#include <pthread.h>
#include <string.h>

enum { TURNS = 60, MOST_BLOCKS = 4000, BUFFERS = 64, NODES = 20000 };

struct node {
  long number;
  void *unset; /* where a free block has its key */
  char text[24];
};

static void *old[MOST_BLOCKS];
static char *buffers[BUFFERS];

/* Fills slabs of a class and empties them again, or ends their epoch. */
static void work_before(uint64_t r) {
  const size_t size = (size_t)64 << r % 9;
  const size_t blocks = ((size_t)8 << 20) / size < MOST_BLOCKS ? ((size_t)8 << 20) / size : MOST_BLOCKS;
  const tslab_epoch_options wanted = {.struct_size = sizeof wanted, .label = "work", .flags = TSLAB_EPOCH_DESTROYABLE};
  const tslab_epoch work = r >> 8 & 1 ? tslab_epoch_open_with(&wanted) : 0;
  CHECK(tslab_epoch_enter(work) == 0);
  for (size_t i = 0; i < blocks; i++) CHECK((old[i] = tslab_malloc(size)) != NULL);
  for (size_t i = 0; i < blocks; i += work ? 2 : 1) tslab_free(old[i]);
  CHECK(tslab_epoch_leave(work) == 0 && (!work || tslab_epoch_destroy(work, NULL) == 0));
}

static void resize_all(size_t size) {
  for (unsigned i = 0; i < BUFFERS; i++) {
    buffers[i] = tslab_realloc(buffers[i], size);
    CHECK(buffers[i] != NULL && tslab_malloc_usable_size(buffers[i]) >= size && strcmp(buffers[i], "hello") == 0);
  }
}

static void *free_buffers(void *unused) {
  for (unsigned i = 0; i < BUFFERS; i++) tslab_free(buffers[i]);
  return unused;
}

static void copy_buffers(uint64_t r) {
  pthread_t thread;
  for (unsigned i = 0; i < BUFFERS; i++) {
    CHECK((buffers[i] = tslab_malloc(60000)) != NULL);
    strcpy(buffers[i], "hello");
  }
  resize_all(500);
  resize_all(1000 + r % 8000);
  CHECK(pthread_create(&thread, NULL, free_buffers, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void copy_nodes(void) {
  static struct node *nodes[NODES];
  struct node *const array = tslab_malloc(NODES * sizeof *array), *const copy = tslab_malloc(NODES * sizeof *array);
  CHECK(array != NULL && copy != NULL);
  for (long i = 0; i < NODES; i++) array[i].number = i;
  memcpy(copy, array, NODES * sizeof *array);
  tslab_free(array);
  for (long i = 0; i < NODES; i++) {
    CHECK((nodes[i] = tslab_malloc(sizeof *nodes[i])) != NULL);
    *nodes[i] = copy[i];
  }
  tslab_free(copy);
  for (long i = 0; i < NODES; i++) {
    CHECK(nodes[i]->number == i && tslab_malloc_usable_size(nodes[i]) >= sizeof *nodes[i]);
    tslab_free(nodes[i]);
  }
}

int main(void) {
  uint64_t random = 1;
  for (unsigned i = 0; i < TURNS / TEST_SCALE + 1; i++) {
    work_before(check_random(&random) >> 8);
    copy_buffers(check_random(&random) >> 8);
    work_before(check_random(&random) >> 8);
    copy_nodes();
  }
  return 0;
}
