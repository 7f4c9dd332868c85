/* hazards.h: what a library caches when it is first called inside an epoch's scope outlives the scope.
 *
 * A hazard is two functions. NAME_first is the first call, inside the scope of an epoch with that label; NAME_later
 * uses what the first call left behind, after the epoch has ended. Three runs of each, by misuse/misuse.c:
 *   NAME.closed    the epoch is closed: what was cached is still valid;
 *   NAME.checked   it is destroyed under TSLAB_ON_DESTROY=check: that becomes a close, which names the survivors;
 *   NAME.trapped   it is destroyed under TSLAB_ON_DESTROY=trap: the later use dies by SIGSEGV after a line.
 * A call that leaves nothing behind, because the library goes to epoch 0 for it, passes all three in silence. */
#ifndef TSLAB_TESTS_HAZARDS_H
#define TSLAB_TESTS_HAZARDS_H

#include "../epochs.h"
#include "../misuse/misuse.h"

#include <signal.h>

typedef void hazard_function(void);

/* In hazards.c. `leaves`: whether the first call leaves blocks in the epoch. */
void hazard_closed(const char *label, hazard_function *first, hazard_function *later, bool leaves);
void hazard_destroyed(const char *label, hazard_function *first, hazard_function *later, bool leaves);

#define HAZARD_RUNS(name, leaves)                                                                     \
  static void name##_closed(void) { hazard_closed(#name, name##_first, name##_later, leaves); }       \
  static void name##_destroyed(void) { hazard_destroyed(#name, name##_first, name##_later, leaves); }

#define SURVIVORS(name)                                                                                        \
  "tslab: epoch * \"" name "\": * block* (* bytes) outlive destroy; kept, because TSLAB_ON_DESTROY=check\n"     \
  "tslab:   0x*, * bytes\n*"
#define TRAPPED(name) "tslab: use of 0x* after destroy of epoch * \"" name "\"\n"

/* Rows of misuse_cases. */
#define CACHES(name)                                                                                  \
  {#name ".closed", name##_closed, "", "TSLAB_ON_DESTROY=destroy", 0},                                \
  {#name ".checked", name##_destroyed, SURVIVORS(#name), "TSLAB_ON_DESTROY=check", 0},                \
  {#name ".trapped", name##_destroyed, TRAPPED(#name), "TSLAB_ON_DESTROY=trap", SIGSEGV}
#define LEAVES_NOTHING(name)                                                                          \
  {#name ".closed", name##_closed, "", "TSLAB_ON_DESTROY=destroy", 0},                                \
  {#name ".destroyed", name##_destroyed, "", "TSLAB_ON_DESTROY=destroy", 0},                          \
  {#name ".checked", name##_destroyed, "", "TSLAB_ON_DESTROY=check", 0},                              \
  {#name ".trapped", name##_destroyed, "", "TSLAB_ON_DESTROY=trap", 0}

#endif
