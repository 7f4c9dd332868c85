/* request: one operation is a request - `objects` blocks of 96 to 480 bytes, each written, then all freed in order.
 *
 * Behind the requests lives a store of 4,000 sessions of 256 bytes, shared out among the threads; with a chance of
 * `churn` percent a request replaces one. A first pass measures throughput, a second one times each request. Each
 * pass warms up with a tenth of its requests. */
#include "lab.h"

#include <stdlib.h>

enum { LEAST = 96, MOST = 480, SESSION = 256, MOST_OBJECTS = 10000 };

static long objects = 20, threads = 1, requests = 200000, sessions = 4000;
static double churn = 2;

static const lab_option options[] = {
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

static char *fresh(size_t size) {
  char *block = malloc(size);
  if (!block)
    lab_fail("out of memory");
  block[0] = 1;
  block[size - 1] = 1;
  return block;
}

static void serve(char **session, uint32_t count, uint64_t *state) {
  char *held[MOST_OBJECTS];
  if (lab_below(state, 1000000) < churn * 10000) {
    uint32_t which = lab_below(state, count);
    free(session[which]);
    session[which] = fresh(SESSION);
  }
  for (long i = 0; i < objects; i++)
    held[i] = fresh(LEAST + lab_below(state, MOST - LEAST + 1));
  for (long i = 0; i < objects; i++)
    free(held[i]);
}

static void work(unsigned index) {
  uint32_t count = (uint32_t)(sessions / threads ? sessions / threads : 1);
  char **session = lab_map(count * sizeof *session);
  uint64_t state = lab_seed + index, cost = lab_timer_cost();
  lab_litter(LEAST, MOST);
  for (uint32_t i = 0; i < count; i++)
    session[i] = fresh(SESSION);
  for (long i = 0; i < requests / 10; i++)
    serve(session, count, &state);
  lab_team_begin();
  for (long i = 0; i < requests; i++) {
    if (!timed) {
      serve(session, count, &state);
    } else {
      uint64_t begin = lab_ticks_begin();
      serve(session, count, &state);
      lab_record(latencies[index], lab_ticks_between(begin, lab_ticks_end(), cost));
    }
  }
  lab_team_end();
  if (index == 0)
    lab_proof_live((uint64_t)count * SESSION);
  for (uint32_t i = 0; i < count; i++)
    free(session[i]);
}

int main(int argc, char **argv) {
  lab_start(argc, argv, &workload);
  if (objects > MOST_OBJECTS || threads > 256)
    lab_fail("at most %d objects and 256 threads", MOST_OBJECTS);
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
