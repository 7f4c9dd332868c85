#include "misuse.h"

/* So large that it is a sample for certain. */
enum { CERTAIN = 1 << 20 };

static void run(void) {
  CHECK(tslab_profile_interval(4096, NULL) == 0);
  const tslab_epoch e = open_epoch("misused", TSLAB_EPOCH_DESTROYABLE);
  void *block = culprit(block_in(e, CERTAIN));
  CHECK(tslab_epoch_destroy(e, NULL) == 0);
  tslab_free(block);
  CHECK(tslab_profile_interval(0, NULL) == 0);
}

MISUSE("the same where the heap profile knows the block", TOLD,
       "epoch * \"misused\": 1 blocks (1048576 bytes) outlive destroy; kept, because TSLAB_ON_DESTROY=check\n"
       "  0xADDR, 1048576 bytes, allocated at *+0x*",
       .environment = "TSLAB_ON_DESTROY=check");
