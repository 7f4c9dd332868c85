/* secret: see secret.h.                                                                             floor: slab */
#include "slab/secret.h"

#include "os/os.h"
#include <stdatomic.h>

struct secret secret;

static struct {
  uint64_t seed;
  _Atomic uint64_t drawn;
} state;

/* splitmix64 (Steele, Lea, Flood 2014) turns a counter into random numbers. */
static uint64_t scatter(uint64_t number) {
  uint64_t x = state.seed + number * SECRET_ODD;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

uint64_t secret_draw(void) { return scatter(atomic_fetch_add_explicit(&state.drawn, 1, memory_order_relaxed) + 1); }

/* If the kernel draws nothing, the random bytes that it gave the process at its start seed the numbers. */
void secret_start(void) {
  uint64_t drawn[3] = {0};
  if (!os_draw(drawn, sizeof drawn)) {
    state.seed = os_random();
    for (unsigned i = 0; i < 3; i++) drawn[i] = secret_draw();
  }
  secret.key = drawn[0];
  secret.link = drawn[1];
  state.seed = drawn[2];
}
