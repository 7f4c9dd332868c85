/* label: see label.h.                                                                               floor: heap */
#include "heap/label.h"

#include <string.h>

#define SLOTS 512 /* twice as many as rows, so that a search ends soon */

struct label labels[LABELS + 1];
struct lock labels_lock;

static struct {
  _Atomic uint32_t made;        /* rows, without row 0 */
  _Atomic bool full;            /* a label has found no row */
  _Atomic uint16_t slots[SLOTS]; /* row by hash; 0: none */
} state;

bool labels_has_others(void) { return atomic_load_explicit(&state.full, memory_order_relaxed); }
uint32_t labels_made(void) { return atomic_load_explicit(&state.made, memory_order_acquire) + 1; }

/* FNV-1a (Fowler, Noll, Vo). */
static uint32_t hash_of(const char *text) {
  uint32_t hash = 2166136261u;
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 16777619u;
  return hash;
}

/* Returns the row of a text, or 0. *slot gets its slot, or the empty one where it belongs; another thread may take that
 * slot. */
static uint32_t find(const char *text, uint32_t *slot) {
  for (uint32_t i = hash_of(text);; i++) {
    *slot = i % SLOTS;
    uint16_t row = atomic_load_explicit(&state.slots[*slot], memory_order_acquire); /* pairs with the store below */
    if (row == 0 || strcmp(labels[row].text, text) == 0) return row;
  }
}

static uint32_t make(const char *text) {
  uint32_t slot;
  lock_take(&labels_lock);
  uint32_t row = find(text, &slot), made = atomic_load_explicit(&state.made, memory_order_relaxed);
  if (row == 0 && made + 1 < LABELS) {
    row = made + 1;
    memcpy(labels[row].text, text, strlen(text) + 1);
    atomic_store_explicit(&state.slots[slot], (uint16_t)row, memory_order_release);
    atomic_store_explicit(&state.made, row, memory_order_release);
  } else if (row == 0) {
    row = LABEL_OTHERS;
    atomic_store_explicit(&state.full, true, memory_order_relaxed);
  }
  lock_release(&labels_lock);
  return row;
}

uint32_t label_row(const char *text) {
  if (!text[0]) return 0;
  uint32_t slot, row = find(text, &slot);
  return row ? row : make(text);
}
