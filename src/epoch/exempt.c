/* exempt: see exempt.h.                                                                              floor: epoch */
#include "epoch/exempt.h"

#include "heap/label.h"
#include "heap/tcache.h"

/* Returns the bytes that the thread's heap of epoch 0 has handed out until now. */
static uint64_t handed_out(const struct thread *thread) {
  const struct counters *counters = thread->plain->counters;
  uint64_t large = counters->large.is_own ? counters->large.allocated_bytes - counters->large_of_epochs : 0;
  return tcache_bytes(thread->plain) + large;
}

/* Returns the label of the nearest epoch around the innermost scope, or NULL if that scope is not exempt. */
static struct label *label_around(const struct thread *thread) {
  for (unsigned depth = thread->depth; depth-- > 0;) {
    const struct heap *heap = thread->scopes[depth].heap;
    if (heap) return &labels[heap->arena->label];
  }
  return NULL;
}

void exempt_begin(struct thread *thread, bool is_new) {
  struct label *label = label_around(thread);
  if (!label) return;
  if (is_new) shared_add(&label->exempt_scopes, 1);
  thread->exempt = label;
  thread->exempt_from = handed_out(thread);
}

void exempt_end(struct thread *thread) {
  uint64_t now = handed_out(thread);
  if (now > thread->exempt_from) shared_add(&thread->exempt->exempt_bytes, now - thread->exempt_from);
  thread->exempt = NULL;
}
