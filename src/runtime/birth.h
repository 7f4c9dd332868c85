/* birth: gives a thread its heap, and ends it.                                                      floor: runtime */
#ifndef TSLAB_RUNTIME_BIRTH_H
#define TSLAB_RUNTIME_BIRTH_H

#include "heap/heap.h"

/* The state of this thread's heap; and how many blocks of other threads it freed before it had a heap. */
enum {
  HEAP_IS_KEPT, /* until the key's destructor, or the thread has no heap yet */
  HEAP_ENDED,   /* the destructor ran: a call that needs a heap gets one until it returns */
  HEAP_REVIVED, /* later a call of epochs got one, which stays until the thread is in no scope */
};
extern HIDDEN __thread uint8_t thread_heap_state __attribute__((tls_model("initial-exec")));
extern HIDDEN __thread uint8_t thread_frees_unborn __attribute__((tls_model("initial-exec")));

/* Makes the pthread key whose destructor ends a thread's heap, at the first call. Called after process_start. */
HIDDEN void birth_make_key(void (*thread_dies)(void *heap));
HIDDEN struct heap *birth_give_heap(void); /* gives this thread, which has none, a heap; NULL without memory */
HIDDEN void birth_end_heap(struct heap *heap); /* ends this thread's heap */
HIDDEN void birth_drop_key(void); /* the caller ends this thread's heap before the thread ends */
/* Without a key no destructor would end a heap, and the scavenger would never end either. So then a heap lives only for
 * a call. */
HIDDEN void birth_expect_no_end(void);

/* Returns true while this thread gets its heap. A free may have caused that, under a lock of libc's. */
HIDDEN bool birth_is_under_way(void);
HIDDEN bool birth_heap_will_end(void); /* this thread has a heap that a destructor will end */

/* Returns true if the program is known to have had a thread beside its first: it made one by pthread_create, or two
 * threads had heaps at a time, the scavenger's not counted. Only the shared library hears of pthread_create, which it
 * says by birth_expect_notes. In a static program birth_may_have_had_threads returns true always. */
HIDDEN bool birth_had_threads(void);
HIDDEN bool birth_may_have_had_threads(void);
HIDDEN void birth_expect_notes(void);
HIDDEN void birth_note_thread(void);

HIDDEN void birth_keep_no_heap(void); /* called by the scavenger: from now on its heaps live only for a call */

#endif
