/* pace: see pace.h.                                                                                 floor: stats */
#include "stats/pace.h"

#include "base/options.h"
#include "heap/sampled.h"
#include "os/os.h"
#include "pages/pages.h"
#include "process/process.h"
#include "tslab/tslab.h"
#include <errno.h>

_Static_assert(TSLAB_PROFILE_AUTO == PROFILE_AUTO, "the setting and the call mean the same");

struct lock pace_lock;

#if TSLAB_TELEMETRY

#define SECOND_NS    UINT64_C(1000000000)
#define LOOK_LEAST_NS (SECOND_NS / 10) /* in less time a few samples would count as many */
#define FEW_SAMPLES  (PACE_SAMPLES / 4) /* a second; half of them would still be few after a step */

/* pace_lock protects this. */
static struct {
  bool is_limited;
  bool is_set; /* by a call */
  uint64_t looked_ns, seen_samples;
  bool is_automatic; /* if it is set */
} pace;

/* Guards draw from samples of an interval of their own. Without publication nobody would see an automatic profile.
 * Caller holds pace_lock. */
static bool is_automatic(void) {
  if (pace.is_set) return pace.is_automatic;
  return options.profile_bytes == PROFILE_AUTO && options.guard_bytes == 0 && options.publish && !os_secure_mode();
}

bool pace_is_automatic(void) {
  lock_take(&pace_lock);
  bool automatic = is_automatic();
  lock_release(&pace_lock);
  return automatic;
}

size_t pace_interval_bytes(void) {
  uint32_t interval = profile_interval_now();
  return interval == PROFILE_PAUSED ? 0 : interval;
}

/* ---- the interval of an automatic profile ------------------------------------------------------------------------ */

static uint64_t samples_so_far(void) {
  lock_take(&profile_lock);
  uint64_t samples = profile_totals().samples;
  lock_release(&profile_lock);
  return samples;
}

static void begin_count(uint64_t now) {
  pace.looked_ns = now;
  pace.seen_samples = samples_so_far();
}

/* Returns the samples a second since the last look, which was before `now`. */
static uint64_t rate_until(uint64_t now) {
  uint64_t before = pace.seen_samples, since = now - pace.looked_ns;
  begin_count(now);
  return (pace.seen_samples - before) * SECOND_NS / since;
}

static uint32_t next_of(uint32_t interval, uint64_t rate) {
  if (rate > PACE_SAMPLES) return (uint32_t)min_size((size_t)interval * 2, PROFILE_MOST_BYTES);
  if (rate < FEW_SAMPLES) return (uint32_t)max_size(interval / 2, PACE_LEAST);
  return interval;
}

/* Caller holds pace_lock. */
static void look(uint64_t now) {
  uint32_t interval = profile_interval_now();
  if (interval == 0 || interval == PROFILE_PAUSED) {
    struct pages_totals totals = pages_totals();
    bool begins = totals.held >= PACE_HELD && totals.hard_limit == SIZE_MAX && !pace.is_limited;
    if (begins && sampled_start(PACE_LEAST, false)) begin_count(now);
  } else if (now >= pace.looked_ns + LOOK_LEAST_NS) {
    uint32_t next = next_of(interval, rate_until(now));
    if (next != interval) sampled_start(next, false);
  }
}

void pace_start(void) {
  lock_take(&pace_lock);
  pace.is_limited = os_data_is_limited() || os_address_space_limit() != SIZE_MAX;
  lock_release(&pace_lock);
}

void pace_look(uint64_t now_ns) {
  if (!lock_try(&pace_lock)) return; /* the next tick looks */
  if (is_automatic()) look(now_ns);
  lock_release(&pace_lock);
}

/* ---- the C face -------------------------------------------------------------------------------------------------- */

/* Caller holds pace_lock. */
static bool set_interval(size_t bytes) {
  if (bytes == PROFILE_AUTO) begin_count(os_now_coarse_ns());
  if (bytes == PROFILE_AUTO || (bytes == 0 && !profile_is_on())) return true;
  return sampled_start(bytes ? (uint32_t)max_size(bytes, PROFILE_LEAST_BYTES) : PROFILE_PAUSED, true);
}

int tslab_profile_interval(size_t bytes, size_t *before) {
  if (bytes > PROFILE_MOST_BYTES && bytes != PROFILE_AUTO) return ERANGE;
  if (!process_start()) return ENOMEM;
  lock_take(&pace_lock);
  size_t until_now = pace_interval_bytes();
  bool changed = set_interval(bytes);
  if (changed) {
    pace.is_automatic = bytes == PROFILE_AUTO;
    pace.is_set = true;
  }
  lock_release(&pace_lock);
  if (!changed) return ENOMEM;
  if (before) *before = until_now;
  return 0;
}

#else

int tslab_profile_interval(size_t bytes, size_t *before) { return (void)bytes, (void)before, ENOTSUP; }

#endif
