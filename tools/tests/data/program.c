/* Allocates and frees a thousand blocks: something to run under a preload. With LAB_TWICE set, it does so twice. */
#include <stdlib.h>

static void turn(void) {
  for (volatile int i = 0; i < 1000; i = i + 1) {
    char *volatile block = malloc(64);
    block[0] = 1;
    free(block);
  }
}

int main(void) {
  turn();
  if (getenv("LAB_TWICE")) turn();
  return 0;
}
