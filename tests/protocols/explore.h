/* explore: runs the shipped sources under a scheduler of its own, one schedule after the other.
 *
 * A scenario is two or three threads of a few calls each. Threads are contexts in one thread of the system, which takes
 * the baton from one to the next only at points: before an access that some other thread's conflicting access is not
 * ordered with. Every schedule starts from the same memory, which is restored.
 *
 * docs/protocols.md says what is explored, and what not. */
#ifndef TSLAB_TESTS_PROTOCOLS_EXPLORE_H
#define TSLAB_TESTS_PROTOCOLS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THREADS 3 /* at most; more are for nobody to wait for */

struct scenario {
  const char *name;
  void (*setup)(void);            /* by the main thread, once; may use identities */
  void (*run[THREADS])(void);     /* NULL: no such thread */
  void (*finish)(void);           /* the main thread checks, after all others, what holds under every schedule */
  unsigned bound;                 /* deviations that the short form explores all schedules of */
  bool spins;                     /* a thread that reads the same value again and again may keep its turn */
};

extern const struct scenario scenarios[]; /* ends with a name of NULL */

/* In a scenario. */
#define EXPECT(condition) \
  ((condition) ? (void)0 : explore_fail("%s:%d: does not hold: %s", __FILE__, __LINE__, #condition))
_Noreturn void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Setup and finish act as one of the threads; -1: as the main thread again. */
void explore_as(int thread);
void explore_thread_ends(void); /* the running thread calls this last, before it ends */

/* The program writes to a block, or reads it, as its own. */
void explore_write(void *at, size_t bytes, uint64_t pattern);
void explore_read(const void *at, size_t bytes, uint64_t pattern);

/* ---- for kernel.c, which stands for the kernel and for locks that wait ------------------------------------------- */
char *explore_arena(size_t bytes);              /* zeros, as the kernel gives them; never given back */
void explore_zero(void *at, size_t bytes);      /* erases the contents; others see a write */
void explore_wait(const void *word);            /* until it is written to */
void explore_sleep(const void *word);           /* until explore_wake */
void explore_wake(const void *word, int most);
void explore_yield(void);                       /* until another thread did something */
void explore_barrier(void);                     /* every thread's delayed stores are done */
uint64_t explore_clock(void);                   /* goes on with each look, for each thread on its own */
int explore_self(void);
extern char *kernel_shared;                     /* the segment */
extern bool kernel_has_barrier;                 /* membarrier */

/* The shipped lock.c, whose waiting kernel.c replaces but in the scenario that is about it. */
struct lock;
uint64_t shipped_lock_take_slow(struct lock *lock);
void shipped_lock_release_slow(struct lock *lock);

#endif
