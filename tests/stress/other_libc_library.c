/* other_libc_library: keeps a value for each key and thread, made when it is first asked for. */
#include <pthread.h>
#include <stdlib.h>

enum { MOST = 64, MINE = 4711 };

static pthread_key_t keys[MOST];
static unsigned made;

/* Returns 0, or -1 if a value is not its own. */
int use_keys(unsigned count);

int use_keys(unsigned count) {
  for (; made < count; made++)
    if (pthread_key_create(&keys[made], free) != 0) return -1;
  for (unsigned i = 0; i < count; i++) {
    int *value = pthread_getspecific(keys[i]);
    if (!value) {
      value = malloc(sizeof *value);
      if (!value || pthread_setspecific(keys[i], value) != 0) return -1;
      *value = MINE + (int)i;
    }
    if (*value != MINE + (int)i) return -1;
  }
  return 0;
}
