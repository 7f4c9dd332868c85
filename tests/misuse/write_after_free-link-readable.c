#include "misuse.h"

static void *data[8];

static void run(void) {
  void **block = tslab_malloc(SMALL);
  tslab_free(block);
  block[0] = culprit(data);
}

MISUSE("the first word written with the address of other data: the list leads there", NAMED,
       CORRUPTED,
       .hardened = {NAMED, "write to freed block 0x* (" SMALL_TEXT ", at byte 0), or overrun from *"});
