/* epoch_calls: the functions of epochs that workloads call, found in the preloaded library; mimalloc's heaps beside
 * them.
 *
 * Calls go through a pointer that is loaded once, which costs what a call through the linkage table does. A workload
 * binds what its options need after lab_start, so that it also runs under allocators that have none of it. */
#ifndef EPOCH_CALLS_H
#define EPOCH_CALLS_H

#include "lab.h"

#include <errno.h>
#include <string.h>
#include <tslab/tslab.h>

static struct {
  __typeof__(&tslab_epoch_open) open;
  __typeof__(&tslab_epoch_open_with) open_with;
  __typeof__(&tslab_epoch_enter) enter;
  __typeof__(&tslab_epoch_leave) leave;
  __typeof__(&tslab_epoch_malloc) malloc;
  __typeof__(&tslab_epoch_close) close;
  __typeof__(&tslab_epoch_close_step) close_step;
  __typeof__(&tslab_epoch_destroy) destroy;
  __typeof__(&tslab_epoch_reset) reset;
  __typeof__(&tslab_epoch_each) each;
} epochs;

static struct {
  void *(*create)(void);
  void *(*malloc)(void *heap, size_t size);
  void (*destroy)(void *heap);
} heaps;

static inline void bind_epochs(const char *what) {
  lab_bind(what, (const lab_binding[]){ { "tslab_epoch_open", &epochs.open },
                                        { "tslab_epoch_open_with", &epochs.open_with },
                                        { "tslab_epoch_enter", &epochs.enter },
                                        { "tslab_epoch_leave", &epochs.leave },
                                        { "tslab_epoch_malloc", &epochs.malloc },
                                        { "tslab_epoch_close", &epochs.close },
                                        { "tslab_epoch_close_step", &epochs.close_step },
                                        { "tslab_epoch_destroy", &epochs.destroy },
                                        { "tslab_epoch_reset", &epochs.reset },
                                        { "tslab_epoch_each", &epochs.each },
                                        { NULL, NULL } });
}

static inline void bind_heaps(const char *what) {
  lab_bind(what, (const lab_binding[]){ { "mi_heap_new", &heaps.create },
                                        { "mi_heap_malloc", &heaps.malloc },
                                        { "mi_heap_destroy", &heaps.destroy },
                                        { NULL, NULL } });
}

/* Every call is checked: a figure of calls that fail would be a good one. */
static inline void must(int error, const char *call) {
  if (__builtin_expect(error != 0, 0))
    lab_fail("%s: %s", call, strerror(error));
}

static inline tslab_epoch opened(tslab_epoch epoch) {
  if (__builtin_expect(epoch == 0, 0))
    lab_fail("opening an epoch: %s", strerror(errno));
  return epoch;
}

#endif
