/* draw: drawn numbers have the mean and the variance of a geometric distribution; a number lies below its bound. */
#include "sampling.h"

#include <math.h>

/* The mean of that many draws is known to within its standard error; 1 % is more than five standard errors. */
static void draws(void) {
  for (size_t mean = 64; mean <= 1 << 20; mean *= 4) {
    const struct drawn drawn = measure(mean);
    CHECK(SIGMAS * sqrt(drawn.variance / DRAWS) < 0.01);
    CHECK(fabs(drawn.mean / (double)mean - 1) < 0.01);
    CHECK(drawn.variance > 0.8 && drawn.variance < 1.1); /* a geometric distribution's is 1 */
  }
}

static void bounds(void) {
  CHECK_COUNT(draw_below(0), ==, 0);
  for (uint32_t bound = 1; bound < UINT32_MAX / 3; bound *= 3)
    for (int i = 0; i < 1000; i++) CHECK_COUNT(draw_below(bound), <, bound);
}

int main(void) {
  counters_here()->random = SEED;
  draws();
  bounds();
  return 0;
}
