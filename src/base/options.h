/* options: the TSLAB_* settings, each one row of a table.                                           floor: base
 *
 * Threads: options_read writes them once, in the library's constructor; until then they have their defaults. Any thread
 * reads them. */
#ifndef TSLAB_BASE_OPTIONS_H
#define TSLAB_BASE_OPTIONS_H

#include "base/attr.h"
#include "base/bits.h"

#define RESERVE_DEFAULT (1 * MiB)
#define RESERVE_EPOCHS 256 /* a thread in more epochs than these keeps more, in proportion */

enum on_misuse { MISUSE_ABORT, MISUSE_REPORT };
enum on_scope { SCOPE_IS_SILENT, SCOPE_REPORTS };
enum policy { RETURN_LEAN, RETURN_BALANCED, RETURN_FAST };
enum on_destroy { DESTROY_DESTROYS, DESTROY_CHECKS, DESTROY_TRAPS };

struct options {
  size_t on_misuse;          /* enum on_misuse */
  size_t scavenger;          /* 0: no scavenger; memory goes back only by malloc_trim and when much is free */
  size_t policy;             /* enum policy: how much stays resident, unless other settings say so */
  size_t tick_ms;            /* of the scavenger; only the policy sets it */
  size_t list_bytes;         /* most bytes that one thread's lists hold; only the policy sets it */
  size_t ahead;              /* the scavenger makes memory resident ahead of need */
  size_t huge;               /* the scavenger moves dense memory to huge pages */
  size_t publish;            /* the scavenger publishes the statistics in shared memory */
  size_t cache_bytes;        /* free blocks one thread may keep in its magazines */
  size_t quarantine_bytes;   /* hardened: freed blocks of a thread that wait before they are used again */
  size_t on_destroy;         /* enum on_destroy */
  size_t on_scope;           /* enum on_scope */
  size_t reserve_bytes;      /* memory of ended epochs that stays ready for the next ones */
  size_t report_rss;         /* reports of epochs read the resident size */
  const char *stats_at_exit; /* path, or NULL */
  size_t sample;             /* one allocation in about so many is timed; 0: none */
  size_t sample_cpu;         /* one such sample in about so many also reads the thread's time; 0: none */
  size_t profile_bytes;      /* mean bytes between samples of the profile; 0: none, or PROFILE_AUTO (stats/pace.h) */
  size_t guard_bytes;        /* the library guards one in so many bytes (heap/guard.h); 0: none */
  size_t lock_times;         /* locks count how long they are held */
  size_t memory_limit;       /* bytes, 0: none, LIMIT_AUTO: that of the control group (process/limits.h) */
  size_t memory_soft_limit;  /* the same */
  size_t budgets;            /* labels that options_budget knows */
};

#define LIMIT_AUTO   SIZE_MAX
#define PROFILE_AUTO SIZE_MAX

HIDDEN extern struct options options;

/* Takes TSLAB_* from `environment` (NULL-terminated "NAME=value" strings). Reports on standard error the settings that
 * it could not use, unless the parent process has reported them (base/parent.h). */
HIDDEN void options_read(char **environment);

/* Returns the budget in bytes that TSLAB_BUDGETS gives epochs of this label, which may be NULL; 0 for none. */
HIDDEN size_t options_budget_of(const char *label);
INLINE size_t options_budget(const char *label) { return LIKELY(options.budgets == 0) ? 0 : options_budget_of(label); }

#endif
