/* secret: random numbers that hide the links of a hardened build's free blocks.                     floor: slab
 *
 * A link holds the 48 bits of an address and 16 bits of check, all hidden:
 *
 *   pad = mix(slot),  link = (next | check(next, pad) << 48) ^ pad
 *
 * A link that something overwrote, wholly or in part, passes the check with a chance of 1 in 65,536. This stops
 * mistakes and makes an attack a matter of luck. It is no cryptography: an attacker who reads enough free memory can
 * compute the secret.
 *
 * Threads: secret_start writes the secret once; draws are atomic. */
#ifndef TSLAB_SLAB_SECRET_H
#define TSLAB_SLAB_SECRET_H

#include "base/attr.h"

struct secret { /* every call reads it, so it has a line of its own that no draw writes to */
  uint64_t key ALIGNED(CACHE_LINE), link;
};
HIDDEN extern struct secret secret;

HIDDEN void secret_start(void);

/* secret_draw returns a random number, which may seed a sequence of the caller's own. secret_below returns the next
 * number of such a sequence, less than `bound`. */
HIDDEN uint64_t secret_draw(void);
INLINE uint32_t secret_below(uint64_t *sequence, uint32_t bound) { /* bound != 0 */
  *sequence = *sequence * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
  return (uint32_t)((*sequence >> 32) * bound >> 32);
}

#define SECRET_ODD 0x9e3779b97f4a7c15u /* 2^64 over the golden ratio: each bit of a product depends on all lower bits */
#define LINK_BITS  48

INLINE uint64_t secret_mix(const void *slot, uint64_t with) {
  uint64_t mixed = ((uintptr_t)slot ^ with) * SECRET_ODD;
  return mixed ^ mixed >> 32;
}

/* Returns 16 bits. */
INLINE uint64_t secret_check(uint64_t next, uint64_t pad) { return (next ^ pad) * SECRET_ODD >> LINK_BITS; }

INLINE uint64_t link_encode(const void *slot, const void *next) {
  uint64_t pad = secret_mix(slot, secret.link);
  return ((uintptr_t)next | secret_check((uintptr_t)next, pad) << LINK_BITS) ^ pad;
}

/* Returns NULL for a link that link_encode did not make for this slot. */
INLINE void *link_decode(const void *slot, uint64_t link) {
  uint64_t pad = secret_mix(slot, secret.link), both = link ^ pad;
  uint64_t next = both & (((uint64_t)1 << LINK_BITS) - 1);
  return both >> LINK_BITS == secret_check(next, pad) ? (void *)(uintptr_t)next : NULL;
}

#endif
