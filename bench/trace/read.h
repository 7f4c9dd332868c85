/* read: a recorded trace as what the workload `replay` plays.
 *
 * Each lane gets a list of words of 32 bits. An operation is a word: its kind in the low four bits, IN_SHARED if the
 * block's slot is one that several lanes use, PARTLY if fewer bytes are touched than the block has, and the slot above.
 * Numbers follow, 31 bits a word, the high bit set in all but the last:
 *
 *   TAKE, TAKE_ZEROED   size; touched, if PARTLY
 *   TAKE_ALIGNED        size; touched, if PARTLY; the binary logarithm of the alignment
 *   RESIZE              the word of the old block's slot; size; touched, if PARTLY; the bytes that the old block had
 *   DROP
 *   MEET                the clock here: the lane waits until no other is far behind it
 *   FULLEST             after this operation most bytes are live
 *   NEXT_THREAD, STOP
 *
 * A block that one lane takes and drops has a slot of that lane, used again after the drop. A block that another lane
 * drops has a shared slot of its own, in which its pointer appears: the other lane waits for that. */
#ifndef TRACE_READ_H
#define TRACE_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAKE, TAKE_ZEROED, TAKE_ALIGNED, RESIZE, DROP, MEET, FULLEST, NEXT_THREAD, STOP, WORD_KIND = 15,
       IN_SHARED = 16, PARTLY = 32, SLOT_SHIFT = 6 };
#define SLOTS_MOST (1u << (32 - SLOT_SHIFT))

typedef struct lane {
  _Alignas(128) uint32_t *words;      /* from mmap; ends with STOP */
  const uint32_t *at;
  size_t count;                       /* of words */
  void **blocks;                      /* by slot */
  uint32_t slots;
  unsigned threads;                   /* that follow each other */
  uint64_t operations, cpu_ns;        /* done by the replay */
} lane;

typedef struct script {
  char command[112];                  /* that was recorded */
  lane *lanes;
  unsigned lane_count;
  uint32_t shared_slots;
  uint64_t calls, births;
  uint64_t live_peak, live_end;       /* touched bytes of the blocks that live */
  uint64_t unknown;                   /* frees of blocks whose birth an unfinished trace does not have; left out */
} script;

/* Reads the file and fills `into`. With `partial` an unfinished or cut trace is taken as far as it is good; else the
 * program ends with a message, as for a file that is no trace. */
void trace_read(const char *path, bool partial, script *into);

#endif
