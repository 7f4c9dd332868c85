/* secret: a link leads to its block, only from its own slot; an overwritten link leads nowhere; numbers lie within
 * their bound, each equally often. */
#include "unit.h"

#include "slab/secret.h"

enum { ROUNDS = 1000000 / TEST_SCALE, WIDTH = 64 };

static uint64_t random_state = 1;

static void *draw_address(void) {
  return (void *)(uintptr_t)(check_random(&random_state) & (((uint64_t)1 << LINK_BITS) - 1) & ~(uint64_t)15);
}

/* A write over a link, or a link of another slot, passes with a chance of 1 in 65,536. */
static void links(void) {
  unsigned other_bits = 0, other_slot = 0, other_word = 0;
  for (int i = 0; i < ROUNDS; i++) {
    void *const slot = draw_address(), *const next = (char *)draw_address() + 16;
    const uint64_t link = link_encode(slot, next), r = check_random(&random_state);
    CHECK(link_decode(slot, link) == next);
    other_bits += link_decode(slot, link ^ (uint64_t)1 << r % 64) != NULL;
    other_slot += link_decode((char *)slot + 16, link) != NULL;
    other_word += link_decode(slot, r) != NULL;
  }
  const unsigned most = ROUNDS / 65536 * 3 + 30;
  CHECK_COUNT(other_bits, <, most);
  CHECK_COUNT(other_slot, <, most);
  CHECK_COUNT(other_word, <, most);
  int slot;
  CHECK(link_decode(&slot, 0) == NULL && link_decode(&slot, UINT64_MAX) == NULL);
}

/* Two processes share no part of the secret, nor a value that would be known without it. */
static void starts_anew(void) {
  const struct secret before = secret;
  CHECK(secret.key != 0 && secret.link != 0 && secret.key != secret.link);
  secret_start();
  CHECK(secret.key != before.key && secret.link != before.link);
}

static void draws(void) {
  static unsigned met[WIDTH];
  uint64_t last = secret_draw();
  for (int i = 0; i < 1000; i++) {
    const uint64_t next = secret_draw();
    CHECK(next != last);
    last = next;
  }
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t sequence = secret_draw(); /* as callers do: a few numbers of each */
    met[secret_below(&sequence, WIDTH)]++;
    CHECK_COUNT(secret_below(&sequence, 1), ==, 0);
  }
  for (int i = 0; i < WIDTH; i++) {
    CHECK_COUNT(met[i], >, ROUNDS / WIDTH * 8 / 10 - 30);
    CHECK_COUNT(met[i], <, ROUNDS / WIDTH * 12 / 10 + 30);
  }
}

/* Words that each call reads share no line with words that each draw writes. */
static void apart(void) { CHECK_COUNT((uintptr_t)&secret % CACHE_LINE + sizeof secret, ==, CACHE_LINE); }

int main(void) {
  secret_start();
  links();
  starts_anew();
  draws();
  apart();
  return 0;
}
