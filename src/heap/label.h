/* label: the counts of all epochs of one label, with the ended ones.                                floor: heap
 *
 * Row 0 is for epochs without a label, the last row for all labels after the first LABELS. A row stays for ever.
 * Threads: all numbers are atomic; a label never changes once its row can be found. */
#ifndef TSLAB_HEAP_LABEL_H
#define TSLAB_HEAP_LABEL_H

#include "heap/counters.h"

#define LABELS       256
#define LABEL_BYTES  64
#define LABEL_OTHERS LABELS

struct label {
  char text[LABEL_BYTES];
  _Atomic uint64_t opened, allocations; /* of slots that have another label now; epoch/epoch.h has the rest */
  _Atomic uint64_t recycled, returned, refused, diverted;
  _Atomic uint64_t samples, wall_sum, wall_max, cpu_samples, cpu_sum, wait_sum, slow;
  _Atomic uint64_t lock_fast, lock_contended, take_retries, push_retries;
  _Atomic uint64_t exempt_scopes, exempt_bytes; /* epoch/exempt.h */
};
extern HIDDEN struct label labels[LABELS + 1];
extern HIDDEN struct lock labels_lock;

HIDDEN uint32_t labels_made(void); /* rows in use, without the row of the others */
HIDDEN bool labels_has_others(void); /* true if that row is in use, too */

/* Returns the row of a text of less than LABEL_BYTES characters. */
HIDDEN uint32_t label_row(const char *text);

#endif
