/* limits: see limits.h.                                                                             floor: process */
#include "process/limits.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/options.h"
#include "os/cgroup.h"
#include "os/lock.h"
#include "pages/pages.h"
#include "process/process.h"
#include "tslab/tslab.h"
#include <errno.h>

/* The library leaves this share of a group's limit to other memory: pages of the program's files, other growth. */
#define MARGIN_SHARE  16
#define LEAST         MiB
#define TICKS_A_LOOK  4
#define STALLED_MUCH  1000 /* hundredths of a percent: tasks of the group wait for memory a tenth of the time */

_Static_assert(TSLAB_LIMIT_AUTO == LIMIT_AUTO, "the setting and the call mean the same");

const char *limits_self = CGROUP_SELF, *limits_root = CGROUP_ROOT;

static struct lock limits_lock; /* outermost: its holder takes other locks */
static uint64_t wanted_hard, wanted_soft; /* bytes, 0: none, LIMIT_AUTO */
static _Atomic uint64_t refusals;

uint64_t limits_refusals(void) { return atomic_load_explicit(&refusals, memory_order_relaxed); }

/* Returns what this library may hold if the group's other memory stays as it is. */
static size_t share_of(const struct cgroup_limit *limit, size_t held) {
  if (limit->bytes >= PTRDIFF_MAX) return SIZE_MAX;
  uint64_t others = limit->in_use > held ? limit->in_use - held : 0;
  uint64_t margin = limit->bytes / MARGIN_SHARE;
  return limit->bytes > others + margin + LEAST ? limit->bytes - others - margin : LEAST;
}

/* Returns the soft limit: that of memory.high, but at least a margin below the hard one. */
static size_t soft_share_of(const struct cgroup_memory *group, size_t held) {
  size_t max = share_of(&group->max, held), high = share_of(&group->high, held);
  return min_size(high, max == SIZE_MAX ? SIZE_MAX : max - max / MARGIN_SHARE);
}

static size_t limit_of(uint64_t wanted, size_t by_group) {
  if (wanted == LIMIT_AUTO) return by_group;
  return wanted ? wanted : SIZE_MAX;
}

/* Caller holds limits_lock. */
static void set(void) {
  struct cgroup_memory group = {.max.bytes = UINT64_MAX, .high.bytes = UINT64_MAX};
  size_t held = pages_totals().held;
  if (wanted_hard == LIMIT_AUTO || wanted_soft == LIMIT_AUTO) cgroup_read(limits_self, limits_root, &group);
  pages_set_limits(limit_of(wanted_hard, share_of(&group.max, held)),
                   limit_of(wanted_soft, soft_share_of(&group, held)));
  if (group.stalled >= STALLED_MUCH) pages_press();
}

void limits_start(void) {
  wanted_hard = options.memory_limit;
  wanted_soft = options.memory_soft_limit;
  if (!(wanted_hard | wanted_soft) || !process_start()) return;
  lock_take(&limits_lock);
  set();
  lock_release(&limits_lock);
}

void limits_tick(uint64_t tick) {
  if (tick % TICKS_A_LOOK != 0 || !lock_try(&limits_lock)) return;
  if (wanted_hard == LIMIT_AUTO || wanted_soft == LIMIT_AUTO) set();
  lock_release(&limits_lock);
}

void limits_after_fork_child(void) { lock_reset(&limits_lock); }

void limits_note_failure(size_t size, size_t bytes) {
  static _Atomic bool is_told;
  if (!pages_limit_refuses(bytes)) return;
  atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
  if (atomic_exchange_explicit(&is_told, true, memory_order_relaxed)) return;
  struct pages_totals totals = pages_totals();
  log_line("no memory for %zu bytes: %zu are held and the limit is %zu (TSLAB_MEMORY_LIMIT or tslab_memory_limit, see "
           "docs/limits.md); said once, counted as limit_refusals", size, totals.held, totals.hard_limit);
}

static bool is_limit(uint64_t wanted) {
  return wanted == 0 || wanted >= TSLAB_LIMIT_KEEP || (wanted >= LEAST && wanted <= PTRDIFF_MAX);
}

int limits_set(uint64_t hard, uint64_t soft) {
  if (!is_limit(hard) || !is_limit(soft)) return EINVAL;
  if (!process_start()) return ENOMEM;
  lock_take(&limits_lock);
  if (hard != TSLAB_LIMIT_KEEP) wanted_hard = hard;
  if (soft != TSLAB_LIMIT_KEEP) wanted_soft = soft;
  set();
  lock_release(&limits_lock);
  return 0;
}
