/* A double free, and a word afterwards: which of the two is seen first tells when the mistake is named. */
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  void *volatile block = malloc(96);
  free(block);
  free(block);
  return write(1, "after\n", 6) != 6;
}
