/* race.h: epochs.c's instructions while all threads run at once. */
#ifndef TSLAB_TESTS_FUZZ_RACE_H
#define TSLAB_TESTS_FUZZ_RACE_H

#include "fuzz.h"

void race_begin(void);
void race_step(unsigned thread, struct op op);
void race_end(void);

#endif
