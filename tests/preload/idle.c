/* idle: a small program that has used malloc a little and now sleeps until its standard input ends. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  char *const blocks[] = {malloc(10), malloc(100), malloc(1000)};
  for (int i = 0; i < 3; i++) {
    if (!blocks[i]) return 1;
    blocks[i][0] = 1;
  }
  free(blocks[1]);
  puts("ready");
  fflush(stdout);
  char end;
  return read(0, &end, 1) != 0;
}
