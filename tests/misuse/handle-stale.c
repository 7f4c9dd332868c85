#include "misuse.h"

static void run(void) {
  void *first, *second;
  const tslab_handle old = tslab_handle_alloc(0, SMALL, &first);
  CHECK(tslab_handle_free(old));
  const tslab_handle new = tslab_handle_alloc(0, SMALL, &second);
  CHECK(tslab_handle_get(old) == NULL && !tslab_handle_free(old));
  CHECK(tslab_handle_get(new) == second && tslab_handle_free(new));
}

MISUSE("a handle used when its slot serves another: NULL and false", RETURNED, NULL);
