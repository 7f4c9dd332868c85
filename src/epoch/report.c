/* report: see report.h.                                                                              floor: epoch */
#include "epoch/report.h"

#include "base/options.h"
#include "epoch/status.h"
#include "os/os.h"
#include <errno.h>

void report_begin(tslab_epoch_report *out, uint64_t id) {
  if (!out) return;
  *out = (tslab_epoch_report){.epoch = id, .elapsed_ns = os_now_ns()};
  if (options.report_rss) out->rss_before = os_resident_bytes();
}

void report_end(tslab_epoch_report *out, int error) {
  if (!out) return;
  if (error != 0 && error != ESHUTDOWN && error != EAGAIN) { /* the call did nothing */
    *out = (tslab_epoch_report){.epoch = out->epoch};
    return;
  }
  out->elapsed_ns = os_now_ns() - out->elapsed_ns;
  if (options.report_rss) out->rss_after = os_resident_bytes();
}

void report_live(tslab_epoch_report *out, struct epoch *e) {
  if (!out) return;
  tslab_epoch_status status;
  status_of(e, &status);
  out->threads_inside = status.threads_inside;
  out->live_blocks = status.live_blocks;
  out->live_bytes = status.live_bytes;
  out->slabs_pinned = status.slabs_pinned;
}

void report_given_up(tslab_epoch_report *out, struct chunk_live given_up) {
  if (!out) return;
  out->live_blocks = given_up.blocks;
  out->live_bytes = given_up.bytes;
  out->slabs_pinned = given_up.blocks != 0;
}

void report_bytes(tslab_epoch_report *out, const struct epoch *e) {
  if (!out) return;
  out->bytes_recycled = atomic_load_explicit(&e->arena.recycled, memory_order_relaxed);
  out->bytes_returned = atomic_load_explicit(&e->arena.returned, memory_order_relaxed);
}
