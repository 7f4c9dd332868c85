/* birth: a thread gets its heap, and gives it up.                                                   floor: runtime */
#ifndef TSLAB_RUNTIME_BIRTH_H
#define TSLAB_RUNTIME_BIRTH_H

#include "heap/heap.h"

/* The state of this thread's heap; and how many blocks of others the thread freed before it had a heap. */
enum {
  HEAP_IS_KEPT, /* until the key's destructor; or there is none yet */
  HEAP_ENDED,   /* the destructor ran: a call that needs a heap has one for its time */
  HEAP_REVIVED, /* a call of epochs came later: the heap is kept until the thread is in no scope */
};
extern HIDDEN __thread uint8_t thread_heap_state __attribute__((tls_model("initial-exec")));
extern HIDDEN __thread uint8_t thread_frees_unborn __attribute__((tls_model("initial-exec")));

/* Makes the pthread key whose destructor is the thread's death. Again: nothing. After process_start. */
HIDDEN void birth_make_key(void (*thread_dies)(void *heap));
HIDDEN struct heap *birth_give_heap(void); /* to this thread, which has none; NULL without memory */
HIDDEN void birth_end_heap(struct heap *heap); /* of this thread */
HIDDEN void birth_drop_key(void); /* this thread's heap ends before the thread does */
/* Without a key a heap would stay for ever, and so would the scavenger: from now on it ends with the call. */
HIDDEN void birth_expect_no_end(void);

/* Returns true while this thread's birth is under way. A free may have caused it, under a lock of libc's. */
HIDDEN bool birth_is_under_way(void);
HIDDEN bool birth_heap_will_end(void); /* this thread has a heap, which a destructor will end */

/* Returns true if the program is known to have had a thread beside its first: it made one by pthread_create, or two
 * threads had heaps at a time, the scavenger's not counted. Only the shared library hears of pthread_create, which it
 * says by birth_expect_notes. In a static program birth_may_have_had_threads returns true always. */
HIDDEN bool birth_had_threads(void);
HIDDEN bool birth_may_have_had_threads(void);
HIDDEN void birth_expect_notes(void);
HIDDEN void birth_note_thread(void);

HIDDEN void birth_keep_no_heap(void); /* by the scavenger's thread: what it allocates from now on ends with the call */

#endif
