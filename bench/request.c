/* request: one operation is a request - `objects` blocks of 96 to 480 bytes, each written, then all freed in order.
 *
 * Behind the requests lives a store of 4,000 sessions of 256 bytes, shared out among the threads; with a chance of
 * `churn` percent a request replaces one. A first pass measures throughput, a second one times each request. Each pass
 * warms up with a tenth of its requests.
 *
 * The mode says where the blocks of a request lie and how they end; sessions are always plain malloc's, and sizes,
 * writes and random draws are the same in all of them:
 *   malloc    plain malloc and free
 *   frees     an epoch per request: open, enter, blocks, a free for each, leave, close
 *   destroy   the same, but destroy in place of the frees and the close
 *   reset     each thread enters one epoch for good and resets it after each request
 *   batch     an epoch per 1,000 requests of a thread, entered for each, with frees, closed after the last
 *   mi-heap   mimalloc's heap per request, destroyed after it */
#include "epoch_calls.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEAST = 96, MOST = 480, SESSION = 256, MOST_OBJECTS = 10000, BATCH_LENGTH = 1000 };
enum { MALLOC, FREES, DESTROY, RESET, BATCH, MI_HEAP, MODES };

static const char *const modes[MODES] = { "malloc", "frees", "destroy", "reset", "batch", "mi-heap" };
static const char *mode_name = "malloc";
static int mode;
static long objects = 20, threads = 1, requests = 200000, sessions = 4000;
static double churn = 2;

static const lab_option options[] = {
  { .name = "mode", .help = "of a request's blocks", .text = &mode_name,
    .choices = "malloc|frees|destroy|reset|batch|mi-heap" },
  { .name = "objects", .help = "blocks of a request", .number = &objects, .least = 1 },
  { .name = "threads", .help = "threads", .number = &threads, .least = 1 },
  { .name = "requests", .help = "timed requests per thread", .number = &requests, .least = 10 },
  { .name = "sessions", .help = "sessions of all threads together", .number = &sessions, .least = 1 },
  { .name = "churn", .help = "percent of requests that replace a session", .real = &churn },
  { .name = NULL },
};
static const lab_about workload = { "request", "serves requests that allocate, write and free their objects", options };

static bool timed;
static lab_histogram *latencies[256];

static char *written(char *block, size_t size) {
  if (!block)
    lab_fail("out of memory");
  block[0] = 1;
  block[size - 1] = 1;
  return block;
}

static char *fresh(size_t size) { return written(malloc(size), size); }

/* One thread's share. `epoch` is the one that the thread is in or will enter next, 0 when it has to be opened. */
typedef struct lane {
  char **session;
  uint32_t count;
  uint64_t state;
  tslab_epoch epoch;
  long served;
} lane;

static void replace_session(lane *l) {
  uint32_t which = lab_below(&l->state, l->count);
  if (mode == RESET)
    must(epochs.enter(TSLAB_EPOCH_DEFAULT), "enter(0)");
  free(l->session[which]);
  l->session[which] = fresh(SESSION);
  if (mode == RESET)
    must(epochs.leave(TSLAB_EPOCH_DEFAULT), "leave(0)");
}

static tslab_epoch open_epoch(void) {
  if (mode == FREES || mode == BATCH)
    return opened(epochs.open("request"));
  static const tslab_epoch_options destroyable = { .struct_size = sizeof destroyable, .label = "request",
                                                   .flags = TSLAB_EPOCH_DESTROYABLE };
  return opened(epochs.open_with(&destroyable));
}

static void begin(lane *l) {
  if (mode == MALLOC || mode == RESET)
    return;
  if (!l->epoch)
    l->epoch = open_epoch();
  must(epochs.enter(l->epoch), "enter");
}

static void end(lane *l) {
  if (mode == MALLOC)
    return;
  if (mode == RESET) {
    must(epochs.reset(l->epoch, NULL), "reset");
    return;
  }
  must(epochs.leave(l->epoch), "leave");
  if (mode == BATCH && ++l->served % BATCH_LENGTH != 0)
    return;
  if (mode == DESTROY)
    must(epochs.destroy(l->epoch, NULL), "destroy");
  else
    must(epochs.close(l->epoch, NULL), "close");
  l->epoch = 0;
}

static void serve_in_heap(lane *l, char **held) {
  void *heap = heaps.create();
  if (!heap)
    lab_fail("mi_heap_new: out of memory");
  for (long i = 0; i < objects; i++) {
    size_t size = LEAST + lab_below(&l->state, MOST - LEAST + 1);
    held[i] = written(heaps.malloc(heap, size), size);
  }
  heaps.destroy(heap);
}

static void serve(lane *l) {
  char *held[MOST_OBJECTS];
  if (lab_below(&l->state, 1000000) < churn * 10000)
    replace_session(l);
  if (mode == MI_HEAP) {
    serve_in_heap(l, held);
    return;
  }
  begin(l);
  for (long i = 0; i < objects; i++)
    held[i] = fresh(LEAST + lab_below(&l->state, MOST - LEAST + 1));
  if (mode != DESTROY && mode != RESET)
    for (long i = 0; i < objects; i++)
      free(held[i]);
  end(l);
}

/* In mode `reset` the thread enters its epoch only now: the blocks that it allocated before must live on. */
static void settle_in(lane *l) {
  if (mode != RESET)
    return;
  l->epoch = open_epoch();
  must(epochs.enter(l->epoch), "enter");
}

static void move_out(lane *l) {
  if (!l->epoch)
    return;
  if (mode == RESET)
    must(epochs.leave(l->epoch), "leave");
  must(epochs.close(l->epoch, NULL), "close");
}

static void work(unsigned index) {
  uint32_t count = (uint32_t)(sessions / threads ? sessions / threads : 1);
  lane l = { .session = lab_map(count * sizeof *l.session), .count = count, .state = lab_seed + index };
  uint64_t cost = lab_timer_cost();
  lab_litter(LEAST, MOST);
  for (uint32_t i = 0; i < count; i++)
    l.session[i] = fresh(SESSION);
  settle_in(&l);
  for (long i = 0; i < requests / 10; i++)
    serve(&l);
  lab_team_begin();
  for (long i = 0; i < requests; i++) {
    if (!timed) {
      serve(&l);
    } else {
      uint64_t start = lab_ticks_begin();
      serve(&l);
      lab_record(latencies[index], lab_ticks_between(start, lab_ticks_end(), cost));
    }
  }
  lab_team_end();
  move_out(&l);
  if (index == 0)
    lab_proof_live((uint64_t)count * SESSION);
  for (uint32_t i = 0; i < count; i++)
    free(l.session[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (objects > MOST_OBJECTS || threads > 256)
    lab_fail("at most %d objects and 256 threads", MOST_OBJECTS);
  while (strcmp(modes[mode], mode_name) != 0)
    mode++;
  char wanted[32];
  snprintf(wanted, sizeof wanted, "--mode=%s", mode_name);
  if (mode == MI_HEAP)
    bind_heaps(wanted);
  else if (mode != MALLOC)
    bind_epochs(wanted);
  for (long i = 0; i < threads; i++)
    latencies[i] = lab_map(sizeof **latencies);
  lab_team_result r = lab_team((unsigned)threads, work);
  timed = true;
  lab_team((unsigned)threads, work);
  for (long i = 1; i < threads; i++)
    lab_merge(latencies[0], latencies[i]);
  lab_calls = (uint64_t)(requests * threads * objects * 2);
  lab_row(NULL);
  lab_metric("requests_per_s", (double)(requests * threads) / r.wall_ns * 1e9);
  lab_metric("cpu_per_request_ns", r.cpu_ns / (double)(requests * threads));
  lab_metric_latency("request", latencies[0]);
  return lab_finish();
}
