/* options: the TSLAB_* settings, each one row of a table.                                           floor: base
 *
 * Written once, by options_read in the library's constructor; before that, the defaults stand. Read by anyone.      */
#ifndef TSLAB_BASE_OPTIONS_H
#define TSLAB_BASE_OPTIONS_H

#include "base/attr.h"

enum on_misuse { MISUSE_ABORT, MISUSE_REPORT };
enum on_scope { SCOPE_IS_SILENT, SCOPE_REPORTS };
enum policy { RETURN_LEAN, RETURN_BALANCED, RETURN_FAST };
enum on_destroy { DESTROY_DESTROYS, DESTROY_CHECKS, DESTROY_TRAPS };

struct options {
  size_t on_misuse;          /* enum on_misuse */
  size_t scavenger;          /* 0: no thread of ours, memory goes back only by malloc_trim and when plenty is free */
  size_t policy;             /* enum policy: what stays resident, unless another setting says it */
  size_t tick_ms;            /* of the scavenger; by the policy alone */
  size_t list_bytes;         /* of one thread's lists, at most; by the policy alone */
  size_t ahead;              /* memory is made resident ahead of need, by the scavenger */
  size_t publish;            /* the statistics, in shared memory; by the scavenger */
  size_t cache_bytes;        /* free blocks one thread may keep in its magazines */
  size_t quarantine_bytes;   /* hardened: freed blocks of a thread that wait before they serve again */
  size_t on_destroy;         /* enum on_destroy */
  size_t on_scope;           /* enum on_scope */
  size_t reserve_bytes;      /* memory of ended epochs that stays ready for the next */
  size_t report_rss;         /* whether reports of epochs read the resident size */
  const char *stats_at_exit; /* path, or NULL */
  size_t sample;             /* one allocation in about so many is timed end to end; 0: none */
  size_t sample_cpu;         /* of one sample in about so many, the thread's time is taken too; 0: of none */
  size_t profile_bytes;      /* of the heap profile: bytes between samples, in the mean; 0: no profile */
  size_t lock_times;         /* whether locks count how long they are held */
  size_t memory_limit;       /* bytes, 0: none, LIMIT_AUTO: what the control group says (process/limits.h) */
  size_t memory_soft_limit;  /* the same */
  size_t budgets;            /* labels that options_budget knows */
};

#define LIMIT_AUTO SIZE_MAX

HIDDEN extern struct options options;

/* Takes TSLAB_* from `environment` (NULL-terminated "NAME=value" strings). Reports on standard error the settings that
 * it could not use, unless the parent process has reported them (base/parent.h). */
HIDDEN void options_read(char **environment);

/* Returns the budget in bytes that TSLAB_BUDGETS gives epochs of this label, which may be NULL; 0 for none. */
HIDDEN size_t options_budget(const char *label);

#endif
