#include "misuse.h"

static void run(void) {
  char *block = culprit_of(MEDIUM);
  tslab_free(block);
  memset(block + 8, 0x33, 8);
}

MISUSE("the second word of a freed medium block written", NAMED, CHANGED_AT_8(MEDIUM_TEXT),
       .hardened = {NAMED, "write to freed block 0xADDR (" MEDIUM_TEXT ", at byte 8)"});
