/* hazards.h: libraries that cache memory at their first call. If that call is inside an epoch's scope, the cached
 * memory outlives the scope.
 *
 * A hazard is two functions. NAME_first is the first call, inside the scope of an epoch with that label; NAME_later
 * uses the cached memory after the epoch has ended. Three runs of each, by misuse/misuse.c:
 *   NAME.closed    the epoch is closed: the cached memory is still valid;
 *   NAME.checked   it is destroyed under TSLAB_ON_DESTROY=check: that becomes a close, which names the survivors;
 *   NAME.trapped   it is destroyed under TSLAB_ON_DESTROY=trap: the later use dies by SIGSEGV after a line.
 * A call that leaves nothing behind, because the library goes to epoch 0 for it, passes all three in silence. */
#ifndef TSLAB_TESTS_HAZARDS_H
#define TSLAB_TESTS_HAZARDS_H

#include "../epochs.h"
#include "../misuse/misuse.h"

typedef void hazard_function(void);

/* In hazards.c. `leaves`: the first call leaves blocks in the epoch. */
void hazard_closed(const char *label, hazard_function *first, hazard_function *later, bool leaves);
void hazard_destroyed(const char *label, hazard_function *first, hazard_function *later, bool leaves);

#define HAZARD_RUNS(hazard, leaves)                                                                   \
  static void hazard##_closed(void) { hazard_closed(#hazard, hazard##_first, hazard##_later, leaves); } \
  static void hazard##_destroyed(void) { hazard_destroyed(#hazard, hazard##_first, hazard##_later, leaves); }
#define HAZARD_ROW(hazard, how, runs, setting, ...)                                                   \
  MISUSE_ROW(hazard##_##how, .name = #hazard "." #how, .run = runs, .environment = "TSLAB_ON_DESTROY=" setting, \
             .by_default = {__VA_ARGS__})

#define SURVIVORS(label)                                                                              \
  "epoch * \"" label "\": * block* (* bytes) outlive destroy; kept, because TSLAB_ON_DESTROY=check\n  0x*, * bytes*"
#define TRAPPED(label) "use of 0x* after destroy of epoch * \"" label "\""

#define CACHES(hazard)                                                                                \
  HAZARD_RUNS(hazard, true)                                                                           \
  HAZARD_ROW(hazard, closed, hazard##_closed, "destroy", RETURNED, NULL);                             \
  HAZARD_ROW(hazard, checked, hazard##_destroyed, "check", TOLD, SURVIVORS(#hazard));                 \
  HAZARD_ROW(hazard, trapped, hazard##_destroyed, "trap", FAULTS, TRAPPED(#hazard))
#define LEAVES_NOTHING(hazard)                                                                        \
  HAZARD_RUNS(hazard, false)                                                                          \
  HAZARD_ROW(hazard, closed, hazard##_closed, "destroy", RETURNED, NULL);                             \
  HAZARD_ROW(hazard, destroyed, hazard##_destroyed, "destroy", RETURNED, NULL);                       \
  HAZARD_ROW(hazard, checked, hazard##_destroyed, "check", RETURNED, NULL);                           \
  HAZARD_ROW(hazard, trapped, hazard##_destroyed, "trap", RETURNED, NULL)

#endif
