/* probed: does each thing once that a probe tells of, and says which block and which epoch it was. With an argument it
 * waits for a line before that, so that a tracer may come, frees as many large blocks as it says, and keeps the one of
 * which it tells until a second line comes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <tslab/tslab.h>

#define LARGE 100000 /* so large beside TSLAB_PROFILE=4K that it is a sample */

int main(int count, char **arguments) {
  if (count > 1) {
    puts("waits");
    fflush(stdout);
    getchar();
    for (int i = atoi(arguments[1]); i > 0; i--) free(malloc(LARGE + (size_t)i));
  }
  char *large = malloc(LARGE);
  tslab_epoch epoch = tslab_epoch_open("probed");
  if (!large || !epoch || tslab_epoch_enter(epoch) != 0) return 1;
  char *late = malloc(100);
  if (!late || tslab_epoch_leave(epoch) != 0 || tslab_epoch_close(epoch, NULL) != 0) return 1;
  printf("large %llu late %llu epoch %llu\n", (unsigned long long)(uintptr_t)large,
         (unsigned long long)(uintptr_t)late, (unsigned long long)epoch);
  fflush(stdout);
  free(late);
  if (count > 1) getchar();
  else free(large);
  tslab_epoch empty = tslab_epoch_open("empty");
  if (tslab_epoch_close(empty, NULL) != 0) return 1;
  tslab_purge();
  return 0;
}
