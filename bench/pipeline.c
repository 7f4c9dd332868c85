/* pipeline: one operation is a malloc by a producer and the free of that block by a consumer.
 *
 * A producer fills a batch of `batch` blocks of `size` bytes, writes the first `written` bytes of each, and hands the
 * batch to the consumers through one bounded queue. A consumer takes a batch, frees its blocks in order, and returns
 * the empty batch through a second queue. `depth` batches exist for each producer, so a producer waits when all are
 * full or under way, and a consumer waits when none is full; a waiting thread sleeps. Consumers allocate nothing.
 *
 * `batches` batches of all producers together are timed, from a barrier to the end of the last thread, after a quarter
 * as many for warm-up. The time between a block's malloc and its free grows with `depth`: 1 keeps a batch in the
 * processor's caches, 100 does not. */
#include "lab.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 64 };

static long producers = 2, consumers = 2, size = 64, batch = 4096, depth = 4, batches = 8000, written = 8;

static const lab_option options[] = {
  { .name = "producers", .help = "threads that allocate", .number = &producers, .least = 1 },
  { .name = "consumers", .help = "threads that free", .number = &consumers, .least = 1 },
  { .name = "size", .help = "bytes of a block", .number = &size, .least = 1 },
  { .name = "batch", .help = "blocks handed over at a time", .number = &batch, .least = 1 },
  { .name = "depth", .help = "batches that exist, for each producer", .number = &depth, .least = 1 },
  { .name = "written", .help = "bytes of a block that its producer writes", .number = &written, .least = 0 },
  { .name = "batches", .help = "batches that are timed, of all producers together", .number = &batches, .least = 4 },
  { .name = NULL },
};
static const lab_about workload = { "pipeline", "allocates in one thread and frees in another", options };

/* Batches wait in a ring that has room for all of them, so only a taker waits. */
typedef struct queue {
  _Alignas(128) pthread_mutex_t mutex;
  pthread_cond_t filled;
  size_t first, count, room;
  char ***batches;
} queue;
static queue full, empty;

/* Batches of the current phase that some thread has promised to fill, and to free. */
static _Alignas(128) _Atomic long to_fill;
static _Alignas(128) _Atomic long to_free;

static void queue_start(queue *q, size_t room) {
  pthread_mutex_init(&q->mutex, NULL);
  pthread_cond_init(&q->filled, NULL);
  q->room = room;
  q->batches = lab_map(room * sizeof *q->batches);
}

static void put(queue *q, char **blocks) {
  pthread_mutex_lock(&q->mutex);
  q->batches[(q->first + q->count++) % q->room] = blocks;
  pthread_mutex_unlock(&q->mutex);
  pthread_cond_signal(&q->filled);
}

static char **take(queue *q) {
  pthread_mutex_lock(&q->mutex);
  while (q->count == 0)
    pthread_cond_wait(&q->filled, &q->mutex);
  char **blocks = q->batches[q->first];
  q->first = (q->first + 1) % q->room;
  q->count--;
  pthread_mutex_unlock(&q->mutex);
  return blocks;
}

static void fill(char **blocks) {
  for (long i = 0; i < batch; i++) {
    char *block = malloc((size_t)size);
    if (!block)
      lab_fail("out of memory");
    memset(block, (int)i, (size_t)written);
    blocks[i] = block;
  }
}

static void produce(void) {
  while (atomic_fetch_sub(&to_fill, 1) > 0) {
    char **blocks = take(&empty);
    fill(blocks);
    put(&full, blocks);
  }
}

static void consume(void) {
  while (atomic_fetch_sub(&to_free, 1) > 0) {
    char **blocks = take(&full);
    for (long i = 0; i < batch; i++)
      free(blocks[i]);
    put(&empty, blocks);
  }
}

static pthread_barrier_t warm;

/* The last thread to have warmed up prepares the phase that is timed. */
static void work(unsigned index) {
  bool produces = index < (unsigned)producers;
  if (produces)
    lab_litter((size_t)size, (size_t)size);
  if (produces)
    produce();
  else
    consume();
  if (pthread_barrier_wait(&warm) == PTHREAD_BARRIER_SERIAL_THREAD) {
    atomic_store(&to_fill, batches);
    atomic_store(&to_free, batches);
  }
  lab_team_begin();
  if (produces)
    produce();
  else
    consume();
  lab_team_end();
}

/* Nothing is live when the threads are gone, so the proof holds blocks of its own. */
static void prove(void) {
  enum { HELD = 10000 };
  char **held = lab_map(HELD * sizeof *held);
  for (unsigned i = 0; i < HELD; i++)
    held[i] = malloc((size_t)size);
  lab_proof_live(HELD * (uint64_t)size);
  for (unsigned i = 0; i < HELD; i++)
    free(held[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (producers > MOST_THREADS || consumers > MOST_THREADS)
    lab_fail("at most %d producers and %d consumers", MOST_THREADS, MOST_THREADS);
  if (written > size)
    lab_fail("a block of %ld bytes has no %ld to write", size, written);
  size_t exist = (size_t)(producers * depth);
  queue_start(&full, exist);
  queue_start(&empty, exist);
  for (size_t i = 0; i < exist; i++)
    put(&empty, lab_map((size_t)batch * sizeof(char *)));
  pthread_barrier_init(&warm, NULL, (unsigned)(producers + consumers));
  atomic_store(&to_fill, batches / 4);
  atomic_store(&to_free, batches / 4);
  const double *looks;
  uint64_t base = lab_rss_now();
  lab_observe(20);
  lab_team_result r = lab_team((unsigned)(producers + consumers), work);
  size_t count = lab_observe_end(&looks);
  double *sorted = lab_map(count * sizeof *sorted);
  memcpy(sorted, looks, count * sizeof *sorted);
  uint64_t after = lab_rss_now();
  double freed = (double)batches * (double)batch;
  lab_calls = (uint64_t)freed;
  lab_row(NULL);
  prove(); /* after the memory figures of the row are taken */
  lab_metric("frees_per_s", freed / r.wall_ns * 1e9);
  lab_metric("cpu_per_free_ns", r.cpu_ns / freed);
  lab_metric("during_rss_bytes", lab_median(sorted, count) - (double)base);
  lab_metric("after_rss_bytes", (double)after - (double)base);
  lab_series("rss_bytes", looks, count);
  return lab_finish();
}
