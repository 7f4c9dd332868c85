/* workload: a few milliseconds of everything that a program does with its memory, checked against a model of its own.
 *
 * Small, large, huge and aligned blocks, calloc, realloc, epochs of every kind, handles, threads that are born and die,
 * fork, giving back. Checked: what a block holds, from its first to its last byte's neighbourhood, until it is freed or
 * moved; that calloc's memory is zero; that no two blocks share a byte and no two epochs a granule; usable sizes; that
 * a call refused says ENOMEM and changed nothing; that free keeps errno; the statistics' identities. */
#ifndef TSLAB_TESTS_WORKLOAD_H
#define TSLAB_TESTS_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

/* WORK_TABLES: what needs tables of its own too, rows of statistics and epochs that are made resident when opened. A
 * limit that was reached once may leave no room for those, for memory that can be written to stays so. */
enum { WORK_THREADS = 1, WORK_FORK = 2, WORK_TABLES = 4, WORK_ALL = 7 };

/* Whether a call may be refused just now; NULL: never. */
extern bool (*work_may_fail)(void);

/* Leaves no block and no epoch. Returns how many calls were refused. */
uint64_t work_run(uint64_t seed, unsigned with);

#endif
