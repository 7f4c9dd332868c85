/* kinds: shared code of the kinds of bench/cliffs - options, forms, scopes, threads at rest, a prober of waits.
 *
 * A kind is one function that does its work for `count` things and names its figures with cliffs_figure. Each file of
 * kinds calls use_form first in each of them, because epoch_calls.h keeps its pointers per file.
 *
 * The form says how the work is done: with plain malloc, in epochs, or in mimalloc's heaps. Functions named scope_ do
 * nothing in the plain form, so that one body serves both. */
#ifndef CLIFFS_KINDS_H
#define CLIFFS_KINDS_H

#include "../epoch_calls.h"

#include <stdlib.h>

enum { PLAIN = 1, IN_EPOCHS = 2, IN_HEAPS = 4 };    /* bits: a kind names the forms that it has */

extern int form;
extern long count, operations, objects, idle_ms;

void cliffs_figure(const char *name, double value); /* a metric of the row; `name` must stay */

/* Runs `work` in slices of `n` operations together. Returns the median of their times, in nanoseconds an operation. */
double cliffs_ns(void (*work)(long n), long n);
uint64_t cliffs_clock(void);                        /* nanoseconds */
void cliffs_sleep(long ms);
double cliffs_rest_cpu(void);                       /* percent of one core that the process uses in idle_ms of rest */

void cliffs_fork(void);                             /* fork_ns: the time of the call in the parent */

/* ---- threads at rest: each does `work` and waits. crew_start returns when all wait; crew_end ends them. ---- */

void crew_start(long threads, void (*work)(long index), void (*last)(long index));
void crew_end(void);                                /* each does `last`, which may be NULL, first */

/* ---- a prober: a thread that does `once` every `period_us` and records how long each took, in ticks ---- */

void prober_start(void (*once)(void), long period_us);
const lab_histogram *prober_end(void);
void prober_figures(const lab_histogram *waits);    /* wait_longest_ns, wait_mean_ns */

/* ---- the kinds ---- */

void run_turns(void), run_tenants(void), run_calls(void), run_idle(void), run_used(void), run_labels(void);
void run_children(void), run_handles(void);                                                     /* epochs.c */
void run_requests(void), run_beside_destroy(void), run_beside_frees(void), run_longpoll(void), run_tide(void);
void run_threads(void), run_rest(void), run_dead(void);                                         /* threads.c */
void run_blocks(void), run_live(void), run_grow(void), run_runs(void), run_fit(void), run_destroy(void);
void run_sparse(void);                                                                          /* memory.c */

/* ---- inline, for they stand in timed loops ---- */

static inline void use_form(void) {
  if (form == IN_EPOCHS)
    bind_epochs("--of=epoch");
  else if (form == IN_HEAPS)
    bind_heaps("--of=mi-heap");
}

static inline char *written(char *block) {
  if (__builtin_expect(!block, 0))
    lab_fail("out of memory");
  block[0] = 1;
  return block;
}

static inline char *take(size_t size) { return written(malloc(size)); }

static inline tslab_epoch scope_open(const char *label) {
  if (form == PLAIN)
    return TSLAB_EPOCH_DEFAULT;
  tslab_epoch_options with = { .struct_size = sizeof with, .label = label, .flags = TSLAB_EPOCH_DESTROYABLE };
  return opened(epochs.open_with(&with));
}

static inline void scope_enter(tslab_epoch e) {
  if (form != PLAIN)
    must(epochs.enter(e), "enter");
}

static inline void scope_leave(tslab_epoch e) {
  if (form != PLAIN)
    must(epochs.leave(e), "leave");
}

static inline void scope_close(tslab_epoch e) {
  if (form != PLAIN)
    must(epochs.close(e, NULL), "close");
}

static inline void scope_destroy(tslab_epoch e) {
  if (form != PLAIN)
    must(epochs.destroy(e, NULL), "destroy");
}

/* Ends the epoch with its blocks; the plain form frees each. */
static inline void scope_end(tslab_epoch e, char *const *blocks, long n) {
  if (form == PLAIN)
    for (long i = 0; i < n; i++)
      free(blocks[i]);
  scope_destroy(e);
}

/* Resident bytes more than `before`, for each of `things`. */
static inline double bytes_each(uint64_t before, long things) {
  return ((double)lab_rss_now() - (double)before) / (double)things;
}

static inline double ns_each(uint64_t start, long things) {
  return (double)(cliffs_clock() - start) / (double)things;
}

#endif
