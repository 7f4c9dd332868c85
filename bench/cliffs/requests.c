/* Kinds of requests.
 *
 *   requests        `count` threads serve requests of `objects` blocks of 96 to 480 bytes, each ended by destroy
 *   beside-destroy  a thread serves requests of 1,000 blocks, ended by destroy, beside `count` threads that serve a
 *                   request of 5 blocks ten times a second
 *   beside-frees    the same, where each block is freed and the epoch closed
 *   longpoll        `count` epochs stay open that were opened among short ones of their label; then batches of 2,000
 *                   blocks come and go, and the process rests
 *   tide            `count` requests in flight, each of 200 blocks in 20 steps, some of which leave a block in the
 *                   sessions' epoch; then a hundredth of them go on, and then nothing does
 *
 * In the plain form a request frees its blocks at its end; a long epoch is a block that stays. */
#include "kinds.h"

enum { LEAST = 96, MOST = 480, MOST_OBJECTS = 10000, TEAM_MOST = 256 };
enum { FEW = 5, MANY = 1000, BATCH = 2000, SMALL = 100, LIGHT_MS = 100, SETTLE_MS = 150 };

/* ---- requests on many threads ---- */

static long of_a_thread;

static void serve(uint64_t *state) {
  char *blocks[MOST_OBJECTS];
  tslab_epoch e = scope_open("request");
  scope_enter(e);
  for (long i = 0; i < objects; i++)
    blocks[i] = take(LEAST + lab_below(state, MOST - LEAST + 1));
  scope_leave(e);
  scope_end(e, blocks, objects);
}

static void serve_many(unsigned index) {
  uint64_t state = lab_seed + index;
  for (long i = 0; i < of_a_thread / 10 + 1; i++)
    serve(&state);
  lab_team_begin();
  for (long i = 0; i < of_a_thread; i++)
    serve(&state);
  lab_team_end();
}

/* A request's share of the cores that its threads may use: flat where threads do not hinder each other. */
void run_requests(void) {
  use_form();
  if (count > TEAM_MOST || objects > MOST_OBJECTS)
    lab_fail("at most %d threads and %d objects", TEAM_MOST, MOST_OBJECTS);
  of_a_thread = operations / objects / count + 1;
  lab_team_result result = lab_team((unsigned)count, serve_many);
  double served = (double)(of_a_thread * count);
  double cores = count < (long)lab_cores() ? (double)count : (double)lab_cores();
  cliffs_figure("request_ns", result.wall_ns * cores / served);
  cliffs_figure("request_cpu_ns", result.cpu_ns / served);
}

/* ---- a thread with large requests beside many with small ones ---- */

static _Atomic bool stop;
static bool by_frees;

static void request_of(long n) {
  char *blocks[MANY];
  tslab_epoch e = scope_open("request");
  scope_enter(e);
  for (long i = 0; i < n; i++)
    blocks[i] = take((size_t)(by_frees ? 16 + i * 37 % 2000 : 200 + i % 200));
  if (!by_frees) {
    scope_leave(e);
    scope_end(e, blocks, n);
    return;
  }
  for (long i = 0; i < n; i++)
    free(blocks[i]);
  scope_leave(e);
  scope_close(e);
}

static void *serve_lightly(void *unused) {
  while (!stop) {
    request_of(FEW);
    cliffs_sleep(LIGHT_MS);
  }
  return unused;
}

static void large_requests(long n) {
  for (long i = 0; i < n; i++)
    request_of(MANY);
}

static void run_beside(bool frees) {
  use_form();
  by_frees = frees;
  pthread_t *light = lab_map((size_t)count * sizeof *light);
  for (long i = 0; i < count; i++)
    must(pthread_create(&light[i], NULL, serve_lightly, NULL), "pthread_create");
  cliffs_sleep(SETTLE_MS);
  cliffs_figure("request_ns", cliffs_ns(large_requests, operations / MANY));
  stop = true;
  for (long i = 0; i < count; i++)
    pthread_join(light[i], NULL);
}

void run_beside_destroy(void) { run_beside(false); }
void run_beside_frees(void) { run_beside(true); }

/* ---- epochs that stay open among short ones ---- */

static void batches(long n) {
  char *blocks[BATCH];
  for (long i = 0; i < n; i++) {
    tslab_epoch e = scope_open("batch");
    scope_enter(e);
    for (long k = 0; k < BATCH; k++)
      blocks[k] = take(SMALL);
    scope_leave(e);
    scope_end(e, blocks, BATCH);
  }
}

void run_longpoll(void) {
  use_form();
  for (long i = 0; i < count; i++) {
    tslab_epoch brief = scope_open("request");
    scope_enter(brief);
    free(take(SMALL));
    scope_leave(brief);
    scope_close(brief);
    tslab_epoch lasting = scope_open("request");
    scope_enter(lasting);
    take(SMALL);
    scope_leave(lasting);
  }
  cliffs_figure("batch_ns", cliffs_ns(batches, operations / BATCH));
  cliffs_sleep(idle_ms);
  cliffs_figure("rest_cpu_pct", cliffs_rest_cpu());
}

/* ---- the tide ---- */

enum { BLOCKS = 200, STEP_BLOCKS = 10, SESSIONS = 4000, SESSION = 256, RISES = 6, LOW_RISES = 50, LOW_SHARE = 100 };

typedef struct in_flight {
  char *blocks[BLOCKS];
  uint16_t sizes[BLOCKS];
  long held;
  tslab_epoch epoch;
} in_flight;

static in_flight *flights;
static char *sessions[SESSIONS];
static uint32_t session_at;
static tslab_epoch session_store;
static uint64_t tide_draws, live_bytes;

static void land(in_flight *r) {
  if (r->held == 0)
    return;
  for (long i = 0; i < r->held; i++)
    live_bytes -= r->sizes[i];
  scope_end(r->epoch, r->blocks, r->held);
  r->held = 0;
}

static void leave_a_session(void) {
  scope_enter(session_store);
  if (sessions[session_at])
    free(sessions[session_at]);
  else
    live_bytes += SESSION;
  sessions[session_at] = memset(take(SESSION), 1, SESSION);
  session_at = (session_at + 1) % SESSIONS;
  scope_leave(session_store);
}

/* The 21st step of a request ends it. */
static void advance(in_flight *r) {
  if (r->held == BLOCKS) {
    land(r);
    return;
  }
  if (r->held == 0)
    r->epoch = scope_open("request");
  scope_enter(r->epoch);
  for (int i = 0; i < STEP_BLOCKS; i++, r->held++) {
    uint32_t size = LEAST + lab_below(&tide_draws, MOST - LEAST + 1);
    r->blocks[r->held] = memset(take(size), 1, size);
    r->sizes[r->held] = (uint16_t)size;
    live_bytes += size;
  }
  scope_leave(r->epoch);
  if (r->held == BLOCKS / 2 && lab_below(&tide_draws, 2))
    leave_a_session();
}

/* Steps of requests drawn among the first `among`, each of which ends `rises` times or so. */
static long flow(long among, long rises) {
  long steps = among * rises * (BLOCKS / STEP_BLOCKS + 1);
  for (long i = 0; i < steps; i++)
    advance(&flights[lab_below(&tide_draws, (uint32_t)among)]);
  return steps;
}

void run_tide(void) {
  use_form();
  tide_draws = lab_seed;
  flights = lab_map((size_t)count * sizeof *flights);
  session_store = scope_open("session");
  uint64_t before = lab_rss_now(), start = cliffs_clock();
  long steps = flow(count, RISES), low = count / LOW_SHARE ? count / LOW_SHARE : 1;
  cliffs_figure("block_ns", ns_each(start, steps * STEP_BLOCKS));
  cliffs_figure("high_rss_bytes", bytes_each(before, count));
  cliffs_figure("high_live_bytes", (double)live_bytes / (double)count);
  for (long i = low; i < count; i++)
    land(&flights[i]);
  flow(low, LOW_RISES);
  cliffs_figure("low_over_live_bytes", bytes_each(before + live_bytes, count));
  cliffs_sleep(idle_ms);
  cliffs_figure("idle_over_live_bytes", bytes_each(before + live_bytes, count));
}
