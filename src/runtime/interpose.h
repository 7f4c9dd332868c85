/* interpose: functions that only the shared library has.                                            floor: runtime */
#ifndef TSLAB_RUNTIME_INTERPOSE_H
#define TSLAB_RUNTIME_INTERPOSE_H

#include "base/attr.h"
#include <stdbool.h>

/* Only the shared library has this. Returns true if the program's calls of malloc come to the library. It is not
 * HIDDEN, because compilers assume that a hidden function exists. */
bool libc_is_malloc(void) WEAK;

/* Only the shared library has this, too. Tells libc in a fork child, before any handler of the program's runs there,
 * that the child has one thread, if the program had one. */
void libc_begin_child(void) WEAK;

/* And this. Takes the parent's scavenger out of libc's count of threads, once in a child. A child of clone needs it:
 * libc counts no threads anew there, and the last one calls exit when it ends. */
void libc_uncount_scavenger(void) WEAK;

/* And this. Returns how many threads libc counts beside this one and the scavenger, or 0 if it does not say: a program
 * may make threads by a pointer into libc, and then birth_note_thread does not hear of them. It may count a scavenger
 * that is ending. */
unsigned libc_other_threads(void) WEAK;

#endif
