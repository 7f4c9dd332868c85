/* second_copy: a process has this library twice, the second time with a libc of its own. Both copies keep a thread's
 * heap under the same key. Threads that only the second copy serves end as others do.
 *  second_copy LIBRARY */
#include "../check.h"
#include "tslab/tslab.h"

#include <dlfcn.h>
#include <pthread.h>

enum { THREADS = 20, BLOCKS = 200 };

static void *(*their_malloc)(size_t);
static void (*their_free)(void *);

static void *use_theirs(void *unused) {
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    CHECK((blocks[i] = their_malloc(i * 37)) != NULL && !tslab_owns(blocks[i]));
    memset(blocks[i], 1, i * 37);
  }
  for (size_t i = 0; i < BLOCKS; i++) their_free(blocks[i]);
  return unused;
}

/* dlsym answers with a data pointer; POSIX has it hold a function's address. */
static void find(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  CHECK(address != NULL);
  memcpy(function, &address, sizeof address);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  void *const library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
  if (!library) dprintf(2, "%s\n", dlerror());
  CHECK(library != NULL);
  find(library, "tslab_malloc", &their_malloc);
  find(library, "tslab_free", &their_free);
  tslab_free(tslab_malloc(100)); /* the first copy makes its key */
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_theirs, NULL) == 0 && pthread_join(thread, NULL) == 0);
  }
  return 0;
}
