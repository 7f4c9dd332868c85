#include "misuse.h"

static void run(void) {
  tslab_free_aligned_sized(culprit(tslab_aligned_alloc(64, 128)), 64, 5000);
}

MISUSE("free_aligned_sized with more than the block has", NAMED,
       "free_aligned_sized of 0xADDR with size 5000 (" "128-byte class" ")");
