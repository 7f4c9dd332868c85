/* remote: one operation is a malloc of 16 to 1,039 bytes and its free, `share` percent of them by another thread.
 *
 * Thread i hands blocks to thread i + 1 through a ring of its own (one writer, one reader, no lock, published in
 * batches of 64), and frees what arrives in its own. A block that stays is freed after 64 more have been allocated. A
 * full ring is waited for, while the waiter frees its own arrivals, so that the share is kept. Rows last `ms`
 * milliseconds after a quarter of that as warm-up. Resident memory is looked at every 20 ms, and again when all is
 * freed and the threads are gone. */
#include "lab.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { RING = 4096, BATCH = 64, WINDOW = 64, LEAST = 16, SPREAD = 0x3FF, MOST_THREADS = 64 };

static long threads = 2, share = 50, ms = 1000;

static const lab_option options[] = {
  { .name = "share", .help = "percent of the frees done by another thread", .number = &share, .least = 0 },
  { .name = "threads", .help = "threads", .number = &threads, .least = 2 },
  { .name = "ms", .help = "milliseconds that are timed", .number = &ms, .least = 10 },
  { .name = NULL },
};
static const lab_about workload = { "remote", "allocates here and frees there", options };

/* Writer and reader keep to lines of their own, and touch each other's once in BATCH blocks: so a row compares
 * allocators, not the passing of cache lines. `head` is released by the writer and acquired by the reader, `tail` the
 * other way round. */
typedef struct ring {
  _Alignas(128) _Atomic uint64_t head;
  uint64_t written, tail_seen;                      /* the writer's own */
  _Alignas(128) _Atomic uint64_t tail;              /* the reader's progress */
  _Alignas(128) char *slots[RING];
} ring;

static ring *inboxes;
static _Alignas(128) _Atomic unsigned running;       /* threads that may still send */
typedef struct tally { _Alignas(128) uint64_t allocated, remote_frees, local_frees, waits; } tally;
static tally tallies[MOST_THREADS];

static void publish(ring *to) { atomic_store_explicit(&to->head, to->written, memory_order_release); }

static bool send(ring *to, char *block) {
  if (to->written - to->tail_seen == RING) {
    publish(to);
    to->tail_seen = atomic_load_explicit(&to->tail, memory_order_acquire);
    if (to->written - to->tail_seen == RING)
      return false;
  }
  to->slots[to->written++ % RING] = block;
  if (to->written % BATCH == 0)
    publish(to);
  return true;
}

/* Frees all that has arrived; how many that were. */
static uint64_t receive(ring *mine) {
  uint64_t tail = atomic_load_explicit(&mine->tail, memory_order_relaxed), from = tail;
  uint64_t head = atomic_load_explicit(&mine->head, memory_order_acquire);
  for (; tail != head; tail++)
    free(mine->slots[tail % RING]);
  if (tail != from)
    atomic_store_explicit(&mine->tail, tail, memory_order_release);
  return tail - from;
}

static uint64_t receive_or_yield(ring *mine) {
  uint64_t freed = receive(mine);
  if (freed == 0)
    sched_yield();
  return freed;
}

static void one_batch(unsigned index, uint32_t *state, char **window, tally *t) {
  ring *mine = &inboxes[index], *next = &inboxes[(index + 1) % (unsigned)threads];
  for (unsigned i = 0; i < BATCH; i++) {
    uint32_t r = lab_xorshift32(state);
    char *block = malloc(LEAST + (r & SPREAD));
    if (!block)
      lab_fail("out of memory");
    *block = (char)r;
    t->allocated++;
    if ((r >> 12) % 100 < (uint32_t)share) {
      while (!send(next, block)) {
        t->waits++;
        t->remote_frees += receive_or_yield(mine);
      }
    } else {
      free(window[t->allocated % WINDOW]);
      window[t->allocated % WINDOW] = block;
      t->local_frees++;
    }
  }
  t->remote_frees += receive(mine);
}

static void work_for(unsigned index, uint32_t *state, char **window, tally *t, long milliseconds) {
  uint64_t end = lab_now_ns(CLOCK_MONOTONIC) + (uint64_t)milliseconds * 1000000u;
  do
    one_batch(index, state, window, t);
  while (lab_now_ns(CLOCK_MONOTONIC) < end);
}

static void work(unsigned index) {
  char *window[WINDOW] = { 0 };
  uint32_t state = lab_seed32(index);
  tally warm = { 0 };
  lab_litter(LEAST, LEAST + SPREAD);
  work_for(index, &state, window, &warm, ms / 4);
  /* A thread that still warms up may wait for room in this thread's ring; a barrier would not make any. */
  atomic_fetch_sub(&running, 1);
  while (atomic_load(&running) > 0)
    receive_or_yield(&inboxes[index]);
  lab_team_begin();
  work_for(index, &state, window, &tallies[index], ms);
  atomic_fetch_add(&running, 1);
  while (atomic_load(&running) < (unsigned)threads)
    tallies[index].remote_frees += receive_or_yield(&inboxes[index]);
  publish(&inboxes[(index + 1) % (unsigned)threads]);
  lab_team_end();                                   /* all have published: the rest is freed below */
  receive(&inboxes[index]);
  for (unsigned i = 0; i < WINDOW; i++)
    free(window[i]);
}

/* The live set of the measured part is a few rings full, so the proof holds blocks of its own. */
static void prove(void) {
  enum { HELD = 10000 };
  char **held = lab_map(HELD * sizeof *held);
  for (unsigned i = 0; i < HELD; i++)
    held[i] = malloc(LEAST + SPREAD / 2);
  lab_proof_live(HELD * (uint64_t)(LEAST + SPREAD / 2));
  for (unsigned i = 0; i < HELD; i++)
    free(held[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (threads > MOST_THREADS || share > 100)
    lab_fail("at most %d threads and 100 percent", MOST_THREADS);
  inboxes = lab_map((size_t)threads * sizeof *inboxes);
  atomic_store(&running, (unsigned)threads);
  uint64_t base = lab_rss_now();
  const double *looks;
  lab_observe(20);
  lab_team_result r = lab_team((unsigned)threads, work);
  size_t count = lab_observe_end(&looks);
  uint64_t after = lab_rss_now(), allocated = 0, remote = 0, freed = 0, waits = 0;
  for (long i = 0; i < threads; i++) {
    allocated += tallies[i].allocated;
    remote += tallies[i].remote_frees;
    freed += tallies[i].remote_frees + tallies[i].local_frees;
    waits += tallies[i].waits;
  }
  double *sorted = lab_map(count * sizeof *sorted);
  for (size_t i = 0; i < count; i++)
    sorted[i] = looks[i];
  lab_calls = allocated;
  lab_row(NULL);
  prove(); /* after the memory figures of the row are taken */
  lab_metric("ops_per_s", (double)allocated / r.wall_ns * 1e9);
  lab_metric("cpu_per_op_ns", r.cpu_ns / (double)allocated);
  lab_metric("remote_frees_pct", 100 * (double)remote / (double)freed);
  lab_metric("full_ring_waits_count", (double)waits);
  lab_metric("during_rss_bytes", lab_median(sorted, count) - (double)base);
  lab_metric("after_rss_bytes", (double)after - (double)base);
  lab_series("rss_bytes", looks, count);
  return lab_finish();
}
