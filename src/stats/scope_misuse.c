/* scope_misuse: see scope_misuse.h.                                                                 floor: stats */
#include "stats/scope_misuse.h"

#include "base/bits.h"
#include "base/log.h"
#include "base/options.h"
#include "epoch/scope.h"
#include "epoch/status.h"
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define SITES 256 /* call sites that are reported; a program with more has seen enough */

static _Atomic uint64_t misuses;
static const void *_Atomic sites[SITES];

uint64_t scope_misuse_count(void) { return atomic_load_explicit(&misuses, memory_order_relaxed); }

/* Returns true for the first call with this site. The site's address gives its place in the table, or the next free
 * one. */
static bool is_new(const void *site) {
  size_t at = ((uintptr_t)site >> 2) % SITES;
  for (size_t tries = 0; tries < SITES; tries++, at = (at + 1) % SITES) {
    const void *found = NULL;
    if (atomic_compare_exchange_strong_explicit(&sites[at], &found, site, memory_order_relaxed, memory_order_relaxed))
      return true;
    if (found == site) return false;
  }
  return false;
}

#define NAME_MOST 128

/* Writes `epoch 7 "request"`, without the label if the epoch has none or has ended. */
static void name_epoch(char *out, uint64_t id) {
  tslab_epoch_status status;
  bool labelled = id != 0 && status_read(id, &status) == 0 && status.label[0] != 0;
  log_format(out, NAME_MOST, labelled ? "epoch %lu \"%s\"" : "epoch %lu", (unsigned long)id, status.label);
}

/* Writes `0x55d1c0de1234 (server+0x1234)`, for addr2line and debuggers. */
static void name_site(char *out, const void *site) {
  Dl_info found;
  if (dladdr(site, &found) == 0 || !found.dli_fname) {
    log_format(out, NAME_MOST, "%p", site);
    return;
  }
  const char *slash = strrchr(found.dli_fname, '/');
  const void *offset = (const void *)((uintptr_t)site - (uintptr_t)found.dli_fbase);
  log_format(out, NAME_MOST, "%p (%s+%p)", site, slash ? slash + 1 : found.dli_fname, offset);
}

static void reason_of(char *out, size_t most, int error) {
  char inner[NAME_MOST];
  unsigned depth = current_thread ? current_thread->depth : 0;
  if (error == ESTALE) log_format(out, most, "it has ended, or never was");
  else if (error == ESHUTDOWN) log_format(out, most, "it is closing");
  else if (error == EOVERFLOW) log_format(out, most, "the thread is in %u scopes already; is a leave missing?", depth);
  else if (depth == 0) log_format(out, most, "the thread is in no scope");
  else {
    name_epoch(inner, scope_current(current_thread));
    log_format(out, most, "the innermost scope is of %s; is its leave missing?", inner);
  }
}

int scope_misused(const char *call, uint64_t id, int error, const void *site) {
  char epoch[NAME_MOST], where[NAME_MOST], reason[2 * NAME_MOST];
  if (error != ESTALE && error != ESHUTDOWN && error != EOVERFLOW && error != EINVAL) return error;
  atomic_fetch_add_explicit(&misuses, 1, memory_order_relaxed);
  if (options.on_scope != SCOPE_REPORTS || !is_new(site)) return error;
  name_epoch(epoch, id);
  name_site(where, site);
  reason_of(reason, sizeof reason, error);
  log_line("%s of %s at %s: %s", call, epoch, where, reason);
  return error;
}

void scope_misused_at_exit(void) {
  char epoch[NAME_MOST];
  atomic_fetch_add_explicit(&misuses, 1, memory_order_relaxed);
  if (options.on_scope != SCOPE_REPORTS || !is_new((const void *)(uintptr_t)scope_misused_at_exit)) return;
  name_epoch(epoch, scope_current(current_thread));
  log_line("a thread ended inside %s, %u scopes deep; is a leave missing?", epoch, current_thread->depth);
}
