/* workload: a few milliseconds of everything that a program does with its memory, checked against a model of its own.
 *
 * Small, large, huge and aligned blocks, calloc, realloc, epochs of every kind, handles, threads that are born and die,
 * fork, giving back. It checks that a block keeps its contents near its first and its last byte until it is freed or
 * moved; that calloc's memory is zero; that no two blocks share a byte and no two epochs a granule; usable sizes; that
 * a refused call sets ENOMEM and changes nothing; that free keeps errno; and the identities of the statistics. */
#ifndef TSLAB_TESTS_WORKLOAD_H
#define TSLAB_TESTS_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

/* WORK_TABLES: also the calls that need tables of their own, rows of statistics and epochs that are made resident when
 * they are opened. Once a limit was reached, there may be no room for these tables, because writable memory stays
 * writable. */
enum { WORK_THREADS = 1, WORK_FORK = 2, WORK_TABLES = 4, WORK_ALL = 7 };

/* Returns true if a call may be refused now. NULL: none may. */
extern bool (*work_may_fail)(void);

/* Leaves no block and no epoch. Returns how many calls were refused. */
uint64_t work_run(uint64_t seed, unsigned with);

#endif
