#include "misuse.h"

static void run(void) {
  const tslab_epoch e = open_epoch("misused", 0);
  void *pins = block_in(e, SMALL);
  CHECK(tslab_epoch_close(e, NULL) == 0);
  CHECK(tslab_epoch_close(e, NULL) == ESHUTDOWN); /* a way to ask what is left: not told */
  CHECK(tslab_epoch_enter(e) == ESHUTDOWN);
  CHECK(tslab_epoch_malloc(e, SMALL) == NULL && errno == ESHUTDOWN);
  CHECK(tslab_epoch_switch(e) == 0 && errno == ESHUTDOWN);
  tslab_free(pins);
}

MISUSE("a closing epoch entered, allocated in and switched to, and named", TOLD,
       "tslab_epoch_enter of epoch * \"misused\" at 0x* (*+0x*): it is closing\n"
       "tslab_epoch_malloc of epoch * \"misused\" at 0x* (*+0x*): it is closing\n"
       "tslab_epoch_switch of epoch * \"misused\" at 0x* (*+0x*): it is closing",
       .environment = "TSLAB_ON_SCOPE=report");
